"""Oracle of change detection, from the emulator's record: unreported events, and the reports of a steady state.

    Tap (all packets in all queues) ─▶ hops: packets in order ─▶ missed: an event without a report
    reports ─▶ the packet of each ─────────┘              └──▶ stretches: nothing changes by a step

Events are defined by the guide (docs/telemetry.md): depth or latency differs by a step or more from its value at the
last event, or is on the threshold's other side; a flow's first packet is an event of both.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from weir.controller.int_config.settings import EventThresholds, WatchMode
from weir.tests.controller.int_config.watched_fabric import PROBE, WatchedFabric
from weir.tests.p4src.int_fabric import NORMAL, Departure
from weir.topologies.model import Endpoint
from weir.wire import int_report
from weir.wire.int_md import PROBE_PORT
from weir.wire.int_report import ReportFlag

FLOW_CELLS = 4096
"""Cells per node for the flows that it compares; two flows in one cell cause a report at each alternation."""
_HOP = struct.Struct("!IHHIIQQ")
"""Default data that a node pushes: node, ports, latency, queue, egress time, bytes sent."""
_STACK = 20 + 8 + 4 + 12
"""Offset of the stack in an IPv4 packet that the UDP port marks."""


@dataclass
class Hop:
    """Packets of one queue, or of a flow at one node."""

    depths: list[int] = field(default_factory=list)
    latencies: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """Egress, in µs."""
    told: set[int] = field(default_factory=set)
    """Indices in these lists of the packets that reports describe."""

    def add(self, departure: Departure) -> int:
        self.depths.append(departure.depth)
        self.latencies.append(departure.egress_us - departure.ingress_us)
        self.times.append(departure.egress_us)
        return len(self.times) - 1


@dataclass
class Subject:
    """A queue, a flow at a node, or (MD) a flow along its whole way, whose hops one report describes."""

    name: str
    steps: EventThresholds
    hops: list[Hop]
    is_flow: bool
    mode: WatchMode | None = None

    def missed(self) -> Iterator[str]:
        """Events without a report, and packets a period after the last report without one."""
        for number, hop in enumerate(self.hops):
            kinds = (
                ("depth", hop.depths, self.steps.depth_step, self.steps.depth_threshold),
                ("latency", hop.latencies, self.steps.latency_step_us, self.steps.latency_threshold_us),
            )
            for what, values, step, threshold in kinds:
                last, begun = 0, not self.is_flow
                for index, value in enumerate(values):
                    moved = step is not None and abs(value - last) >= step
                    crossed = threshold is not None and (value >= threshold) != (last >= threshold)
                    if begun and not moved and not crossed:
                        continue
                    if index not in hop.told:
                        yield f"{self.name} hop {number}: {what} {value} at {hop.times[index]} µs, was {last}"
                        break
                    last, begun = value, True
            if self.steps.period_us is not None and self.mode is not WatchMode.MD:
                before = 0
                for index, now in enumerate(hop.times):
                    if index in hop.told:
                        before = now
                    elif now - before >= self.steps.period_us:
                        yield f"{self.name} hop {number}: nothing said at {now} µs, since {before}"
                        break

    def stretches(self) -> Iterator[range]:
        """The packets during which nothing was an event for a period or longer: from the least to the greatest that
        each hop had in them is less than a step, on one side of the threshold.
        """
        assert self.steps.period_us is not None
        bands = [
            band
            for hop in self.hops
            for band in (
                (hop.depths, self.steps.depth_step, self.steps.depth_threshold),
                (hop.latencies, self.steps.latency_step_us, self.steps.latency_threshold_us),
            )
        ]
        times, start = self.hops[0].times, 0
        spans = [[values[0], values[0]] for values, _, _ in bands]
        for index in range(len(times) + 1):
            ends = index == len(times)
            for (values, step, threshold), span in zip(bands, spans, strict=True):
                if ends:
                    break
                low, high = min(span[0], values[index]), max(span[1], values[index])
                ends |= step is not None and high - low >= step
                ends |= threshold is not None and low < threshold <= high
                span[:] = low, high
            if ends:
                if times[index - 1] - times[start] >= self.steps.period_us:
                    yield range(start, index)
                start = index
                spans = [[values[index], values[index]] for values, _, _ in bands] if index < len(times) else []

    def reports_in(self, stretch: range) -> int:
        """Number of reported packets in the stretch."""
        return sum(any(index in hop.told for hop in self.hops) for index in stretch)

    def max_in(self, stretch: range) -> int:
        """Maximum number of reports of the stretch: once each quantity may become known, then one per period.

        A sink reports once for the stack and once for its own queue.
        """
        assert self.steps.period_us is not None
        times = self.hops[0].times
        periods = 1 + (times[stretch[-1]] - times[stretch[0]]) // self.steps.period_us
        return 2 * len(self.hops) + periods * (2 if self.mode is WatchMode.MD else 1)


def subjects(fabric: WatchedFabric) -> list[Subject]:
    """All subjects that the fabric's switches compare, from the emulator's record, with the reports of each.

    Asserts that each report is about a packet that the emulator recorded, with the depth and latency that it had. A
    flow that shares its cell with another one is left out.
    """
    topology, watching = fabric.topology, fabric.watching
    (watched,) = watching.flows
    names = {switch.device_id: switch.name for switch in topology.switches}
    queues: dict[tuple[str, int], Hop] = defaultdict(Hop)
    flows: dict[int, dict[tuple[str, int], Hop]] = defaultdict(lambda: defaultdict(Hop))
    at: dict[tuple[str, int, int | None, int], tuple[Hop, int]] = {}
    cells: dict[tuple[str, int], set[bytes]] = defaultdict(set)

    def note(hop: Hop, departure: Departure, flow: int | None) -> int:
        index = hop.add(departure)
        at[departure.switch, departure.port, flow, departure.egress_us] = hop, index
        return index

    for each in fabric.log:
        if each.instance_type != NORMAL or each.port not in topology.neighbours(each.switch):
            continue
        if not each.frame:
            continue  # a probe that ends there, which the controller hears of by its own stack
        if each.frame[36:38] == watching.port.to_bytes(2, "big"):
            continue  # a report
        if each.priority in watching.queue_classes:
            note(queues[each.switch, each.port], each, None)
        key = _key(each.frame)
        cells[each.switch, zlib.crc32(key) % FLOW_CELLS].add(key)
        if key[11:] != PROBE_PORT.to_bytes(2, "big"):
            flow = flow_of(each.frame[14:])
            note(flows[flow][each.switch, each.port], each, flow)

    def tell(switch: str, port: int, flow: int | None, time_us: int, depth: int, latency: int) -> None:
        hop, index = at[switch, port, flow, time_us]
        assert (hop.depths[index], hop.latencies[index]) == (depth, latency), (switch, port, time_us)
        hop.told.add(index)

    for payload in fabric.payloads:
        group = int_report.decode(payload)
        assert group is not None
        (report,) = group.reports
        flow, values = flow_of(report.inner), report.metadata
        if "egress_port" not in values:  # of a sink, with the stack of MD or the header of MX
            for hop_id, port, latency, queue_depth, egress_ns in _stack(report.inner):
                tell(names[hop_id], port, flow, egress_ns // 1000, queue_depth, latency)
            continue
        where = names[group.node_id], values["egress_port"]
        met = values["egress_ns"] // 1000, values["queue_packets"], values["latency_us"]
        if report.flags & ReportFlag.CONGESTED_QUEUE:
            tell(*where, None, *met)
        if report.flags & ReportFlag.TRACKED_FLOW:
            tell(*where, flow, *met)

    shared = {key for keys in cells.values() if len(keys) > 1 for key in keys}
    alone = flows.keys() - {_flow_of_key(key) for key in shared}
    found = []
    if watching.queue_steps is not None:
        found += [
            Subject(f"queue of {Endpoint(*where)}", watching.queue_steps, [hop], is_flow=False)
            for where, hop in queues.items()
        ]
    if watching.flow_steps is not None:
        for flow in alone:
            ways = sorted(flows[flow].items(), key=lambda item: item[1].times[0])
            counts = Counter(len(hop.times) for _, hop in ways)
            assert len(counts) == 1, f"a packet of flow {flow:x} was lost: {counts}"
            if watched.mode is WatchMode.MD:
                hops = [hop for _, hop in ways]
                found.append(Subject(f"flow {flow:x}", watching.flow_steps, hops, is_flow=True, mode=WatchMode.MD))
            else:
                found += [
                    Subject(f"flow {flow:x} at {where[0]}", watching.flow_steps, [hop], is_flow=True, mode=watched.mode)
                    for where, hop in ways
                ]
    return found


def flow_of(packet: bytes) -> int:
    """Flow of an IPv4 packet, from address and source port."""
    return int.from_bytes(packet[12:16], "big") << 16 | int.from_bytes(packet[20:22], "big")


def _key(frame: bytes) -> bytes:
    """Key by which switches tell flows apart: addresses, protocol and ports, as they are without INT."""
    has_int = frame[36:38] == PROBE.to_bytes(2, "big")
    return frame[26:34] + frame[23:24] + frame[34:36] + (frame[44:46] if has_int else frame[36:38])


def _flow_of_key(key: bytes) -> int:
    return int.from_bytes(key[:4], "big") << 16 | int.from_bytes(key[9:11], "big")


def _stack(packet: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """(node, egress port, latency, depth, egress ns) of each hop; an MX header has none."""
    for start in range(_STACK, 28 + 4 + 4 * packet[29], _HOP.size):
        node, _, port, latency, queue, egress_ns, _ = _HOP.unpack_from(packet, start)
        yield node, port, latency, queue & 0xFFFFFF, egress_ns
