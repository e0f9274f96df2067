"""A whole training job in virtual time, without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from weir.controller.service.batch_sizes import JobBatchSizes
from weir.experiments.backends.batch_sizes import size_rule
from weir.hosts.collectives.leader_query import PendingAnswer
from weir.training import LossCurve, Machine, Mode, Processes, Training, TrainingPlan, Workload
from weir.training.batching.manager import RuleName
from weir.training.ideal import IdealClock, IdealJob, run
from weir.training.mode import BatchSizeService
from weir.training.workloads.synthetic import LeastSquares
from weir.wire.control_messages import balance_request


class IdealBatchSizes:
    """The controller's, asked in no time at all."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._sizes = JobBatchSizes(size_rule)
        self.asked = 0
        """Number of requests for sizes."""

    def request(
        self, reports: NDArray[np.float64], present: NDArray[np.bool_], *, rule: RuleName, size_step: int
    ) -> PendingAnswer:
        self.asked += 1
        workers = self._plan.workers
        request = balance_request(0, self._plan.batch, rule, reports, present, size_step=size_step)
        return Given(self._sizes.decide(request, workers, frozenset(range(workers))))


class Given:
    """An answer that is there."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float, /) -> list[int]:
        return self._sizes


def train(
    mode: Mode,
    machines: Sequence[Machine],
    done: Callable[[LossCurve], bool],
    *,
    workload: Workload | None = None,
    batch: int = 32,
    learning_rate: float = 0.5,
    momentum: float = 0.0,
    delay_ns: Callable[[int], int] = lambda _: 0,
    seed: int = 1,
    sizes: BatchSizeService | None = None,
) -> tuple[LossCurve, Training]:
    """Train until `done`; a call of `bytes` takes `delay_ns(bytes)` after the last worker has made it.

    `sizes` answers requests for batch sizes; None: `IdealBatchSizes`.
    """
    workload = workload or LeastSquares(8, 256, seed=seed)
    clock, curve = IdealClock(), LossCurve(workload.loss)
    plan = TrainingPlan(mode, len(machines), batch, learning_rate, options={"momentum": momentum}, seed=seed)
    training = Training(plan, workload, curve, machines)
    if mode.summed:
        jobs = [IdealJob(clock, len(machines), delay_ns)]
        processes = training.summed(jobs[0].communicators, sizes or IdealBatchSizes(plan))
    else:
        jobs = [IdealJob(clock, 2, delay_ns) for _ in machines]
        processes = training.served([(job.communicators[0], job.communicators[1]) for job in jobs])
    running = Processes(processes, training.cost_ns)
    run(running, clock, jobs, lambda: done(curve))
    return curve, training
