"""Stale-synchronous training: a worker waits while it is ahead of the slowest one by more than a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..exchanges.served import ParameterServer, gradient_worker
from ..mode import ModeDescription, Replicas, ServedMode
from ..processes import Process
from ..rules import Staleness


@dataclass(frozen=True)
class StaleSynchronous(ServedMode):
    """A worker that is ahead of the slowest by more than s iterations waits."""

    name: str = "ssp"
    staleness: int = 3
    """s: iterations that a worker may be ahead of the slowest one."""

    @property
    def detail(self) -> str:
        return f"s = {self.staleness}"

    def check(self, workers: int) -> None:
        Staleness(workers, self.staleness)

    def updates_per_step(self, workers: int) -> int:
        return workers

    def worker(self, job: Replicas, rank: int, communicator: Communicator) -> Process:
        return gradient_worker(job, rank, communicator)

    def server(self, job: Replicas) -> ParameterServer:
        return ParameterServer(job, Staleness(job.plan.workers, self.staleness))


DESCRIPTION: Final = ModeDescription(
    "ssp", "SSP", "gradients to the server, weights back; a worker too far ahead waits", StaleSynchronous
)
