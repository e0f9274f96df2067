"""Asynchronous training: the server applies every gradient when it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..exchanges.served import ParameterServer, gradient_worker
from ..mode import ModeDescription, Replicas, ServedMode
from ..processes import Process
from ..rules import Staleness


@dataclass(frozen=True)
class Asynchronous(ServedMode):
    """No worker waits for another."""

    name: str = "asp"

    def updates_per_step(self, workers: int) -> int:
        return workers

    def worker(self, job: Replicas, rank: int, communicator: Communicator) -> Process:
        return gradient_worker(job, rank, communicator)

    def server(self, job: Replicas) -> ParameterServer:
        return ParameterServer(job, Staleness(job.plan.workers, None))


DESCRIPTION: Final = ModeDescription(
    "asp", "ASP", "gradients to the server, weights back; no worker waits for another", Asynchronous
)
