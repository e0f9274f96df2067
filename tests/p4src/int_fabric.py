"""Fabrics of switches in virtual time for the tests of INT: random trees, tables, and the emulator's own records.

A switch's reports are compared with records taken at the point where the runtime calls the compiled egress: before the
call the standard metadata, after it the frame. So the truth about depths, times and bytes is the runtime's, not the
program's.
"""

from __future__ import annotations

import ctypes
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weir import p4src
from weir.emulator.abi import PACKET, InstanceType
from weir.emulator.entries import (
    ActionCall,
    ActionSet,
    CloneSession,
    Exact,
    Lpm,
    Replica,
    TableEntry,
    Ternary,
    WeightedAction,
)
from weir.emulator.fabric import Fabric
from weir.emulator.switch import Switch
from weir.wire import frames
from weir.wire.int_md import hop_words
from weir.wire.int_report import REPORT_PORT

REPORT_SESSION = 250
CPU_PORT = 510
COLLECTOR = 0x0A00FF01
HOST_BASE = 0x0A000000
SWITCH_BASE = 0x0AFF0000
MARKS = {"udp-port": 1, "dscp": 2, "probe-marker": 3}
ANY = Ternary(0, 0)
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Departure(NamedTuple):
    """One packet's egress, as the runtime had it."""

    switch: str
    port: int
    ingress_port: int
    instance_type: int
    ingress_us: int
    egress_us: int
    depth: int
    priority: int
    frame: bytes
    """Departing frame; empty if egress dropped it."""
    sent_before: int
    """Bytes that the port had sent before."""
    sent_in_window: int
    """Bytes that it had sent in the last whole window of 4096 µs before this one."""

    @property
    def packet(self) -> int:
        """IPv4 identification, which identifies packets in the tests; a report's is 0."""
        return int.from_bytes(self.frame[18:20], "big")


class Tap:
    """Stands between the runtime and a switch's compiled egress."""

    def __init__(self, name: str, switch: Switch, log: list[Departure]) -> None:
        self._name, self._log = name, log
        self._sent: dict[int, int] = defaultdict(int)
        self._windows: dict[tuple[int, int], int] = defaultdict(int)
        record = switch._record
        self._egress, self._deparse = _ENTRY(int(record["egress"])), _ENTRY(int(record["deparse"]))
        self._callbacks = _ENTRY(self._called), _ENTRY(self._called_again)
        self._cloned: Any = None
        record["egress"], record["deparse"] = (
            ctypes.cast(callback, ctypes.c_void_p).value for callback in self._callbacks
        )
        assert switch.program is not None
        self._phv_bytes = switch.program.phv_bytes

    def _called(self, state: int, address: int) -> None:
        before = self._record(address)
        self._egress(state, address)
        if self._record(address)["clone_session"]:
            self._cloned = before  # it is finished when it has been cloned
        else:
            self._note(before, address)

    def _called_again(self, state: int, address: int) -> None:
        self._deparse(state, address)
        self._note(self._cloned, address)

    def _note(self, before: Any, address: int) -> None:
        after = self._record(address)
        port, now = int(before["egress_port"]), int(before["egress_global_timestamp"])
        length = int(after["length"])
        if after["truncate"] and int(after["truncate"]) <= length:
            length = int(after["truncate"]) - 1
        data = address + PACKET.itemsize + self._phv_bytes + int(after["start"])
        frame = ctypes.string_at(data, length) if after["egress_spec"] != after["drop_port"] else b""
        window = now >> 12
        departure = Departure(
            self._name,
            port,
            int(before["ingress_port"]),
            int(before["instance_type"]),
            int(before["ingress_global_timestamp"]),
            now,
            int(before["deq_qdepth"]),
            int(before["priority"]),
            frame,
            self._sent[port],
            self._windows[port, window - 1],
        )
        self._log.append(departure)
        self._sent[port] += len(frame)
        self._windows[port, window] += len(frame)

    @staticmethod
    def _record(address: int) -> Any:
        return np.frombuffer(ctypes.string_at(address, PACKET.itemsize), PACKET)[0]


@dataclass
class Watch:
    """One entry of a watchlist: a flow, or any part of one."""

    mode: str
    """md, mx or xd."""
    instructions: int = 0xF000
    domain_instructions: int = 0
    hops: int = 16
    every: int = 1
    source: int | None = None
    destination: int | None = None
    protocol: int | None = None
    source_port: int | None = None
    destination_port: int | None = None


