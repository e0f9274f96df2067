"""Telemetry reports 2.0 as a source: nodes' data on links, queues, flows and themselves, and lost reports.

::

    datagrams ─▶ well-formed? ─▶ new? (sequence numbers, by node and hardware id) ─┬─▶ links and queues (LinkState)
                     │ no            │ no                                          ├─▶ flows: path, latency by hop
                  counted by kind  counted                                         ├─▶ halves of one packet joined
                                                                                   └─▶ free slots, drops by reason

Only numbers that one node counted are compared with each other, and only times that one node measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...topologies.model import Topology
from ...wire.frames import FRAME_HEADER_BYTES, UDP_BYTES
from ...wire.int_md import HOP, KEPT_ITEMS
from ...wire.int_report import REPORT_PORT
from ...wire.report_native import LAYOUTS
from .flow_native import FLOW, FLOW_HOP, FLOWS, HALF, HALVES, MAX_HOPS
from .link_state import STALE_PERIODS, LinkState, units_of
from .report_native import FAULTS, REASONS, TALLY, hash_table, read_reports
from .stream_native import HARDWARE_IDS, STREAM, WINDOW

_IPV4_NO_OPTIONS: Final = b"\x08\x00\x45"
_UDP: Final = b"\x11"
_REMEMBERED_PERIODS: Final = 16
"""Number of periods over which the share of lost reports is computed, as for probes."""


@dataclass(frozen=True, slots=True)
class StreamView:
    """The reports of one (node, hardware id)."""

    switch: str
    hardware_id: int
    expected: int
    received: int
    duplicates: int
    late: int
    """Received after one with a higher number."""
    restarts: int
    payload_bytes: int
    """UDP payload of those received."""

    @property
    def lost(self) -> int:
        """Exactly, as far as reports come no later than 1024 others."""
        return self.expected - self.received


@dataclass(frozen=True, slots=True)
class FlowHop:
    """One node on a flow's way."""

    switch: str
    """Its name, or its id where the topology has none with it."""
    ingress_port: int | None
    egress_port: int | None
    queue_packets: int | None
    """Depth of the queue that its packets left by, as the newest report has it."""
    latency_us: float | None
    """Mean latency from ingress to egress over reports, in µs."""


@dataclass(frozen=True, slots=True)
class FlowView:
    """A flow that appears in reports."""

    source: IPv4Address
    destination: IPv4Address
    protocol: int
    source_port: int
    destination_port: int
    path: tuple[FlowHop, ...]
    """Hops in the order of the packets' TTL."""
    reports: int
    path_changes: int
    path_us: float | None
    """Mean sum of latencies of packets that reported all their hops; None: no packet did, or the fabric's switches use
    different units.
    """
    age_ns: int


