"""Queues without a bound when switches report to a host, and the reasons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from weir.controller.congestion import CongestionOptions, LinkBudget, Uncontrolled, WindowController
from weir.controller.congestion.queue_bound import Promise
from weir.controller.int_config.settings import EventThresholds, IntConfig, ReportLimit, WatchedFlows, WatchMode
from weir.controller.int_config.table_entries import REPORT_SESSION, watch_state
from weir.controller.p4runtime.entries import CloneSession
from weir.controller.planning.plan import round_bytes
from weir.tests.controller.congestion.test_budget import FABRIC, ROUTES, at_one_switch
from weir.topologies import Endpoint

OTHERS = (Uncontrolled("h4", "h1", 1e8, 1042),)
QUEUES = IntConfig(queue_steps=EventThresholds(depth_step=1))


def unpromised(watching: IntConfig | None, others: tuple[Uncontrolled, ...] = ()) -> dict[Endpoint, LinkBudget]:
    windows = WindowController(FABRIC, CongestionOptions(64, others), watching)
    windows.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    return {link: budget for link, budget in windows.budgets.items() if budget.refusal}


def clone_ports(watching: IntConfig) -> set[Endpoint]:
    """Ports to which switches send their reports."""
    found = set()
    for switch in FABRIC.switches:
        for item in watch_state(FABRIC, ROUTES, switch.name, watching).items.values():
            if isinstance(item, CloneSession) and item.session_id == REPORT_SESSION:
                found |= {Endpoint(switch.name, port) for port, _ in item.replicas}
    return found


def test_queues_on_the_way_of_reports_have_no_bound() -> None:
    """Leaves s1 to s3 with three hosts each, spines s4 and s5; h9 hangs at s3."""
    watching = replace(QUEUES, collector="h9", drops=frozenset({"no_route"}))
    refused = unpromised(watching)
    ports = clone_ports(watching)
    assert {port.node for port in ports} == {"s1", "s2", "s3", "s4", "s5"}
    assert ports == set(refused), "a leaf's reports take one of its two ways up, and every switch's own port is there"
    for link, budget in refused.items():
        assert math.isinf(budget.bound)
        why = "telemetry's reports to h9 cross it, as many as changes of queues, drops bring"
        assert Promise.of(budget).text.startswith(f"{link}: cannot be kept because {why}")


def test_reports_to_the_controller_cross_no_queue() -> None:
    assert unpromised(None) == unpromised(QUEUES) == unpromised(QUEUES, OTHERS) == {}
    assert unpromised(IntConfig(collector="h9")) == {}, "nothing is reported"


def test_declared_reports_are_flows_like_others() -> None:
    """Each of five switches sends 1,000 reports a second, ten at once; h9 hangs at s3."""
    declared = replace(QUEUES, collector="h9", report_limit=ReportLimit(1_000, 10))
    assert unpromised(declared) == {}
    windows, without = (WindowController(FABRIC, CongestionOptions(96), each) for each in (declared, None))
    for each in (windows, without):
        each.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    last = next(link for link in windows.budgets if FABRIC.peer(link).node == "h9")
    assert windows.budgets[last].burst >= 5 * 10
    assert windows.budgets[last].share == pytest.approx(5 * 1_000 * 8 * round_bytes(FABRIC) / 1e9)
    for link in clone_ports(declared):
        assert windows.budgets[link].bound >= without.budgets[link].bound + 10, (
            "its own switch's reports may come at once"
        )
    assert "s3 to h9" in str(windows.declared[last])


def test_more_reports_than_a_link_carries_are_refused() -> None:
    flood = replace(QUEUES, collector="h9", report_limit=ReportLimit(200_000))
    assert any("Mbit/s may come that obey no window" in budget.refusal for budget in unpromised(flood).values())


def test_int_in_packets_lengthens_them() -> None:
    """They go from h4 at s2 to h1 at s1, over either spine."""
    embedding = IntConfig((WatchedFlows(WatchMode.MD),), flow_steps=EventThresholds(period_us=1000))
    assert unpromised(embedding, OTHERS) == {}
    plain, longer = (WindowController(FABRIC, CongestionOptions(64, OTHERS), each) for each in (None, embedding))
    for each in (plain, longer):
        each.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
    last = next(link for link in plain.budgets if FABRIC.peer(link).node == "h1")
    ratio = (round_bytes(FABRIC) + embedding.largest_header_bytes) / round_bytes(FABRIC)
    assert longer.budgets[last].share == pytest.approx(ratio * plain.budgets[last].share)


def test_round_trips_count_full_buffers_on_the_way_of_reports() -> None:
    longest = []
    for watching in (None, replace(QUEUES, collector="h1")):
        windows = WindowController(FABRIC, CongestionOptions(64), watching)
        [plan] = windows.update(ROUTES, [at_one_switch(1, "h1", "h2")], (), 0)
        longest.append(windows.round_trip_ns(plan))
    assert longest[1] > longest[0]