@dataclass
class Tree:
    """A random tree of switches with two hosts at each, and the collector at the first. Queues have no limit, so that a
    missing packet was never sent.
    """

    rng: np.random.Generator
    switches: int
    presence: str = "udp-port"
    mtu: int = 1500
    log: list[Departure] = field(default_factory=list)
    received: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        rng = self.rng
        self.fabric = Fabric(seed=int(rng.integers(2**31)))
        self.parent = {child: int(rng.integers(0, child)) for child in range(1, self.switches)}
        self.nodes = [Switch(number + 1, ports=range(12)) for number in range(self.switches)]
        program = p4src.FABRIC_JSON.read_bytes()
        self.taps = []
        self.links: dict[tuple[int, int], int] = {}
        """Port of a switch to another one."""
        used = [3] * self.switches  # 0 and 1 are hosts', 2 the collector's
        for number, node in enumerate(self.nodes):
            node.load(program)
            self.fabric.add_switch(f"s{number}", node)
            self.taps.append(Tap(f"s{number}", node, self.log))
        for child, parent in self.parent.items():
            for a, b in ((child, parent), (parent, child)):
                self.links[a, b] = used[a]
                used[a] += 1
            ends = (f"s{child}", self.links[child, parent]), (f"s{parent}", self.links[parent, child])
            rate, delay_ns = float(rng.choice([2e7, 5e7, 1e9])), int(rng.integers(0, 50_000))
            self.fabric.add_link(*ends, rate_bps=rate, delay_ns=delay_ns, queue_packets=None)
        self.hosts = {
            HOST_BASE + (number << 8) + slot: (number, slot) for number in range(self.switches) for slot in (0, 1)
        }
        for address, (number, slot) in self.hosts.items():
            self.fabric.add_host(f"h{address:x}")
            rate = float(rng.choice([1e7, 2e7, 1e9]))
            ends = (f"h{address:x}", 0), (f"s{number}", slot)
            self.fabric.add_link(*ends, rate_bps=rate, delay_ns=1000, queue_packets=None)
        self.fabric.add_host("collector")
        self.fabric.add_link(("collector", 0), ("s0", 2), rate_bps=1e9, delay_ns=1000, queue_packets=None)
        for number in range(self.switches):
            self._configure(number)

    def path(self, source: int, destination: int) -> list[int]:
        """The switches between two of them, both included."""

        def up(node: int) -> list[int]:
            return [node, *up(self.parent[node])] if node in self.parent else [node]

        first, second = up(source), up(destination)
        while len(first) > 1 and len(second) > 1 and first[-2] == second[-2]:
            first.pop()
            second.pop()
        return first + second[-2::-1]

    def next_port(self, at: int, switch: int, port: int) -> int:
        """The port towards a host, which is at a switch's port."""
        return port if at == switch else self.links[at, self.path(at, switch)[1]]

    def insert(
        self, number: int, table: str, key: tuple[Any, ...], action: str, *params: int, priority: int = 0
    ) -> None:
        """One entry; names without the control they are in."""
        state = self.nodes[number].state
        assert state is not None
        control = table.rpartition(".")[0]
        state.tables[table].insert(TableEntry(key, ActionCall(f"{control}.{action}", params), priority=priority))

    def set_default(self, number: int, table: str, action: str, *params: int) -> None:
        state = self.nodes[number].state
        assert state is not None
        state.tables[table].set_default(ActionCall(f"{table.rpartition('.')[0]}.{action}", params))

    def watch(self, number: int, watch: Watch, index: int = 0) -> None:
        """One entry of a switch's watchlist."""

        def exactly(value: int | None, bits: int) -> Ternary:
            return ANY if value is None else Ternary(value, (1 << bits) - 1)

        key = (
            exactly(watch.source, 32),
            exactly(watch.destination, 32),
            exactly(watch.protocol, 8),
            exactly(watch.source_port, 16),
            exactly(watch.destination_port, 16),
        )
        common = (index, watch.every, watch.instructions, watch.domain_instructions)
        mark = MARKS[self.presence]
        match watch.mode:
            case "md":
                words = hop_words(watch.instructions, watch.domain_instructions)
                call: tuple[Any, ...] = ("embed_md", *common, words, watch.hops, mark)
            case "mx":
                call = ("embed_mx", *common, mark)
            case _:
                call = ("export_xd", *common)
        self.insert(number, "FabricEgress.int_source.watchlist", key, *call, priority=100 + index)

    def _configure(self, number: int) -> None:
        node = self.nodes[number]
        state = node.state
        assert state is not None
        ends = {**self.hosts, COLLECTOR: (0, 2)}
        for address, (switch, port) in ends.items():
            out = self.next_port(number, switch, port)
            call = ActionCall("FabricIngress.routing.forward", (out, 0x0200_0000_0000 + number, 0x0200_0000_0100))
            row = TableEntry((Lpm(address, 32),), ActionSet((WeightedAction(call),)))
            state.tables["FabricIngress.routing.routes"].insert(row)
        self.insert(number, "FabricIngress.traffic_class", (Exact(48),), "set_class", 7)
        self.insert(number, "FabricIngress.traffic_class", (Exact(49),), "set_class", 7)
        self.set_default(number, "FabricEgress.telemetry.node", "identify", number + 1)
        self.set_default(number, "FabricEgress.telemetry.slots", "tell_free_slots", 1000 - number)
        for port in range(12):
            to_host = port < 3
            self.insert(
                number, "FabricEgress.int_source.links", (Exact(port),), "name_link", self.mtu, 70000 + port, to_host
            )
            self.insert(number, "FabricEgress.telemetry.ingress_names", (Exact(port),), "name_ingress", 70000 + port)
        if self.presence != "udp-port":
            self.insert(number, "FabricIngress.marks", (Exact(MARKS[self.presence]),), "recognise")
        if self.presence == "dscp":
            for port in range(3):
                self.insert(number, "FabricIngress.edges", (Exact(port),), "clear_mark")
        for address, (switch, _) in self.hosts.items():
            if switch == number:
                self.insert(number, "FabricIngress.int_sink.sinks", (Exact(address),), "strip", 0)
        out = self.next_port(number, 0, 2)
        node.replication.set_session(REPORT_SESSION, CloneSession((Replica(out),)))
        addresses = (0x0200_0000_0000 + number, 0x0200_0000_00FF, SWITCH_BASE + number, COLLECTOR)
        told = (number + 1, *addresses, 5555, REPORT_PORT, 0)
        self.set_default(number, "FabricEgress.int_reports.destination", "address", *told)
        reports = (ANY, Ternary(COLLECTOR, 0xFFFFFFFF), Ternary(17, 255), ANY, Ternary(REPORT_PORT, 0xFFFF))
        self.insert(number, "FabricEgress.int_source.watchlist", reports, "ignore", priority=10_000)

    def run(self, until_ns: int) -> None:
        """Let time pass; received frames are kept by the host's address, or for the collector."""
        while self.fabric.now_ns < until_ns:
            for wake in self.fabric.run(until_ns):
                self.received[wake.host] += [bytes(frame) for frame in wake.frames]

    def host(self, address: int) -> str:
        return f"h{address:x}"


