"""Options of queue bounds, and the assumptions that bounds may make."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..errors import PlanError
from .cross_traffic import Uncontrolled, Windowed


class Marks(StrEnum):
    """Measure of a queue that switches compare with the threshold K before they mark."""

    DEPTH = "depth"
    """Packets that are there at enqueue."""
    SOJOURN = "sojourn"
    """Waiting time of a packet, compared with the time that K packets take to be sent."""
    VIRTUAL = "virtual"
    """Packets that would be there if the link were slower than it is."""


WALL_CLOCK_LEASE_NS: Final = 100_000_000
"""Lease of windows if hosts are processes: usually longer than a busy machine delays one, and no longer than a job may
be held back when another arrives.
"""


@dataclass(frozen=True, slots=True)
class CongestionOptions:
    """The requested bound, and the assumptions that it may make."""

    bound_packets: int = 64
    """Q*: bound of every egress queue of the bulk class, in packets."""
    uncontrolled: tuple[Uncontrolled, ...] = ()
    """Declared background traffic without windows."""
    lease_ns: int = 0
    """A worker without a result for this long restarts with one round, so that a lowered window is known to be applied
    by then; 0: windows last.
    """
    windows_obeyed: bool = True
    """True if workers apply explicit windows. Otherwise they react to marks or round trips, the queues that they cross
    have no bound, and no worker is policed by its window.
    """
    marks: Marks = Marks.DEPTH
    """Quantity that triggers marks. Workers with explicit windows are marked by depth in any case, as the bound assumes
    it.
    """
    virtual_share: float = 0.95
    """γ: drain rate of the virtual queue, as a share of the link's."""
    windowed: tuple[Windowed, ...] = ()
    """Declared background traffic that is limited by its receivers' windows."""
    makes_room: bool = True
    """True if windows leave room for undeclared traffic; else its links just lose their bounds."""
    int_bytes: int = 0
    """Bytes that INT in watched packets adds to each, at most."""
    probe_period_ns: int = 0
    """Time between two probes of a kind; 0: long enough that one is gone before the next is sent."""

    def __post_init__(self) -> None:
        if not 1 <= self.bound_packets < 1 << 19:
            raise PlanError(f"congestion: bound_packets {self.bound_packets} is not in 1…524287")
        if not 0 < self.virtual_share <= 1:
            raise PlanError(f"congestion: virtual_share {self.virtual_share} is not above 0 and at most 1")
        for name in ("lease_ns", "probe_period_ns", "int_bytes"):
            if (value := getattr(self, name)) < 0:
                raise PlanError(f"congestion: {name} {value} is negative")