class ReportCollector:
    """Decodes report datagrams in batches, and updates the links' state."""

    def __init__(self, topology: Topology, links: LinkState) -> None:
        self._links = links
        by_id = sorted((switch.device_id, switch.name) for switch in topology.switches)
        self._names = [name for _, name in by_id]
        self._name_of = dict(by_id)
        self._units_of = {switch.device_id: units_of(switch.target) for switch in topology.switches}
        ticks = {us for _, us in self._units_of.values()}
        self._path_tick_us = ticks.pop() if len(ticks) == 1 else None
        """Latencies of different units have no sum."""
        count = len(by_id)
        self._nodes = np.array([number for number, _ in by_id], np.int64)
        self._streams = np.zeros((HARDWARE_IDS, count), STREAM)
        self._seen = np.zeros((HARDWARE_IDS, count, WINDOW), np.uint32)
        self._flow_numbers = np.zeros(FLOWS, np.int32)
        self._flows = np.zeros(FLOWS, FLOW)
        self._flow_hops = np.zeros((FLOWS, MAX_HOPS), FLOW_HOP)
        self._halves = np.zeros((count, HALVES), HALF)
        self._free_slots = np.full(count, -1, np.int64)
        self._drops = np.zeros((count, REASONS), np.int64)
        self._faults = np.zeros(len(FAULTS), np.int64)
        self._tally = np.zeros(1, TALLY)
        self._layouts = np.full(LAYOUTS, -1, np.int64)
        self._items = np.zeros(KEPT_ITEMS, np.int64)
        self._one_hop = np.zeros(1, HOP)
        self._node_of_link = np.searchsorted(
            self._nodes, np.array([topology.switch(link.node).device_id for link in links.links], np.int64)
        )
        self._marks: deque[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = deque(maxlen=_REMEMBERED_PERIODS)
        """(when, expected, received) by node, a period apart."""
        self._node_table = hash_table(self._nodes, np.arange(count))
        self._link_table = hash_table(links.keys, links.link_of_key)
        self._into = (
            self._node_table.ctypes.data,
            len(self._node_table),
            count,
            self._link_table.ctypes.data,
            len(self._link_table),
            *(
                array.ctypes.data
                for array in (
                    self._streams,
                    self._seen,
                    self._flow_numbers,
                    self._flows,
                    self._flow_hops,
                    self._halves,
                    self._free_slots,
                    self._drops,
                    self._faults,
                    self._tally,
                    self._layouts,
                    self._items,
                    self._one_hop,
                )
            ),
            *links.into,
        )
        links.attach(self)

    # --- receiving ---

    def receive(self, datagrams: Iterable[bytes], now_ns: int) -> None:
        """Process UDP payloads in the order of their arrival."""
        together = list(datagrams)
        lengths = np.array(list(map(len, together)), np.int64)
        starts = lengths.cumsum() - lengths
        data = np.frombuffer(b"".join(together), np.uint8)
        self.receive_batch(data, starts, lengths, len(together), now_ns)

    def receive_frames(self, frames: Iterable[bytes], now_ns: int, port: int = REPORT_PORT) -> list[bytes]:
        """Read whole frames from a switch's CPU port; those to this UDP port are reports. Returns the other frames.

        Bytes behind a datagram are ignored: chips cut all mirrored packets to the same length.
        """
        reports: list[bytes] = []
        others: list[bytes] = []
        for frame in frames:
            is_report = frame[12:15] == _IPV4_NO_OPTIONS and frame[23:24] == _UDP and frame[36:38] == port.to_bytes(2)
            (reports if is_report else others).append(frame)
        if reports:
            ends = (FRAME_HEADER_BYTES - UDP_BYTES + int.from_bytes(frame[38:40]) for frame in reports)
            self.receive((frame[FRAME_HEADER_BYTES:end] for frame, end in zip(reports, ends, strict=True)), now_ns)
        return others

    def receive_batch(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        count: int,
        now_ns: int,
    ) -> None:
        """Process datagrams that lie in one buffer.

        Args:
            data: The buffer, uint8.
            starts: Place of each datagram in `data`, int64.
            lengths: Length of each datagram in bytes, int64.
            count: Number of datagrams, at most the length of `starts`.
            now_ns: Present time, in ns.
        """
        read_reports(
            data.ctypes.data,
            data.size,
            starts.ctypes.data,
            lengths.ctypes.data,
            count,
            now_ns,
            *self._into,
        )
        if not self._marks or now_ns >= self._marks[-1][0] + self._links.period_ns:
            self._marks.append((now_ns, *self._by_node()))

    # --- readings ---

    @property
    def reports(self) -> int:
        """Individual reports taken."""
        return int(self._tally["reports"][0])

    @property
    def datagrams(self) -> int:
        """Datagrams taken: well-formed, and no copies."""
        return int(self._tally["datagrams"][0])

    @property
    def payload_bytes(self) -> int:
        """UDP payload of all that came."""
        return int(self._tally["bytes"][0])

    @property
    def joined(self) -> int:
        """Packets of which both the upstream stack and the sink's own report came."""
        return int(self._tally["joined"][0])

    @property
    def unjoined(self) -> int:
        """Number of reports without the other report of their packet.

        If reports have packet numbers, it must come within 3072 packets of its sink.
        """
        return int(self._tally["unjoined"][0])

    @property
    def unknown_links(self) -> int:
        """Reports of a node or port that the topology does not have."""
        return int(self._tally["unknown_links"][0])

    @property
    def faults(self) -> Mapping[str, int]:
        """Number of dropped reports by fault; only kinds that occurred.

        A fault of an inner packet or its stack affects only their data.
        """
        return {kind: count for kind, count in zip(FAULTS, self._faults.tolist(), strict=True) if count}

    @property
    def free_slots(self) -> Mapping[str, int]:
        """Aggregation slots that no job has, of switches that told."""
        return {name: free for name, free in zip(self._names, self._free_slots.tolist(), strict=True) if free >= 0}

    @property
    def drops(self) -> Mapping[tuple[str, int], int]:
        """Packets that were reported as dropped, by switch and reason."""
        return {
            (self._names[node], int(reason)): int(self._drops[node, reason])
            for node, reason in np.argwhere(self._drops)
        }

    def streams(self) -> Iterator[StreamView]:
        """Yield streams of every (node, hardware id) that has sent a report."""
        for node, hardware in np.argwhere(self._streams["begun"].T).tolist():
            record = self._streams[hardware, node]
            yield StreamView(
                self._names[node],
                hardware,
                *(int(record[name]) for name in ("expected", "received", "duplicates", "late", "restarts", "bytes")),
            )

    def flows(self, now_ns: int, within_ns: int | None = None) -> Iterator[FlowView]:
        """Yield the flows of which a report came `within_ns`, the newest first; None: all that are remembered. A
        node is on a flow's path if it told of the flow within three periods of the newest report.
        """
        ages = now_ns - self._flows["heard_ns"][: int(self._tally["flows"][0])]
        known = np.flatnonzero(ages <= within_ns) if within_ns is not None else np.arange(len(ages))
        for index in known[np.argsort(ages[known], kind="stable")].tolist():
            flow = self._flows[index]
            hops = self._flow_hops[index, : int(flow["hops"])]
            hops = hops[flow["heard_ns"] - hops["heard_ns"] <= STALE_PERIODS * self._links.period_ns]
            yield FlowView(
                IPv4Address(int(flow["addresses"]) >> 32),
                IPv4Address(int(flow["addresses"]) & 0xFFFF_FFFF),
                int(flow["ports"]) & 0xFF,
                int(flow["ports"]) >> 24,
                int(flow["ports"]) >> 8 & 0xFFFF,
                tuple(self._hop(hop) for hop in hops[np.argsort(hops["rank"], kind="stable")]),
                int(flow["reports"]),
                int(flow["changes"]),
                float(flow["path_us"]) * self._path_tick_us if flow["paths"] and self._path_tick_us else None,
                int(ages[index]),
            )

    def _hop(self, hop: np.void) -> FlowHop:
        node = int(hop["node"])
        packets, us = self._units_of.get(node, (1.0, 1.0))
        depth = _known(hop["queue_packets"])
        return FlowHop(
            self._name_of.get(node, str(node)),
            _known(hop["ingress_port"]),
            _known(hop["egress_port"]),
            None if depth is None else round(depth * packets),
            None if np.isnan(hop["latency_us"]) else float(hop["latency_us"]) * us,
        )

    # --- as a source of the links' state ---

    def loss(self, now_ns: int) -> NDArray[np.float64]:
        """Return NaN for each link: lost reports say nothing about the loss of the links that they describe."""
        return np.full(len(self._links.links), np.nan)

    def reports_lost(self, now_ns: int) -> NDArray[np.float64]:
        """Return the lost share of the reports of each link's node, over the last periods."""
        if not self._marks:
            return np.full(len(self._links.links), np.nan)
        _, expected_then, received_then = self._marks[0]
        expected, received = self._by_node()
        if len(self._marks) < _REMEMBERED_PERIODS:
            expected_then, received_then = np.zeros_like(expected), np.zeros_like(received)
        due = expected - expected_then
        share = np.where(due > 0, (due - (received - received_then)) / np.maximum(due, 1), np.nan)
        by_link: NDArray[np.float64] = np.clip(share, 0.0, 1.0)[self._node_of_link]
        return by_link

    def _by_node(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._streams["expected"].sum(axis=0), self._streams["received"].sum(axis=0)


def _known(value: np.int64) -> int | None:
    return None if value == -1 else int(value)
