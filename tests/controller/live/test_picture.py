"""The picture of a controller shows its state, and events show its changes."""

from __future__ import annotations

import io
import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from weir.cli.top import screen
from weir.controller.controller import ControllerOptions
from weir.controller.gossip.policy import GossipPolicy
from weir.controller.live.picture import LiveView, fabric_picture
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.controller.telemetry.snapshot import listed
from weir.tests.controller.job_rig import MS, Fixed, JobRig, make_rig
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.wire.control import JobReport

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=1_000_000_000)
OPTIONS = ControllerOptions(probe_period_ns=5 * MS, solve_period_ns=0, lease_ns=30 * MS)
DOUBTED = "stale: no job moves because of it; who must be placed is placed by its last good values"
THREE_PERIODS = 3 * OPTIONS.probe_period_ns
AT_LEAF = Placement({"h1": "s1", "h2": "s1"}, {}, "s1")
AT_SPINE = Placement({"h1": "s3", "h2": "s3"}, {}, "s3")


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), OPTIONS) as rig:
        yield rig


def told(state: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["kind"], event["text"]) for event in state["events"]]


async def test_the_state_is_what_the_controller_knows(rig: JobRig) -> None:
    view = LiveView()
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8))
    await rig.run(40 * MS)
    now_ns = rig.fabric.now_ns
    fabric = json.loads(json.dumps(fabric_picture(TOPOLOGY, "a test")))
    state = json.loads(json.dumps(view.snapshot(rig.controller, now_ns, "testing")))
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
    assert {
        switch["name"]: switch["free_slots"] for switch in state["switches"]
    } == rig.controller.planner.memory.free_slots
    assert (state["doing"], told(state)) == ("testing", [("job", "job 7 runs with 2 workers, summed at s1")])


async def test_the_state_has_the_bounds_of_all_queues(rig: JobRig) -> None:
    """A job in class 4 takes the bulk queues' bounds on its links, and its own queues have bounds there."""
    view, links = LiveView(), rig.controller.links.links
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, classes=(4,)))
    state = json.loads(json.dumps(view.snapshot(rig.controller, rig.fabric.now_ns)))
    windows = rig.controller.windows
    assert {link for link, _ in windows.class_bounds} == {Endpoint("s1", 1), Endpoint("s1", 2)}
    assert [shown["classes"] for shown in state["bounds"]] == [
        {str(priority): packets for (at, priority), packets in windows.class_bounds.items() if at == link}
        for link in links
    ]
    expected = [windows.budgets.get(link) for link in links]
    assert [shown["bulk"] for shown in state["bounds"]] == [
        None if budget is None or budget.refusal else int(budget.bound) for budget in expected
    ]
    assert {None} < {shown["bulk"] for shown in state["bounds"]}
    console = Console(record=True, width=150, file=io.StringIO())
    console.print(screen(fabric_picture(TOPOLOGY, "a test"), state, rows=len(links)))
    lines = console.export_text().splitlines()
    for link, shown in zip(links, state["bounds"], strict=True):
        [line] = [line for line in lines if line.startswith(f"{link} ")]
        text = "–" if shown["bulk"] is None else str(shown["bulk"])
        text += "".join(f", class {name}: {packets}" for name, packets in shown["classes"].items())
        assert f" {text} " in line


async def test_the_state_has_the_newest_gossip_policy(rig: JobRig) -> None:
    view = LiveView()
    rows = np.array([[0.25, 0.75], [0.12346, 0.87654]])
    assert view.snapshot(rig.controller, 0)["gossip"] is None
    view.update_gossip("steady", ("h1", "h4"), GossipPolicy(rows[::-1], 0 * rows, version=1))
    view.update_gossip("steady", ("h1", "h4"), GossipPolicy(rows, 0 * rows, version=2))
    assert json.loads(json.dumps(view.snapshot(rig.controller, 0)))["gossip"] == {
        "policy": "steady",
        "version": 2,
        "workers": ["h1", "h4"],
        "probabilities": [[0.25, 0.75], [0.1235, 0.8765]],
    }
    view.begin_anew()
    assert view.snapshot(rig.controller, 0)["gossip"] is None


async def test_the_cost_of_probes_equals_the_switches_counts(pipeline: CompiledPipeline) -> None:
    options = ControllerOptions(probe_period_ns=5 * MS, solve_period_ns=0)
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), options) as rig:
        await rig.run(39 * MS)
        links = [link for link in rig.controller.links.links if TOPOLOGY.is_switch(TOPOLOGY.peer(link).node)]
        counters = [rig.switches[link.node].port_counters(link.port) for link in links]
        await rig.run(41 * MS)  # the next tick processes the answers, and sends more
        state = LiveView().snapshot(rig.controller, rig.fabric.now_ns)
        busiest = max(counter.tx_bytes for counter in counters)
        overhead = state["overhead"]
        assert overhead["packets"] == sum(counter.tx_packets for counter in counters) > 0
        assert overhead["bytes"] == sum(counter.tx_bytes for counter in counters)
        assert overhead["largest_share"] == pytest.approx(8 * busiest / 1e9 / (rig.fabric.now_ns / 1e9))


