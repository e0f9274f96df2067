"""Backup workers: a step is whole with the first gradients of a quorum; later ones are dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..exchanges.served import ParameterServer, gradient_worker
from ..mode import ModeDescription, Replicas, ServedMode
from ..processes import Process
from ..rules import Quorum, Rule


@dataclass(frozen=True)
class BackupWorkers(ServedMode):
    """Workers wait until the quorum's gradients are there."""

    name: str = "backup"
    quorum: int | None = None
    """Gradients that a step needs; None: all workers' except one."""

    def check(self, workers: int) -> None:
        self._rule(workers)

    def worker(self, job: Replicas, rank: int, communicator: Communicator) -> Process:
        return gradient_worker(job, rank, communicator)

    def server(self, job: Replicas) -> ParameterServer:
        return ParameterServer(job, self._rule(job.plan.workers), partial_steps=False)

    def _rule(self, workers: int) -> Rule:
        return Quorum(workers, max(1, workers - 1) if self.quorum is None else self.quorum)


DESCRIPTION: Final = ModeDescription(
    "backup", "backup workers", "gradients to the server, weights back when a quorum's are there", BackupWorkers
)
