"""INT on fabrics in virtual time: reports equal the emulator's records, and delivered packets equal the sent ones.

Random trees, bitmaps, hop limits, MTUs, flows and bursts. The expected stack is put together here by INT 2.1, from the
records of `int_fabric.Tap`.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pytest

from weir.tests.p4src.int_fabric import (
    COLLECTOR,
    NORMAL,
    Departure,
    Tree,
    Watch,
    as_delivered,
    l4_checksum,
    tcp_frame,
    udp_frame,
)
from weir.wire import int_report
from weir.wire.int_md import DOMAIN, hop_words
from weir.wire.int_report import DomainBit, InnerType, Report, ReportFlag, ReportType
from weir.wire.int_shim import DSCP_BIT, PROBE_MARKER

ONES = b"\xff" * 4
BASELINE = range(15)


@dataclass
class Packet:
    """One packet of the traffic, and the INT requested for it."""

    frame: bytes
    source: int
    destination: int
    watch: Watch | None

    @property
    def is_tcp(self) -> bool:
        return self.frame[23] == 6


def switch_number(departure: Departure) -> int:
    return int(departure.switch[1:])


def item(bit: int, departure: Departure) -> bytes:
    """Data of a node for one bit of the instruction bitmap (0: the most significant)."""
    known = {
        0: struct.pack("!I", switch_number(departure) + 1),
        1: struct.pack("!HH", departure.ingress_port, departure.port),
        2: struct.pack("!I", departure.egress_us - departure.ingress_us),
        3: struct.pack("!I", departure.priority << 24 | departure.depth),
        4: struct.pack("!Q", 1000 * departure.ingress_us),
        5: struct.pack("!Q", 1000 * departure.egress_us),
        6: struct.pack("!II", 70000 + departure.ingress_port, 70000 + departure.port),
        7: struct.pack("!I", min(departure.sent_in_window, 2**24 - 1)),
    }
    return known.get(bit, ONES)


def domain_item(bit: int, departure: Departure) -> bytes:
    known = {0: struct.pack("!Q", departure.sent_before), 1: struct.pack("!I", 1000 - switch_number(departure))}
    return known.get(bit, ONES)


def pushed(watch: Watch, departure: Departure) -> bytes:
    """A hop's metadata: in the order of the bits, the domain's behind them, the checksum complement last."""
    asked = [item(bit, departure) for bit in BASELINE if watch.instructions << bit & 0x8000]
    asked += [domain_item(bit, departure) for bit in range(16) if watch.domain_instructions << bit & 0x8000]
    return b"".join(asked) + (ONES if watch.instructions & 1 else b"")


class Expected:
    """A packet's INT headers behind each switch, by INT 2.1."""

    def __init__(self, packet: Packet, tree: Tree) -> None:
        assert packet.watch
        self.watch, self.mark = packet.watch, tree.presence
        self.wrapped = packet.is_tcp and tree.presence == "udp-port"
        self.flags, self.remaining, self.stack = 0, self.watch.hops, b""
        self.mtu = tree.mtu
        self.original = packet.frame[14:]
        extra = 8 if self.wrapped or tree.presence == "probe-marker" else 0
        self.fixed = 16 + extra
        self.starts = len(self.original) + self.fixed <= tree.mtu

    def cross(self, departure: Departure) -> None:
        """A node that pushes, or says why it does not."""
        words = hop_words(self.watch.instructions, self.watch.domain_instructions)
        if self.remaining == 0:
            self.flags |= 0x04
        elif len(self.original) + self.fixed + len(self.stack) + 4 * words > self.mtu:
            self.flags |= 0x02
        else:
            self.remaining -= 1
            self.stack = pushed(self.watch, departure) + self.stack

    def headers(self) -> bytes:
        """Marker, shim, header and stack."""
        kind = 1 if self.watch.mode == "md" else 3
        protocol, port = self.original[9], self.original[22:24]
        if self.mark != "udp-port":
            npt, original = 0, bytes([0, self.original[1] & 0xFC])
        elif self.wrapped:
            npt, original = 2, bytes([0, protocol])
        else:
            npt, original = 1, port
        shim = bytes([kind << 4 | npt << 2, 3 + len(self.stack) // 4]) + original
        words = hop_words(self.watch.instructions, self.watch.domain_instructions)
        first = bytes([0x20 | self.flags, 0, words, self.remaining]) if self.watch.mode == "md" else b"\x20\0\0\0"
        bitmaps = struct.pack("!HHHH", self.watch.instructions, DOMAIN, self.watch.domain_instructions, 0)
        marker = struct.pack("!Q", PROBE_MARKER) if self.mark == "probe-marker" else b""
        return marker + shim + first + bitmaps + self.stack

    def packet(self, ttl: int) -> bytes:
        """The whole IPv4 packet with INT in it; the source port of a new UDP header is left 0."""
        headers = self.headers()
        size = len(self.original) + len(headers) + (8 if self.wrapped else 0)
        ip = bytearray(self.original[:20])
        ip[2:4] = size.to_bytes(2, "big")
        ip[8] = ttl
        rest = self.original[20:]
        if self.wrapped:
            ip[9] = 17
            l4 = struct.pack("!HHHH", 0, 5000, size - 20, 0) + headers + rest
        elif self.original[9] == 6:
            l4 = rest[:20] + headers + rest[20:]
        else:
            port = struct.pack("!H", 5000) if self.mark == "udp-port" else rest[2:4]
            l4 = rest[:2] + port + struct.pack("!H", size - 20) + rest[6:8] + headers + rest[8:]
        if self.mark == "dscp":
            ip[1] |= DSCP_BIT << 2
        ip[10:12] = b"\0\0"
        packet = bytearray(bytes(ip) + l4)
        if self.original[9] == 6 and not self.wrapped:
            packet[36:38] = l4_checksum(bytes(packet)).to_bytes(2, "big")
        elif not self.wrapped and rest[6:8] != b"\0\0":
            packet[26:28] = (l4_checksum(bytes(packet)) or 0xFFFF).to_bytes(2, "big")
        return bytes(packet)


def comparable(packet: bytes, wrapped: bool) -> bytes:
    """A packet without its IPv4 checksum and, of a new UDP header, the source port."""
    packet = packet[:10] + b"\0\0" + packet[12:]
    return packet[:20] + b"\0\0" + packet[22:] if wrapped else packet


def own_metadata(watch: Watch, departure: Departure) -> dict[str, int]:
    """Content of a node's own report: the available data among the requested bits."""
    found: dict[str, int] = {}
    bits = watch.instructions & 0x7F00
    domain_bits = watch.domain_instructions & (DomainBit.BYTES_SENT | DomainBit.FREE_SLOTS)
    for each in int_report.ITEMS:
        if not each.bit & (domain_bits if each.domain else bits):
            continue
        bit = 16 - each.bit.bit_length()
        data = domain_item(bit, departure) if each.domain else item(bit, departure)
        for name, width in each.fields:
            found[name] = int.from_bytes(data[: width // 8], "big")
            data = data[width // 8 :]
    return found


def bitmap(rng: np.random.Generator) -> int:
    return int(rng.choice([0x8000, 0xF000, 0xFC00, 0xFF00, 0xFF80, 0xFF81, int(rng.integers(1, 2**16))]))


def random_watch(rng: np.random.Generator, mode: str) -> Watch:
    while True:
        watch = Watch(mode, bitmap(rng), int(rng.choice([0, 0x8000, 0xC000, int(rng.integers(2**16))])))
        if 0 < hop_words(watch.instructions, watch.domain_instructions) <= 31:
            watch.hops = int(rng.choice([0, 1, 2, 16]))
            return watch


def traffic(rng: np.random.Generator, tree: Tree, mode: str, count: int) -> list[Packet]:
    """Flows between hosts, most of them watched where they begin (XD: everywhere), and bursts of their packets."""
    hosts = sorted(tree.hosts)
    flows: list[tuple[int, int, int, bool, bool, Watch | None]] = []
    for index in range(6):
        source, destination = (int(host) for host in rng.choice(hosts, 2, replace=False))
        port, is_tcp = 2000 + index, bool(rng.random() < 0.5)
        watch = random_watch(rng, mode) if index < 5 else None
        if watch:
            watch.source, watch.source_port = source, port
            watch.protocol = 6 if is_tcp else 17
            at = range(tree.switches) if mode == "xd" else (tree.hosts[source][0],)
            for number in at:
                tree.watch(number, watch, index)
        flows.append((source, destination, port, is_tcp, bool(rng.random() < 0.7), watch))
    packets = []
    for number in range(1, count + 1):
        source, destination, port, is_tcp, checksum, watch = flows[int(rng.integers(len(flows)))]
        room = tree.mtu - 52
        size = int(
            rng.choice([0, 1, 100, room, room - 24, int(rng.integers(room - 200, room)), int(rng.integers(room))])
        )
        payload = rng.bytes(size)
        dscp = int(rng.choice([0, 48] if tree.presence == "dscp" else [0, 1, 48]))
        if is_tcp:
            frame = tcp_frame(source, destination, payload, number, source_port=port, destination_port=80, dscp=dscp)
        else:
            frame = udp_frame(
                source, destination, payload, number, checksum=checksum, source_port=port, destination_port=9, dscp=dscp
            )
        packets.append(Packet(frame, source, destination, watch))
    return packets


def run(tree: Tree, packets: list[Packet]) -> None:
    """Send them in bursts, and let all arrive."""
    at = 0
    for packet in packets:
        if tree.rng.random() < 0.1:
            at += int(tree.rng.integers(0, 3_000_000))
            tree.run(at)
        tree.fabric.send(tree.host(packet.source), packet.frame)
    tree.run(at + 3_000_000_000)


def collected(tree: Tree) -> list[tuple[int, Report]]:
    """(switch, report) in the order of arrival; sequence numbers have no gap."""
    found = []
    expected: Counter[int] = Counter()
    for frame in tree.received["collector"]:
        group = int_report.decode(frame[42:])
        assert group is not None, frame.hex()
        assert l4_sane(frame)
        assert group.sequence == expected[group.node_id], "reports are numbered"
        expected[group.node_id] += 1
        (report,) = group.reports
        found.append((group.node_id - 1, report))
    return found


def l4_sane(frame: bytes) -> bool:
    """A report is IPv4 with DF, to the collector, and its lengths say what it is."""
    total = int.from_bytes(frame[16:18], "big")
    udp = int.from_bytes(frame[38:40], "big")
    return (total, udp, frame[20:22], frame[30:34]) == (
        len(frame) - 14,
        total - 20,
        b"\x40\0",
        COLLECTOR.to_bytes(4, "big"),
    )


def check(tree: Tree, packets: list[Packet]) -> Counter[str]:
    """Everything delivered, every report; returns how often each case was met."""
    met: Counter[str] = Counter()
    by_packet: dict[int, list[Departure]] = defaultdict(list)
    for departure in tree.log:
        if departure.instance_type == NORMAL and departure.packet:
            by_packet[departure.packet].append(departure)
    stacks: dict[tuple[int, int], Report] = {}
    own: dict[tuple[int, int], list[Report]] = defaultdict(list)
    for switch, report in collected(tree):
        number = int.from_bytes(report.inner[4:6], "big")
        assert (report.report_type, report.inner_type) == (ReportType.INT, InnerType.IPV4)
        assert report.flags == ReportFlag.TRACKED_FLOW
        if set(report.metadata) == {"ingress_ns", "packet_number"} and has_headers(tree, packets[number - 1], report):
            assert (switch, number) not in stacks
            stacks[switch, number] = report
        else:
            own[switch, number].append(report)

    for number, packet in enumerate(packets, 1):
        path = tree.path(tree.hosts[packet.source][0], tree.hosts[packet.destination][0])
        departures = by_packet[number]
        assert [switch_number(each) for each in departures] == path
        met["delivered"] += 1
        watch = packet.watch
        if watch is None:
            assert all((switch, number) not in own for switch in path)
            continue
        embeds = watch.mode != "xd" and len(path) > 1
        sink, expected = path[-1], Expected(packet, tree)
        if embeds and not expected.starts:
            met["no room for INT"] += 1
            assert all((switch, number) not in own for switch in path)
            continue
        wanted = dict.fromkeys(path, watch) if watch.mode != "md" or not embeds else {sink: watch}
        for hop, departure in enumerate(departures):
            if embeds and hop < len(path) - 1:
                if watch.mode == "md":
                    expected.cross(departure)
                got = comparable(departure.frame[14:], expected.wrapped)
                assert got == comparable(expected.packet(64 - hop - 1), expected.wrapped), f"packet {number} hop {hop}"
            if switch_number(departure) not in wanted:
                continue
            (report,) = own.pop((path[hop], number))
            metadata = own_metadata(watch, departure)
            if embeds and hop == len(path) - 1:
                stack = stacks.pop((sink, number))
                assert stack.metadata["packet_number"] == report.metadata["packet_number"]
                assert stack.metadata["ingress_ns"] == 1000 * departure.ingress_us
                metadata |= {
                    "packet_number": stack.metadata["packet_number"],
                    "ingress_ns": 1000 * departure.ingress_us,
                }
                fragment = comparable(expected.packet(64 - hop), expected.wrapped)
                inner = comparable(stack.inner, expected.wrapped)
                assert len(inner) >= min(len(fragment) & ~3, 28 + len(expected.headers()))
                assert inner == fragment[: len(inner)]
                met["E"] += bool(expected.flags & 4)
                met["M"] += bool(expected.flags & 2)
                met["hops"] += hop
            assert report.metadata == metadata, f"packet {number} hop {hop}"
            arrived = departures[hop - 1].frame if hop else packet.frame
            assert report.inner == as_cloned(departure.frame, arrived)[14:][: len(report.inner)]
            assert len(report.inner) == min(64, len(departure.frame) - 14 & ~3)
            met["reports"] += 1
            met["queued"] += departure.depth > 0
    assert not stacks
    assert not own
    for address in tree.hosts:
        sent = [
            as_delivered(packet.frame, len(tree.path(tree.hosts[packet.source][0], tree.hosts[packet.destination][0])))
            for packet in packets
            if packet.destination == address
        ]
        came = [frame[14:] for frame in tree.received[tree.host(address)]]
        assert sorted(came) == sorted(sent), "after the sink a packet is what was sent"
    return met


def as_cloned(leaving: bytes, arrived: bytes) -> bytes:
    """Packet as a switch clones it in egress: before its UDP or TCP checksum is recomputed.

    A packet that arrives with INT's own UDP header, or leaves with it, has the segment's checksum as it was, or none.
    """
    at = {6: 50, 17: 40}[leaving[23]]
    return leaving[:at] + arrived[at : at + 2] + leaving[at + 2 :] if arrived[23] == leaving[23] else leaving


def has_headers(tree: Tree, packet: Packet, report: Report) -> bool:
    """Return whether a report's inner packet still has INT in it: the stack's report, but not the sink's own."""
    return report.inner[:4] != packet.frame[14:18] or bool(report.inner[20:24] != packet.frame[34:38])


def fabric_of(seed: int, presence: str, switches: int | None = None) -> Tree:
    rng = np.random.default_rng(seed)
    return Tree(rng, switches or int(rng.integers(2, 6)), presence, mtu=int(rng.choice([1500, 1500, 900])))


CASES = [(mode, presence) for mode in ("md", "mx", "xd") for presence in ("udp-port", "dscp", "probe-marker")]
QUICK = {("md", "udp-port"), ("mx", "dscp"), ("xd", "probe-marker")}
"""Each mode and each presence once."""


def one_run(seed: int, mode: str, presence: str, count: int) -> Counter[str]:
    tree = fabric_of(seed, presence)
    packets = traffic(tree.rng, tree, mode, count)
    run(tree, packets)
    return check(tree, packets)


@pytest.mark.parametrize(
    ("mode", "presence"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.long) for case in CASES],
    ids=lambda value: str(value),
)
def test_reports_equal_the_emulators_records(mode: str, presence: str) -> None:
    met: Counter[str] = Counter()
    for seed in range(3):
        try:
            met += one_run(seed, mode, presence, 60)
        except AssertionError as error:
            raise AssertionError(f"seed {seed} {mode} {presence}: {error}") from error
    assert met["reports"] > 40
    assert met["queued"] > 5
    if mode == "md":
        assert min(met["E"], met["M"]) > 0, met


@pytest.mark.long
@pytest.mark.parametrize(("mode", "presence"), CASES, ids=lambda value: str(value))
def test_long_reports_are_what_the_emulator_saw(mode: str, presence: str) -> None:
    for seed in range(1000, 1040):
        one_run(seed, mode, presence, 400)
