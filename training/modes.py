"""Synchronisation modes: what a job says of how its workers keep together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from .batching.manager import SIZE_STEP, RuleName
from .batching.reporter import SpeedReporter
from .errors import TrainingError
from .rules import Quorum, RoundRobin, Rule, Staleness

ModeName = Literal["bsp", "lb-bsp", "local", "backup", "ssp", "asp", "r2sp", "easgd"]

MODES: Final[tuple[ModeName, ...]] = get_args(ModeName)
SUMMED: Final = frozenset({"bsp", "lb-bsp", "local"})
"""Modes whose workers call all-reduce together, so that the switches sum. In the others each worker speaks with the
parameter server alone, and switches only carry what they say.
"""
LABELS: Final[dict[ModeName, str]] = {
    "bsp": "BSP",
    "lb-bsp": "LB-BSP",
    "local": "local SGD",
    "backup": "backup workers",
    "ssp": "SSP",
    "asp": "ASP",
    "r2sp": "R²SP",
    "easgd": "elastic averaging",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode and its numbers; those that it has no use for mean nothing."""

    name: ModeName = "bsp"
    staleness: int = 3
    """ssp: how far a worker's clock may be beyond the slowest one's."""
    quorum: int | None = None
    """backup: updates that a step needs; None: all workers' but one."""
    relaxation: float = 0.8
    """r2sp: the gap between two turns, in n-ths of a round."""
    period: int = 4
    """local, easgd: τ, a worker's own steps between two synchronisations."""
    pull: float = 0.5
    """easgd: α, how far a worker moves to the centre."""
    push: float = 0.1
    """easgd: β, how far the centre moves to a worker; at most α."""

    def __post_init__(self) -> None:
        if self.name not in MODES:
            raise TrainingError(f'mode "{self.name}" is unknown; there are {", ".join(MODES)}')
        if self.period < 1:
            raise TrainingError(f"period {self.period}: workers synchronise after 1 or more steps of their own")
        if not 0 < self.push <= self.pull <= 0.5:
            raise TrainingError(
                f"push {self.push} and pull {self.pull}: elastic averaging is stable for 0 < push ≤ pull ≤ 0.5"
            )

    sizes: RuleName = "analytic"
    """lb-bsp: what batch sizes go by: "analytic" where time is proportional to samples, as on CPUs; else "numeric"."""
    predictor: str = "narx"
    """lb-bsp, analytic: what foretells a worker's speed."""
    size_step: int = SIZE_STEP
    """lb-bsp, numeric: samples that the fast approach moves at once."""

    @property
    def summed(self) -> bool:
        """Whether its workers call all-reduce together."""
        return self.name in SUMMED

    @property
    def local_steps(self) -> int:
        """A worker's own steps between two synchronisations."""
        return self.period if self.name in ("local", "easgd") else 1

    def reporter(self) -> SpeedReporter | None:
        """What one worker's reports come from, by which batch sizes are decided; None where they stay equal."""
        if self.name != "lb-bsp":
            return None
        return SpeedReporter(self.predictor, rule=self.sizes)

    def rule(self, workers: int) -> Rule:
        """What the parameter server goes by. Raises `TrainingError` for numbers that no rule can have."""
        match self.name:
            case "backup":
                return Quorum(workers, max(1, workers - 1) if self.quorum is None else self.quorum)
            case "ssp":
                return Staleness(workers, self.staleness)
            case "asp" | "easgd":
                return Staleness(workers, None)
            case "r2sp":
                return RoundRobin(workers, self.relaxation)
            case name:
                raise TrainingError(f"mode {name} has no server's rule: its workers wait for each other in the network")