async def test_events_appear_once_and_no_move_is_missed(rig: JobRig) -> None:
    view = LiveView()
    controller = rig.controller
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, policy=FailurePolicy.WAIT))
    await rig.run(20 * MS)
    view.snapshot(controller, 20 * MS)
    controller.moves.begin(7, rig.fabric.now_ns, AT_SPINE, "someone asked for it")
    await rig.run(40 * MS)  # pause, settle and resume between two looks
    assert controller.jobs[7].move is None
    state = view.snapshot(controller, 40 * MS)
    assert told(state)[0] == ("move", "job 7: generation 2, summed at s3 (someone asked for it)")
    rig.silent.add("h2")
    await rig.kill_switch("s4")
    await rig.run(120 * MS)
    state = view.snapshot(controller, 120 * MS)
    assert {("host", "job 7: the lease of h2 ran out, the job waits for it"), ("switch", "s4 is lost")} <= {
        *told(state)
    }
    again = view.snapshot(controller, 121 * MS)
    assert told(again) == told(state)
    view.update_drops({"no_route": 4}, 121 * MS)
    view.update_drops({"no_route": 9}, 122 * MS)
    rig.controller.jobs.abort(7, "enough")
    state = view.snapshot(controller, 123 * MS)
    assert told(state)[:2] == [("job", "job 7 is aborted: enough"), ("drop", "5 packets: no_route")]
    assert state["drops"] == {"no_route": 9}
    numbers = [event["number"] for event in state["events"]]
    assert numbers == list(range(len(numbers), 0, -1))


def drawn_offset() -> int:
    """Time of a fault after a tick: any moment of a period."""
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"WEIR_SEED={seed}\n")
    return random.Random(seed).randrange(OPTIONS.probe_period_ns)


def shown_stale(rig: JobRig, state: dict[str, Any]) -> set[str]:
    """Stale links in the page's data; the terminal page shows the same."""
    views = dict(zip(map(str, rig.controller.links.links), state["links"], strict=True))
    stale = {name for name, view in views.items() if view is not None and view[6]}
    console = Console(record=True, width=150, file=io.StringIO())
    console.print(screen(fabric_picture(TOPOLOGY, "a test"), state, rows=len(views)))
    rows = [line.split() for line in console.export_text().splitlines()]
    assert {row[0] for row in rows if row and row[0] in views and row[-1] == "stale"} == stale
    return stale


def lines_due(rig: JobRig, stale: set[str], died_ns: int) -> list[str]:
    """Expected lines about links that became stale, to the nanosecond three periods after their newest report, which
    was before the death.
    """
    now_ns, links = rig.fabric.now_ns, rig.controller.links
    by_time: dict[int, list[str]] = defaultdict(list)
    for link, view in links.snapshot(now_ns).links.items():
        if str(link) in stale:
            assert view.age_ns is not None
            newest_ns = now_ns - view.age_ns
            assert newest_ns < died_ns, "a report is dated by when its probe was sent, which was before it crossed"
            assert link not in links.stale(newest_ns + THREE_PERIODS)
            assert link in links.stale(newest_ns + THREE_PERIODS + 1)
            by_time[newest_ns].append(str(link))
    return [f"telemetry of {listed(names)} is {DOUBTED}" for _, names in sorted(by_time.items())]


async def test_a_stale_link_is_shown_within_three_periods(rig: JobRig, caplog: pytest.LogCaptureFixture) -> None:
    """The switch dies at any moment: three periods later, to the nanosecond, the page shows it, and the consequence for
    placement was logged.
    """
    view = LiveView()
    await rig.run(30 * MS + drawn_offset())
    assert view.snapshot(rig.controller, rig.fabric.now_ns)["telemetry"] == "telemetry of all 12 links is fresh"
    rig.fabric.set_link(("s1", 3), loss=1.0)
    died_ns = rig.fabric.now_ns
    await rig.run(died_ns + THREE_PERIODS)
    state = view.snapshot(rig.controller, rig.fabric.now_ns)
    stale = shown_stale(rig, state)
    assert stale == {"s1-p1", "s1-p3", "s3-p1"}, "those by whose probes all go over that link"
    assert [line for line in caplog.messages if "s1-p3" in line] == lines_due(rig, stale, died_ns)
    assert [text for kind, text in told(state) if kind == "telemetry"] == [f"s1-p1, s1-p3, s3-p1 are {DOUBTED}"]
    caplog.clear()
    rig.fabric.set_link(("s1", 3), loss=0.0)
    await rig.run(rig.fabric.now_ns + 2 * OPTIONS.probe_period_ns)
    fresh = "telemetry of s1-p1, s1-p3, s3-p1 is fresh again"
    assert [line for line in caplog.messages if "s1-p3" in line] == [fresh]


