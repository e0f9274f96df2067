"""Times to a loss with balanced batches, and predictors of speeds: the comparison of LB-BSP's paper, without packets.

A call of a job takes `LATENCY_NS` and its bytes at `RATE_BPS` after the last of its workers has made it: calls do not
share links. A request for batch sizes takes the run file's `control.latency` each way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ...controller.service.batch_sizes import JobBatchSizes
from ...hosts.collectives.leader_query import PendingAnswer
from ...training import Machine, Mode, Processes, TrainingPlan, make_mode
from ...training.batching.analytic import equal_shares, proportional_shares
from ...training.batching.manager import RuleName
from ...training.batching.predictor import Predictor
from ...training.batching.predictors import PREDICTORS
from ...training.batching.recurrent import Recurrent
from ...training.ideal import IdealClock, IdealJob, run
from ...training.machines import jitter, stepping
from ...wire.control_messages import balance_request
from ..backends.batch_sizes import size_rule
from .measures import TIME_TO_LOSS
from .paper import Paper, Quantity, Sample

if TYPE_CHECKING:
    from ..config import RunConfig

LATENCY_NS: Final = 150_000
RATE_BPS: Final = 1_000_000_000

ERROR: Final = Quantity("error of the predicted speed, root of the mean square", "% of the mean speed")
STEP: Final = Quantity("mean time of a step with these predictions", "ms")
ORACLE: Final = "oracle"
"""Predictor that knows the speed of the step to come."""
_READING_LSTM: Final = "lstm-reads"
"""LSTM that also has the machine's readings."""
_STEPS: Final = 600
_WARM_UP: Final = 150
"""First steps, which do not count: all predictors have begun to predict."""
_BATCH: Final = 512


def named(mode: Mode, modes: Sequence[Mode]) -> str:
    """Return a mode's name among those of a run file: with its changed options if another one has the same name."""
    if sum(other.name == mode.name for other in modes) == 1:
        return mode.name
    usual = make_mode(mode.name).options
    changed = [f"{name}={value}" for name, value in mode.options.items() if value != usual[name]]
    return " ".join([mode.name, *changed])


@dataclass(frozen=True, slots=True)
class _Answer:
    """Batch sizes that are at the workers from an instant on."""

    clock: IdealClock
    due_ns: int
    sizes: list[int]

    def done(self) -> bool:
        return self.clock.now_ns >= self.due_ns

    def wait(self, timeout_s: float, /) -> list[int]:
        return self.sizes


@dataclass(slots=True)
class _ControllersSizes:
    """The controller's rules, with request and answer that take a latency each."""

    clock: IdealClock
    plan: TrainingPlan
    latency_ns: int
    _sizes: JobBatchSizes = field(default_factory=lambda: JobBatchSizes(size_rule))
    _last: _Answer | None = None

    @property
    def deadline_ns(self) -> int | None:
        """Instant of the next answer; None: none is under way."""
        return self._last.due_ns if self._last is not None and not self._last.done() else None

    def request(
        self, reports: NDArray[np.float64], present: NDArray[np.bool_], *, rule: RuleName, size_step: int
    ) -> PendingAnswer:
        request = balance_request(0, self.plan.batch, rule, reports, present, size_step=size_step)
        sizes = self._sizes.decide(request, self.plan.workers, frozenset(range(self.plan.workers)))
        self._last = _Answer(self.clock, self.clock.now_ns + 2 * self.latency_ns, sizes)
        return self._last


def reached_ns(config: RunConfig, mode: Mode) -> int | None:
    """Train without packets; return the time to the run's target loss in ns, None if its limit came first."""
    from ..synchronised import prepared, synchronisation_of

    asked, workers, clock = synchronisation_of(config), len(config.job.workers), IdealClock()
    _, plan, curve, _, job = prepared(config, mode)
    sizes = _ControllersSizes(clock, plan, config.control.latency)

    def carried_ns(size: int) -> int:
        return LATENCY_NS + round(8e9 * size / RATE_BPS)

    if mode.summed:
        jobs = [IdealJob(clock, workers, carried_ns)]
        processes = job.summed(jobs[0].communicators, sizes)
    else:
        jobs = [IdealJob(clock, 2, carried_ns) for _ in range(workers)]
        processes = job.served([(pair.communicators[0], pair.communicators[1]) for pair in jobs])

    def done() -> bool:
        return clock.now_ns >= asked.limit or bool(curve.losses and curve.losses[-1].loss <= asked.target)

    run(Processes(processes, job.cost_ns), clock, [*jobs, sizes], done)
    reached = curve.reached_ns(asked.target)
    return None if reached is None or reached > asked.limit else reached


