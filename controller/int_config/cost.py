"""Cost of telemetry for the fabric that it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ...wire.frames import FRAME_HEADER_BYTES
from ..telemetry.link_state import LinkState
from ..telemetry.probe_reports import ProbeReports
from .table_entries import report_shares

if TYPE_CHECKING:
    from ..telemetry.collector import ReportCollector


@dataclass(frozen=True, slots=True)
class TelemetryCost:
    """Telemetry's traffic on all links together, and its largest share of a link."""

    packets: int
    """Packets of probes, each counted on every link that it crossed; lost ones where they presumably were."""
    bytes: int
    """Bytes with Ethernet headers, and the words that hops added on the way."""
    largest_share: float
    """Largest share of a link's rate, all telemetry together, 0…1."""
    where: str
    """That link; empty where nothing was sent."""
    reports: int = 0
    """That switches have sent by themselves, lost ones among them."""
    report_packets: int = 0
    """Packets that brought them, each counted on every link that it crossed; none where they go to the controller by
    P4Runtime.
    """
    report_bytes: int = 0
    forwarded: int | None = None
    """Packets that have left switches' ports meanwhile, of any kind; None: not counted."""
    int_packets: int | None = 0
    """Watched packets on links with INT headers in them, each counted on every link; None: not counted. They are not
    additional packets.
    """
    int_bytes: int | None = 0
    """Bytes of those headers, including hops' data and marks."""
    int_unread: int | None = None
    """Results with lanes, at all hosts, that came without INT or with such as their window law could not read: damaged,
    of unknown links, or not whole. None: no law reads any, or the record is of old.
    """

    def __str__(self) -> str:
        parts = [f"{self.packets} probe packets on links, {self.bytes / 1e6:.2f} MB"]
        if self.reports:
            rate = "" if self.forwarded is None else f", one for {self.forwarded / self.reports:.0f} packets forwarded"
            on_links = f"{self.report_packets} packets on links, {self.report_bytes / 1e6:.2f} MB"
            parts.append(f"{self.reports} reports{rate}: {on_links}")
        if self.int_packets is None or self.int_bytes is None:
            parts.append("INT headers in watched packets are not counted here")
        elif self.int_packets:
            parts.append(f"INT headers in {self.int_packets} packets on links, {self.int_bytes / 1e6:.2f} MB")
        if self.int_unread:
            parts.append(f"{self.int_unread} results without INT that a law could read")
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
    headers: Mapping[Endpoint, tuple[int, int]] | None = None,
    unread: int | None = None,
) -> TelemetryCost:
    """Compute the bytes and packets of telemetry on links since the controller began.

    Reports count with the mean length of received ones, on the present paths to the collector's host.

    Args:
        topology: Fabric.
        routes: Its IP routes.
        links: State of the links.
        probes: Received probes.
        reports: Received reports; None: switches send none.
        collector: Host that receives reports; None: reports are on no link.
        elapsed_ns: Time since the controller began, in ns.
        forwarded: Packets that switches have forwarded; None: not counted.
        headers: Packets with INT headers, and bytes of these headers, by link; None: not counted.
        unread: Results without readable INT, as in `TelemetryCost.int_unread`.
    """
    load = np.zeros((len(links.links), 2))
    index = {link: at for at, link in enumerate(links.links)}
    sent = 0
    for stream in [] if reports is None else reports.streams():
        sent += stream.expected
        if collector is None:
            continue
        bytes_each = FRAME_HEADER_BYTES + stream.payload_bytes / max(stream.received, 1)
        for link, share in report_shares(topology, routes, stream.switch, collector).items():
            load[index[link]] += share * stream.expected * np.array([1.0, bytes_each])
    probed = probes.cost
    # a probe ends at the port to a host: it is never on that link
    probed[[topology.is_host(topology.peer(link).node) for link in links.links]] = 0
    inside = np.array([(0, 0) if headers is None else headers.get(link, (0, 0)) for link in links.links])
    rates = np.array([topology.link_at(link).rate_bps for link in links.links])
    shares = 8e9 * (probed[:, 1] + load[:, 1] + inside[:, 1]) / (rates * max(elapsed_ns, 1))
    largest = int(shares.argmax())
    packets, volume = (int(column.sum()) for column in probed.T)
    report_packets, report_bytes = (round(float(column.sum())) for column in load.T)
    int_packets, int_bytes = (int(column.sum()) for column in inside.T)
    return TelemetryCost(
        packets=packets,
        bytes=volume,
        largest_share=float(shares[largest]),
        where=str(links.links[largest]) if packets or report_packets or int_packets else "",
        reports=sent,
        report_packets=report_packets,
        report_bytes=report_bytes,
        forwarded=forwarded,
        int_packets=None if headers is None else int_packets,
        int_bytes=None if headers is None else int_bytes,
        int_unread=unread,
    )
