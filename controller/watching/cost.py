"""What telemetry costs the fabric that it measures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ...wire.frames import FRAME_HEADER_BYTES
from ..telemetry.collector import ReportCollector
from ..telemetry.link_state import LinkState
from ..telemetry.probe_reports import ProbeReports
from .items import report_port


@dataclass(frozen=True, slots=True)
class TelemetryCost:
    """What telemetry has brought onto links, all together, and where its share is largest. Headers that INT puts into
    watched packets are not in it.
    """

    packets: int
    """Of probes that came back, each counted on every link that it crossed."""
    bytes: int
    """With Ethernet headers, and the words that hops added on the way."""
    largest_share: float
    """Of a link's rate, probes and reports together, 0…1."""
    where: str
    """That link; empty where nothing was sent."""
    reports: int = 0
    """That switches have sent by themselves, lost ones among them."""
    report_packets: int = 0
    """The same as probes' packets; none where they go to the controller by P4Runtime."""
    report_bytes: int = 0
    forwarded: int | None = None
    """Packets that have left switches' ports meanwhile, of any kind; None: nobody counted."""

    def __str__(self) -> str:
        parts = [f"{self.packets} probe packets on links, {self.bytes / 1e6:.2f} MB"]
        if self.reports:
            rate = "" if self.forwarded is None else f", one for {self.forwarded / self.reports:.0f} packets forwarded"
            on_links = f"{self.report_packets} packets on links, {self.report_bytes / 1e6:.2f} MB"
            parts.append(f"{self.reports} reports{rate}: {on_links}")
        if self.where:
            parts.append(f"at most {100 * self.largest_share:.2g} % of a link ({self.where})")
        return "; ".join(parts)


def telemetry_cost(
    topology: Topology,
    routes: Routes,
    links: LinkState,
    probes: ProbeReports,
    reports: ReportCollector | None,
    collector: str | None,
    elapsed_ns: int,
    forwarded: int | None = None,
) -> TelemetryCost:
    """Since the controller began, `elapsed_ns` ago. Reports are reckoned at the length that those had which came, by
    the ways that these routes have to the collector's host; with None they are on no link.
    """
    load = np.zeros((len(links.links), 2))
    index = {link: at for at, link in enumerate(links.links)}
    sent = 0
    for stream in [] if reports is None else reports.streams():
        sent += stream.expected
        if collector is None or not routes.reaches(stream.switch, collector):
            continue
        bytes_each = FRAME_HEADER_BYTES + stream.payload_bytes / max(stream.received, 1)
        first = Endpoint(stream.switch, report_port(topology, routes, stream.switch, collector))
        behind = topology.peer(first).node
        ways = {} if behind == collector else routes.shares(behind, collector)
        for link, share in ((first, 1.0), *ways.items()):
            load[index[link]] += share * stream.expected * np.array([1.0, bytes_each])
    probed = probes.cost
    # a probe ends at the port to a host: it is never on that link
    probed[[topology.is_host(topology.peer(link).node) for link in links.links]] = 0
    rates = np.array([topology.link_at(link).rate_bps for link in links.links])
    shares = 8e9 * (probed[:, 1] + load[:, 1]) / (rates * max(elapsed_ns, 1))
    largest = int(shares.argmax())
    packets, volume = (int(column.sum()) for column in probed.T)
    report_packets, report_bytes = (round(float(column.sum())) for column in load.T)
    where = str(links.links[largest]) if packets or report_packets else ""
    return TelemetryCost(packets, volume, float(shares[largest]), where, sent, report_packets, report_bytes, forwarded)
