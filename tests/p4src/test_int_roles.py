"""INT's roles in one switch and in small trees: sampling, events, drops, aggregation traffic, what hosts send."""

from __future__ import annotations

import struct
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from weir.controller.planning.plan import PROBE_SESSION
from weir.emulator.entries import ActionCall, CloneSession, Exact, Replica, TableEntry, Ternary
from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.int_fabric import (
    ANY,
    REPORT_SESSION,
    Tree,
    Watch,
    as_delivered,
    l4_checksum,
    tcp_frame,
    udp_frame,
)
from weir.tests.p4src.node_model import DROP_REASONS
from weir.tests.p4src.small_fabric import (
    INNER,
    OTHER_SWITCH,
    PARENT,
    PARENT_PORT,
    ROOT,
    STRANGER,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    contribution,
    message,
    packet,
    tables,
)
from weir.wire import frames, int_md, int_report, int_shim
from weir.wire.aggregation import AGGREGATION_PORT, MessageType
from weir.wire.int_report import Report, ReportFlag

COLLECTOR_PORT = 12


def reports(tree: Tree) -> list[tuple[int, Report]]:
    """(node id, report) as the collector got them."""
    found = []
    for frame in tree.received["collector"]:
        group = int_report.decode(frame[42:])
        assert group is not None
        found += [(group.node_id, report) for report in group.reports]
    return found


def two_switches(presence: str = "udp-port") -> Tree:
    return Tree(np.random.default_rng(1), 2, presence)


NEAR, FAR = 0x0A000000, 0x0A000100
"""Hosts at the first switch and at the second."""


def send(tree: Tree, count: int, gap_ns: int = 1_000_000) -> None:
    for number in range(1, count + 1):
        frame = udp_frame(NEAR, FAR, bytes(50), number)
        tree.fabric.send(tree.host(NEAR), frame)
        tree.run(tree.fabric.now_ns + gap_ns)
    tree.run(tree.fabric.now_ns + 1_000_000_000)


def test_one_in_three_is_chosen_from_the_first_on() -> None:
    tree = two_switches()
    tree.watch(0, Watch("xd", every=3))
    send(tree, 10)
    assert [int.from_bytes(report.inner[4:6], "big") for _, report in reports(tree)] == [1, 4, 7, 10]


def test_reports_are_not_watched() -> None:
    """Every flow is, at both switches; reports of the second cross the first."""
    tree = two_switches()
    for switch in (0, 1):
        tree.watch(switch, Watch("xd"))
    send(tree, 4)
    assert sorted(node for node, _ in reports(tree)) == [1, 1, 1, 1, 2, 2, 2, 2]


def test_a_switch_that_has_nowhere_to_report_to_sends_no_copies() -> None:
    tree = two_switches()
    tree.watch(0, Watch("xd"))
    state = tree.nodes[0].state
    assert state is not None
    state.tables["FabricEgress.int_reports.destination"].set_default(ActionCall("NoAction", ()))
    send(tree, 4)
    assert len(tree.received[tree.host(FAR)]) == 4
    assert tree.received["collector"] == []


def test_a_flow_within_one_switch_is_reported_and_unchanged() -> None:
    tree = two_switches()
    tree.watch(0, Watch("md"))
    frame = udp_frame(NEAR, NEAR + 1, bytes(20), 1)
    tree.fabric.send(tree.host(NEAR), frame)
    tree.run(1_000_000_000)
    assert [got[14:] for got in tree.received[tree.host(NEAR + 1)]] == [as_delivered(frame, 1)]
    assert [node for node, _ in reports(tree)] == [1]


