"""Traffic that an emulated fabric has carried for jobs, and the time that its links need for it on a network.

The emulator's wall time is that of its processor. On links of the topology's rates and delays the same traffic takes

    T  =  max over links of 8 · bytes / rate  +  Σ over jobs of sums · 2 · round trip

The first term is the time of the slowest link. The second one is that of sums one after the other: the first chunks of
a sum need one round trip to agree on their exponents and one for their numbers (docs/design.md §3.3). Sums that overlap
need less, and other traffic on the links is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from .live import LiveFabric
from .real_time import RealTimeFabric


@dataclass(frozen=True, slots=True)
class CarriedTraffic:
    """Traffic of a fabric's jobs."""

    bytes: int
    """Bytes that crossed the hosts' links, in both directions, headers and repetitions included."""
    sums: int
    """Collective calls of all jobs; each counts once, not once per rank."""
    seconds: float
    """Time that the fabric's links need."""

    @classmethod
    def of(cls, live: LiveFabric) -> Self | None:
        """Count what a fabric has carried so far; None if no job has made a sum, or if the fabric is not emulated."""
        if not isinstance(live.fabric, RealTimeFabric) or not (made := live.service.finished_calls()):
            return None
        topology, loads = live.fabric.topology, live.fabric.link_bytes()
        at_hosts = (end for end in loads if topology.is_host(end.node) or topology.is_host(topology.peer(end).node))
        slowest = max(8 * count / topology.link_at(end).rate_bps for end, count in loads.items())
        trips = sum(calls * 2e-9 * round_trip_ns for calls, round_trip_ns in made)
        return cls(sum(loads[end] for end in at_hosts), sum(calls for calls, _ in made), slowest + trips)

    def __str__(self) -> str:
        sums = f"{self.sums:,} sum{'s' if self.sums > 1 else ''}"
        return (
            f"{self.bytes / 1e6:,.3g} MB in {sums}; links of this fabric's rates and delays take "
            f"{1e3 * self.seconds:,.3g} ms for them, whatever time the emulator took"
        )