def udp_frame(
    source: int, destination: int, payload: bytes, number: int, *, checksum: bool = True, **options: int
) -> bytes:
    """A UDP datagram with this IPv4 identification, with or without its checksum."""
    frame = bytearray(
        frames.encapsulate(
            np.frombuffer(payload, np.uint8)[None],
            **{
                "source": source,
                "destination": destination,
                "source_mac": 1,
                "destination_mac": 2,
                "source_port": 7,
                "destination_port": 9,
                **options,
            },
        ).tobytes()
    )
    frame[18:20] = number.to_bytes(2, "big")
    if checksum:
        frame[40:42] = (l4_checksum(bytes(frame[14:])) or 0xFFFF).to_bytes(2, "big")
    return with_ipv4_checksum(bytes(frame[:14]), bytes(frame[14:]))


def tcp_frame(
    source: int,
    destination: int,
    payload: bytes,
    number: int,
    *,
    source_port: int,
    destination_port: int,
    dscp: int = 0,
) -> bytes:
    """A TCP segment with twelve bytes of options and this IPv4 identification."""
    ports = struct.pack("!HHIIHHHH", source_port, destination_port, number, 77, 0x8010, 500, 0, 0)
    segment = ports + b"\x08\x0a" + struct.pack("!II", 1, 2) + b"\x01\x01" + payload
    total = 20 + len(segment)
    packet = bytearray(
        struct.pack("!BBHHHBBHII", 0x45, dscp << 2, total, number, 0x4000, 64, 6, 0, source, destination)
    )
    packet += segment
    packet[36:38] = l4_checksum(bytes(packet)).to_bytes(2, "big")
    return with_ipv4_checksum(b"\2\0\0\0\0\2\2\0\0\0\0\1\x08\0", bytes(packet))


def l4_checksum(packet: bytes) -> int:
    """The UDP or TCP checksum that an IPv4 packet without options should have, by its pseudo header."""
    protocol, segment = packet[9], bytearray(packet[20 : int.from_bytes(packet[2:4], "big")])
    at = 6 if protocol == 17 else 16
    segment[at : at + 2] = b"\0\0"
    data = packet[12:20] + struct.pack("!BBH", 0, protocol, len(segment)) + bytes(segment) + b"\0" * (len(segment) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def with_ipv4_checksum(ethernet: bytes, packet: bytes) -> bytes:
    """Recompute the checksum of the frame's IPv4 header."""
    total: int = sum(struct.unpack("!10H", packet[:10] + b"\0\0" + packet[12:20]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ethernet + packet[:10] + (total ^ 0xFFFF).to_bytes(2, "big") + packet[12:]


def as_delivered(frame: bytes, hops: int) -> bytes:
    """The IPv4 packet as it arrives without INT: a lower TTL, and its checksum."""
    packet = frame[14:22] + bytes([frame[22] - hops]) + frame[23:]
    return with_ipv4_checksum(b"", packet)


NORMAL = InstanceType.NORMAL
