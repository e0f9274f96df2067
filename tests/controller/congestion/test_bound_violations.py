"""Telemetry reports a queue above its bound: some traffic was not declared."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weir.controller.congestion import CongestionOptions, JobStreams, LinkBudget, Uncontrolled, link_budgets
from weir.controller.congestion.bound_log import PROMISES
from weir.controller.congestion.bound_violations import Exceeded
from weir.controller.congestion.cross_traffic import DeclaredPair
from weir.controller.controller import ControllerOptions
from weir.controller.live.picture import LiveView
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.controller.telemetry.link_records import REPORT
from weir.controller.telemetry.link_state import LinkState
from weir.tests.controller.congestion.test_budget import FABRIC, OPTIONS, PROBES, ROUTES, at_one_switch
from weir.tests.controller.job_rig import MS, Fixed, make_rig
from weir.topologies import Endpoint
from weir.topologies.generators import leaf_spine
from weir.wire.frames import BULK_PRIORITY

TOPOLOGY = leaf_spine(2, 1, 3, rate_bps=1_000_000_000)
AT_LEAF = Placement({"h1": "s1", "h2": "s1"}, {}, "s1")
SOURCES = ("h2", "h3")
CROWDED = Endpoint("s1", 4)
"""Port to the spine, which both sources use."""
RATE_BPS = 600e6


def declared() -> tuple[Uncontrolled, ...]:
    return tuple(Uncontrolled(source, "h6", RATE_BPS, packet_bytes=1_028, burst_packets=1) for source in SOURCES)


@pytest.mark.parametrize("uncontrolled", [(), declared()], ids=["undeclared", "declared"])
async def test_undeclared_traffic_is_reported_once_by_its_queue(
    uncontrolled: tuple[Uncontrolled, ...], pipeline: CompiledPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """1200 Mbit/s on a link of 1 Gbit/s, from two hosts: declared, it would leave the queue without a bound."""
    congestion = CongestionOptions(48, uncontrolled, lease_ns=2 * MS)
    options = ControllerOptions(probe_period_ns=5 * MS, solve_period_ns=0, lease_ns=100 * MS, congestion=congestion)
    caplog.set_level(logging.WARNING, PROMISES)
    view = LiveView()

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == PROMISES]

    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), options) as rig:
        await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, policy=FailurePolicy.WAIT))
        await rig.run(40 * MS)
        view.snapshot(rig.controller, rig.fabric.now_ns)
        assert told() == []
        for source in SOURCES:
            rig.emulated.add_flow(source, "h6", payload_bytes=1_000 - 14, rate_bps=RATE_BPS)
        await rig.run(100 * MS)
        events = [event["text"] for event in view.snapshot(rig.controller, rig.fabric.now_ns)["events"]]
        lines = told()
        assert [line for line in events if "are promised" in line] == lines
        if uncontrolled:
            assert lines == []
            return
        [line] = lines
        depth, bound = (int(word) for word in line.split() if word.isdigit())
        assert line.startswith(f"{CROWDED}: {depth} packets were reported, and {bound} are promised: traffic")
        assert depth > bound == int(rig.controller.windows.budgets[CROWDED].bound)
        await rig.run(140 * MS)
        assert told() == lines, "once"


def test_violations_count_from_applied_bounds_and_once_per_bound() -> None:
    period_ns = 5 * MS
    links = LinkState(FABRIC, period_ns=period_ns)
    budgets = link_budgets(FABRIC, ROUTES, [JobStreams.of(at_one_switch(1, "h1", "h2"))], PROBES, OPTIONS)
    one, other = [link for link in links.links if not budgets[link].refusal][:2]
    bounds = {link: int(budgets[link].bound) for link in (one, other)}

    def report(link: Endpoint, packets: int, at_ns: int) -> None:
        told = np.zeros(1, REPORT)
        told["link"], told["at_ns"], told["heard_ns"], told["egress_ns"] = links.links.index(link), at_ns, at_ns, at_ns
        told["queue_packets"], told["queue_id"] = packets, BULK_PRIORITY
        links.update(told)

    windows: Any = SimpleNamespace(
        budgets=budgets,
        obeyed_ns=20 * MS,
        drained_ns={},
        declared={other: (DeclaredPair("h4 to h5: window 8", frozenset({other})),)},
    )
    exceeded = Exceeded(links, windows)
    assert exceeded.poll() == [], "nothing was reported"
    report(one, bounds[one] + 3, 25 * MS - 1)
    assert exceeded.poll() == [], "a larger bound of before may have been in force"
    report(one, bounds[one], 25 * MS)
    assert exceeded.poll() == []
    report(one, bounds[one] + 1, 25 * MS)
    [line] = exceeded.poll()
    assert line.startswith(f"{one}: {bounds[one] + 1} packets were reported, and {bounds[one]} are promised: ")
    report(one, bounds[one] + 9, 30 * MS)
    report(other, bounds[other] + 1, 30 * MS)
    [second] = exceeded.poll()
    assert second.startswith(f"{other}: ")
    assert "more than was declared (h4 to h5: window 8)" in second
    assert "not declared" in line
    assert exceeded.told == {one: line, other: second}

    def refused(budget: LinkBudget) -> LinkBudget:
        return replace(budget, refusal="others may come")

    windows.budgets = {**budgets, one: refused(budgets[one])}
    [again] = exceeded.poll()
    assert again == second, "of the one queue nothing is promised any more, of the other a new promise is broken"
