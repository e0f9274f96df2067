"""A fabric switch in plain Python, written from docs/design.md §2 to §4 and from INT 2.1, not from the program.

It takes one frame at a time and says what leaves, as if queues were empty: the oracle for the compiled program. The
aggregation header's fields and reductions are those of the wire's table.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from weir.wire.aggregation import HEADER_BYTES
from weir.wire.fields import PARTS, REDUCED

CPU_PORT = 510
TYPE_WITH_LANES = (1, 2, 6)
RESULT = 2
PRESENT = 8
DONE = 9
WANTED = 0x08
JUDGED_AS = {PRESENT: 1, DONE: RESULT}
"""Types of messages without a bit of their own at hosts' ports."""
LANES = (32, 256)
"""That a message may have. All messages of a job have as many."""
DROP_REASONS = (
    "truncated",
    "malformed",
    "bad_checksum",
    "not_ipv4",
    "ttl_expired",
    "no_route",
    "no_service",
    "unknown_job",
    "not_member",
    "not_parent",
    "bad_slot",
    "duplicate",
    "late",
    "policed",
    "foreign_source",
    "foreign_type",
    "foreign_port",
    "out_of_window",
)


class Job(NamedTuple):
    slot_base: int
    slots: int
    children: int
    parent: int = 0
    parent_bit: int = 0
    group: int = 0
    """Non-zero: a root."""


class Route(NamedTuple):
    prefix: int
    length: int
    port: int
    src_mac: int
    dst_mac: int


class Bound(NamedTuple):
    """The parameters of `bound_queue`."""

    threshold: int
    sojourn: int = 0xFFFFFFFF
    byte_cost: int = 0
    backlog: int = 1
    window: int = 0xFFFF
    congested_window: int = 0xFFFF


class Policer(NamedTuple):
    """The parameters of `police`."""

    bucket: int
    byte_cost: int
    burst: int


@dataclass
class Tables:
    """Entries of the control plane."""

    addresses: set[int] = field(default_factory=set)
    jobs: dict[tuple[int, int], Job] = field(default_factory=dict)
    members: set[tuple[int, int, int, int, int]] = field(default_factory=set)
    """(job, generation, contributors, ingress port, source address)"""
    parents: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    """(job, generation, ingress port, source address) → group"""
    routes: list[Route] = field(default_factory=list)
    classes: dict[int, int] = field(default_factory=dict)
    """DSCP → priority"""
    groups: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """group → (port, replica id)"""
    replicas: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    """replica id → (address, source MAC, destination MAC, child bit)"""
    widths: dict[int, int] = field(default_factory=lambda: {1: 32, 8: 256})
    """`reserved` of PRESENT → lanes of its round"""
    marking: dict[int, Bound] = field(default_factory=dict)
    """egress port → bound of its queue"""
    policers: dict[tuple[int, int, int], Policer] = field(default_factory=dict)
    """(ingress port, priority, whether it is a message) → permitted traffic"""
    hosts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """ingress port → address of the host there, and a bit for each type of message that it may send"""
    sinks: dict[int, int] = field(default_factory=dict)
    """egress port → clone session, whose one replica is the CPU port"""
    node_id: int | None = None


Header = dict[str, int]
"""Aggregation header by name: the fields that a switch distinguishes."""


def parse_header(data: bytes) -> Header:
    number, header = int.from_bytes(data), {}
    for name, bits in reversed(PARTS):
        header[name] = number & (1 << bits) - 1
        number >>= bits
    return header


def pack_header(header: Header, checksum: int) -> bytes:
    number = 0
    for name, bits in PARTS:
        number = number << bits | (checksum if name == "checksum" else header[name])
    return number.to_bytes(HEADER_BYTES)


class Slot(NamedTuple):
    job: int
    generation: int
    chunk: int
    contributors: int
    wanting: int
    reduced: dict[str, int]
    lanes: tuple[int, ...]


class Dropped(Exception):
    """A packet ends here; the reason is one of DROP_REASONS."""


class Kept(Exception):
    """A packet ended in a slot."""


def internet_checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