async def test_links_of_a_dead_node_are_stale_and_its_job_moves(
    pipeline: CompiledPipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """A switch that sums dies, whenever: its links are untrusted until its lease runs out, then placed around."""
    async with make_rig(TOPOLOGY, pipeline, strategy("widest"), OPTIONS) as rig:
        view = LiveView()
        await rig.admit(JobSpec(7, ("h1", "h3"), slots=16, window=8))
        await rig.run(30 * MS + drawn_offset())
        state = view.snapshot(rig.controller, rig.fabric.now_ns)
        assert state["telemetry"] == "telemetry of all 12 links is fresh"
        spine = rig.controller.jobs[7].plan.placement.root
        other = {"s3": "s4", "s4": "s3"}[spine]
        at_leaves = {"s3": 3, "s4": 4}[spine]
        its_links = {f"{spine}-p1", f"{spine}-p2", f"s1-p{at_leaves}", f"s2-p{at_leaves}"}
        await rig.kill_switch(spine)
        died_ns = rig.fabric.now_ns
        await rig.run(died_ns + THREE_PERIODS)
        state = view.snapshot(rig.controller, rig.fabric.now_ns)
        stale = shown_stale(rig, state)
        assert stale >= its_links
        assert not any(name.startswith(other) for name in stale)
        assert [line for line in caplog.messages if "telemetry of" in line] == lines_due(rig, stale, died_ns)
        assert [text for kind, text in told(state) if kind == "telemetry"] == [f"{listed(stale)} are {DOUBTED}"]
        assert rig.controller.jobs[7].plan.generation == 1, "its links are untrusted, and it stays"

        assert OPTIONS.lease_ns is not None
        await rig.run(died_ns + OPTIONS.lease_ns + THREE_PERIODS)
        state = view.snapshot(rig.controller, rig.fabric.now_ns)
        assert shown_stale(rig, state) == set()
        views = dict(zip(map(str, rig.controller.links.links), state["links"], strict=True))
        assert {name for name, shown in views.items() if shown is None} == its_links, "nobody watches what is down"
        moved = f"job 7: generation 2, summed at {other} ({spine} is lost)"
        assert {("switch", f"{spine} is lost"), ("move", moved)} <= {*told(state)}


def test_another_controller_begins_without_the_last_ones_memory() -> None:
    view = LiveView()
    view.update_drops({"late": 3}, 1)
    view.begin_anew(5, "the next")
    view.update_drops({"late": 1}, 6)
    assert [(e["time_ns"], e["kind"], e["text"]) for e in view.events.newest()] == [(5, "run", "the next")]


async def test_a_reported_loss_is_shown_and_an_invalid_one_is_null(rig: JobRig) -> None:
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8))
    view, reports = LiveView(), rig.controller.jobs[7].reports
    assert view.snapshot(rig.controller, rig.fabric.now_ns)["jobs"][0]["report"] is None
    for loss, shown in ((0.5, 0.5), (float("nan"), None)):
        reports.add(JobReport(3, 7, "decay", loss), rig.fabric.now_ns)
        state = json.loads(json.dumps(view.snapshot(rig.controller, rig.fabric.now_ns), allow_nan=False))
        report = state["jobs"][0]["report"]
        assert (report["step"], report["steps_left"], report["stage"], report["loss"]) == (3, 7, "decay", shown)


async def test_phases_grow_with_reports_and_the_class_is_that_of_messages(rig: JobRig) -> None:
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, classes=(3,)))
    view, reports = LiveView(), rig.controller.jobs[7].reports

    def shown() -> tuple[dict[str, int], int]:
        (job,) = view.snapshot(rig.controller, rig.fabric.now_ns)["jobs"]
        return job["phases"], job["traffic_class"]

    assert shown() == ({"steps": 0, "compute_ns": 0, "exposed_ns": 0, "waiting_ns": 0}, 3)
    for count in (1, 2):
        reports.add(JobReport(count, steps=2, compute_ns=5, exposed_ns=4, waiting_ns=3), rig.fabric.now_ns)
        phases = {"steps": 2 * count, "compute_ns": 5 * count, "exposed_ns": 4 * count, "waiting_ns": 3 * count}
        assert shown() == (phases, 3)
