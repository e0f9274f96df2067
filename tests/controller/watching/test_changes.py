"""Change detection as the controller sets it up: few reports while nothing happens, no event above its step missed."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from weir.controller.watching.settings import NEVER, Flows, Mode, Steps, Watching
from weir.tests.controller.watching.watched_fabric import MS, WatchedFabric, watched_fabric
from weir.topologies.generators import leaf_spine
from weir.wire import int_report
from weir.wire.int_report import Report, ReportFlag

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=50_000_000, queue_packets=2000)
STEPS = Steps(depth_threshold=20, depth_step=8, latency_step_us=1500, period_us=60_000)
BURST = range(70 * MS, 110 * MS)
END = 260 * MS


def reports_of(fabric: WatchedFabric) -> list[tuple[int, Report]]:
    groups = [int_report.decode(payload) for payload in fabric.payloads]
    return [(group.node_id, report) for group in groups if group is not None for report in group.reports]


async def test_steady_traffic_is_seldom_reported_and_no_event_above_its_step_is_missed() -> None:
    """Two flows that fit a link for themselves; in between a third that does not fit beside them.

    The judge is the emulator's record of every packet's depth and latency: what a queue, or a flow at a node, was
    reported for last is never off by a step or more, nor on the other side of the threshold.
    """
    watching = Watching((Flows(Mode.XD),), collector="h4", flow_steps=STEPS, queue_steps=STEPS)
    async with watched_fabric(TOPOLOGY, watching) as fabric:
        fabric.tap()
        for source, rate, port, start, stop in (
            ("h1", 21e6, 1, 1 * MS, END),
            ("h2", 19.3e6, 1, 1 * MS, END),
            ("h1", 17e6, 3, BURST.start, BURST.stop),
        ):
            fabric.emulated.add_flow(
                source, "h3", payload_bytes=600, rate_bps=rate, source_port=port, start_ns=start, stop_ns=stop
            )
        await fabric.run(END + 50 * MS)
        assert {stream.lost for stream in fabric.collector.streams()} == {0}
        reports, packets = reports_of(fabric), sorted(fabric.data, key=lambda each: each.egress_us)

    device = {switch.name: switch.device_id for switch in TOPOLOGY.switches}
    told: dict[tuple[int, int, int | None], list[tuple[int, int, int]]] = defaultdict(list)
    """By node, port and flow (None: of the queue): egress time in µs, depth and latency, in order."""
    for node, report in reports:
        values = (report.metadata["egress_ns"] // 1000, report.metadata["queue_packets"], report.metadata["latency_us"])
        where = node, report.metadata["egress_port"]
        if report.flags & ReportFlag.CONGESTED_QUEUE:
            told[*where, None].append(values)
        if report.flags & ReportFlag.TRACKED_FLOW:
            told[*where, flow_of(report.inner)].append(values)

    for about, of_it in told.items():
        told[about] = events(of_it, is_flow=about[2] is not None)

    for packet in packets:
        depth, latency = packet.depth, packet.egress_us - packet.ingress_us
        for flow in (None, flow_of(packet.frame[14:])):
            of_it = told[device[packet.switch], packet.port, flow]
            last = bisect_right(of_it, (packet.egress_us, NEVER, NEVER))
            _, seen_depth, seen_latency = of_it[last - 1] if last else (0, 0, 0)
            assert abs(depth - seen_depth) < 8, packet
            assert (depth >= 20) == (seen_depth >= 20), packet
            assert abs(latency - seen_latency) < 1500, packet
    assert max(packet.depth for packet in packets) >= 28

    steady = [range(20 * MS, BURST.start), range(BURST.stop + 70 * MS, END)]
    in_steady = sum(1000 * packet.egress_us in phase for phase in steady for packet in packets)
    of_these = sum(report.metadata["egress_ns"] in phase for phase in steady for _, report in reports)
    assert in_steady > 1500
    assert 0 < of_these < 0.1 * in_steady


def events(reports: list[tuple[int, int, int]], *, is_flow: bool) -> list[tuple[int, int, int]]:
    """What depth and latency were when they last were events, as reports go on. A flow begins with one of both."""
    kept: list[tuple[int, int, int]] = []
    for at, depth, latency in sorted(reports):
        _, last_depth, last_latency = kept[-1] if kept else (0, 0, 0)
        first = is_flow and not kept
        of_depth = abs(depth - last_depth) >= 8 or (depth >= 20) != (last_depth >= 20)
        kept.append(
            (
                at,
                depth if first or of_depth else last_depth,
                latency if first or abs(latency - last_latency) >= 1500 else last_latency,
            )
        )
    return kept


def flow_of(packet: bytes) -> int:
    """Which of the flows: address and source port tell it."""
    return int.from_bytes(packet[12:16], "big") << 16 | int.from_bytes(packet[20:22], "big")
