"""The collector: its state is right under losses, duplicates, delays and damage, and losses are counted exactly."""

from __future__ import annotations

import random
import struct
from ipaddress import IPv4Address
from typing import Any

import numpy as np
import pytest

from weir.controller.telemetry.collector import FlowHop, ReportCollector
from weir.controller.telemetry.flow_native import HALVES
from weir.controller.telemetry.link_state import LinkState
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.targets import TOFINO
from weir.wire import frames, int_md, int_report
from weir.wire.int_md import DomainInstruction, Instruction
from weir.wire.int_report import InnerType, Report, ReportFlag, ReportGroup, ReportType

PERIOD = 10_000_000
TOPOLOGY = leaf_spine(2, 1, 1)
SWITCHES = [switch.name for switch in TOPOLOGY.switches]
ID = {switch.name: switch.device_id for switch in TOPOLOGY.switches}
LINK = Endpoint("s1", 2)
TRACKED = ReportFlag.TRACKED_FLOW
EVERYTHING = (
    Instruction.NODE_ID
    | Instruction.PORTS
    | Instruction.HOP_LATENCY
    | Instruction.QUEUE
    | Instruction.INGRESS_TIMESTAMP
    | Instruction.EGRESS_TIMESTAMP
)


class CollectorRig:
    def __init__(self) -> None:
        self.links = LinkState(TOPOLOGY, period_ns=PERIOD)
        self.links.watch(self.links.links)
        self.collector = ReportCollector(TOPOLOGY, self.links)
        self.now = 0

    def take(self, *datagrams: bytes) -> None:
        self.collector.receive(datagrams, self.now)


def packet(ttl: int = 64, *, source_port: int = 4000, protocol: int = 17) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, ttl, protocol, 0, bytes([10, 0, 1, 1]), bytes([10, 0, 2, 1]))
    return head + struct.pack("!HHHH", source_port, 9, 8, 0)


def with_stack(hops: list[tuple[str, int, int, int, int]], ttl: int, source_port: int = 4000) -> bytes:
    """The packet with INT-MD by UDP port; hops (switch, egress port, latency, depth, egress time), the oldest first."""
    stack = b"".join(
        struct.pack("!IHHIIQQQ", ID[name], 1, port, latency, depth, egress - 5, egress, 1000)
        for name, port, latency, depth, egress in reversed(hops)
    )
    frame = int_md.probe_frame(
        source=0x0A000101,
        destination=0x0A000201,
        source_mac=1,
        destination_mac=2,
        source_port=source_port,
        instructions=EVERYTHING,
        domain_instructions=DomainInstruction.BYTES_SENT,
        ttl=ttl,
    )[14:]
    shim = bytearray(frame[28:44])
    shim[1] += len(stack) // 4
    shim[2:4] = (9).to_bytes(2, "big")  # the flow's own port
    return frame[:28] + bytes(shim) + stack


def datagram(
    switch: str, sequence: int, *reports: Report, hardware_id: int = 0, inner: bytes = b"", **metadata: int
) -> bytes:
    if not reports:
        kind = InnerType.IPV4 if inner else InnerType.NONE
        reports = (Report(TRACKED, metadata, kind, inner),)
    return int_report.encode(ReportGroup(ID[switch], sequence, reports, hardware_id))


def measured(number: int) -> dict[str, Any]:
    """Report of s1 about LINK at a distinct time."""
    return {
        "ingress_port": 1,
        "egress_port": LINK.port,
        "latency_us": 50,
        "queue_id": 1,
        "queue_packets": 12,
        "ingress_ns": 10**15 + number * 1_000_000 - 50_000,
        "egress_ns": 10**15 + number * 1_000_000,
        "bytes_sent": 25_000 * number,
    }