def test_a_hosts_packets_do_not_look_like_int() -> None:
    """A fabric that marks by DSCP takes the bit from packets that come in without INT (INT 2.1, DSCP option)."""
    tree = two_switches("dscp")
    frame = udp_frame(NEAR, FAR, bytes([0x10, 3, 0, 0, 0x20]) + bytes(50), 1, dscp=0x2F)
    segment = tcp_frame(NEAR, FAR, bytes(50), 2, source_port=1, destination_port=2, dscp=0x2F)
    for each in (frame, segment):
        tree.fabric.send(tree.host(NEAR), each)
    tree.run(1_000_000_000)
    assert [got[15] >> 2 for got in tree.received[tree.host(FAR)]] == [0x2E, 0x2E]
    assert [got[34:] for got in tree.received[tree.host(FAR)]] == [frame[34:], segment[34:]]


@pytest.mark.parametrize("presence", ["udp-port", "dscp"])
def test_no_message_passes_as_int(presence: str) -> None:
    """Messages with an odd DSCP, and a generation that looks like INT's version, would be examined by no policer."""
    tree = two_switches(presence)
    as_int, as_message = (message(generation=generation) for generation in (0x20, 0x10))
    frames_ = [
        udp_frame(NEAR, FAR, payload, number, destination_port=AGGREGATION_PORT, dscp=dscp)
        for number, (payload, dscp) in enumerate([(as_int, 1), (as_int, 0), (as_message, 1)], 1)
    ]
    for frame in frames_:
        tree.fabric.send(tree.host(NEAR), frame)
    tree.run(1_000_000_000)
    assert [got[34:] for got in tree.received[tree.host(FAR)]] == [frame[34:] for frame in frames_[1:]]
    state = tree.nodes[0].state
    assert state is not None
    assert state.counters["FabricIngress.drops"].packets[DROP_REASONS.index("malformed")] == 1


@pytest.mark.parametrize("discard", [False, True])
@pytest.mark.parametrize(("presence", "at"), [("dscp", 46), ("probe-marker", 54)])
def test_another_way_to_mark_is_no_int(presence: str, at: int, discard: bool) -> None:
    """If the fabric marks by port, packets that look like INT marked by DSCP or a marker pass unchanged, probes as
    well.
    """
    other = two_switches(presence)
    other.watch(0, Watch("md"))
    send(other, 1)
    inner = next(departure.frame for departure in other.log if departure.packet == 1 and departure.switch == "s0")
    assert inner[at] >> 4 == 2, "INT's version"
    inner = inner[:at] + bytes([inner[at] | discard << 3]) + inner[at + 1 :]
    tree = two_switches()
    for port in range(3):
        tree.insert(1, "FabricEgress.probe_sinks", (Exact(port),), "report", PROBE_SESSION)
    tree.fabric.send(tree.host(NEAR), inner)
    tree.run(1_000_000_000)
    assert [got[34:] for got in tree.received[tree.host(FAR)]] == [inner[34:]]
    assert reports(tree) == []


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("presence", ["udp-port", "dscp", "probe-marker"])
@pytest.mark.parametrize("mode", ["md", "mx"])
def test_packets_that_resemble_int_are_unchanged_by_a_watchlist(mode: str, presence: str, protocol: str) -> None:
    """INT's headers would stand in its place: the node reports the packet and leaves it as it is.

    Shims that are too short for INT's header or of an unknown type, headers of another version, and where the fabric
    marks in another way whole ones.
    """
    marker = int_shim.PROBE_MARKER.to_bytes(8, "big")
    whole = bytes([0x10, 0, 3, 0, 0x20])
    shims = [whole, bytes([0x10, 0, 2, 0, 0x20]), bytes([0x50, 0, 3, 0, 0x20]), bytes([0x10, 0, 3, 0, 0x10])]
    payloads = [(behind, shim) for behind in (b"", marker) for shim in shims]
    tree = two_switches(presence)
    tree.watch(0, Watch(mode))
    sent = []
    for number, ((front, shim), port, dscp) in enumerate(product(payloads, (5000, 2000), (0, 1)), 1):
        by_port = protocol == "udp" and port == 5000
        if shim == whole and ((by_port and not front) or (front and not by_port and presence == "probe-marker")):
            continue  # it is INT
        payload = front + shim + bytes(60)
        if protocol == "udp":
            frame = udp_frame(NEAR, FAR, payload, number, destination_port=port, dscp=dscp)
        else:
            frame = tcp_frame(NEAR, FAR, payload, number, source_port=1, destination_port=port, dscp=dscp)
        sent.append(frame)
        tree.fabric.send(tree.host(NEAR), frame)
        tree.run(tree.fabric.now_ns + 10_000_000)
    tree.run(tree.fabric.now_ns + 1_000_000_000)
    assert [got[34:] for got in tree.received[tree.host(FAR)]] == [each[34:] for each in sent]


