"""Entries of a switch for watched packets: whole states, and refusals of impossible requests."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network

import pytest

from weir.controller.errors import PlanError
from weir.controller.int_config.settings import EventThresholds, IntConfig, WatchedFlows, WatchMode
from weir.controller.int_config.table_entries import check_int_config, watch_state
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.routing import Routes
from weir.wire.int_md import DomainInstruction, Instruction
from weir.wire.int_shim import Presence

TOPOLOGY = leaf_spine(2, 1, 1)
"""h1 at s1, h2 at s2, s3 above both."""


def lines(switch: str, watching: IntConfig) -> set[str]:
    """State of the switch without the lines of defaults, which begin alike for every table."""
    routes = Routes(TOPOLOGY)
    check_int_config(TOPOLOGY, watching)
    state = watch_state(TOPOLOGY, routes, switch, watching)
    names = "links", "ingress_names"
    return {line for line in state.lines() if not line.startswith(names)}


def test_int_is_added_at_entry_and_removed_at_exit_of_a_flow() -> None:
    flows = WatchedFlows(
        WatchMode.MD,
        source=IPv4Network(TOPOLOGY.host("h1").address),
        destination_port=(0x1000, 0xF000),
        every=10,
        instructions=Instruction.NODE_ID | Instruction.INGRESS_TIMESTAMP,
        domain_instructions=DomainInstruction.BYTES_SENT,
        hops=4,
    )
    watching = IntConfig(
        (flows,), Presence.DSCP, "h2", 22399, dscp=48, flow_steps=EventThresholds(depth_step=8, period_us=70)
    )
    reports = "dst_addr=10.0.2.1/0xffffffff dst_port=22399/0xffff protocol=17/0xff [60000]"
    everywhere = {
        f"watchlist {reports} -> ignore()",
        f"drop_watch {reports} -> ignore_drop()",
        "flow_steps default -> set_steps(depth_step=8, depth_threshold=0, latency_step=4294967295, "
        "latency_threshold=0, period=70)",
        "marks presence=2 -> recognise()",
        "traffic_class dscp=9 -> set_class(priority=0)",
        *(f"traffic_class dscp={8 * priority + 1} -> set_class(priority={priority})" for priority in (2, 3, 4, 5)),
        "traffic_class dscp=49 -> set_class(priority=7)",
        "traffic_class dscp=57 -> set_class(priority=7)",
    }
    told = {
        name: {line for line in lines(name, watching) if not line.startswith("destination")}
        for name in ("s1", "s2", "s3")
    }
    assert told["s1"] == everywhere | {
        "clone session 250 class 1 -> 2#0",
        "edges ingress_port=1 -> clear_mark()",
        "sinks dst_addr=10.0.1.1 -> strip(period=70)",
        "sinks dst_addr=10.255.0.1 -> strip(period=70)",
        "watchlist dst_port=4096/0xf000 src_addr=10.0.1.1/0xffffffff [59999] -> embed_md(domain_instructions=32768, "
        "entry=0, every=10, hops=4, instructions=34816, presence=2, words=5)",
    }
    assert told["s2"] == everywhere | {
        "clone session 250 class 1 -> 1#0",
        "edges ingress_port=1 -> clear_mark()",
        "sinks dst_addr=10.0.2.1 -> strip(period=70)",
        "sinks dst_addr=10.255.0.2 -> strip(period=70)",
    }
    assert told["s3"] == everywhere | {
        "clone session 250 class 1 -> 2#0",
        "sinks dst_addr=10.255.0.3 -> strip(period=70)",
    }
    assert {line for name in ("s1", "s3") for line in lines(name, watching) if line.startswith("destination")} == {
        "destination default -> address(collector=167772673, dscp=48, dst_mac=02:00:0a:ff:00:03, dst_port=22399, "
        "node_id=1, source=184483841, src_mac=02:00:0a:ff:00:01, src_port=22399)",
        "destination default -> address(collector=167772673, dscp=48, dst_mac=02:00:0a:ff:00:02, dst_port=22399, "
        "node_id=3, source=184483843, src_mac=02:00:0a:ff:00:03, src_port=22399)",
    }


def test_every_switch_reports_flows_and_queues_to_the_controller() -> None:
    watching = IntConfig(
        (WatchedFlows(WatchMode.XD, protocol=6), WatchedFlows(WatchMode.XD, destination=IPv4Network("10.0.2.0/24"))),
        queue_steps=EventThresholds(depth_threshold=20, latency_step_us=9),
        queue_classes=(0, 7),
        drops=frozenset({"no_route"}),
    )
    asked = "domain_instructions=32768, entry={}, every=1, instructions=62464"
    queue = "depth_step=4294967295, depth_threshold=20, latency_step=9, latency_threshold=0, period=4294967295"
    assert {line for line in lines("s1", watching) if not line.startswith("destination")} == {
        f"watchlist protocol=6/0xff [59999] -> export_xd({asked.format(0)})",
        f"watchlist dst_addr=10.0.2.0/0xffffff00 [59998] -> export_xd({asked.format(1)})",
        *(f"queue_watch egress_port={p} priority={c} -> watch_queue({queue})" for p in (1, 2) for c in (0, 7)),
        "drop_watch reason=5/0xff [1] -> report_drop()",
        "flow_steps default -> NoAction()",
        "clone session 250 class 1 -> 510#0",
    }


def test_reports_avoid_a_down_link_and_stop_without_a_way() -> None:
    watching = IntConfig((WatchedFlows(),), collector="h2")
    uplink = Endpoint("s1", 2)
    state = watch_state(TOPOLOGY, Routes(TOPOLOGY, {uplink, TOPOLOGY.peer(uplink)}), "s1", watching)
    assert not any("clone" in line for line in state.lines())
    assert "destination default -> NoAction()" in state.lines()


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: WatchedFlows(every=0), "one packet in 0 is no rate"),
    (lambda: WatchedFlows(hops=256), "hops 256 is not in 0…255"),
    (lambda: WatchedFlows(instructions=Instruction(0), domain_instructions=DomainInstruction(0)), "takes 0 words"),
    (lambda: WatchedFlows(protocol=256), "protocol 256 is not in 0…255"),
    (lambda: WatchedFlows(source_port=(5, 2)), "source_port 0x5/0x2"),
    (lambda: EventThresholds(), "nothing would ever be reported"),
    (lambda: EventThresholds(depth_step=0), "depth_step 0 is not in 1…"),
    (lambda: IntConfig(drops=frozenset({"gone"})), "drop reason gone is unknown; there are truncated"),
    (lambda: IntConfig(port=0), "port 0 is not in 1…65535"),
    (lambda: IntConfig(presence=Presence.DSCP, dscp=33), "dscp 33 is not in 0…63, or has the bit 1"),
    (lambda: IntConfig(mtu=100), "mtu 100 is not in 576…9216"),
    (lambda: IntConfig(queue_classes=(8,)), "queue classes"),
    (
        lambda: check_int_config(TOPOLOGY, IntConfig(collector="s1")),
        'collector "s1" is no host of leaf-spine; supported: h1',
    ),
    (
        lambda: check_int_config(TOPOLOGY, IntConfig((WatchedFlows(source=IPv4Network("10.9.0.0/16")),))),
        "watch.0.source: 10.9.0.0/16 has no host or switch",
    ),
    (
        lambda: check_int_config(TOPOLOGY, IntConfig((WatchedFlows(WatchMode.MD),) * 600)),
        "s1 would have 1200 entries in its watchlist",
    ),
]


@pytest.mark.parametrize(("make", "why"), REFUSED, ids=[why[:24] for _, why in REFUSED])
def test_impossible_settings_are_refused(make: Callable[[], object], why: str) -> None:
    with pytest.raises(PlanError, match=why.replace("(", r"\(")):
        make()