def test_state_and_loss_are_exact_under_report_faults() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    rng = random.Random(seed)
    rig = CollectorRig()
    first = (1 << 22) - 1500  # the numbers wrap on the way
    total = 5000
    arriving, lost = [], 0
    for number in range(total):
        late = rng.uniform(0, 400) if rng.random() < 0.05 and number < total - 1 else 0
        if rng.random() < 0.05 and 0 < number < total - 1:
            lost += 1
            continue
        for _ in range(2 if rng.random() < 0.05 else 1):
            arriving.append((min(number + late, total - 1), number))  # the newest is the last that comes
    doubled = len(arriving) - (total - lost)
    arriving.sort()
    newest, heard = -1, 0
    while arriving:
        size = rng.choice([1, 2, 97])  # alone, one that another overtook does not make what is known younger
        batch, arriving = arriving[:size], arriving[size:]
        rig.now = round(batch[-1][0] * 1_000_000)
        rig.take(*(datagram("s1", (first + number) % (1 << 22), **measured(number)) for _, number in batch))
        if max(number for _, number in batch) > newest:
            newest, heard = max(number for _, number in batch), rig.now
        assert rig.links.snapshot(rig.now + 7).links[LINK].age_ns == rig.now + 7 - heard
    (stream,) = rig.collector.streams()
    assert (stream.switch, stream.lost, stream.received) == ("s1", lost, total - lost)
    assert (stream.duplicates, stream.restarts) == (doubled, 0)
    assert rig.collector.faults == {}
    view = rig.links.snapshot(rig.now).links[LINK]
    assert view.rate_bps == pytest.approx(200e6, rel=1e-6)
    assert (view.queue_packets, view.latency_us) == (12, 50)
    assert 0.8 < view.confidence < 1
    assert rig.links.state["resets"].sum() == 0


def test_streams_are_told_apart_by_node_and_hardware_id() -> None:
    rig = CollectorRig()
    for sequence in (5, 7, 8):
        rig.take(datagram("s1", sequence), datagram("s1", 100 + sequence, hardware_id=3), datagram("s2", sequence))
    rig.take(datagram("s2", 6))
    assert [(s.switch, s.hardware_id, s.expected, s.lost, s.late) for s in rig.collector.streams()] == [
        ("s1", 0, 4, 1, 0),
        ("s1", 3, 4, 1, 0),
        ("s2", 0, 4, 0, 1),
    ]


def test_a_restarted_switch_loses_only_its_first_word() -> None:
    rig = CollectorRig()
    rig.take(*(datagram("s1", 50_000 + number) for number in range(10)))
    rig.take(*(datagram("s1", number) for number in range(10)))
    (stream,) = rig.collector.streams()
    assert (stream.lost, stream.restarts, stream.received) == (0, 1, 19)
    assert rig.collector.faults == {"stray": 1}
    rig.take(datagram("s1", 3_000_000))  # one stray number begins nothing
    rig.take(*(datagram("s1", 10 + number) for number in range(10)))
    (stream,) = rig.collector.streams()
    assert (stream.lost, stream.restarts, stream.received) == (0, 1, 29)
    # soon after its start the old numbers are near: other bytes tell another life from copies, however many these are
    rig.take(*(datagram("s1", 20 + number) for number in range(180)))
    rig.take(*(datagram("s1", number) for number in range(200)))
    (stream,) = rig.collector.streams()
    assert (stream.lost, stream.restarts, stream.duplicates) == (0, 1, 199)  # 0 was the stray
    rig.take(*(datagram("s1", number, **measured(number)) for number in range(200)))
    (stream,) = rig.collector.streams()
    assert (stream.lost, stream.restarts, stream.duplicates, stream.received) == (0, 2, 199, 410)
    rig.take(datagram("s1", 150, **measured(7)))  # a damaged copy begins nothing
    rig.take(*(datagram("s1", 200 + number) for number in range(10)))
    (stream,) = rig.collector.streams()
    assert (stream.lost, stream.restarts, rig.collector.faults) == (0, 2, {"stray": 4})


def test_loss_is_exact_over_a_restart_under_report_faults() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    rng = random.Random(seed)
    for _ in range(30):
        rig, lost, doubled, came = CollectorRig(), 0, 0, 0
        for life, total in enumerate((rng.randint(80, 900), rng.randint(80, 900))):
            arriving = []
            for number in range(total):
                ends = number == total - 1 or (life == 0 and number == 0)
                if rng.random() < 0.05 and not ends:
                    lost += 1
                    continue
                times = 2 if rng.random() < 0.05 else 1
                came, doubled = came + 1, doubled + times - 1
                late = rng.uniform(0, 40) if rng.random() < 0.05 and not ends else 0
                arriving += [(min(number + late, total - 1), number)] * times
            arriving.sort()
            for begin in range(0, len(arriving), 50):
                rig.now = round((1000 * life + arriving[begin][0]) * 1_000_000)
                part = (number for _, number in arriving[begin : begin + 50])
                rig.take(*(datagram("s1", number, **measured(5000 * life + number)) for number in part))
        (stream,) = rig.collector.streams()
        assert (stream.restarts, stream.lost, stream.duplicates, stream.received) == (1, lost, doubled, came)
        assert rig.collector.faults == {"stray": 1}
        assert rig.links.snapshot(rig.now).links[LINK].rate_bps == pytest.approx(200e6, rel=1e-6)


