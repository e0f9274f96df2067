"""Reference model of the collector: reports processed one by one, in plain Python, by `int_report.decode` and dicts.

Numbers are −1 if a node could not supply them. Nothing is forgotten here except late reports: the tests draw few enough
flows, halves and streams.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from weir.topologies.model import Topology
from weir.wire import int_report
from weir.wire.int_report import ITEMS, InnerType, Report, ReportFlag

WIDTHS = {name: bits for item in ITEMS for name, bits in item.fields}
DOMAIN = 0x5745
MARKER = bytes.fromhex("576569722d494e54")
HOP_WORDS = (1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1)
NEAR, AFAR, NUMBERS = 1024, 1 << 20, 1 << 22


def signed(value: int) -> int:
    """Number as a signed integer of 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def told(values: dict[str, int], name: str) -> int:
    value = values.get(name, -1)
    return -1 if value == (1 << WIDTHS[name]) - 1 else signed(value)


@dataclass
class Link:
    capacity: float
    measured: bool = False
    base: tuple[int, int] | None = None
    """Bytes sent, and when."""
    rate: float | None = None
    egress_ns: int = 0
    at_ns: int = 0
    reports: int = 0
    late: int = 0
    resets: int = 0


@dataclass
class Queue:
    measured: bool = False
    egress_ns: int = 0
    depth: float = 0.0
    average: float = 0.0
    high: float = 0.0
    peak: float = 0.0
    sojourn_us: float = 0.0


@dataclass
class Stream:
    highest: int = 0
    span: int = 0
    expected: int = 0
    received: int = 0
    payload_bytes: int = 0
    duplicates: int = 0
    late: int = 0
    restarts: int = 0
    seen: dict[int, bytes] = field(default_factory=dict)
    """Distinguishing content of a number's report."""
    after_stray: int | None = None
    strange: tuple[int, bytes] | None = None
    begun_late: set[int] = field(default_factory=set)


@dataclass
class Hop:
    node: int
    rank: int
    ingress_port: int = -1
    egress_port: int = -1
    queue_packets: int = -1
    latency_us: float | None = None
    egress_ns: int | None = None
    heard_ns: int = 0


@dataclass
class Flow:
    heard_ns: int = 0
    reports: int = 0
    changes: int = 0
    paths: int = 0
    path_us: float = 0.0
    hops: list[Hop] = field(default_factory=list)