class Packet:
    """One frame taken apart as far as the switch looks. `rest` is everything behind the recognised headers."""

    def __init__(self, data: bytes, port: int) -> None:
        self.ingress_port = port
        self.out_port: int | None = None
        self.ip: list[int] | None = None
        self.udp: list[int] | None = None
        self.aggregation: Header | None = None
        self.lanes: list[int] | None = None
        self.shim: list[int] | None = None
        self.md: list[int] | None = None
        self.stack = b""
        self.marked = b""
        """part of a datagram that reads as INT by DSCP"""
        self.priority = 1
        self.group = 0
        self.rid = 0
        self.wanting = 0xFFFFFFFF
        """Children that want the lanes of the result."""
        self._data = data
        self.frame_bytes = len(data)
        if port == CPU_PORT:
            self.out_port = struct.unpack("!H", self._take(2))[0] >> 7
        self.macs, self.ethertype = self._take(12), self._take(2)
        if self.ethertype == b"\x08\x00":
            self._parse_ipv4()
        self.rest = self._data

    def _take(self, count: int) -> bytes:
        if len(self._data) < count:
            raise Dropped("truncated")
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def _parse_ipv4(self) -> None:
        if not self._data:
            raise Dropped("truncated")
        if self._data[0] != 0x45:
            return
        # version, tos, length, id, fragment, ttl, protocol, checksum, source, destination
        self.ip = list(struct.unpack("!BBHHHBBHII", self._take(20)))
        if self.ip[6] == 6 and not self.ip[4] & 0x3FFF and self.ip[2] >= 40:
            self._look(20)  # the header is taken and left as it is
            self._look_for_marks(20, self.ip[2], 56)
        if self.ip[6] != 17 or self.ip[4] & 0x1FFF:
            return
        self.udp = list(struct.unpack("!HHHH", self._take(8)))
        if self.udp[1] == 5000:
            self._parse_int()
        else:
            self._look_for_marks(0, self.udp[2], 24)
            if self.udp[1] == 22341 and len(self.marked) != 4:
                self._parse_aggregation(self.udp[2] - len(self.marked))

    def _look(self, count: int) -> bytes:
        if len(self._data) < count:
            raise Dropped("truncated")
        return self._data[:count]

    def _look_for_marks(self, at: int, length: int, least: int) -> None:
        """INT by DSCP or by a marker, where there is room for it. No packet here is meant to have it, but a damaged one
        may read as if it had, by DSCP: a shim of INT-MD or INT-MX, and a header of version 2.
        """
        assert self.ip
        by_dscp = self.ip[1] >> 2 & 1
        if by_dscp and length >= least:
            shim = self._look(at + 5)[at:]
            if shim[0] & 0xFC in (0x10, 0x30) and shim[4] >> 4 == 2:
                size = 4 * (shim[1] + 1) if shim[1] >= 3 else 4
                self._look(at + size)
                if self.udp:
                    self.marked = self._take(size)
        elif length >= least + 8:
            self._look(at + 8)

    def _parse_int(self) -> None:
        self.shim = list(struct.unpack("!BBH", self._take(4)))
        kind, words = self.shim[0] >> 4, self.shim[1]
        if kind not in (1, 3) or words < 3:
            return
        # flags, reserved, hop words, remaining, instructions, domain, domain instructions, domain flags
        self.md = list(struct.unpack("!BBBBHHHH", self._take(12)))
        if self.md[0] >> 4 != 2:
            return
        self.stack = self._take(4 * (words - 3))
        assert self.udp
        next_protocol = self.shim[0] >> 2 & 3
        if next_protocol == 1 and self.shim[2] == 22341:
            self._parse_aggregation(self.udp[2] - self.int_bytes)
        elif next_protocol == 2 and self.shim[2] & 0xFF == 6:
            self._look(4)

    @property
    def int_bytes(self) -> int:
        """Bytes of a datagram's INT in front of its payload."""
        return 4 * (self.shim[1] + 1) if self.shim and self.md else 0

    @property
    def is_probe(self) -> bool:
        return bool(self.md and self.md[0] & 0x08)

    def _parse_aggregation(self, udp_length: int) -> None:
        self.aggregation = parse_header(self._take(HEADER_BYTES))
        for lanes in LANES:
            if self.aggregation["type"] == 1 and udp_length % 2**16 == 8 + HEADER_BYTES + 4 * lanes:
                self.lanes = list(struct.unpack(f"!{lanes}I", self._take(4 * lanes)))

    def checksums_hold(self) -> bool:
        ip_holds = self.ip is None or internet_checksum(self._ip_bytes(0)) == self.ip[7]
        header = self.aggregation
        return ip_holds and (header is None or internet_checksum(pack_header(header, 0)) == header["checksum"])

    def _ip_bytes(self, checksum: int) -> bytes:
        assert self.ip is not None
        return struct.pack("!BBHHHBBHII", *self.ip[:7], checksum, *self.ip[8:])

    def frame(self, stack: bytes = b"") -> bytes:
        """The frame as it leaves, with `stack` pushed behind the INT header."""
        parts = [self.macs, self.ethertype]
        if self.ip:
            parts.append(self._ip_bytes(internet_checksum(self._ip_bytes(0))))
        if self.udp:
            parts.append(struct.pack("!HHHH", *self.udp) + self.marked)
        if self.shim:
            parts.append(struct.pack("!BBH", *self.shim))
        if self.md:
            parts.append(struct.pack("!BBBBHHHH", *self.md) + stack + self.stack)
        if self.aggregation:
            parts.append(pack_header(self.aggregation, internet_checksum(pack_header(self.aggregation, 0))))
        if self.lanes is not None:
            parts.append(struct.pack(f"!{len(self.lanes)}I", *self.lanes))
        return b"".join([*parts, self.rest])