def test_numbers_far_below_a_streams_first_are_of_another_life() -> None:
    rig = CollectorRig()
    rig.take(*(datagram("s1", 500 + number) for number in range(100)))  # the collector came late
    rig.take(*(datagram("s1", number) for number in range(100)))
    (stream,) = rig.collector.streams()
    assert (stream.lost, stream.restarts, stream.received) == (0, 1, 199)


def test_a_flows_path_by_the_reports_of_every_node() -> None:
    rig = CollectorRig()
    for turn in range(3):
        rig.now = turn * PERIOD
        for ttl, (name, port) in enumerate((("s2", 1), ("s3", 2), ("s1", 2))):
            rig.take(
                datagram(
                    name, turn, inner=packet(62 + ttl), ingress_port=9, egress_port=port, latency_us=10 * (ttl + turn)
                )
            )
    (flow,) = rig.collector.flows(rig.now)
    assert (flow.source, flow.destination) == (IPv4Address("10.0.1.1"), IPv4Address("10.0.2.1"))
    assert (flow.protocol, flow.source_port, flow.destination_port) == (17, 4000, 9)
    assert [hop.switch for hop in flow.path] == ["s1", "s3", "s2"]
    assert [hop.egress_port for hop in flow.path] == [2, 2, 1]
    assert (flow.reports, flow.path_changes, flow.path_us) == (9, 0, None)
    rig.now = 10 * PERIOD
    rig.take(datagram("s1", 3, inner=packet(64), ingress_port=9, egress_port=3, latency_us=1))
    (flow,) = rig.collector.flows(rig.now)
    assert [(hop.switch, hop.egress_port) for hop in flow.path] == [("s1", 3)]
    assert flow.path_changes == 1
    rig.take(datagram("s2", 3, inner=packet(source_port=1, protocol=6), egress_port=1))
    assert {(f.protocol, f.source_port) for f in rig.collector.flows(rig.now)} == {(17, 4000), (6, 1)}


def test_a_chips_hops_are_told_in_packets_and_microseconds() -> None:
    """A message of 32 lanes has 198 bytes: three cells of 80."""
    topology = leaf_spine(2, 1, 1, target=TOFINO)
    collector = ReportCollector(topology, LinkState(topology, period_ns=PERIOD))
    collector.receive(
        [datagram("s1", 0, inner=packet(), egress_port=2, queue_id=1, queue_packets=12, latency_us=7_000)], 0
    )
    (flow,) = collector.flows(0)
    assert [(hop.queue_packets, hop.latency_us) for hop in flow.path] == [(4, 7.0)]
    stack = with_stack([("s1", 2, 30_000, 12, 10**9)], 62)
    collector.receive([datagram("s2", 0, inner=stack, packet_number=5)], 0)
    own = {"ingress_port": 2, "egress_port": 1, "latency_us": 7_000, "queue_id": 1, "queue_packets": 3}
    collector.receive([datagram("s2", 1, inner=packet(61), packet_number=5, **own)], 0)
    assert [flow.path_us for flow in collector.flows(0)] == [37.0]


def test_bytes_behind_a_report_are_ignored() -> None:
    rig = CollectorRig()
    report = datagram("s1", 0, inner=packet(), egress_port=2)
    [frame] = frames.encapsulate(
        np.frombuffer(report, np.uint8)[None],
        source=1,
        destination=2,
        source_mac=1,
        destination_mac=2,
        destination_port=int_report.REPORT_PORT,
    )
    assert rig.collector.receive_frames([frame.tobytes() + bytes(40)], rig.now) == []
    assert rig.collector.reports == 1
    assert not any(rig.collector.faults.values())