class Model:
    def __init__(self, topology: Topology, period_ns: int) -> None:
        self.constant_ns, self.shortest_ns, self.horizon_ns = 2 * period_ns, period_ns // 8, 3 * period_ns
        self.names = {switch.device_id: switch.name for switch in topology.switches}
        self.links = {
            (topology.switch(end.node).device_id, end.port): Link(topology.link_at(end).rate_bps / 8)
            for end in topology.directed_links
            if topology.is_switch(end.node)
        }
        self.queues: dict[tuple[int, int, int], Queue] = {}
        self.streams: dict[tuple[int, int], Stream] = {}
        self.flows: dict[tuple[int, int, int, int, int], Flow] = {}
        self.halves: dict[tuple[int, int], list[tuple[int, Flow, bool, int]]] = {}
        """Newest four halves, by node and the folded bits of the packet's number."""
        self.free_slots: dict[str, int] = {}
        self.drops: Counter[tuple[str, int]] = Counter()
        self.faults: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def take(self, payload: bytes, now_ns: int) -> None:
        self.counts["payload_bytes"] += len(payload)
        group = int_report.decode(payload)
        if group is None:
            self.faults["malformed"] += 1
            return
        if group.node_id not in self.names:
            self.faults["unknown node"] += 1
            return
        stream = self.streams.get((group.node_id, group.hardware_id))
        mark = payload[: min(len(payload) & ~7, 64)] + len(payload).to_bytes(8, "big")
        if stream is None:
            stream = self.streams[group.node_id, group.hardware_id] = Stream()
            _begin(stream, group.sequence, mark)
            stream.expected = stream.received = 1
            fate = "new"
        else:
            fate = _follow(stream, group.sequence, mark)
        self.faults["stray"] += fate == "stray"
        if fate in ("stray", "copy"):
            return
        self.counts["datagrams"] += 1
        stream.payload_bytes += len(payload)
        for report in group.reports:
            self._individual(group.node_id, report, fate == "late", now_ns)

    def _individual(self, node: int, report: Report, late: bool, now_ns: int) -> None:
        self.counts["reports"] += 1
        values = {name: told(dict(report.metadata), name) for name in WIDTHS}
        if values["free_slots"] != -1:
            self.free_slots[self.names[node]] = values["free_slots"]
        if report.flags & ReportFlag.DROPPED and values["drop_reason"] != -1:
            self.drops[self.names[node], values["drop_reason"]] += 1
        self._link(node, values, late, now_ns)
        if report.inner_type not in (InnerType.IPV4, InnerType.ETHERNET):
            return
        packet = report.inner[14:] if report.inner_type == InnerType.ETHERNET else report.inner
        if len(packet) < 20 or packet[0] != 0x45:
            self.faults["inner packet"] += 1
            return
        shim = _shim_at(packet)
        flow = self.flows.setdefault(_key(packet, shim), Flow())
        flow.heard_ns = now_ns
        flow.reports += 1
        ttl, sums = packet[8], None
        if shim is not None and packet[shim] >> 4 == 1:
            hops = _stack(packet[shim:])
            if hops is None:
                self.faults["stack"] += 1
                return
            for newest, hop in enumerate(hops):
                if hop["node_id"] != -1:
                    self._link(hop["node_id"], hop, late, now_ns)
                    self._hop(flow, hop["node_id"], 254 - ttl - newest, hop, late, now_ns)
            sums = [hop["latency_us"] for hop in hops] or None
        total = -1 if sums is None or min(sums) < 0 else sum(sums)
        if values["egress_port"] != -1 or values["latency_us"] != -1:
            self._hop(flow, node, 255 - ttl, values, late, now_ns)
            if sums:
                total = -1 if min(total, values["latency_us"]) < 0 else total + values["latency_us"]
        if values["packet_number"] != -1:
            mine = total if sums else values["latency_us"]
            total = self._join(node, values["packet_number"], flow, bool(sums), mine)
        if total >= 0:
            flow.paths += 1
            flow.path_us += (total - flow.path_us) / min(flow.paths, 16)

    def _link(self, node: int, values: dict[str, int], late: bool, now_ns: int) -> None:
        port, at_ns, sent = values["egress_port"], values["egress_ns"], values["bytes_sent"]
        if port == -1 or at_ns == -1:
            return
        link = self.links.get((node, port))
        if link is None:
            self.counts["unknown_links"] += 1
            return
        number = values["queue_id"] if 0 <= values["queue_id"] < 8 else 1
        queue = self.queues.setdefault((node, port, number), Queue())
        behind = signed(link.egress_ns - at_ns)
        if link.measured and behind > 0 and (behind <= self.horizon_ns or late):
            link.late += 1
            if values["queue_packets"] != -1:
                queue.high = max(queue.high, values["queue_packets"])
                queue.peak = max(queue.peak, values["queue_packets"])
            return
        self._queue(queue, values)
        if sent != -1:
            if link.base is None:
                link.base = sent, at_ns
            else:
                dt, more = signed(at_ns - link.base[1]), (sent - link.base[0]) % (1 << 64)
                possible = more <= 2 * link.capacity * dt * 1e-9 + 65_536
                if possible and dt >= self.shortest_ns:
                    rate = more / (dt * 1e-9)
                    weight = min(dt, self.constant_ns) / self.constant_ns
                    link.rate = rate if link.rate is None else link.rate + weight * (rate - link.rate)
                    link.base = sent, at_ns
                elif not possible or dt < 0:
                    link.resets += 1
                    link.base = sent, at_ns
        link.measured = True
        link.reports += 1
        link.egress_ns, link.at_ns = at_ns, max(link.at_ns, now_ns)

    def _queue(self, queue: Queue, values: dict[str, int]) -> None:
        depth, latency, at_ns = values["queue_packets"], values["latency_us"], values["egress_ns"]
        dt = signed(at_ns - queue.egress_ns)
        anew = not queue.measured or dt < 0
        weight = 1.0 if anew else min(dt, self.constant_ns) / self.constant_ns
        if depth != -1:
            queue.depth = depth
            queue.average += weight * (depth - queue.average)
            queue.high = depth if anew else max(queue.high, depth)
            queue.peak = max(queue.peak, depth)
        if latency != -1:
            queue.sojourn_us += weight * (latency - queue.sojourn_us)
        if depth != -1 or latency != -1:
            queue.measured, queue.egress_ns = True, at_ns

    def _hop(self, flow: Flow, node: int, rank: int, values: dict[str, int], late: bool, now_ns: int) -> None:
        hop = next((hop for hop in flow.hops if hop.node == node), None)
        anew = hop is None
        if hop is None:
            there = [hop for hop in flow.hops if hop.rank == rank]
            flow.changes += len(there)
            if not there and len(flow.hops) == 16:
                return
            if not there:
                flow.hops.append(Hop(-1, rank))
            for hop in there or flow.hops[-1:]:
                hop.node = -1
        assert hop is not None
        at_ns, latency = values["egress_ns"], values["latency_us"]
        since_ns = None if anew else hop.egress_ns
        dt = 0 if since_ns is None or at_ns == -1 else signed(at_ns - since_ns)
        if (-(1 << 62) if late else -self.horizon_ns) <= dt < 0:
            return
        flow.changes += not anew and hop.egress_port != values["egress_port"]
        hop.node, hop.rank, hop.heard_ns = node, rank, now_ns
        hop.ingress_port, hop.egress_port = values["ingress_port"], values["egress_port"]
        if anew:
            hop.latency_us, hop.queue_packets, hop.egress_ns = None, -1, None
        if at_ns != -1:
            hop.egress_ns = at_ns
        if values["queue_packets"] != -1:
            hop.queue_packets = values["queue_packets"]
        if latency != -1 and (since_ns is None or hop.latency_us is None or dt < 0):
            hop.latency_us = float(latency)
        elif latency != -1:
            assert hop.latency_us is not None
            hop.latency_us += min(dt, self.constant_ns) / self.constant_ns * (latency - hop.latency_us)

    def _join(self, node: int, number: int, flow: Flow, is_stack: bool, latency_us: int) -> int:
        place = (number ^ number >> 10 ^ number >> 20 ^ number >> 30) % 1024
        waiting = self.halves.setdefault((node, place), [])
        for half in waiting:
            if half[0] == number and half[1] is flow and half[2] != is_stack:
                waiting.remove(half)
                self.counts["joined"] += 1
                return -1 if min(half[3], latency_us) < 0 else half[3] + latency_us
        waiting.insert(0, (number, flow, is_stack, latency_us))
        self.counts["unjoined"] += len(waiting) > 4
        del waiting[4:]
        return -1


