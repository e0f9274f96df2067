"""Elastic averaging (Zhang et al., "Deep learning with Elastic Averaging SGD", NeurIPS 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ...hosts import Communicator
from ..errors import TrainingError
from ..exchanges.local_steps import LocalSteps, check_period
from ..exchanges.served import SERVER, WORKER, ParameterServer
from ..mode import ModeDescription, Replicas, ServedMode
from ..processes import Process, Wait
from ..rules import Staleness
from ..workload import Floats


@dataclass(frozen=True)
class ElasticAveraging(ServedMode):
    """Workers and the server's centre move towards each other every τ steps; no worker waits for another."""

    name: str = "easgd"
    period: int = 4
    """τ: a worker's local steps between two exchanges."""
    pull: float = 0.5
    """α: share of the distance that a worker moves to the centre."""
    push: float = 0.1
    """β: share of the distance that the centre moves to a worker; at most α."""

    def __post_init__(self) -> None:
        check_period(self.period)
        if not 0 < self.push <= self.pull <= 0.5:
            raise TrainingError(
                f"push {self.push} and pull {self.pull}: elastic averaging is stable for 0 < push ≤ pull ≤ 0.5",
                value=(self.push, self.pull),
            )

    @property
    def steps_between(self) -> int:
        return self.period

    @property
    def detail(self) -> str:
        return f"τ = {self.period}"

    def updates_per_step(self, workers: int) -> int:
        return workers

    def worker(self, job: Replicas, rank: int, communicator: Communicator) -> Process:
        local = LocalSteps(job, rank)
        now_ns = (yield Wait(lambda: 0)).now_ns
        clock = 0
        while True:
            iteration = job.curve.begin(rank, clock, local.size * self.period, now_ns)
            yield from local.run(self.period, iteration)
            update = job.weights[rank]
            yield communicator.broadcast_async(update, WORKER, name="update")
            centre, now_ns = yield communicator.broadcast_async(update, SERVER, name="weights")
            job.weights[rank] = update - np.float32(self.pull) * (update - centre)
            iteration.ended_ns = now_ns
            clock += 1

    def server(self, job: Replicas) -> ParameterServer:
        return _ElasticCentre(job, self)


class _ElasticCentre(ParameterServer):
    def __init__(self, job: Replicas, mode: ElasticAveraging) -> None:
        super().__init__(job, Staleness(job.plan.workers, None))
        self._mode = mode

    def given(self, before: Floats) -> Floats:
        return before

    def complete(self, updates: list[tuple[Floats, int]], now_ns: int) -> None:
        for update, samples in updates:
            self.weights = self.weights + np.float32(self._mode.push) * (update - self.weights)
            self.curve.updated(self.weights, samples, now_ns)


DESCRIPTION: Final = ModeDescription(
    "easgd",
    "elastic averaging",
    "weights to the server, its centre back, after local steps; no worker waits for another",
    ElasticAveraging,
)