def test_fragments_are_left_alone() -> None:
    tree = two_switches()
    tree.watch(0, Watch("md"))
    for flags in (0x20, 0x01):
        frame = bytearray(udp_frame(NEAR, FAR, bytes(50), 1))
        frame[20] = flags
        whole = bytes(frame[:24]) + b"\0\0" + bytes(frame[26:])
        total = int(frames.ipv4_checksum(frames.frame_headers(np.frombuffer(whole, np.uint8)[None])["ipv4"])[0])
        whole = whole[:24] + total.to_bytes(2, "big") + whole[26:]
        tree.fabric.send(tree.host(NEAR), whole)
        tree.run(tree.fabric.now_ns + 1_000_000_000)
        assert tree.received[tree.host(FAR)].pop()[14:] == as_delivered(whole, 2)
    assert reports(tree) == []


@pytest.mark.parametrize("presence", ["udp-port", "dscp", "probe-marker"])
def test_a_wrong_checksum_stays_as_wrong_as_it_was(presence: str) -> None:
    """INT thus hides no damage: with and without it the receiver finds the same difference."""
    tree = two_switches(presence)
    tree.watch(0, Watch("md"))
    good = [
        tcp_frame(NEAR, FAR, bytes(range(60)), 1, source_port=7, destination_port=80),
        udp_frame(NEAR, FAR, bytes(range(60)), 2),
    ]
    damaged = [frame[:70] + bytes([frame[70] ^ 0x5A]) + frame[71:] for frame in good]
    for frame in damaged:
        tree.fabric.send(tree.host(NEAR), frame)
    tree.run(1_000_000_000)
    assert [frame[14:] for frame in tree.received[tree.host(FAR)]] == [as_delivered(each, 2) for each in damaged]
    between = {
        departure.packet: departure.frame for departure in tree.log if departure.switch == "s0" and departure.packet
    }
    for number, frame in enumerate(damaged, 1):
        assert len(between[number]) > len(frame), "it had INT"
        if between[number][23] == frame[23]:  # no UDP header of INT's own, which has no checksum
            at = {6: 50, 17: 40}[frame[23]]
            was, now = (int.from_bytes(each[at : at + 2], "big") for each in (frame, between[number]))
            off_before, off_now = was - l4_checksum(frame[14:]), now - l4_checksum(between[number][14:])
            assert (off_before - off_now) % 0xFFFF == 0 != off_before % 0xFFFF


def test_a_new_udp_header_has_a_source_port_by_the_flow() -> None:
    """All of a flow go the same way, and flows may go different ones."""
    tree = two_switches()
    tree.watch(0, Watch("md"))
    for number in range(1, 17):
        frame = tcp_frame(NEAR, FAR, bytes(9), number, source_port=2000 + number % 8, destination_port=80)
        tree.fabric.send(tree.host(NEAR), frame)
    tree.run(1_000_000_000)
    ports: dict[int, set[int]] = defaultdict(set)
    for departure in tree.log:
        if departure.switch == "s0" and departure.packet:
            assert (departure.frame[23], departure.frame[36:38]) == (17, (5000).to_bytes(2, "big"))
            ports[departure.packet % 8].add(int.from_bytes(departure.frame[34:36], "big"))
    assert all(len(of_flow) == 1 for of_flow in ports.values())
    assert len(set.union(*ports.values())) >= 6
    assert min(set.union(*ports.values())) >= 0xC000


