"""What is to be seen of a controller is what it knows, and what happens to it becomes events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from weir.controller.controller import Options
from weir.controller.live.picture import LiveView, fabric_picture
from weir.controller.p4runtime.pipeline import Pipeline
from weir.controller.placement import Placement
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller.job_rig import MS, Fixed, Rig, make_rig
from weir.topologies.generators import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=1_000_000_000)
OPTIONS = Options(probe_period_ns=5 * MS, solve_period_ns=0, lease_ns=30 * MS)
AT_LEAF = Placement({"h1": "s1", "h2": "s1"}, {}, "s1")
AT_SPINE = Placement({"h1": "s3", "h2": "s3"}, {}, "s3")


@pytest.fixture
async def rig(pipeline: Pipeline) -> AsyncIterator[Rig]:
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), OPTIONS) as rig:
        yield rig


def told(state: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["kind"], event["text"]) for event in state["events"]]


async def test_the_state_is_what_the_controller_knows(rig: Rig) -> None:
    view = LiveView()
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8))
    await rig.run(40 * MS)
    now_ns = rig.fabric.now_ns
    fabric = json.loads(json.dumps(fabric_picture(TOPOLOGY, "a test")))
    state = json.loads(json.dumps(view.look(rig.controller, now_ns, "testing")))
    assert {node["name"] for node in fabric["nodes"]} == {node.name for node in TOPOLOGY.nodes}
    assert [link["end"] for link in fabric["links"]] == [str(link) for link in rig.controller.links.links]
    seen = rig.controller.links.snapshot(now_ns)
    for link, shown in zip(rig.controller.links.links, state["links"], strict=True):
        known = seen.links[link]
        assert known.age_ns is not None
        assert shown[0] == pytest.approx(known.rate_bps / 1e9, abs=1e-4)
        assert shown[2:5] == [pytest.approx(known.latency_us, abs=0.1), known.loss, round(known.age_ns / 1e6, 1)]
        assert shown[6] is False
    (job,) = state["jobs"]
    assert (job["number"], job["generation"], job["tree"], job["sums"]) == (7, 1, {"h1": "s1", "h2": "s1"}, ["s1"])
    assert {each["name"]: each["free_slots"] for each in state["switches"]} == rig.controller.planner.memory.free_slots
    assert (state["doing"], told(state)) == ("testing", [("job", "job 7 runs with 2 workers, summed at s1")])


async def test_the_cost_of_probes_is_what_the_switches_counted_where_nothing_else_is_sent(pipeline: Pipeline) -> None:
    options = Options(probe_period_ns=5 * MS, solve_period_ns=0)
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), options) as rig:
        await rig.run(39 * MS)
        links = [link for link in rig.controller.links.links if TOPOLOGY.is_switch(TOPOLOGY.peer(link).node)]
        counters = [rig.switches[link.node].port_counters(link.port) for link in links]
        await rig.run(41 * MS)  # what came back is taken with the next tick, which sends more
        state = LiveView().look(rig.controller, rig.fabric.now_ns)
        busiest = max(counter.tx_bytes for counter in counters)
        overhead = state["overhead"]
        assert overhead["packets"] == sum(counter.tx_packets for counter in counters) > 0
        assert overhead["bytes"] == sum(counter.tx_bytes for counter in counters)
        assert overhead["largest_share"] == pytest.approx(8 * busiest / 1e9 / (rig.fabric.now_ns / 1e9))


async def test_what_happens_is_told_once_and_no_move_is_missed(rig: Rig) -> None:
    view = LiveView()
    controller = rig.controller
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, policy=FailurePolicy.WAIT))
    await rig.run(20 * MS)
    view.look(controller, 20 * MS)
    controller.moves.begin(7, rig.fabric.now_ns, AT_SPINE, "someone asked for it")
    await rig.run(40 * MS)  # pause, settle and resume between two looks
    assert controller.jobs[7].move is None
    state = view.look(controller, 40 * MS)
    assert told(state)[0] == ("move", "job 7: generation 2, summed at s3 (someone asked for it)")
    rig.silent.add("h2")
    await rig.kill_switch("s4")
    await rig.run(120 * MS)
    state = view.look(controller, 120 * MS)
    assert {("host", "job 7: the lease of h2 ran out, the job waits for it"), ("switch", "s4 is lost")} <= {
        *told(state)
    }
    again = view.look(controller, 121 * MS)
    assert told(again) == told(state)
    view.take_drops({"no_route": 4}, 121 * MS)
    view.take_drops({"no_route": 9}, 122 * MS)
    rig.controller.jobs.abort(7, "enough")
    state = view.look(controller, 123 * MS)
    assert told(state)[:2] == [("job", "job 7 is aborted: enough"), ("drop", "5 packets: no_route")]
    assert state["drops"] == {"no_route": 9}
    numbers = [event["number"] for event in state["events"]]
    assert numbers == list(range(len(numbers), 0, -1))


async def test_a_stale_link_is_shown_within_three_periods_with_what_placement_does(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    view = LiveView()
    await rig.run(30 * MS)
    assert view.look(rig.controller, rig.fabric.now_ns)["telemetry"] == "telemetry of all 12 links is fresh"
    rig.fabric.set_link(("s1", 3), loss=1.0)
    died_ns = rig.fabric.now_ns
    await rig.run(died_ns + 3 * OPTIONS.probe_period_ns + 2 * MS)
    state = view.look(rig.controller, rig.fabric.now_ns)
    links = rig.controller.links.links
    assert "s1-p3" in {str(link) for link, shown in zip(links, state["links"], strict=True) if shown and shown[6]}
    (text,) = [text for kind, text in told(state) if kind == "telemetry"]
    assert "s1-p3" in text
    doubted = "stale: no job moves because of it; who must be placed is placed by its last good values"
    assert text.endswith(doubted)
    told_of = "telemetry of s1-p1, s1-p3, s3-p1 is"  # by the probes that all go over that link
    assert [line for line in caplog.messages if "s1-p3" in line] == [f"{told_of} {doubted}"]
    rig.fabric.set_link(("s1", 3), loss=0.0)
    await rig.run(rig.fabric.now_ns + 2 * OPTIONS.probe_period_ns)
    assert [line for line in caplog.messages if "s1-p3" in line][1:] == [f"{told_of} fresh again"]


def test_another_controller_begins_with_no_memory_of_the_last_one() -> None:
    view = LiveView()
    view.take_drops({"late": 3}, 1)
    view.begin_anew(5, "the next")
    view.take_drops({"late": 1}, 6)
    assert [(e["time_ns"], e["kind"], e["text"]) for e in view.events.newest()] == [(5, "run", "the next")]
