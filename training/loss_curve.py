"""LossCurve of a training job: every worker's iterations, and the loss over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(slots=True)
class Iteration:
    """One worker's way from weights to weights. Instants are -1 until they have come."""

    worker: int
    clock: int
    """The worker's iterations before this one."""
    samples: int
    began_ns: int
    computed_ns: int = -1
    """When its gradient was there; −1: it is not yet."""
    taken_ns: int = -1
    """The server has taken the update, or all workers' sum is there."""
    given_ns: int = -1
    """The rule lets the worker go on."""
    ended_ns: int = -1
    """It has the weights for the next one."""


@dataclass(frozen=True, slots=True)
class LossPoint:
    """The loss at an instant."""

    time_ns: int
    updates: int
    """Changes of the weights that others see, until then."""
    samples: int
    """Samples behind them."""
    loss: float
    disagreement: float = 0.0
    """Mean over workers of the squared distance between their weights and the mean of all; 0 if all have the same."""


@dataclass(slots=True)
class LossCurve:
    """Filled while a job trains."""

    loss_of: Callable[[Floats], float]
    """The loss of weights, on data that is not trained with."""
    every: int = 1
    """Updates between two looks at the loss."""
    iterations: list[Iteration] = field(default_factory=list)
    losses: list[LossPoint] = field(default_factory=list)
    updates: int = 0
    samples: int = 0
    dropped: int = 0
    """Updates that came too late for their step."""
    current: dict[int, Iteration] = field(default_factory=dict)
    """Each worker's last iteration."""

    def begin(self, worker: int, clock: int, samples: int, now_ns: int) -> Iteration:
        """Note that a worker begins an iteration.

        Args:
            worker: Rank of the worker.
            clock: Number of iterations that it has completed.
            samples: Number of samples of the iteration.
            now_ns: Time in ns.

        Returns:
            The iteration, whose times the caller fills in.
        """
        iteration = self.current[worker] = Iteration(worker, clock, samples, now_ns)
        self.iterations.append(iteration)
        return iteration

    def updated(self, weights: Floats, samples: int, now_ns: int) -> None:
        """Record a change of the weights that others see, by this many samples' gradients."""
        if self._counted(samples):
            self.losses.append(LossPoint(now_ns, self.updates, self.samples, self.loss_of(weights)))

    def diverged(self, replicas: Sequence[Floats], samples: int, now_ns: int) -> None:
        """Record a change of one of several replicas; the loss is that of their mean."""
        if self._counted(samples):
            stacked = np.stack(replicas)
            mean = stacked.mean(axis=0)
            apart = float(np.square(stacked - mean).sum(axis=1).mean())
            self.losses.append(LossPoint(now_ns, self.updates, self.samples, self.loss_of(mean), apart))

    def _counted(self, samples: int) -> bool:
        """Count an update; True if the loss is to be taken now."""
        self.updates += 1
        self.samples += samples
        return self.updates % self.every == 0

    def reached_ns(self, loss: float) -> int | None:
        """Return the time in ns at which the loss first was this or less; None: never."""
        return next((point.time_ns for point in self.losses if point.loss <= loss), None)

    def idle_share(self) -> float:
        """Share of the workers' time in which they did not compute but waited for others or for the network, 0…1."""
        whole = [iteration for iteration in self.iterations if iteration.ended_ns >= 0]
        spent = busy = 0
        for worker in {iteration.worker for iteration in whole}:
            own = [iteration for iteration in whole if iteration.worker == worker]
            spent += own[-1].ended_ns - own[0].began_ns
            busy += sum(iteration.computed_ns - iteration.began_ns for iteration in own)
        return 1 - busy / spent if spent else 0.0
