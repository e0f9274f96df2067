"""Bulk-synchronous training with batch sizes in proportion to the machines' rated speeds, fixed at the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..batching.analytic import proportional_shares
from ..exchanges.collectives import summing_worker
from ..mode import BatchSizeService, ModeDescription, Replicas, SummedMode
from ..processes import Process


@dataclass(frozen=True)
class StaticallyBalanced(SummedMode):
    """All wait for the slowest, every step; other tenants of a machine do not change its share."""

    name: str = "static"

    def worker(self, job: Replicas, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        rated = [machine.samples_per_s for machine in job.machines]
        limits = [machine.memory_samples for machine in job.machines]
        return summing_worker(job, rank, communicator, sizes=proportional_shares(job.plan.batch, rated, limits))


DESCRIPTION: Final = ModeDescription(
    "static",
    "static balancing",
    "all-reduce of gradients, with fixed batch sizes by the machines' rated speeds",
    StaticallyBalanced,
)