class NodeModel:
    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.drops = dict.fromkeys(DROP_REASONS, 0)
        self.slots: dict[int, Slot] = {}
        self.bytes_sent: dict[int, int] = {}
        self.sent: list[tuple[int, int, int]] = []
        """(port, window of 4096 µs, bytes) of each frame that has left"""
        self.depth = self.wait_us = 0
        """Depth and waiting time of packets in their egress queue."""
        self.buckets: dict[int, int] = {}
        self.virtual_queues: dict[int, int] = {}

    def forward(self, frame: bytes, port: int, now_us: int = 0) -> list[tuple[int, bytes]]:
        """Frames that leave for one frame, as (port, frame)."""
        try:
            packet = Packet(frame, port)
            egress_port = self._ingress(packet, len(frame), now_us)
        except Dropped as reason:
            self.drops[str(reason)] += 1
            return []
        except Kept:
            return []
        if egress_port is not None:
            return self._egress(packet, egress_port, now_us)
        sent = []
        for replica_port, rid in self.tables.groups.get(packet.group, []):
            copy = Packet(packet.frame(), port)
            copy.lanes, copy.rest = packet.lanes, packet.rest
            copy.rid, copy.priority, copy.wanting = rid, packet.priority, packet.wanting
            sent += self._egress(copy, replica_port, now_us)
        return sent

    # --- ingress ---

    def _ingress(self, packet: Packet, length: int, now_us: int) -> int | None:
        """The port to leave through, or None for packet.group."""
        if not packet.checksums_hold():
            raise Dropped("bad_checksum")
        if packet.ip:
            packet.priority = self.tables.classes.get(packet.ip[1] >> 2, 1)
            if 1 < packet.priority <= 5 and packet.aggregation is None:
                packet.priority = 1
        if packet.out_port is not None:
            port: int | None = packet.out_port
        elif packet.ip is None:
            raise Dropped("not_ipv4")
        elif packet.marked and packet.udp and packet.udp[1] == 22341:
            raise Dropped("malformed")
        elif not self._conforms(packet, length, now_us):
            raise Dropped("policed")
        elif packet.ip[9] not in self.tables.addresses:
            self._admit(packet, packet.ip)
            port = self._route(packet)
        elif packet.aggregation:
            port = self._aggregate(packet, packet.aggregation, packet.ip)
        elif packet.md and packet.shim and packet.shim[0] >> 4 == 1:
            port = CPU_PORT
        else:
            raise Dropped("no_service")
        return port

    def _conforms(self, packet: Packet, length: int, now_us: int) -> bool:
        key = (packet.ingress_port, packet.priority, int(packet.aggregation is not None))
        if (policer := self.tables.policers.get(key)) is None:
            return True
        now = now_us << 16
        level = max(0, self.buckets.get(policer.bucket, 0) - now) + length * policer.byte_cost
        if level > policer.burst:
            return False
        self.buckets[policer.bucket] = now + level
        return True

    def _admit(self, packet: Packet, ip: list[int]) -> None:
        if packet.ingress_port not in self.tables.hosts:
            return
        address, messages = self.tables.hosts[packet.ingress_port]
        if ip[8] != address:
            raise Dropped("foreign_source")
        if (
            packet.aggregation
            and (kind := packet.aggregation["type"]) in range(1, 10)
            and not messages >> JUDGED_AS.get(kind, kind) & 1
        ):
            raise Dropped("foreign_type")

    def _route(self, packet: Packet) -> int:
        assert packet.ip is not None
        if packet.ip[5] <= 1:
            raise Dropped("ttl_expired")
        destination = packet.ip[9]
        matching = [route for route in self.tables.routes if (destination ^ route.prefix) >> (32 - route.length) == 0]
        if not matching:
            raise Dropped("no_route")
        best = max(matching, key=lambda route: route.length)
        packet.ip[5] -= 1
        packet.macs = best.dst_mac.to_bytes(6, "big") + best.src_mac.to_bytes(6, "big")
        return best.port

    def _aggregate(self, packet: Packet, header: Header, ip: list[int]) -> int | None:
        assert packet.udp is not None
        if packet.udp[0] != 22341:
            raise Dropped("foreign_port")
        sizes = {HEADER_BYTES + 4 * lanes for lanes in (LANES if header["type"] in TYPE_WITH_LANES else (0,))}
        length = packet.udp[2] - packet.int_bytes
        present = header["type"] == PRESENT
        if header["version"] != 1 or not 1 <= header["type"] <= 9 or length - 8 not in sizes or packet.is_probe:
            raise Dropped("malformed")
        if 5 <= header["type"] <= 7:
            raise Dropped("no_service")
        if present:
            if header["reserved"] not in self.tables.widths:
                raise Dropped("malformed")
            packet.lanes = [0] * self.tables.widths[header["reserved"]]
            header["type"] = 1
        who = (header["job"], header["generation"])
        own_address, source = ip[9], ip[8]
        is_result = header["type"] in (2, 4, DONE)
        group = self.tables.parents.get((*who, packet.ingress_port, source))
        if is_result and group is None:
            raise Dropped("not_parent")
        job = self.tables.jobs.get(who)
        if job is None:
            raise Dropped("unknown_job")
        if is_result:
            assert group is not None
            held = self.slots.get(job.slot_base + header["slot"]) if header["slot"] < job.slots else None
            if held and held[:3] == (*who, header["chunk"]):
                packet.wanting = held.wanting
            self._sign(packet, own_address)
            packet.group = group
            return None
        if (*who, header["contributors"], packet.ingress_port, source) not in self.tables.members:
            raise Dropped("not_member")
        if header["slot"] >= job.slots:
            raise Dropped("bad_slot")
        own = header["contributors"] if header["flags"] & WANTED else 0
        repeated = self._sum(packet, header, job, own)
        if present:
            self._shape(packet, header, ip, job)
        self._sign(packet, own_address)
        if not job.group:
            ip[9] = job.parent
            header["contributors"] = job.parent_bit
            return self._route(packet)
        header["type"] += 1
        header["contributors"] = 0
        if repeated:
            ip[9] = source
            return self._route(packet)
        packet.group = job.group
        return None

    @staticmethod
    def _shape(packet: Packet, header: Header, ip: list[int], job: Job) -> None:
        """Give a message that PRESENT has caused the round's lanes, or none if it goes up and no child added any."""
        assert packet.udp
        assert packet.lanes is not None
        if not job.group and not header["flags"] & 4:
            header["type"], packet.lanes = PRESENT, None
            return
        header["reserved"] = 0
        added = 4 * len(packet.lanes)
        packet.udp[2] += added
        ip[2] += added
        packet.frame_bytes += added

    @staticmethod
    def _sign(packet: Packet, own_address: int) -> None:
        assert packet.ip
        assert packet.udp
        packet.ip[8] = own_address
        packet.ip[5] = 64
        packet.udp[0], packet.udp[3] = 22341, 0

    def _sum(self, packet: Packet, header: Header, job: Job, own: int) -> bool:
        """Bring the packet and its slot together; whether the packet repeats what was emitted before. `own` is the
        child's bit if it wants the result's lanes.
        """
        index = job.slot_base + header["slot"]
        held = self.slots.get(index)
        age = "newer"
        if held and (held.job, held.generation) == (header["job"], header["generation"]):
            chunks = (header["chunk"] - held.chunk) % 2**24
            age = "same" if not chunks else "newer" if chunks < 2**23 else "older"
            if age == "newer" and chunks != job.slots:
                raise Dropped("out_of_window")
        if age == "older":
            raise Dropped("late")
        if held is None or age == "newer":
            neutral = {field.name: field.neutral for field in REDUCED}
            held = Slot(
                header["job"], header["generation"], header["chunk"], 0, 0, neutral, (0,) * len(packet.lanes or ())
            )
        elif held.contributors & header["contributors"]:
            if held.contributors != job.children:
                raise Dropped("duplicate")
            self.slots[index] = held = held._replace(wanting=held.wanting | own)
            packet.wanting = own
            self._show(held, packet, header)
            return True
        lanes = held.lanes
        if packet.lanes is not None:
            lanes = tuple((a + b) % 2**32 for a, b in zip(lanes, packet.lanes, strict=True))
        held = held._replace(
            contributors=held.contributors | header["contributors"],
            wanting=held.wanting | own,
            reduced={
                field.name: int(field.ufunc(held.reduced[field.name], header[field.name])) & field.mask
                for field in REDUCED
            },
            lanes=lanes,
        )
        self.slots[index] = held
        if held.contributors != job.children:
            raise Kept
        packet.wanting = held.wanting
        self._show(held, packet, header)
        return False

    @staticmethod
    def _show(held: Slot, packet: Packet, header: Header) -> None:
        header.update(held.reduced, flags=header["flags"] | held.reduced["flags"])
        if packet.lanes is not None:
            packet.lanes = list(held.lanes)

    @staticmethod
    def _prune(packet: Packet, header: Header) -> None:
        """Make DONE of a result: its lanes, and all behind them, are cut off."""
        assert packet.ip
        assert packet.udp
        removed = packet.udp[2] - packet.int_bytes - 8 - HEADER_BYTES
        header["type"], packet.lanes, packet.rest = DONE, None, b""
        packet.udp[2] -= removed
        packet.ip[2] -= removed
        packet.frame_bytes -= removed

    # --- egress ---

    def _egress(self, packet: Packet, port: int, now_us: int) -> list[tuple[int, bytes]]:
        packet_in = struct.pack("!H", packet.ingress_port << 7)
        if port == CPU_PORT:
            return [(CPU_PORT, packet_in + packet.frame())]
        if packet.rid:
            if packet.rid not in self.tables.replicas:
                return []
            address, src_mac, dst_mac, child_bit = self.tables.replicas[packet.rid]
            assert packet.ip is not None
            packet.ip[9] = address
            packet.macs = dst_mac.to_bytes(6, "big") + src_mac.to_bytes(6, "big")
            packet.wanting &= child_bit
        if not packet.wanting and packet.aggregation and packet.aggregation["type"] == RESULT:
            self._prune(packet, packet.aggregation)
        if port in self.tables.marking and 1 <= packet.priority <= 5:
            self._mark(packet, port, self.tables.marking[port], now_us)
        checksum = packet.udp[3] if packet.udp else 0
        stack = self._telemetry(packet, port, now_us)
        if packet.is_probe and port in self.tables.sinks:
            assert packet.udp
            packet.udp[3] = checksum  # the clone is taken before checksums are made anew, and has no metadata to do so
            return [(CPU_PORT, packet_in + packet.frame(stack))]
        frame = packet.frame(stack)
        length = 14 + packet.ip[2] if packet.ip else packet.frame_bytes - 2
        self.bytes_sent[port] = self.bytes_sent.get(port, 0) + length
        self.sent.append((port, now_us >> 12, length))
        return [(port, frame)]

    def _mark(self, packet: Packet, port: int, bound: Bound, now_us: int) -> None:
        length = len(packet.frame())  # headers that ingress has added or removed count, as simple_switch has it
        now = (now_us + self.wait_us) << 16
        level = max(0, self.virtual_queues.get(port, 0) - now) + length * bound.byte_cost
        self.virtual_queues[port] = now + level
        congested = self.depth >= bound.threshold or self.wait_us >= bound.sojourn or level >= bound.backlog
        if packet.aggregation:
            assert packet.udp
            limit = bound.congested_window if congested else bound.window
            packet.aggregation["window"] = min(packet.aggregation["window"], limit)
            packet.aggregation["flags"] |= congested
            packet.udp[3] = 0
        if congested and packet.ip and packet.ip[1] & 3:
            packet.ip[1] |= 3

    def _telemetry(self, packet: Packet, port: int, now_us: int) -> bytes:
        """Push this hop onto a probe, if it may; the bytes that it pushes."""
        if not packet.md or packet.md[0] >> 4 != 2 or packet.shim is None or packet.shim[0] >> 4 != 1:
            return b""
        assert packet.udp
        assert packet.ip
        before = self._covered(packet)
        stack = self._push(packet, port, now_us)
        if packet.udp[3]:
            removed, added = internet_checksum(before), internet_checksum(self._covered(packet) + stack) ^ 0xFFFF
            words = struct.pack("!HHH", packet.udp[3] ^ 0xFFFF, removed, added)
            packet.udp[3] = internet_checksum(words) or 0xFFFF  # RFC 1624, equation 3
        return stack

    @staticmethod
    def _covered(packet: Packet) -> bytes:
        """Bytes that the UDP checksum covers and a hop may change."""
        assert packet.udp
        assert packet.shim
        assert packet.md
        lengths = struct.pack("!HH", packet.udp[2], packet.udp[2])  # the header's, and the pseudo header's
        return lengths + struct.pack("!BBH", *packet.shim) + struct.pack("!BBBBHHHH", *packet.md)

    def _push(self, packet: Packet, port: int, now_us: int) -> bytes:
        assert packet.udp
        assert packet.ip
        assert packet.shim
        assert packet.md
        if packet.md[3] == 0:
            packet.md[0] |= 0x04
            return b""
        instructions, domain, domain_instructions = packet.md[4:7]
        nanoseconds = struct.pack("!Q", 1000 * now_us)
        known = {
            0: struct.pack("!I", 0xFFFFFFFF if self.tables.node_id is None else self.tables.node_id),
            1: struct.pack("!HH", packet.ingress_port, port),
            2: struct.pack("!I", 0),
            3: struct.pack("!I", packet.priority << 24),
            4: nanoseconds,
            5: nanoseconds,
            6: b"\xff" * 8,
            7: struct.pack("!I", self._in_last_window(port, now_us)),
        }
        items = [known.get(bit, b"\xff" * 4) for bit in range(15) if instructions << bit & 0x8000]
        if domain == 0x5745:
            sent = struct.pack("!Q", self.bytes_sent.get(port, 0))
            items += [b"\xff" * 4 if bit else sent for bit in range(16) if domain_instructions << bit & 0x8000]
        if instructions & 1:
            items.append(b"\xff" * 4)
        stack = b"".join(items)
        words = len(stack) // 4
        if not words or words != packet.md[2] & 31 or packet.shim[1] + words > 255:
            return b""
        if packet.ip[2] + len(stack) > 1500:
            packet.md[0] |= 0x02
            return b""
        packet.md[3] -= 1
        packet.shim[1] += words
        packet.udp[2] = (packet.udp[2] + len(stack)) % 2**16
        packet.ip[2] += len(stack)
        return stack

    def _in_last_window(self, port: int, now_us: int) -> int:
        """Bytes that the port has sent in the whole window of 4096 µs before this one, as far as 24 bits go."""
        return min(sum(size for at, window, size in self.sent if (at, window) == (port, (now_us >> 12) - 1)), 2**24 - 1)