def balanced_times_to_loss(paper: Paper) -> Iterator[Sample]:
    """Measure `TIME_TO_LOSS` of the modes of the run files, whose contenders are `named`.

    A mode that has not reached the target at the run's limit counts with the limit.
    """
    from ..config import RunConfig

    for file in paper.files:
        config = RunConfig.load(file)
        assert config.synchronisation is not None
        modes = config.synchronisation.modes
        for seed in range(1, paper.seeds + 1):
            seeded = config.replaced("seed", seed=seed)
            for mode in modes:
                ended_ns = reached_ns(seeded, mode)
                taken_ns = config.synchronisation.limit if ended_ns is None else ended_ns
                name = named(mode, modes)
                yield Sample(TIME_TO_LOSS.name, config.name, name, seed, taken_ns / 1e6, ended_ns is None)


class _Oracle:
    """Predictor that is told the speed beforehand."""

    def __init__(self) -> None:
        self.coming: float | None = None

    def predict(self, readings: object) -> float | None:
        return self.coming

    def observe(self, speed: float) -> None:
        pass


def _maker(name: str) -> Callable[[], Predictor]:
    if name == ORACLE:
        return _Oracle
    if name == _READING_LSTM:
        return lambda: Recurrent("lstm", reads=True)
    return PREDICTORS.describe(name).make


def predicted_steps(make: Callable[[], Predictor], machines: Sequence[Machine]) -> tuple[float, float]:
    """Share out steps by predicted speeds, without the thresholds that keep sizes.

    Args:
        make: Maker of a worker's predictor.
        machines: The workers' machines; their shares change with each step of a span of 1 ns.

    Returns:
        Root mean square error of the predictions, in percent of the mean speed, and mean time of a step in ms.
    """
    predictors = [make() for _ in machines]
    squares, times_s, speeds = [], [], []
    for step in range(_STEPS):
        present = [machine.speed(step, step) for machine in machines]
        for predictor, speed in zip(predictors, present, strict=True):
            if isinstance(predictor, _Oracle):
                predictor.coming = speed
        told = [
            predictor.predict(machine.readings(step)) for predictor, machine in zip(predictors, machines, strict=True)
        ]
        known = [speed for speed in told if speed]
        sizes = proportional_shares(_BATCH, known) if len(known) == len(told) else equal_shares(_BATCH, len(told))
        if step >= _WARM_UP:
            squares += [(guess - speed) ** 2 for guess, speed in zip(known, present, strict=True)]
            times_s.append(max(size / speed for size, speed in zip(sizes, present, strict=True)))
            speeds += present
        for predictor, speed in zip(predictors, present, strict=True):
            predictor.observe(speed)
    return float(100 * np.sqrt(np.mean(squares)) / np.mean(speeds)), 1e3 * float(np.mean(times_s))


def drawn_machines(rated: Sequence[float], seed: int) -> list[Machine]:
    """Draw machines whose free processor jumps after 10 to 60 steps, and whose free memory follows it with noise.

    Args:
        rated: Samples per second when all is free.
        seed: Seed of the draw.
    """
    machines = []
    for rank, speed in enumerate(rated):
        rng = np.random.default_rng((seed, rank))
        cpu = np.repeat(stepping(rng, _STEPS), rng.integers(10, 60, _STEPS))[:_STEPS]
        memory = np.clip(0.3 + 0.6 * cpu + rng.normal(0, 0.02, _STEPS), 0.05, 1)
        machines.append(Machine(speed, span_ns=1, cpu=cpu, memory=memory, jitter=jitter(rng, _STEPS)))
    return machines


def prediction_errors(paper: Paper) -> Iterator[Sample]:
    """Measure `ERROR` and `STEP` of the contenders, which are predictors, on the same machines.

    Raises:
        MissingExtra: PyTorch or statsmodels is not installed.
    """
    makers = {contender.name: _maker(contender.name) for contender in paper.contenders}
    for make in makers.values():
        make()
    rated = [4000.0, 4000.0, 3200.0, 3200.0, 2400.0, 2400.0, 1600.0, 800.0]
    for seed in range(1, paper.seeds + 1):
        machines = drawn_machines(rated, seed)
        for name, make in makers.items():
            error, step_ms = predicted_steps(make, machines)
            condition = "8 machines, shares that jump"
            yield Sample(STEP.name, condition, name, seed, step_ms)
            yield Sample(ERROR.name, condition, name, seed, error)
