"""Load-balanced bulk-synchronous training (Chen et al., "Semi-Dynamic Load Balancing", SoCC 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...hosts import Communicator
from ..batching.manager import RULES, SIZE_STEP, RuleName
from ..batching.reporter import SpeedReporter
from ..errors import TrainingError
from ..exchanges.collectives import FollowedSpeeds, summing_worker
from ..mode import BatchSizeService, ModeDescription, Replicas, SummedMode
from ..processes import Process


@dataclass(frozen=True)
class LoadBalanced(SummedMode):
    """Batch sizes follow the workers' speeds; the controller decides them between steps."""

    name: str = "lb-bsp"
    sizes: RuleName = "analytic"
    """Rule of batch sizes: "analytic" where time is proportional to samples, as on CPUs; else "numeric"."""
    predictor: str = "narx"
    """Analytic rule: predictor of a worker's speed."""
    size_step: int = SIZE_STEP
    """Numeric rule: samples that the fast approach moves at once."""

    def __post_init__(self) -> None:
        if self.sizes not in RULES:
            raise TrainingError(f'unknown rule "{self.sizes}" of sizes; supported: {", ".join(RULES)}')
        if not 1 <= self.size_step < 2**31:
            raise TrainingError(f"size_step {self.size_step}; allowed: 1 to 2147483647 samples")
        SpeedReporter(self.predictor, rule=self.sizes)

    @property
    def detail(self) -> str:
        return self.sizes

    def worker(self, job: Replicas, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        follow = FollowedSpeeds(service, self.sizes, self.predictor, self.size_step)
        return summing_worker(job, rank, communicator, follow)


DESCRIPTION: Final = ModeDescription(
    "lb-bsp", "LB-BSP", "all-reduce of gradients, with batch sizes that follow workers' speeds", LoadBalanced
)
