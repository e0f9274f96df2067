"""Steps that a worker makes alone, between two exchanges."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from ..errors import TrainingError
from ..loss_curve import Iteration
from ..mode import Replicas
from ..processes import ComputePhase, Wakeup
from ..samples import Rows
from ..workload import Floats

LONGEST_PERIOD: Final = 1_000_000
"""Most local steps between two exchanges."""
LARGEST_STEP: Final = 1e30
"""Largest outer learning rate; squares of larger ones are beyond float32."""


def check_period(period: int) -> None:
    """Check a number of local steps between two exchanges. Raises TrainingError."""
    if not 1 <= period <= LONGEST_PERIOD:
        raise TrainingError(
            f"period {period} is out of range; allowed: 1 to {LONGEST_PERIOD} local steps", value=period
        )


class LocalSteps:
    """One worker's optimiser and order of samples."""

    def __init__(self, job: Replicas, rank: int) -> None:
        """Begin at the first sample."""
        self._job = job
        self._rank = rank
        self._samples = job.samples(rank)
        self._optimiser = job.optimiser()
        self._step = 0
        self.size = job.plan.equal_sizes()[rank]
        """Samples of a step."""

    def rows(self) -> Rows:
        """Return the rows of the next step."""
        self._step += 1
        return self._samples.rows((self._step - 1) * self.size, self.size)

    def apply(self, weights: Floats, gradient: Floats) -> Floats:
        """Return the weights after a step of the worker's optimiser."""
        return self._optimiser.step(weights, gradient)

    def run(self, count: int, iteration: Iteration) -> Generator[ComputePhase, Wakeup, None]:
        """Make so many steps, which change the worker's weights; `iteration` gets the time when they are computed."""
        job, rank = self._job, self._rank
        for _ in range(count):
            rows, weights = self.rows(), job.weights[rank]
            gradient, iteration.computed_ns = yield job.computing(rank, self._step - 1, weights, rows)
            job.weights[rank] = self.apply(weights, gradient)
