"""State of every link at one time, for its readers: placement, congestion control, metrics, pages.

Values only, in a neutral form: readers convert it as they need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...topologies.model import Endpoint

DOUBTED: Final = "stale: no job moves because of it; who must be placed is placed by its last good values"
"""Treatment by placement of a link without a report for three periods."""
_NAMED: Final = 6


@dataclass(frozen=True, slots=True)
class LinkView:
    """Readings of one directed link. Averages are weighted by time, over two periods."""

    rate_bps: float
    """All traffic, in bit/s."""
    background_bps: float
    """Traffic without what the reader excluded, in bit/s; at most the link's rate. Where the link was never measured,
    the mean load of the fresh ones.
    """
    queue_packets: float
    """Depth of the bulk class's egress queue."""
    latency_us: float
    """Mean time from ingress to egress in the sending switch, its queue included, in µs. The link's own delay cannot be
    measured by unsynchronised clocks, and is in the topology.
    """
    loss: float
    """Share of lost packets, 0…1. From the least lossy probe over the link, over its last 16: an upper bound of the
    link's own loss.
    """
    age_ns: int | None
    """Since the newest report, on the controller's clock: for a probe since it was sent, for a report that a switch
    sent by itself since it came. None: never measured.
    """
    confidence: float
    """Reliability of the values, 0…1: the share of the link's reports that arrive, times freshness, which is 1 up to an
    age of two periods and falls to 0 at three, where the link is stale.
    """


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All links that are watched, at one time."""

    links: Mapping[Endpoint, LinkView]
    stale: frozenset[Endpoint]
    """The links whose newest report is older than three periods, so that these are their last good values."""
    unmeasured: frozenset[Endpoint]
    """The links that no rate is known of yet, so that they have the mean load of the others."""

    @property
    def is_fresh(self) -> bool:
        """True if every watched link has a reading that is not stale."""
        return not self.stale and not self.unmeasured

    def __str__(self) -> str:
        """Notes for a reader on the quality of the data, in a line."""
        if self.is_fresh:
            return f"telemetry of all {len(self.links)} links is fresh"
        parts = []
        if self.stale:
            parts.append(f"{len(self.stale)} stale, last good values used ({listed(self.stale)})")
        if self.unmeasured:
            parts.append(f"{len(self.unmeasured)} never measured, uniform load assumed ({listed(self.unmeasured)})")
        return f"telemetry of {len(self.links)} links: " + "; ".join(parts)


def listed(names: Iterable[object]) -> str:
    """Return the first links in order, and the number of the others: a whole fabric's links are too many for a line."""
    ordered = sorted(map(str, names))
    return ", ".join(ordered[:_NAMED]) + (f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else "")
