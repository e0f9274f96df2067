"""Local SGD: some local steps, then all weights become their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..exchanges.collectives import averaging_worker
from ..exchanges.local_steps import check_period
from ..mode import BatchSizeService, ModeDescription, Replicas, SummedMode
from ..processes import Process


@dataclass(frozen=True)
class LocalSgd(SummedMode):
    """Everyone waits for the slowest, every τ steps."""

    name: str = "local"
    period: int = 4
    """τ: a worker's local steps between two synchronisations."""

    def __post_init__(self) -> None:
        check_period(self.period)

    @property
    def steps_between(self) -> int:
        return self.period

    @property
    def detail(self) -> str:
        return f"τ = {self.period}"

    def worker(self, job: Replicas, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        return averaging_worker(job, rank, communicator, self.period)


DESCRIPTION: Final = ModeDescription(
    "local", "local SGD", "all-reduce of weights after local steps; everyone waits for the slowest then", LocalSgd
)