def _begin(stream: Stream, number: int, mark: bytes) -> None:
    stream.highest, stream.span, stream.seen = number, 1, {number: mark}
    stream.after_stray, stream.strange, stream.begun_late = None, None, set()


def _follow(stream: Stream, number: int, mark: bytes) -> str:
    ahead = (number - stream.highest + NUMBERS // 2) % NUMBERS - NUMBERS // 2
    if 0 < ahead <= AFAR:
        stream.highest, stream.strange, stream.begun_late = number, None, set()
        stream.seen[number] = mark
        stream.seen = {n: m for n, m in stream.seen.items() if (number - n) % NUMBERS < NEAR}
        stream.expected += ahead
        stream.span += ahead
        stream.received += 1
        return "new"
    if -NEAR < ahead <= 0 and -ahead < stream.span + 64:
        known = stream.seen.get(number)
        if known is None:
            stream.seen[number] = mark
            before = max(0, 1 - ahead - stream.span)
            stream.expected += before
            stream.span += before
            stream.received += 1
            stream.late += 1
            if number < 64:
                stream.begun_late.add(number)
            return "late"
        if mark == known or (number, mark) == stream.strange:
            stream.duplicates += 1
            return "copy"
        if stream.strange is None or stream.strange[0] == number:
            stream.strange = number, mark
            return "stray"
        first, first_mark = stream.strange
        low = max(first, number) < NEAR
        after = 0 < (number - first) % NUMBERS < NUMBERS // 2
        highest = max(first, number, *stream.begun_late) if low else number if after else first
        lowest = 0 if low else first if after else number
        kept = {n: stream.seen[n] for n in stream.begun_late} if low else {}
        _begin(stream, highest, mark)
        stream.seen = {**kept, first: first_mark, number: mark}
        stream.span = (highest - lowest) % NUMBERS + 1
        stream.expected += stream.span
        stream.received += 2
        stream.restarts += 1
        return "new"
    if number == stream.after_stray:
        _begin(stream, number, mark)
        stream.expected += 1
        stream.received += 1
        stream.restarts += 1
        return "new"
    stream.after_stray = (number + 1) % NUMBERS
    return "stray"


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _shim_at(packet: bytes) -> int | None:
    behind = {17: 28, 6: 40}.get(packet[9])
    if behind is None or len(packet) < behind + 4:
        return None
    if packet[9] == 17 and _number(packet[22:24]) == 5000:
        return behind
    if packet[behind : behind + 8] == MARKER and len(packet) >= behind + 12:
        return behind + 8
    return behind if packet[1] >> 2 & 1 else None


def _key(packet: bytes, shim: int | None) -> tuple[int, int, int, int, int]:
    """Addresses, protocol, ports: as they were before INT."""
    protocol, source, destination = packet[9], 0, 0
    if protocol in (6, 17) and len(packet) >= 24:
        source, destination = _number(packet[20:22]), _number(packet[22:24])
    if shim is not None and packet[shim] >> 2 & 3 == 1:
        destination = _number(packet[shim + 2 : shim + 4])
    if shim is not None and packet[shim] >> 2 & 3 == 2:
        protocol, inner = packet[shim + 3], packet[shim + 4 + 4 * packet[shim + 1] :]
        source, destination = (_number(inner[:2]), _number(inner[2:4])) if len(inner) >= 4 else (0, 0)
    return _number(packet[12:16]), _number(packet[16:20]), protocol, source, destination


def _stack(shim: bytes) -> list[dict[str, int]] | None:
    """The hops behind a shim, the newest first; None where lengths contradict each other."""
    words = shim[1] - 3
    if words < 0 or 16 + 4 * words > len(shim):
        return None
    each, instructions, ours = shim[6] & 0x1F, _number(shim[8:10]), _number(shim[10:12]) == DOMAIN
    domain = _number(shim[12:14]) if ours else 0
    asked = sum(size for bit, size in enumerate(HOP_WORDS) if instructions >> (15 - bit) & 1)
    sent_at = 4 * asked if domain >> 15 else None
    asked += (instructions & 1) + domain.bit_count() + (domain >> 15)
    if asked > each or (ours and asked != each) or (words and words % each):
        return None
    hops = []
    for index in range(16, 16 + 4 * words, 4 * each or 4):
        raw: dict[int, bytes] = {}
        place = index
        for bit, size in enumerate(HOP_WORDS):
            if instructions >> (15 - bit) & 1:
                raw[bit] = shim[place : place + 4 * size]
                place += 4 * size
        hop: dict[str, Any] = {
            "node_id": raw.get(0),
            "ingress_port": raw[1][:2] if 1 in raw else None,
            "egress_port": raw[1][2:] if 1 in raw else None,
            "latency_us": raw.get(2),
            "queue_id": raw[3][:1] if 3 in raw else None,
            "queue_packets": raw[3][1:] if 3 in raw else None,
            "egress_ns": raw.get(5),
            "bytes_sent": shim[index + sent_at : index + sent_at + 8] if sent_at is not None else None,
        }
        hops.append({name: _said(value) for name, value in hop.items()})
    return hops


def _said(value: bytes | None) -> int:
    return -1 if value is None or value == b"\xff" * len(value) else signed(_number(value))
