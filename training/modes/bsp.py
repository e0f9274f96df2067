"""Bulk-synchronous training: all gradients are summed in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..exchanges.collectives import summing_worker
from ..mode import BatchSizeService, ModeDescription, Replicas, SummedMode
from ..processes import Process


@dataclass(frozen=True)
class BulkSynchronous(SummedMode):
    """Everyone waits for the slowest, every step."""

    name: str = "bsp"

    def worker(self, job: Replicas, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        return summing_worker(job, rank, communicator)


DESCRIPTION: Final = ModeDescription(
    "bsp", "BSP", "all-reduce of gradients; everyone waits for the slowest, every step", BulkSynchronous
)
