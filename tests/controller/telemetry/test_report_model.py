"""The collector's native code and a plain loop over `int_report.decode` know the same after any reports."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from weir.controller.telemetry.collector import FlowHop, ReportCollector
from weir.controller.telemetry.link_state import LinkState
from weir.tests.controller.telemetry.report_model import MARKER, WIDTHS, Model
from weir.topologies.generators import leaf_spine
from weir.wire import int_report
from weir.wire.int_md import DOMAIN
from weir.wire.int_report import ITEMS, InnerType, Report, ReportFlag, ReportGroup, ReportType

PERIOD = 10_000_000
TOPOLOGY = leaf_spine(3, 2, 2)
MALFORMED = ("short", "version", "length", "metadata", "type")
KINDS = tuple(item.fields for item in ITEMS if not item.fields[0][0].startswith(("reserved", "domain_reserved")))


@dataclass
class Switch:
    """One that sends reports: its clock, counters, and the numbers that are on their way."""

    number: int
    clock_ns: int
    sent: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    packets: int = 0


class Draw:
    """Reports of a fabric in which everything goes wrong that may."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.switches = [Switch(switch.device_id, rng.randrange(1 << 40)) for switch in TOPOLOGY.switches]
        self.recent: list[bytes] = []

    def datagrams(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            payload = self._again() if self.recent and self.rng.random() < 0.05 else self._new()
            self.recent = [*self.recent[-40:], payload]
            yield payload

    def _again(self) -> bytes:
        """One that came before, as it was or with other bytes."""
        payload = self.rng.choice(self.recent)
        return payload if not payload or self.rng.random() < 0.7 else self._damaged(payload, 20)

    def _new(self) -> bytes:
        rng = self.rng
        switch = rng.choice(self.switches)
        hardware = rng.choice([0, 0, 0, 63])
        sequence = switch.sequences.get(hardware, rng.choice([0, 5, 900, (1 << 22) - 40]))
        draw = rng.random()
        if draw < 0.04:
            sequence += rng.choice([1, 3, 1100, 1 << 20, (1 << 20) + 1])  # lost
        switch.sequences[hardware] = sequence + 1
        if draw > 0.995:
            switch.sequences[hardware] = 0  # it starts anew
            switch.clock_ns = rng.randrange(1 << 40)
            switch.sent.clear()
        elif draw > 0.95:
            sequence -= rng.choice([1, 2, 40, 70, 1030])  # late
        node = switch.number if rng.random() < 0.98 else rng.choice([0, 99, 0xFFFF_FFFF])
        reports = tuple(self._report(switch) for _ in range(rng.choice([1, 1, 1, 1, 2, 4])))
        payload = int_report.encode(ReportGroup(node, sequence % (1 << 22), reports, hardware))
        return self._damaged(payload, 0) if rng.random() < 0.1 else payload

    def _damaged(self, payload: bytes, first: int) -> bytes:
        raw = bytearray(payload)
        for _ in range(self.rng.randint(1, 3)):
            raw[self.rng.randrange(min(first, len(raw) - 1), len(raw))] = self.rng.randrange(256)
        return bytes(raw[: self.rng.randrange(len(raw))] if self.rng.random() < 0.2 else raw)

    def _report(self, switch: Switch) -> Report:
        rng = self.rng
        kinds = [KINDS[at] for at in (0, 1, 2, 4, 9)] if rng.random() < 0.5 else rng.sample(KINDS, rng.randint(0, 9))
        metadata = {name: self._value(switch, name) for fields in kinds for name, _ in fields}
        if "egress_port" in metadata:
            port = metadata["egress_port"]
            if "bytes_sent" in metadata:
                switch.sent[port] = switch.sent.get(port, rng.randrange(1 << 30)) + rng.randrange(1 << 16)
                metadata["bytes_sent"] = switch.sent[port]
        for name in metadata:
            if rng.random() < 0.03:
                metadata[name] = (1 << WIDTHS[name]) - 1  # it cannot say
        inner_type = rng.choice([InnerType.IPV4] * 6 + [InnerType.ETHERNET, InnerType.NONE, InnerType.TLV])
        inner = self._packet(switch) if inner_type in (InnerType.IPV4, InnerType.ETHERNET) else bytes(4)
        if inner_type == InnerType.ETHERNET:
            inner = bytes(14) + inner + bytes(2)
        return Report(
            ReportFlag(rng.choice([0x20, 0x40, 0x80])),
            metadata,
            inner_type,
            inner,
            rng.choice([ReportType.INT] * 15 + [ReportType.INNER_ONLY]),
            DOMAIN if rng.random() < 0.97 else 7,
        )

    def _value(self, switch: Switch, name: str) -> int:
        rng = self.rng
        match name:
            case "egress_port" | "ingress_port":
                return rng.choice([1, 1, 2, 2, 3, 4, 300])
            case "egress_ns":
                switch.clock_ns += rng.choice([1_000, 100_000, 2_000_000, 40_000_000])
                return max(switch.clock_ns - rng.choice([0, 0, 0, 50_000, 90_000_000]), 0)
            case "queue_id":
                return rng.choice([0, 0, 7, 9])
            case "packet_number":
                switch.packets += rng.choice([0, 1])
                return max(switch.packets - rng.choice([0, 0, 1, 1024]), 0)
        return rng.randrange(1 << min(WIDTHS[name], 10))

    def _packet(self, switch: Switch) -> bytes:
        """28 bytes and more of IPv4, with INT in a third of the cases."""
        rng = self.rng
        protocol = rng.choice([17, 17, 17, 6, 1])
        mark = rng.choice(["port", "dscp", "marker", "", "", "", "", "", ""]) if protocol != 1 else ""
        flow = rng.randrange(4)
        head = struct.pack(
            "!BBHHHBBHII",
            0x45 if rng.random() < 0.98 else 0x46,
            4 if mark == "dscp" else 0,
            0,
            0,
            0,
            64 - rng.randrange(4),
            protocol,
            0,
            0x0A000101 + flow,
            0x0A000201,
        )
        head += struct.pack("!HH", 4000 + flow, 5000 if mark == "port" and protocol == 17 else 9)
        head += bytes(rng.choice([16, 16, 0]) if protocol == 6 and not mark else 16 if protocol == 6 else 4)
        if not mark:
            return head
        stack = self._stack(switch)
        shim = struct.pack("!BBH", 0x10 | rng.choice([0, 4, 8]), len(stack) // 4, rng.choice([9, 6]))
        return head + (MARKER if mark == "marker" else b"") + shim + stack + struct.pack("!HH", 4000 + flow, 9)

    def _stack(self, switch: Switch) -> bytes:
        """MD header and hops."""
        rng = self.rng
        everything = rng.random() < 0.6
        bits = sorted({0, 1, 2, 3, 5} if everything else rng.sample(range(9), rng.randint(0, 6)))
        sent, other = everything or rng.random() < 0.3, not everything and rng.random() < 0.1
        hops = b"".join(self._hop(switch, bits, sent) for _ in range(rng.randint(0, 4)))
        words = sum(2 if bit in (4, 5, 6) else 1 for bit in bits) + 2 * sent
        instructions = sum(1 << (15 - bit) for bit in bits)
        domain = (DOMAIN, sent << 15) if not other else (7, 0)
        words += rng.random() < 0.05  # more than the instructions announce
        return struct.pack("!BBBBHHHH", 0x20, 0, words, 3, instructions, *domain, 0) + hops

    def _hop(self, switch: Switch, bits: list[int], sent: bool) -> bytes:
        rng, words = self.rng, b""
        of = rng.choice(self.switches)
        for bit in bits:
            match bit:
                case 0:
                    words += struct.pack("!I", of.number if rng.random() < 0.95 else 0xFFFF_FFFF)
                case 1:
                    words += struct.pack("!HH", 1, rng.choice([1, 2, 3, 0xFFFF]))
                case 5:
                    of.clock_ns += 1_000_000
                    words += struct.pack("!Q", of.clock_ns)
                case 4 | 6:
                    words += rng.randbytes(8)
                case _:
                    words += struct.pack("!I", rng.randrange(1000) if rng.random() < 0.9 else 0xFFFF_FFFF)
        return words + (struct.pack("!Q", rng.randrange(1 << 20)) if sent else b"")


@pytest.mark.parametrize("turn", [*range(4), *(pytest.param(turn, marks=pytest.mark.long) for turn in range(4, 12))])
def test_collector_and_plain_loop_know_the_same(turn: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    collector = _compared(seed)
    others = (_compared((seed + more) % (1 << 32)) for more in range(1, 8))
    assert collector.joined or any(other.joined for other in others), "no two halves of a packet met"
    assert collector.free_slots
    assert collector.drops
    assert {"unknown node", "inner packet", "stack", "stray"} < collector.faults.keys()


def test_a_restart_at_the_wrap_of_numbers_loses_no_others() -> None:
    """One life of a stream shows 0 and a number just before it in this draw, in this order."""
    assert max(stream.expected for stream in _compared(798551841).streams()) < 1 << 21  # all numbers are twice as many


@pytest.mark.parametrize("seed", [5059, 5123])
def test_late_reports_may_exceed_the_two_numbers_of_a_new_life(seed: int) -> None:
    """These draws have such numbers, and then their copies."""
    _compared(seed)


def _compared(seed: int) -> ReportCollector:
    """Draw reports, and hold what is known of them to the plain loop after each batch."""
    rng = random.Random(seed)
    draw, model = Draw(rng), Model(TOPOLOGY, PERIOD)
    links = LinkState(TOPOLOGY, period_ns=PERIOD)
    collector = ReportCollector(TOPOLOGY, links)
    now = 0
    for _ in range(30):
        now += rng.choice([0, PERIOD // 3, 5 * PERIOD])
        batch = list(draw.datagrams(rng.choice([1, 10, 60])))
        collector.receive(batch, now)
        for payload in batch:
            model.take(payload, now)
        _compare(collector, links, model, now)
    return collector


def _about(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=1e-9)


def _compare(collector: ReportCollector, links: LinkState, model: Model, now: int) -> None:
    faults = dict(collector.faults)
    malformed = sum(faults.pop(kind, 0) for kind in MALFORMED)
    assert {"malformed": malformed, **faults} == {"malformed": 0, **{k: n for k, n in model.faults.items() if n}}
    names = ("reports", "datagrams", "payload_bytes", "joined", "unjoined", "unknown_links")
    assert [getattr(collector, name) for name in names] == [model.counts[name] for name in names]
    assert dict(collector.free_slots) == model.free_slots
    assert dict(collector.drops) == model.drops
    columns = ("expected", "received", "duplicates", "late", "restarts", "payload_bytes")
    assert {(s.switch, s.hardware_id): [getattr(s, c) for c in columns] for s in collector.streams()} == {
        (model.names[node], hardware): [getattr(s, c) for c in columns] for (node, hardware), s in model.streams.items()
    }
    _compare_links(links, model)
    _compare_flows(collector, model, now)


def _compare_links(links: LinkState, model: Model) -> None:
    for end, state, queues in zip(links.links, links.state, links.queues, strict=True):
        node = TOPOLOGY.switch(end.node).device_id
        link = model.links[node, end.port]
        for name in ("measured", "reports", "late", "resets", "egress_ns", "at_ns"):
            assert state[name] == getattr(link, name), (end, name)
        assert (state["rate"] if state["rated"] else None) == _about(link.rate)
        assert ((state["bytes_sent"], state["base_ns"]) if state["based"] else None) == link.base
        for number, queue in enumerate(queues):
            known = model.queues.get((node, end.port, number))
            assert queue["measured"] == (known is not None and known.measured)
            for name in ("depth", "average", "high", "peak", "sojourn_us"):
                assert queue[name] == _about(getattr(known, name) if known else 0.0), (end, name)


def _compare_flows(collector: ReportCollector, model: Model, now: int) -> None:
    def name(node: int) -> str:
        return model.names.get(node, str(node))

    def known(value: int) -> int | None:
        return None if value == -1 else value

    told = {}
    for view in collector.flows(now):
        key = (int(view.source), int(view.destination), view.protocol, view.source_port, view.destination_port)
        told[key] = (view.reports, view.path_changes, view.age_ns, view.path_us, view.path)
    assert told.keys() == model.flows.keys()
    for key, flow in model.flows.items():
        reports, changes, age, path_us, path = told[key]
        assert (reports, changes, age) == (flow.reports, flow.changes, now - flow.heard_ns)
        assert path_us == _about(flow.path_us if flow.paths else None)
        shown = [hop for hop in flow.hops if flow.heard_ns - hop.heard_ns <= 3 * PERIOD]
        for hop, expected in zip(path, sorted(shown, key=lambda hop: hop.rank), strict=True):
            ports = known(expected.ingress_port), known(expected.egress_port)
            depth, latency = known(expected.queue_packets), _about(expected.latency_us)
            assert hop == FlowHop(name(expected.node), *ports, depth, latency)
    newest_first = [age for _, _, age, _, _ in told.values()]
    assert np.all(np.diff(newest_first) >= 0)
