"""Round-robin synchronous training (Chen et al., "Round-Robin Synchronization", INFOCOM 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..exchanges.served import ParameterServer, gradient_worker
from ..mode import ModeDescription, Replicas, ServedMode
from ..processes import Process
from ..rules import RoundRobin


@dataclass(frozen=True)
class RoundRobinSynchronous(ServedMode):
    """Workers wait for their turns, which come in a fixed order."""

    name: str = "r2sp"
    relaxation: float = 0.8
    """r: gap between two turns, in n-ths of a round."""

    @property
    def detail(self) -> str:
        return f"r = {self.relaxation:g}"

    def check(self, workers: int) -> None:
        RoundRobin(workers, self.relaxation)

    def updates_per_step(self, workers: int) -> int:
        return workers

    def worker(self, job: Replicas, rank: int, communicator: Communicator) -> Process:
        return gradient_worker(job, rank, communicator)

    def server(self, job: Replicas) -> ParameterServer:
        return ParameterServer(job, RoundRobin(job.plan.workers, self.relaxation))


DESCRIPTION: Final = ModeDescription(
    "r2sp", "R²SP", "gradients to the server, weights back, by turns in a fixed order", RoundRobinSynchronous
)