def steps(tree: Tree, switch: int, *, depth_step: int = 2**32 - 1, period_us: int = 39_500) -> None:
    """Set the thresholds of a node's reports on a flow; sinks report in any case."""
    never = 2**32 - 1
    limits = (never, depth_step, never, never, period_us)  # threshold and step for depth, then for latency; the period
    tree.set_default(switch, "FabricEgress.int_events.flow_steps", "set_steps", *limits)
    state = tree.nodes[switch].state
    assert state is not None
    for slot in (0, 1):
        strip = ActionCall("FabricIngress.int_sink.strip", (period_us,))
        state.tables["FabricIngress.int_sink.sinks"].modify(TableEntry((Exact(NEAR + 256 * switch + slot),), strip))


@pytest.mark.parametrize("mode", ["xd", "md"])
def test_a_steady_flow_is_reported_once_a_period(mode: str) -> None:
    """100 packets in 100 ms and a period of 40 ms: the first, and one each 40 ms; no event above the step is missed."""
    tree = two_switches()
    tree.watch(0, Watch(mode))
    for switch in (0, 1):
        steps(tree, switch, depth_step=2, period_us=40_000)
    send(tree, 100)
    steady = len(reports(tree))
    per_event = 1 if mode == "xd" else 2  # the stack's, and the sink's own
    assert 3 * per_event <= steady <= 4 * per_event
    before = len(tree.log)
    for number in range(200, 210):  # a burst: the queue moves by two packets again and again
        tree.fabric.send(tree.host(NEAR), udp_frame(NEAR, FAR, bytes(1200), number, source_port=7, destination_port=9))
    tree.run(tree.fabric.now_ns + 1_000_000_000)
    at = {"xd": "s0"}.get(mode)
    last, moved = 0, 0
    for departure in tree.log[before:]:
        watched = departure.instance_type == 0 and departure.packet >= 200 and departure.switch == at
        if watched and abs(departure.depth - last) >= 2:
            last, moved = departure.depth, moved + 1
    if at:
        assert len(reports(tree)) - steady >= moved


def burst(tree: Tree, source: int, count: int = 12) -> None:
    """Fill the queue to the far host with this many packets of no watched flow."""
    for number in range(1000, 1000 + count):
        tree.fabric.send(tree.host(source), udp_frame(source, FAR, bytes(1200), number, source_port=8))


def of_flow(tree: Tree, node: int, *, stacks: bool) -> list[int]:
    """Packets that a node reports as their sink, or for their encounter with its queue."""
    told = [report for id_, report in reports(tree) if id_ == node and ("egress_port" in report.metadata) != stacks]
    return [int.from_bytes(report.inner[4:6], "big") for report in told]


def test_a_sinks_two_periods_of_a_flow_do_not_part() -> None:
    """The first packet waits in the sink's own queue, so that its period begins there later than that of stacks."""
    tree = two_switches()
    tree.watch(0, Watch("mx", source=NEAR))
    steps(tree, 1)
    burst(tree, FAR + 1)
    send(tree, 100)
    first = next(
        departure
        for departure in tree.log
        if (departure.switch, departure.packet, departure.instance_type) == ("s1", 1, 0)
    )
    assert first.egress_us - first.ingress_us > 1_500
    assert of_flow(tree, 2, stacks=True) == of_flow(tree, 2, stacks=False) == [1, 41, 81]


def test_a_sinks_period_begins_anew_with_an_event_upstream() -> None:
    tree = two_switches()
    tree.watch(0, Watch("md", source_port=7))
    steps(tree, 0, depth_step=2)
    steps(tree, 1)
    for number in range(1, 101):
        if number == 20:
            burst(tree, NEAR)
            burst(tree, NEAR + 1)
        tree.fabric.send(tree.host(NEAR), udp_frame(NEAR, FAR, bytes(50), number))
        tree.run(tree.fabric.now_ns + 1_000_000)
    first, *events, last = of_flow(tree, 2, stacks=True)
    assert first == 1
    assert 20 <= events[0] <= events[-1] < 41
    assert last - events[-1] in (40, 41), "it came late itself"


