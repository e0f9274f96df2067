"""What telemetry costs the fabric that it measures."""

from __future__ import annotations

from dataclasses import dataclass

from ...topologies.model import Topology
from .link_state import LinkState
from .probe_reports import ProbeReports


@dataclass(frozen=True, slots=True)
class TelemetryCost:
    """The probes that came back, on all links together, and where their share is largest."""

    packets: int
    bytes: int
    """With Ethernet headers, and the words that hops added on the way."""
    largest_share: float
    """Of a link's rate, 0…1."""
    where: str
    """That link; empty where nothing was sent."""

    def __str__(self) -> str:
        share = f", at most {100 * self.largest_share:.2g} % of a link ({self.where})" if self.where else ""
        return f"{self.packets} probe packets on links, {self.bytes / 1e6:.2f} MB{share}"


def probes_cost(topology: Topology, links: LinkState, probes: ProbeReports, elapsed_ns: int) -> TelemetryCost:
    """Since the controller began, `elapsed_ns` ago."""
    cost = probes.cost
    # a probe ends at the port to a host: it is never on that link
    cost[[topology.is_host(topology.peer(link).node) for link in links.links]] = 0
    shares = [
        8e9 * count / (topology.link_at(link).rate_bps * max(elapsed_ns, 1))
        for link, count in zip(links.links, cost[:, 1].tolist(), strict=True)
    ]
    largest = max(range(len(shares)), key=shares.__getitem__, default=0)
    packets, volume = (int(column.sum()) for column in cost.T)
    return TelemetryCost(
        packets, volume, shares[largest] if packets else 0.0, str(links.links[largest]) if packets else ""
    )
