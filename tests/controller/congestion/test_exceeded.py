"""A queue that telemetry reports with more packets than is promised of it: somebody's traffic was not declared."""

from __future__ import annotations

import logging

import pytest

from weir.controller.congestion import CongestionOptions, Uncontrolled
from weir.controller.congestion.announcement import PROMISES
from weir.controller.controller import Options
from weir.controller.live.picture import LiveView
from weir.controller.p4runtime.pipeline import Pipeline
from weir.controller.placement import Placement
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller.job_rig import MS, Fixed, make_rig
from weir.topologies import Endpoint
from weir.topologies.generators import leaf_spine

TOPOLOGY = leaf_spine(2, 1, 3, rate_bps=1_000_000_000)
AT_LEAF = Placement({"h1": "s1", "h2": "s1"}, {}, "s1")
SOURCES = ("h2", "h3")
CROWDED = Endpoint("s1", 4)
"""To the spine, by which both sources send."""
RATE_BPS = 600e6


def declared() -> tuple[Uncontrolled, ...]:
    return tuple(Uncontrolled(source, "h6", RATE_BPS, packet_bytes=1_028, burst_packets=1) for source in SOURCES)


@pytest.mark.parametrize("uncontrolled", [(), declared()], ids=["undeclared", "declared"])
async def test_what_was_not_declared_is_told_once_by_the_queue_that_it_fills(
    uncontrolled: tuple[Uncontrolled, ...], pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """1200 Mbit/s on a link of 1 Gbit/s, from two hosts: of a queue where that was declared nothing is promised."""
    congestion = CongestionOptions(48, uncontrolled, lease_ns=2 * MS)
    options = Options(probe_period_ns=5 * MS, solve_period_ns=0, lease_ns=100 * MS, congestion=congestion)
    caplog.set_level(logging.WARNING, PROMISES)
    view = LiveView()

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == PROMISES]

    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), options) as rig:
        await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, policy=FailurePolicy.WAIT))
        await rig.run(40 * MS)
        view.look(rig.controller, rig.fabric.now_ns)
        assert told() == []
        for source in SOURCES:
            rig.emulated.add_flow(source, "h6", payload_bytes=1_000 - 14, rate_bps=RATE_BPS)
        await rig.run(100 * MS)
        events = [event["text"] for event in view.look(rig.controller, rig.fabric.now_ns)["events"]]
        lines = told()
        assert [line for line in events if "are promised" in line] == lines
        if uncontrolled:
            assert lines == []
            return
        [line] = lines
        depth, bound = (int(word) for word in line.split() if word.isdigit())
        assert line.startswith(f"{CROWDED}: {depth} packets were reported, and {bound} are promised: others send more")
        assert depth > bound == int(rig.controller.windows.budgets[CROWDED].bound)
        await rig.run(140 * MS)
        assert told() == lines, "once"