def test_a_queue_is_reported_when_it_crosses_or_moves() -> None:
    """Bursts through one queue: exactly the packets that the rule names, by the depths that the emulator saw."""
    tree = two_switches()
    port = tree.links[0, 1]
    limits = (6, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    tree.insert(0, "FabricEgress.int_events.queue_watch", (Exact(port), Exact(1)), "watch_queue", *limits)
    number = 0
    for burst in (2, 12, 1, 25):
        for _ in range(burst):
            number += 1
            tree.fabric.send(tree.host(NEAR), udp_frame(NEAR, FAR, bytes(1000), number))
            tree.fabric.send(tree.host(NEAR + 1), udp_frame(NEAR + 1, FAR, bytes(1000), number + 100))
        tree.run(tree.fabric.now_ns + 500_000_000)
    expected, last = [], 0
    for departure in tree.log:
        here = (departure.switch, departure.port, departure.priority, departure.instance_type) == ("s0", port, 1, 0)
        if here and (abs(departure.depth - last) >= 3 or (departure.depth >= 6) != (last >= 6)):
            last = departure.depth
            expected.append((departure.packet, departure.depth))
    got = [(int.from_bytes(report.inner[4:6], "big"), report.metadata["queue_packets"]) for _, report in reports(tree)]
    assert got == expected
    assert len(expected) > 3
    assert {report.flags for _, report in reports(tree)} == {ReportFlag.CONGESTED_QUEUE}


def watched_node(*drops: tuple[int, int]) -> EmulatedNode:
    """The small fabric's switch with reports to a port of their own, and entries (value, mask) for reasons to drop."""
    node = EmulatedNode(tables())
    node.switch.replication.set_session(REPORT_SESSION, CloneSession((Replica(COLLECTOR_PORT),)))
    address = ActionCall(
        "FabricEgress.int_reports.address", (1, 2, 3, SWITCH, STRANGER, 5555, int_report.REPORT_PORT, 0)
    )
    node.state.tables["FabricEgress.int_reports.destination"].set_default(address)
    for reason, mask in drops:
        entry = TableEntry((Ternary(reason, mask), *[ANY] * 5), ActionCall("FabricIngress.report_drop"), priority=1)
        node.state.tables["FabricIngress.drop_watch"].insert(entry)
    return node


def test_a_report_has_as_many_words_as_its_items() -> None:
    """Any combination of items is included."""
    node = watched_node()
    action = "FabricEgress.int_source.export_xd"
    for bits in range(1, 128):
        match = (ANY, ANY, ANY, Ternary(bits, 0xFFFF), ANY)
        call = ActionCall(action, (bits, 1, bits << 8, 0))
        node.state.tables["FabricEgress.int_source.watchlist"].insert(TableEntry(match, call, priority=bits))
    for port in (PARENT_PORT, STRANGER_PORT):
        names = ActionCall("FabricEgress.int_source.name_link", (1500, 70_000 + port, 0))
        node.state.tables["FabricEgress.int_source.links"].insert(TableEntry((Exact(port),), names))
        name_ingress = ActionCall("FabricEgress.telemetry.name_ingress", (80_000 + port,))
        node.state.tables["FabricEgress.telemetry.ingress_names"].insert(TableEntry((Exact(port),), name_ingress))
    payload = bytes(range(64))
    for bits in range(1, 128):
        frame = packet(payload, PARENT, STRANGER, source_port=bits, destination_port=9)
        told = [left for port, left in node.forward(frame, PARENT_PORT) if port == COLLECTOR_PORT]
        [report] = [each for left in told for each in as_reports(left)]
        wanted = [item for item in int_report.ITEMS if not item.domain and item.bit & bits << 8]
        assert [*report.metadata] == [name for item in wanted for name, _ in item.fields], f"{bits:#x}"
        assert report.inner[28:60] == payload[:32]


def as_reports(frame: bytes) -> tuple[Report, ...]:
    group = int_report.decode(frame[42:])
    assert group is not None
    return group.reports


def test_a_probe_that_ends_at_its_sink_is_no_event_of_a_queue() -> None:
    """The controller receives it by the probe, and the reference of the queue's next packet stays."""
    node = watched_node()
    node.state.tables["FabricEgress.probe_sinks"].insert(
        TableEntry((Exact(PARENT_PORT),), ActionCall("FabricEgress.report", (PROBE_SESSION,)))
    )
    limits = ActionCall("FabricEgress.int_events.watch_queue", (*(2**32 - 1,) * 4, 1_000))
    node.state.tables["FabricEgress.int_events.queue_watch"].insert(TableEntry((Exact(PARENT_PORT), Exact(1)), limits))
    times = node.state.registers["FabricEgress.int_events.queue_time"].values
    node.forward(
        int_md.probe_frame(source=WORKERS[0], destination=OTHER_SWITCH, source_mac=1, destination_mac=2), 0, 5_000
    )
    assert not times.any()
    sent = node.forward(packet(b"x" * 40, WORKERS[0], OTHER_SWITCH, destination_port=9), 0, 5_500)
    assert sorted(port for port, _ in sent) == [PARENT_PORT, COLLECTOR_PORT]
    assert times[times != 0].tolist() == [5_500]


@pytest.mark.parametrize(
    ("reason", "frame"),
    [
        ("no_route", packet(b"x" * 40, WORKERS[0], 0x01020304, destination_port=9)),
        ("ttl_expired", packet(b"x" * 40, WORKERS[0], STRANGER, destination_port=9, ttl=1)),
        ("not_member", contribution(1)[0]),
    ],
)
def test_a_drop_is_reported_with_its_reason(reason: str, frame: bytes) -> None:
    node = watched_node((DROP_REASONS.index(reason), 0xFF))
    ((port, sent),) = node.forward(frame, 0, 77)
    assert port == COLLECTOR_PORT
    group = int_report.decode(sent[42:])
    assert group is not None
    (report,) = group.reports
    assert report.flags == ReportFlag.DROPPED
    assert report.metadata == {
        "ingress_port": 0,
        "egress_port": int_report.UNAVAILABLE_PORT,
        "ingress_ns": 77_000,
        "drop_queue_id": 0xFF,
        "drop_reason": DROP_REASONS.index(reason),
        "drop_padding": 0,
    }
    assert frame[14:].startswith(report.inner)
    assert node.drops[reason] == 1


@pytest.mark.parametrize("domain", [0, 77])
def test_mx_of_another_domain_is_reported_without_its_items(domain: int) -> None:
    """And goes on as it came."""
    header = struct.pack("!BBHBBBBHHHH", 0x34, 3, 9, 0x20, 0, 0, 0, 0x7000, domain, 0x8000, 0)
    frame = packet(header + b"payload!", WORKERS[0], STRANGER, destination_port=5000)
    sent = dict(watched_node().forward(frame, 0, 77))
    (report,) = int_report.decode(sent.pop(COLLECTOR_PORT)[42:]).reports  # type: ignore[union-attr]
    assert report.flags == ReportFlag.TRACKED_FLOW
    assert set(report.metadata) == {"ingress_port", "egress_port", "latency_us", "queue_id", "queue_packets"}
    ((_, passed),) = sent.items()
    assert passed[34:] == frame[34:]


def test_other_drops_are_not_reported() -> None:
    node = watched_node((DROP_REASONS.index("no_route"), 0xFF))
    assert node.forward(packet(b"x", WORKERS[0], STRANGER, ttl=1, destination_port=9), 0) == []


NODE_ID = b"\0\0\0\1"
"""Node id of the small fabric's switch."""


def carrying_int(frame: bytes, told: bytes) -> bytes:
    """A message behind INT-MD that asks for node ids, with a stack of those that were told."""
    header = bytes([0x14, 3 + len(told) // 4]) + frame[36:38] + b"\x20\0\x01\x05\x80\0\x57\x45\0\0\0\0"
    source, destination = (int.from_bytes(frame[at : at + 4], "big") for at in (26, 30))
    return packet(header + told + frame[42:], source, destination, destination_port=5000)


@pytest.mark.parametrize("job", [INNER, ROOT])
def test_a_rounds_result_has_the_completing_messages_stack(job: int) -> None:
    """A repeated request gets the stack of its own message; if no sink removes INT, the sums are unchanged."""
    plain, node = EmulatedNode(tables()), EmulatedNode(tables())
    sent: list[tuple[int, bytes]] = []
    expected: list[tuple[int, bytes]] = []
    for worker in (0, 2, 1, 2):
        frame, port = contribution(worker, job=job, lanes=worker + 1, width=32)
        told = bytes([0, 0, 0, 10 + worker])
        expected += plain.forward(frame, port)
        sent += node.forward(carrying_int(frame, told), port)
    assert [port for port, _ in sent] == ([PARENT_PORT] * 2 if job == INNER else [0, 1, 2, 2])
    for number, ((port, out), was) in enumerate(zip(sent, expected, strict=True)):
        assert (port, out[66:]) == (was[0], was[1][42:])
        assert out[36:46] == struct.pack("!HHHBBH", 5000, len(out) - 34, 0, 0x14, 5, AGGREGATION_PORT)
        assert out[46:58] == b"\x20\0\x01\x04\x80\0\x57\x45\0\0\0\0"
        assert out[58:66] == NODE_ID + bytes([0, 0, 0, 12 if number == len(sent) - 1 else 11])


def test_results_gather_what_nodes_say_on_their_way_down() -> None:
    plain, node = EmulatedNode(tables()), EmulatedNode(tables())
    frame = packet(message(MessageType.RESULT, job=INNER), PARENT)
    expected = plain.forward(frame, PARENT_PORT)
    sent = node.forward(carrying_int(frame, b"\0\0\0\x63"), PARENT_PORT)
    assert len(sent) == 3
    assert [(port, out[66:]) for port, out in sent] == [(port, was[42:]) for port, was in expected]
    assert {out[58:66] for _, out in sent} == {NODE_ID + b"\0\0\0\x63"}


def test_a_probe_is_no_message() -> None:
    node = EmulatedNode(tables())
    frame, port = contribution(0, job=INNER)
    probe = bytearray(carrying_int(frame, b""))
    probe[46] |= 0x08
    assert node.forward(bytes(probe), port) == []
    assert node.drops["malformed"] == 1


@pytest.mark.parametrize("mode", ["md", "mx"])
def test_watched_aggregation_traffic_is_summed_as_if_it_were_not(mode: str) -> None:
    """A contribution with INT in it reaches the switch that sums it: the sum is unchanged."""
    plain, node = EmulatedNode(tables()), watched_node()
    sinks = node.state.tables["FabricIngress.int_sink.sinks"]
    sinks.insert(TableEntry((Exact(SWITCH),), ActionCall("FabricIngress.int_sink.strip", (0,))))
    sent: list[tuple[int, bytes]] = []
    expected: list[tuple[int, bytes]] = []
    for worker in range(3):
        frame, port = contribution(worker, job=INNER, lanes=worker + 1)
        expected += plain.forward(frame, port)
        # one switch in front of it has embedded INT: shim, header, and one hop of one word
        stack = b"\0\0\0\7" if mode == "md" else b""
        shim = bytes([0x14 if mode == "md" else 0x34, 3 + len(stack) // 4]) + frame[36:38]
        header = bytes([0x20, 0, 1 if mode == "md" else 0, 5 if mode == "md" else 0]) + b"\x80\0\x57\x45\0\0\0\0"
        body = shim + header + stack + frame[42:]
        embedded = packet(body, WORKERS[worker], SWITCH, destination_port=5000)
        for out in node.forward(embedded, port):
            (sent if out[0] != COLLECTOR_PORT else []).append(out)
    assert sent == expected
    assert [port for port, _ in sent] == [PARENT_PORT]