def test_latencies_work_without_times_and_across_two_clocks() -> None:
    rig = CollectorRig()

    def latency(node: str, number: int, latency_us: int, **at: int) -> float | None:
        rig.take(datagram(node, number, inner=packet(64), egress_port=2, latency_us=latency_us, **at))
        (flow,) = rig.collector.flows(rig.now)
        return {hop.switch: hop.latency_us for hop in flow.path}[node]

    assert [latency("s1", 0, 10), latency("s1", 1, 30)] == [10, 30]
    assert latency("s1", 2, 20, egress_ns=10**9) == 20  # here its average begins
    assert latency("s1", 3, 40, egress_ns=10**9 + PERIOD) == 30  # over two periods
    assert latency("s1", 4, 99) == 30  # stands for no time
    # another node takes its place, and its clock is nothing to go by
    assert latency("s3", 0, 7) == 7
    assert latency("s3", 1, 9, egress_ns=10**9 - PERIOD) == 9


def test_the_two_reports_of_a_sink_are_joined_to_a_whole_path() -> None:
    rig = CollectorRig()
    for number in range(4):
        rig.now = number * PERIOD
        at = 10**9 + number * PERIOD
        stack = with_stack([("s1", 2, 30, 4, at), ("s3", 2, 20, 1, 77 * at)], 62)
        halves = [
            datagram("s2", 2 * number, inner=stack, packet_number=number),
            datagram(
                "s2",
                2 * number + 1,
                inner=packet(61),
                packet_number=number,
                ingress_port=2,
                egress_port=1,
                latency_us=7,
                queue_id=1,
                queue_packets=3,
                egress_ns=5 * at,
            ),
        ]
        rig.take(*(halves if number % 2 else reversed(halves)))
    (flow,) = rig.collector.flows(rig.now)
    assert flow.path == (
        FlowHop("s1", 1, 2, 4, 30),
        FlowHop("s3", 1, 2, 1, 20),
        FlowHop("s2", 2, 1, 3, 7),
    )
    assert (flow.destination_port, flow.path_us) == (9, 57)
    assert (rig.collector.joined, rig.collector.unjoined) == (4, 0)
    rig.take(*(datagram("s2", 8 + number, inner=packet(61), packet_number=10 + number) for number in range(HALVES + 6)))
    assert (rig.collector.joined, rig.collector.unjoined) == (4, 6)
    state = rig.links.state
    reported = {link for link, record in zip(rig.links.links, state, strict=True) if record["measured"]}
    assert reported == {Endpoint("s1", 2), Endpoint("s3", 2), Endpoint("s2", 1)}


@pytest.mark.parametrize("gap", [1, 1024, 4096, (400, 600), (1, 400)], ids=str)
def test_reports_are_joined_whatever_their_numbers_count(gap: int | tuple[int, int]) -> None:
    """Packets, or nanoseconds, in which a stack's report may come long before the sink's own."""
    rng = np.random.default_rng(3)
    gaps = np.full(3000, gap) if isinstance(gap, int) else rng.integers(*gap, 3000)
    numbers = (np.cumsum(gaps) % 2**32).tolist()
    rig, between = CollectorRig(), 200
    stack = with_stack([("s1", 2, 30, 4, 10**9)], 62)
    nothing: dict[str, int] = {}
    halves = [(stack, nothing, number) for number in numbers]
    own = [(packet(61), {"egress_port": 1, "latency_us": 7}, number) for number in numbers]
    order = [
        *halves[:between],
        *(each for both in zip(halves[between:], own[:-between], strict=True) for each in both),
        *own[-between:],
    ]
    rig.take(
        *(
            datagram("s2", index, inner=inner, packet_number=number, **told)
            for index, (inner, told, number) in enumerate(order)
        )
    )
    assert rig.collector.joined > 0.995 * len(numbers)
    (flow,) = rig.collector.flows(rig.now)
    assert flow.path_us == 37


def test_two_packets_of_one_number_are_told_apart_by_their_flows() -> None:
    rig = CollectorRig()
    for sequence, (port, latency) in enumerate(((1, 30), (2, 900))):
        stack = with_stack([("s1", 2, latency, 4, 10**9)], 62, source_port=port)
        rig.take(datagram("s2", sequence, inner=stack, packet_number=5))
    for port in (1, 2):
        own = packet(61, source_port=port)
        rig.take(datagram("s2", 1 + port, inner=own, packet_number=5, egress_port=1, latency_us=7))
    assert {flow.source_port: flow.path_us for flow in rig.collector.flows(rig.now)} == {1: 37, 2: 907}


