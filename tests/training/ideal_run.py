"""A whole training job in virtual time, without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from weir.controller.service.batch_sizes import BatchSizes, StepEnd
from weir.experiments.backends.batch_sizes import balance_request, size_rule
from weir.training import Course, Machine, Mode, Processes, Training, TrainingPlan, Workload
from weir.training.ideal import Clock, IdealJob, run
from weir.training.workloads.synthetic import LeastSquares


class IdealBatchSizes:
    """The controller's, asked in no time at all."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._sizes = BatchSizes(size_rule)

    def report(self, rank: int, step: int, report: NDArray[np.float64]) -> Answer:
        end = self._sizes.report(balance_request(self._plan, 0, step, report), rank)
        self._sizes.look(end, self._plan.workers, frozenset(range(self._plan.workers)))
        return Answer(end)


class Answer:
    def __init__(self, end: StepEnd) -> None:
        self._end = end

    def done(self) -> bool:
        return self._end.decided.is_set()

    def wait(self, timeout_s: float, /) -> list[int]:
        return self._end.sizes()


def train(
    mode: Mode,
    machines: Sequence[Machine],
    done: Callable[[Course], bool],
    *,
    workload: Workload | None = None,
    batch: int = 32,
    learning_rate: float = 0.5,
    momentum: float = 0.0,
    delay_ns: Callable[[int], int] = lambda _: 0,
    seed: int = 1,
) -> tuple[Course, Training]:
    """Train until `done`; a call of `bytes` takes `delay_ns(bytes)` once everyone has made it."""
    workload = workload or LeastSquares(8, 256, seed=seed)
    clock, course = Clock(), Course(workload.loss)
    plan = TrainingPlan(mode, len(machines), batch, learning_rate, momentum, seed)
    training = Training(plan, workload, course, machines)
    if mode.summed:
        jobs = [IdealJob(clock, len(machines), delay_ns)]
        processes = training.summed(jobs[0].communicators, IdealBatchSizes(plan))
    else:
        jobs = [IdealJob(clock, 2, delay_ns) for _ in machines]
        processes = training.served([(job.communicators[0], job.communicators[1]) for job in jobs])
    running = Processes(processes, training.cost_ns)
    run(running, clock, jobs, lambda: done(course))
    return course, training
