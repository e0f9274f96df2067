"""DiLoCo (Douillard et al., 2023): local steps, then an outer step with Nesterov momentum by the mean of all moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ...hosts import Communicator
from ..errors import TrainingError
from ..exchanges.local_steps import LARGEST_STEP, LocalSteps, check_period
from ..mode import BatchSizeService, ModeDescription, Replicas, SummedMode
from ..processes import Process, Wait


@dataclass(frozen=True)
class LowCommunication(SummedMode):
    """Everyone waits for the slowest, every H steps."""

    name: str = "diloco"
    period: int = 8
    """H: a worker's local steps between two outer steps."""
    momentum: float = 0.5
    """Nesterov momentum of the outer optimiser."""
    step: float = 0.7
    """Outer learning rate."""

    def __post_init__(self) -> None:
        check_period(self.period)
        if not (0 <= self.momentum < 1 and 0 < self.step <= LARGEST_STEP):
            raise TrainingError(
                f"momentum {self.momentum} and step {self.step}: allowed are 0 <= momentum < 1 and "
                f"0 < step <= {LARGEST_STEP:g}",
                value=(self.momentum, self.step),
            )

    @property
    def steps_between(self) -> int:
        return self.period

    @property
    def detail(self) -> str:
        return f"H = {self.period}"

    def worker(self, job: Replicas, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        local, outer = LocalSteps(job, rank), job.weights[rank]
        moving = np.zeros_like(outer)
        now_ns = (yield Wait(lambda: 0)).now_ns
        clock = 0
        while True:
            iteration = job.curve.begin(rank, clock, local.size * self.period, now_ns)
            yield from local.run(self.period, iteration)
            moved, now_ns = yield communicator.allreduce_async(job.weights[rank] - outer, op="mean", name="moves")
            moving = np.float32(self.momentum) * moving + moved
            outer = outer + np.float32(self.step) * (np.float32(self.momentum) * moving + moved)
            job.weights[rank] = outer
            iteration.taken_ns = iteration.given_ns = iteration.ended_ns = now_ns
            if rank == 0:
                job.curve.updated(outer, job.plan.batch * self.period, now_ns)
            clock += 1


DESCRIPTION: Final = ModeDescription(
    "diloco", "DiLoCo", "mean of all workers' moves after local steps, with outer momentum", LowCommunication
)
