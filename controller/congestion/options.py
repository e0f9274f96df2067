"""What is promised of queues, and what may be counted on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..errors import PlanError
from .cross_traffic import Uncontrolled, Windowed


class Marks(StrEnum):
    """What of a queue is compared with its threshold K, by which switches mark."""

    DEPTH = "depth"
    """Packets that are there at enqueue."""
    SOJOURN = "sojourn"
    """How long a packet has waited: what K packets take to be sent."""
    VIRTUAL = "virtual"
    """Packets that would be there if the link were slower than it is."""


WALL_CLOCK_LEASE_NS: Final = 100_000_000
"""Of windows where hosts are processes: longer than a busy machine keeps one from its turn, as a rule, and no longer
than a job may be held back when another is there.
"""


@dataclass(frozen=True, slots=True)
class CongestionOptions:
    """What is promised, and what may be counted on."""

    bound_packets: int = 64
    """Q*: what no egress queue of the bulk class is to exceed."""
    uncontrolled: tuple[Uncontrolled, ...] = ()
    """What others may send, as far as it obeys no window."""
    lease_ns: int = 0
    """A worker that has had no result for so long begins again with one round, so that a window that was lowered
    meanwhile is known to be obeyed by then; 0: windows last.
    """
    windows_obeyed: bool = True
    """Whether workers obey explicit windows. Else they go by marks or round trips, nothing is promised of a queue that
    they cross, and no worker is policed by its window.
    """
    marks: Marks = Marks.DEPTH
    """What is marked by. Who obeys explicit windows hears of the depth in any case, as the bound is made with that."""
    virtual_share: float = 0.95
    """γ: drain rate of the virtual queue, as a share of the link's."""
    windowed: tuple[Windowed, ...] = ()
    """What others may have under way, as far as their receivers limit it."""
    makes_room: bool = True
    """Whether windows leave room for what telemetry finds that nobody declared; else nothing is promised there, and
    that is all.
    """
    probe_period_ns: int = 0
    """Between two probes of a kind; 0: so long that the one is gone before the next is sent."""

    def __post_init__(self) -> None:
        if not 1 <= self.bound_packets < 1 << 19:
            raise PlanError(f"congestion: bound_packets {self.bound_packets} is not in 1…524287")
        if not 0 < self.virtual_share <= 1:
            raise PlanError(f"congestion: virtual_share {self.virtual_share} is not above 0 and at most 1")
        for name in ("lease_ns", "probe_period_ns"):
            if (value := getattr(self, name)) < 0:
                raise PlanError(f"congestion: {name} {value} is negative")