@pytest.mark.parametrize("on_the_stack", [True, False])
def test_a_sinks_own_hop_is_in_the_stack_or_the_same_report(on_the_stack: bool) -> None:
    """Three places are allowed for it; the third is a report of its own."""
    rig = CollectorRig()
    at = 10**9
    before = [("s1", 2, 30, 4, at), ("s3", 2, 20, 1, 77 * at)]
    if on_the_stack:
        rig.take(datagram("s2", 0, inner=with_stack([*before, ("s2", 1, 7, 3, 5 * at)], 61)))
    else:
        own = {"ingress_port": 1, "egress_port": 1, "latency_us": 7, "queue_id": 1, "queue_packets": 3}
        rig.take(datagram("s2", 0, inner=with_stack(before, 62), egress_ns=5 * at, **own))
    (flow,) = rig.collector.flows(rig.now)
    assert flow.path == (FlowHop("s1", 1, 2, 4, 30), FlowHop("s3", 1, 2, 1, 20), FlowHop("s2", 1, 1, 3, 7))
    assert (flow.destination_port, flow.path_us) == (9, 57)
    reported = {link for link, record in zip(rig.links.links, rig.links.state, strict=True) if record["measured"]}
    assert reported == {Endpoint("s1", 2), Endpoint("s3", 2), Endpoint("s2", 1)}


def test_a_group_of_reports_is_taken_one_by_one() -> None:
    """A report without INT's contents has no metadata, whatever its metadata length says."""
    rig = CollectorRig()
    dropped = Report(ReportFlag.DROPPED, {"drop_queue_id": 0, "drop_reason": 5, "drop_padding": 0})
    bare = Report(TRACKED, {}, InnerType.IPV4, packet(), ReportType.INNER_ONLY)
    group = bytearray(datagram("s1", 0, bare, dropped, Report(TRACKED, measured(1))))
    assert group[8] >> 4 == ReportType.INNER_ONLY
    group[10] = 99
    rig.take(bytes(group))
    assert (rig.collector.reports, rig.collector.datagrams, rig.collector.faults) == (3, 1, {})
    assert rig.collector.drops == {("s1", 5): 1}
    assert [flow.source_port for flow in rig.collector.flows(rig.now)] == [4000]
    assert rig.links.state[rig.links.links.index(LINK)]["reports"] == 1


def test_free_slots_and_drops_by_reason() -> None:
    rig = CollectorRig()
    rig.take(
        datagram("s1", 0, free_slots=900),
        datagram("s1", 1, Report(ReportFlag.DROPPED, {"drop_queue_id": 0, "drop_reason": 5, "drop_padding": 0})),
        datagram("s1", 2, Report(ReportFlag.DROPPED, {"drop_queue_id": 0, "drop_reason": 5, "drop_padding": 0})),
        datagram("s1", 3, free_slots=880),
    )
    assert rig.collector.free_slots == {"s1": 880}
    assert rig.collector.drops == {("s1", 5): 2}


def test_malformed_reports_are_counted_by_kind_and_ignored() -> None:
    rig = CollectorRig()
    good = datagram("s1", 0, inner=packet(), **measured(1))
    rig.take(good)
    before = (rig.links.state.tobytes(), rig.links.queues.tobytes(), list(rig.collector.streams()))
    foreign = int_report.encode(ReportGroup(4711, 0, (Report(TRACKED, measured(2)),)))
    rig.take(
        b"", b"\x20", good[:-4], b"\x10" + good[1:], good[:10] + b"\x00" + good[11:], foreign, good[:8] + b"\x99" * 8
    )
    assert rig.collector.faults == {"short": 2, "version": 1, "length": 2, "metadata": 1, "unknown node": 1}
    assert (rig.links.state.tobytes(), rig.links.queues.tobytes(), list(rig.collector.streams())) == before
    rng = np.random.default_rng(3)
    for _ in range(300):  # anything goes in and nothing comes out
        rig.take(bytes(rng.integers(0, 256, rng.integers(0, 80), np.uint8)))
    assert (rig.links.state.tobytes(), rig.links.queues.tobytes()) == before[:2]
    whole = with_stack([("s1", 2, 30, 4, 5)], 62)
    rig.take(
        datagram("s2", 0, inner=b"\x46" + packet()[1:]),
        datagram("s2", 1, inner=whole[:-8]),
        datagram("s2", 2, inner=whole[:29] + b"\x02" + whole[30:]),
    )
    assert {kind: rig.collector.faults[kind] for kind in ("inner packet", "stack")} == {"inner packet": 1, "stack": 2}
