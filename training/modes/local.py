"""Local SGD: some local steps, then all weights become their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..errors import TrainingError
from ..exchanges.collectives import averaging_worker
from ..mode import BatchSizeService, ModeDescription, Replicas, SummedMode
from ..processes import Process


@dataclass(frozen=True)
class LocalSgd(SummedMode):
    """Everyone waits for the slowest, every τ steps."""

    name: str = "local"
    period: int = 4
    """τ: a worker's local steps between two synchronisations."""

    def __post_init__(self) -> None:
        if self.period < 1:
            raise TrainingError(f"period must be >= 1 local step, got {self.period}")

    @property
    def detail(self) -> str:
        return f"τ = {self.period}"

    def worker(self, job: Replicas, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        return averaging_worker(job, rank, communicator, self.period)


DESCRIPTION: Final = ModeDescription(
    "local", "local SGD", "all-reduce of weights after local steps; everyone waits for the slowest then", LocalSgd
)
