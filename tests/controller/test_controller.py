"""The controller over whole fabrics of switches: jobs come, move when telemetry says so, and go; probes go out on
time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import astuple, replace
from unittest.mock import Mock

import pytest
from finsy.proto import p4r

from weir.controller import controller as module
from weir.controller.congestion import CongestionOptions, Uncontrolled, link_budgets
from weir.controller.congestion.budget import window_alone
from weir.controller.controller import Controller, ControllerOptions, Message
from weir.controller.errors import ControllerError, NoSuchJob, OutOfMemory, PlanError
from weir.controller.int_config.settings import IntConfig
from weir.controller.jobs.job import RunningJob
from weir.controller.jobs.membership import JobMembers
from weir.controller.jobs.migrator import Migrator
from weir.controller.p4runtime.refusals import WriteRefused
from weir.controller.placement import Placement, PlacementError, Problem
from weir.controller.planning.plan import JobSpec, fabric_state, round_bytes, rounds_of_step
from weir.controller.telemetry.snapshot import LinkView, Snapshot
from weir.tests.support.errors import raises
from weir.tests.support.fake_switch import FakeSwitch, fake_switches, open_sessions
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.routing import Routes
from weir.wire.aggregation import HEADER_BYTES, MESSAGE_BYTES
from weir.wire.control import Abort, Held, Pacing, Pause, Resume, WorkerPlan
from weir.wire.frames import FRAME_HEADER_BYTES

FABRIC = leaf_spine(2, 2, 2, slots=128)
MS = 1_000_000


class Fixed:
    """A strategy that sums at whatever switch the test names."""

    def __init__(self) -> None:
        self.switch = "s3"
        self.asked: list[Problem] = []

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        self.asked.append(problem)
        return self.at(problem.workers)

    def at(self, workers: tuple[str, ...]) -> Placement:
        return Placement(dict.fromkeys(workers, self.switch), {}, self.switch)


class ControllerRig:
    def __init__(self, controller: Controller, fakes: dict[str, FakeSwitch], strategy: Fixed) -> None:
        self.controller = controller
        self.fakes = fakes
        self.strategy = strategy

    async def lines(self, switch: str, table: str) -> set[str]:
        state = await self.controller.switches.sessions[switch].read()
        return {line for line in state.lines() if line.startswith(table)}


OPTIONS = ControllerOptions(probe_period_ns=10 * MS, solve_period_ns=100 * MS, dwell_ns=200 * MS, retry_ns=20 * MS)


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[ControllerRig]:
    """Options other than OPTIONS are the parameter."""
    strategy = Fixed()
    names = (switch.name for switch in FABRIC.switches)
    async with fake_switches(names) as fakes, open_sessions(FABRIC, fakes) as sessions:
        controller = Controller(FABRIC, Routes(FABRIC), sessions, strategy, getattr(request, "param", OPTIONS))
        await controller.start()
        yield ControllerRig(controller, fakes, strategy)


def plans(messages: list[Message]) -> dict[str, WorkerPlan]:
    return {m.host: m.content for m in messages if isinstance(m.content, WorkerPlan)}


async def test_a_job_comes_and_goes_and_leaves_no_trace(rig: ControllerRig) -> None:
    controller = rig.controller
    before = {name: (await s.read()).lines() for name, s in controller.switches.sessions.items()}
    messages = await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    assert {name: plan.aggregator for name, plan in plans(messages).items()} == {"h1": 0x0AFF0003, "h3": 0x0AFF0003}
    assert len(await rig.lines("s3", "members")) == 2
    assert await controller.verify() == {}
    await controller.tick(0)
    await controller.finish(4)
    assert controller.deadline_ns == OPTIONS.probe_period_ns, "nothing is left to do before the next probes"
    after = {name: (await s.read()).lines() for name, s in controller.switches.sessions.items()}
    assert after == before
    assert controller.planner.memory.jobs_that_fit(64)["s3"] == 2
    with raises(NoSuchJob, job=4, running=()):
        await controller.finish(4)
    assert astuple(controller.jobs.counts) == (1, 0, 0, 0, 0), "it was admitted, and nothing else has happened"


async def test_a_job_that_does_not_fit_gets_less_with_the_reason(
    rig: ControllerRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    controller = rig.controller
    await controller.admit(JobSpec(1, ("h1", "h2")), 0)
    await controller.admit(JobSpec(2, ("h1", "h2"), slots=32, window=16), 0)
    first = plans(await controller.admit(JobSpec(3, ("h1", "h3")), 0))
    assert [(p.slots, p.window, p.aggregator) for p in first.values()] == [(32, 16, 0x0AFF0003)] * 2
    assert controller.jobs[3].note == (
        "32 slots and a window of 16 instead of 64 and 32: job 3: s3 have no 64 slots free in one piece"
    )
    alone = plans(await controller.admit(JobSpec(4, ("h1", "h2"), server="h4"), 0))
    assert [(p.slots, p.aggregator) for p in alone.values()] == [(64, 0x0A000202)] * 2
    assert controller.jobs[4].note.startswith("summed at its server h4 alone: job 4: s3 have no 64 slots")
    elsewhere = plans(await controller.admit(JobSpec(5, ("h1", "h2")), 0))
    assert {p.aggregator for p in elsewhere.values()} == {0x0AFF0001}  # no server: whichever switch has room
    assert controller.jobs[5].note.startswith("summed with s1 as root: ")
    assert controller.jobs[1].note == ""
    assert caplog.messages == [f"job {number}: {controller.jobs[number].note}" for number in (3, 4, 5)]
    assert await controller.verify() == {}
    for job in (6, 7, 8, 9, 10, 11):
        with suppress(PlanError, PlacementError):
            await controller.admit(JobSpec(job, ("h1", "h2"), slots=128, window=8), 0)
    before = {name: (await s.read()).lines() for name, s in controller.switches.sessions.items()}
    with pytest.raises(PlacementError, match="job 12: s3 have no 128 slots free"):
        await controller.admit(JobSpec(12, ("h1", "h2"), slots=128, window=8), 0)
    assert {name: (await s.read()).lines() for name, s in controller.switches.sessions.items()} == before
    for job in list(controller.jobs):
        await controller.finish(job)
    assert controller.planner.memory.jobs_that_fit(128) == dict.fromkeys(("s1", "s2", "s3", "s4"), 1)


@pytest.mark.parametrize(
    ("rig", "given"),
    [
        pytest.param(replace(OPTIONS, solve_period_ns=0), None, id="stays"),
        pytest.param(OPTIONS, 32, id="may move"),
        pytest.param(
            replace(OPTIONS, solve_period_ns=0, congestion=CongestionOptions(windows_obeyed=False)),
            32,
            id="another law",
        ),
    ],
    indirect=["rig"],
)
async def test_a_remaining_job_has_only_as_many_exponent_rounds_as_fit(rig: ControllerRig, given: int | None) -> None:
    """Three streams meet at h4, with probes: no queue allows more than 64 packets. The job has as many chunks as
    before, with any other participants.
    """
    controller = rig.controller
    for number in (1, 2):
        spec = JobSpec(number, ("h1", "h2", "h3"), server="h4")
        rig.strategy.switch = "h4"
        messages = await controller.admit(spec, 0)
        plan = controller.jobs[number].plan
        alone = window_alone(
            FABRIC, Routes(FABRIC), replace(plan, spec=spec), controller.prober.probes, CongestionOptions()
        )
        assert 3 * alone <= 64 < 3 * (alone + 2)
        assert {each.window for each in plans(messages).values()} == {given or alone}
        assert rounds_of_step(plan.spec, FABRIC) == (given or alone, rounds_of_step(spec, FABRIC)[1])
        assert controller.jobs[number].note == ""


async def test_a_job_that_a_switch_refuses_leaves_everything_as_it_was(
    rig: ControllerRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    controller = rig.controller
    await controller.admit(JobSpec(1, ("h1", "h2")), 0)
    before = {name: (await s.read()).lines() for name, s in controller.switches.sessions.items()}
    rig.fakes["s3"].refuse = lambda update: update.type == p4r.Update.INSERT
    with pytest.raises(WriteRefused, match="s3: ") as refused:
        await controller.admit(JobSpec(3, ("h1", "h2")), 0)
    assert f"job 3 is not admitted: {refused.value}" in caplog.messages
    assert {name: (await s.read()).lines() for name, s in controller.switches.sessions.items()} == before
    assert set(controller.jobs) == {1}
    assert controller.planner.memory.jobs_that_fit(64)["s3"] == 1
    rig.fakes["s3"].refuse = lambda update: True
    with pytest.raises(WriteRefused, match="s3: "):
        await controller.admit(JobSpec(3, ("h3", "h2")), 0)
    rig.fakes["s3"].refuse = lambda update: False
    await controller.admit(JobSpec(5, ("h3", "h2")), 0)
    assert await controller.verify() == {}


async def test_a_move_pauses_writes_the_next_generation_and_resumes(rig: ControllerRig) -> None:
    controller = rig.controller
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    rig.strategy.switch = "s4"
    controller.moves.begin(4, 0, rig.strategy.at(("h1", "h3")))
    assert await controller.tick(0) == [Message("h1", Pause(4, 1)), Message("h3", Pause(4, 1))]
    controller.moves.held(4, "h1", Held(1, 7))
    assert await controller.tick(MS) == []
    assert [m.host for m in await controller.tick(20 * MS)] == ["h3"]
    assert await rig.lines("s4", "members") == set()  # the old plan stands until all have paused
    controller.moves.held(4, "h3", Held(1, 5, frozenset({6})))
    assert controller.deadline_ns == 0
    resumes = {m.host: m.content for m in await controller.tick(21 * MS)}
    assert all(isinstance(r, Resume) for r in resumes.values())
    assert isinstance(resumes["h3"], Resume)
    assert [(f.round, f.holder) for f in resumes["h3"].final] == [(5, 0x0A000101)]
    assert resumes["h3"].plan == controller.jobs[4].plan.host_plans()["h3"]
    assert resumes["h3"].plan.generation == 2
    assert await rig.lines("s3", "jobs") == set()
    assert await rig.lines("s4", "jobs") == {
        "jobs generation=2 job=4 -> switch_root(children=0x3, group=4, slot_base=0, slots=64)"
    }
    assert controller.planner.memory.jobs_that_fit(64) == {"s1": 2, "s2": 2, "s3": 2, "s4": 1}
    controller.moves.resumed(4, "h1", 2, 22 * MS)
    controller.moves.resumed(4, "h3", 2, 22 * MS)
    assert await controller.tick(22 * MS) == []
    assert await controller.verify() == {}


@pytest.mark.parametrize("rig", [replace(OPTIONS, congestion=CongestionOptions(3))], indirect=True)
async def test_a_changed_pace_comes_with_a_new_generation(rig: ControllerRig) -> None:
    """A queue with a bound of three packets, a probe and a copy among them, has room for one round of one job."""
    controller = rig.controller
    gap_ns = 2 * 8 * round_bytes(FABRIC)  # at 1 Gbit/s

    async def moved(job: int, now_ns: int) -> Pacing:
        """Pacing in the hosts' messages after they have paused on request."""
        generation = controller.jobs[job].plan.generation
        assert await controller.tick(now_ns) == [Message(host, Pause(job, generation)) for host in ("h1", "h3")]
        for host in ("h1", "h3"):
            controller.moves.held(job, host, Held(generation, 0))
        resumes = await controller.tick(now_ns)
        for host in ("h1", "h3"):
            controller.moves.resumed(job, host, generation + 1, now_ns)
        assert await controller.tick(now_ns) == []
        told = {m.content.plan for m in resumes if isinstance(m.content, Resume)}
        [pacing] = {plan.pacing for plan in told if isinstance(plan, WorkerPlan)}
        return pacing

    [first] = {plan.pacing for plan in plans(await controller.admit(JobSpec(4, ("h1", "h3")), 0)).values()}
    assert first.gap_ns == 0
    for host in ("h1", "h3"):
        controller.members.heartbeat(4, host, 0, 0)
    [second] = {plan.pacing for plan in plans(await controller.admit(JobSpec(5, ("h1", "h3")), 0)).values()}
    assert second.gap_ns == gap_ns
    assert controller.deadline_ns == 0
    assert (await moved(4, MS)).gap_ns == gap_ns
    assert await controller.tick(50 * MS) == []
    for host in ("h1", "h3"):
        controller.members.heartbeat(5, host, 0, 50 * MS)
    await controller.finish(4, 60 * MS)
    assert await controller.tick(60 * MS) == []
    assert (await moved(5, 90 * MS)).gap_ns == 0
    assert await controller.tick(150 * MS) == []


async def test_absent_hosts_and_unadmitted_rivals_cause_no_pause(rig: ControllerRig) -> None:
    controller = rig.controller
    controller.windows.options = CongestionOptions(2)
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    await controller.admit(JobSpec(5, ("h1", "h3")), 0)
    assert await controller.tick(MS) == [], "its hosts have not been heard of"
    for host in ("h1", "h3"):
        controller.members.heartbeat(4, host, 0, 2 * MS)
    await controller.finish(5, 2 * MS)
    rig.fakes["s3"].refuse = lambda update: update.type == p4r.Update.INSERT
    with pytest.raises(WriteRefused, match="s3: "):
        await controller.admit(JobSpec(6, ("h1", "h3")), 100 * MS)
    rig.fakes["s3"].refuse = lambda update: False
    assert await controller.tick(101 * MS) == []


TO_RACK_2 = Endpoint("s3", 2)
CROSSING = CongestionOptions(128, (Uncontrolled("h1", "h3", 2e8, 1042),), lease_ns=MS)


@pytest.mark.parametrize("rig", [replace(OPTIONS, probe_period_ns=MS // 10)], indirect=True)
async def test_probes_count_as_often_as_the_controller_sends_them(rig: ControllerRig) -> None:
    """A full queue of 64 packets takes 0.57 ms, so of probes 0.1 ms apart several of a kind wait there."""
    controller = rig.controller
    await controller.admit(JobSpec(4, ("h1", "h2")), 0)
    seldom = link_budgets(FABRIC, Routes(FABRIC), [], controller.prober.probes, CongestionOptions())
    often = {link: budget.probes for link, budget in controller.windows.budgets.items()}
    assert all(often[link] >= 5 * budget.probes > 0 for link, budget in seldom.items())


@pytest.mark.parametrize("rig", [replace(OPTIONS, congestion=CROSSING)], indirect=True)
async def test_no_new_job_sends_before_all_switches_lower_windows(rig: ControllerRig) -> None:
    """The switch is a spine that sums for neither job. With 200 Mbit/s of other traffic, two jobs have a bound of its
    queue only if it leaves the first less of its window than that job alone had.
    """
    controller, spines = rig.controller, ("s3", "s4")
    rig.strategy.switch = "s2"
    await controller.admit(JobSpec(4, ("h1", "h2")), 0)
    alone = controller.windows.budgets[TO_RACK_2]
    for spine in spines:
        rig.fakes[spine].refuse = lambda update: True
    for _ in range(2):
        with pytest.raises(WriteRefused, match="s3: "):
            await controller.admit(JobSpec(5, ("h1", "h2")), 100 * MS)
        assert controller.windows.budgets[TO_RACK_2] is alone
        assert not controller.windows.behind
    assert set(controller.jobs) == {4}
    for spine in spines:
        rig.fakes[spine].refuse = lambda update: False
    await controller.admit(JobSpec(5, ("h1", "h2")), 200 * MS)
    both = controller.windows.budgets[TO_RACK_2]
    assert not both.refusal
    assert both.marked
    assert both.congested_window < alone.congested_window
    assert await controller.verify() == {}


@pytest.mark.parametrize("rig", [replace(OPTIONS, congestion=CROSSING)], indirect=True)
async def test_a_moving_job_waits_for_switches_outside_its_tree(rig: ControllerRig) -> None:
    controller = rig.controller
    rig.strategy.switch = "s2"
    await controller.admit(JobSpec(4, ("h1", "h2")), 0)
    rig.strategy.switch = "s1"
    await controller.admit(JobSpec(5, ("h1", "h2")), 50 * MS)
    controller.moves.begin(5, 100 * MS, Placement({"h1": "s2", "h2": "s2"}, {}, "s2"))
    await controller.tick(100 * MS)
    for host in ("h1", "h2"):
        controller.moves.held(5, host, Held(1, 0))
    rig.fakes["s3"].refuse = lambda update: True
    assert await controller.tick(101 * MS) == []
    assert controller.windows.behind == {"s3"}
    assert "waits for the switches to hold the new plan: s3: " in controller.jobs.waiting_for(5, 101 * MS)
    assert controller.windows.obeyed_ns > 3600 * 1000 * MS
    rig.fakes["s3"].refuse = lambda update: False
    now_ns = 130 * MS
    resumed = {m.host: m.content for m in await controller.tick(now_ns)}
    assert set(resumed) == {"h1", "h2"}
    assert not controller.windows.behind
    longest_ns = max(controller.windows.round_trip_ns(job.plan) for job in controller.jobs.values())
    assert controller.windows.obeyed_ns == now_ns + MS + longest_ns, "the time begins anew"
    for told in resumed.values():
        assert isinstance(told, Resume)
        assert isinstance(told.plan, WorkerPlan)
        assert told.plan.pacing.hold_ns >= MS + longest_ns


async def test_a_move_interrupted_by_a_refusal_resumes_next_tick(rig: ControllerRig) -> None:
    controller = rig.controller
    controller.moves.options = ControllerOptions(patience_ns=50 * MS, solve_period_ns=0)
    await controller.admit(JobSpec(4, ("h1", "h2", "h3")), 0)
    rig.strategy.switch = "s4"
    controller.moves.begin(4, 0, rig.strategy.at(("h1", "h2", "h3")))
    await controller.tick(0)
    controller.moves.held(4, "h1", Held(1, 3))
    controller.moves.held(4, "h3", Held(1, 2))
    rig.fakes["s4"].refuse = lambda update: True
    for _ in range(2):
        assert await controller.tick(60 * MS) == []
    assert "waits for the switches to hold the new plan: s4: " in controller.jobs.waiting_for(4, 60 * MS)
    rig.fakes["s4"].refuse = lambda update: False
    assert await controller.tick(61 * MS) == []  # not yet time to try again
    assert [m.host for m in await controller.tick(110 * MS)] == ["h1", "h3"]
    assert controller.jobs[4].plan.generation == 2
    assert await controller.verify() == {}


async def test_a_failed_strategy_leaves_the_job_and_logs_it(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    controller = rig.controller
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    monkeypatch.setattr(controller.moves.outlook, "background", lambda now_ns: Snapshot({}, frozenset(), frozenset()))

    def nowhere(problem: Problem, rng: random.Random) -> Placement:
        raise PlacementError("no switch has room")

    monkeypatch.setattr(rig.strategy, "place", nowhere)
    assert await controller.tick(200 * MS) == []
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == ["job 4 stays where it is: no switch has room"]


async def test_a_move_to_a_full_switch_is_refused_and_the_job_stays(rig: ControllerRig) -> None:
    controller = rig.controller
    rig.strategy.switch = "s4"
    for job in (1, 2):
        await controller.admit(JobSpec(job, ("h1", "h2")), 0)
    rig.strategy.switch = "s3"
    await controller.admit(JobSpec(3, ("h1", "h3")), 0)
    rig.strategy.switch = "s4"
    with raises(OutOfMemory, place="s4: aggregation slots"):
        controller.moves.begin(3, 0, rig.strategy.at(("h1", "h3")))
    assert await controller.tick(0) == []
    assert controller.planner.memory.jobs_that_fit(64) == {"s1": 2, "s2": 2, "s3": 1, "s4": 0}


async def test_a_lost_worker_is_placed_out_of_the_job(rig: ControllerRig) -> None:
    controller = rig.controller
    controller.moves.options = ControllerOptions(patience_ns=50 * MS, solve_period_ns=0)
    await controller.admit(JobSpec(4, ("h1", "h2", "h3")), 0)
    controller.moves.begin(4, 0)
    await controller.tick(0)
    controller.moves.held(4, "h1", Held(1, 3))
    controller.moves.held(4, "h3", Held(1, 3))
    resumes = await controller.tick(50 * MS)
    assert [m.host for m in resumes] == ["h1", "h3"]
    assert rig.strategy.asked[-1].workers == ("h1", "h3")
    worker = controller.jobs[4].plan.workers["h3"]
    assert (worker.rank, worker.workers, worker.child_bit) == (2, 3, 2)  # scales stay those of three workers
    assert len(await rig.lines("s3", "members")) == 2


def _busy(share: float, stale: bool = False) -> Snapshot:
    """Others take this share of the link from s1 to s3."""
    link = Endpoint("s1", 3)
    view = LinkView(share * 1e9, share * 1e9, queue_packets=0, latency_us=0, loss=0, age_ns=0, confidence=1)
    return Snapshot({link: view}, frozenset({link} if stale else ()), frozenset())


async def test_jobs_move_on_fresh_telemetry_for_clear_gains_and_rarely(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, strategy = rig.controller, rig.strategy
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    strategy.switch = "s4"

    def busy(share: float, stale: bool = False) -> None:
        monkeypatch.setattr(controller.moves.outlook, "background", lambda now_ns: _busy(share, stale))

    busy(0.5)
    assert await controller.tick(100 * MS) == []  # too soon after it began
    busy(0.05)
    assert await controller.tick(200 * MS) == []  # 5 % is not worth it
    busy(0.5, stale=True)
    assert await controller.tick(300 * MS) == []
    busy(0.5)
    assert await controller.tick(350 * MS) == []  # not yet time to look
    assert await controller.tick(400 * MS) == []  # a move takes a period, 10 ms, and half of that was lost by staying
    held_back_ns = controller.windows.round_trip_ns(controller.jobs[4].plan)  # after a move, which is part of its price
    assert held_back_ns > MS
    assert await controller.tick(410 * MS) == []
    nearly_ns = 410 * MS + 2 * held_back_ns  # but for filling the path again, which takes its time, too
    assert await controller.tick(nearly_ns) == []
    assert [m.content for m in await controller.tick(nearly_ns + MS)] == [Pause(4, 1)] * 2
    room = strategy.asked[-1].room
    assert room is not None
    assert room["s3"] == 2  # its own place counts as free


async def test_jobs_are_examined_in_turn_with_hosts_served_between(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, asked = rig.controller, rig.strategy.asked
    for number in (4, 5):
        await controller.admit(JobSpec(number, ("h1", "h3")), 0)
    monkeypatch.setattr(controller.moves.outlook, "background", lambda now_ns: Snapshot({}, frozenset(), frozenset()))
    asked.clear()
    assert await controller.tick(200 * MS) == []
    assert (len(asked), controller.deadline_ns) == (1, 0)
    assert await controller.tick(200 * MS) == []
    assert (len(asked), controller.deadline_ns) == (2, 200 * MS + OPTIONS.probe_period_ns)
    assert await controller.tick(290 * MS) == []
    assert len(asked) == 2
    assert await controller.tick(300 * MS) == []
    assert len(asked) == 3


@pytest.mark.parametrize("rig", [replace(OPTIONS, decide_aside=True)], indirect=True)
async def test_a_placement_is_thought_out_beside_the_event_loop(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ticks continue, other jobs do not wait, and a decision for an ended job is dropped."""
    controller, place, may_answer = rig.controller, rig.strategy.place, threading.Event()
    monkeypatch.setattr(controller.moves.outlook, "background", lambda now_ns: _busy(0.5))
    for number in (4, 5):
        await controller.admit(JobSpec(number, ("h1", "h3")), 0)

    def slow(problem: Problem, rng: random.Random) -> Placement:
        assert may_answer.wait(60)
        return place(problem, rng)

    monkeypatch.setattr(rig.strategy, "place", slow)
    rig.strategy.switch = "s4"
    for now_ns in (200 * MS, 210 * MS, 220 * MS):
        assert await controller.tick(now_ns) == []
        assert controller.improver.deadline_ns is None  # nothing to do until it has answered
    await controller.finish(4)
    may_answer.set()
    async with asyncio.timeout(60):
        while controller.improver.deadline_ns is None:
            await asyncio.sleep(0.001)
    assert await controller.tick(230 * MS) == []
    said: list[Message] = []
    async with asyncio.timeout(60):
        while not said:
            said = await controller.tick(240 * MS)
            await asyncio.sleep(0.001)
    assert [message.content for message in said] == [Pause(5, 1)] * 2


async def test_reports_of_progress_tell_the_jobs_own_traffic(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = rig.controller
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    seen: list[Mapping[Endpoint, float]] = []
    monkeypatch.setattr(controller.links, "snapshot", lambda now_ns, own: seen.append(own))
    for host, rounds in (("h1", 0), ("h3", 0), ("h1", 60), ("h3", 50)):
        controller.members.heartbeat(4, host, rounds, 100 * MS * bool(rounds))
    controller.moves.outlook.background(100 * MS)
    # the slower worker's 50 rounds in 100 ms; of the 956 chunks and 32 scales of a step
    frames = 956 * (FRAME_HEADER_BYTES + MESSAGE_BYTES) + 32 * (FRAME_HEADER_BYTES + HEADER_BYTES)
    assert frames == pytest.approx(1 << 20, abs=FRAME_HEADER_BYTES + MESSAGE_BYTES)
    assert seen[-1][Endpoint("h1", 0)] == pytest.approx(500 * 8 * (1 << 20) / (956 + 32))
    with raises(ControllerError, place="job 4", value="h2"):
        controller.members.heartbeat(4, "h2", 1, 0)
    with raises(NoSuchJob, job=5):
        controller.members.heartbeat(5, "h1", 1, 0)


async def test_a_job_is_placed_given_the_others_bytes_per_step(rig: ControllerRig) -> None:
    controller = rig.controller
    jobs = [JobSpec(4, ("h1", "h3"), gradient_bytes=3_000), JobSpec(5, ("h2", "h4"), gradient_bytes=500)]
    for spec in jobs:
        await controller.admit(spec, 0)
    streams = [controller.jobs[spec.job].plan.streams for spec in jobs]
    assert controller.moves.outlook.others(5) == {link: 3_000 * count for link, count in streams[0].items()}
    assert controller.moves.outlook.others(4) == {link: 500 * count for link, count in streams[1].items()}
    both = controller.moves.outlook.others(6)
    shared = streams[0].keys() & streams[1].keys()
    assert shared
    assert all(both[link] == 3_000 * streams[0][link] + 500 * streams[1][link] for link in shared)


async def test_links_are_settled_a_while_after_jobs_have_come_and_gone(rig: ControllerRig) -> None:
    controller = rig.controller
    outlook = controller.moves.outlook
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    crossed = set(controller.jobs[4].plan.streams)
    settled_ns = 5 * outlook.period_ns
    outlook.update(0)
    assert set(outlook.unsettled(settled_ns - 1)) == crossed
    assert not outlook.unsettled(settled_ns)
    await controller.finish(4)
    outlook.update(settled_ns)
    assert set(outlook.unsettled(2 * settled_ns - 1)) == crossed
    assert not outlook.unsettled(2 * settled_ns)


async def test_a_job_is_stuck_only_if_a_worker_waits_without_progress(rig: ControllerRig) -> None:
    controller = rig.controller
    controller.moves.options = ControllerOptions(solve_period_ns=0, stuck_ns=50 * MS)
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)

    async def said(now_ns: int, *reports: tuple[str, int, bool]) -> list[object]:
        for host, rounds, waiting in reports:
            controller.members.heartbeat(4, host, rounds, now_ns, waiting=waiting)
        return [message.content for message in await controller.tick(now_ns)]

    assert await said(0, ("h1", 3, True), ("h3", 3, False)) == []
    assert await said(40 * MS, ("h1", 4, True), ("h3", 3, False)) == []
    assert await said(80 * MS, ("h1", 4, False), ("h3", 3, False)) == []  # both compute
    assert await said(120 * MS, ("h1", 4, True), ("h3", 4, True)) == []
    assert await said(169 * MS, ("h1", 4, True), ("h3", 5, True)) == []
    assert await said(170 * MS, ("h1", 4, True), ("h3", 6, True)) == [Pause(4, 1)] * 2
    for host in ("h1", "h3"):
        controller.moves.held(4, host, Held(1, 4))
    resumed_ns = 180 * MS
    assert {type(content) for content in await said(resumed_ns)} == {Resume}
    for host in ("h1", "h3"):
        controller.moves.resumed(4, host, 2, resumed_ns)
    await controller.tick(resumed_ns)
    begun_ns = resumed_ns + controller.jobs[4].plan.pacing.hold_ns  # from here on it may send
    assert await said(begun_ns + 49 * MS, ("h1", 4, True)) == []  # the new generation has its time as well
    assert await said(begun_ns + 50 * MS, ("h1", 4, True)) == [Pause(4, 2)] * 2
    assert controller.jobs[4].plan.placement == rig.strategy.at(("h1", "h3"))


async def test_a_job_with_rare_reports_is_not_stuck_between_them(rig: ControllerRig) -> None:
    """Heartbeats a second apart, and a job that counts as stuck after 50 ms: it goes on where each says of progress."""
    controller = rig.controller
    controller.moves.options = ControllerOptions(solve_period_ns=0, stuck_ns=50 * MS)
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    for second in range(3):
        for host in ("h1", "h3"):
            controller.members.heartbeat(4, host, 100 * second, second * 1000 * MS)
        for now_ms in range(1000 * second, 1000 * second + 1000, 100):
            assert await controller.tick(now_ms * MS) == []
    controller.members.heartbeat(4, "h1", 200, 3000 * MS)
    assert [message.content for message in await controller.tick(3000 * MS)] == [Pause(4, 1)] * 2


async def test_probes_go_out_once_a_period_and_are_counted(rig: ControllerRig) -> None:
    controller = rig.controller
    assert controller.deadline_ns == 0
    first = controller.switches.packet_outs_sent
    assert set(first.values()) == {0}
    for now in (0, 5, 9, 10, 19, 20):
        await controller.tick(now * MS)
        assert controller.deadline_ns <= (now // 10 + 1) * 10 * MS
    assert sum(controller.switches.packet_outs_sent.values()) == 3 * len(controller.prober.probes)
    assert controller.telemetry_cost(20 * MS).int_packets == 0, "no switch was told to put INT into packets"
    rig.fakes["s1"].send(b"no probe")
    await controller.switches.drain({"s1": 1})
    assert controller.switches.packet_ins_received == {"s1": 1, "s2": 0, "s3": 0, "s4": 0}
    await controller.tick(21 * MS)
    assert controller.prober.reports.rejected == 1


async def test_every_source_of_reports_is_read_before_a_decision(rig: ControllerRig) -> None:
    """Observers are notified each time that bounds may have changed."""
    asked, told = list[int](), list[int]()
    rig.controller.sources.append(asked.append)
    rig.controller.bounded.append(told.append)
    assert await rig.controller.shares(JobSpec(4, ("h1", "h3")), 2, 2)
    await rig.controller.admit(JobSpec(4, ("h1", "h3")), 3)
    await rig.controller.tick(10 * MS)
    assert (asked, told) == ([2, 3, 10 * MS], [3, 10 * MS])


async def test_queues_with_more_than_is_promised_are_said(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = "s3-p1: 70 packets, 64 are promised"
    monkeypatch.setattr(rig.controller.exceeded, "poll", lambda: [said])
    await rig.controller.tick(0)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.WARNING, said)]


async def test_switch_states_are_recomputed_only_on_changes(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cost grows with the number of jobs."""
    controller, made = rig.controller, Mock(wraps=fabric_state)
    monkeypatch.setattr(module, "fabric_state", made)
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    for now_ns in (0, 10 * MS, 20 * MS):
        await controller.tick(now_ns)
    assert made.call_count == 1
    await controller.finish(4)
    assert made.call_count == 2
    assert await controller.verify() == {}
    assert made.call_count == 2


async def test_a_running_job_ignores_events_of_a_predecessors_number(rig: ControllerRig) -> None:
    rig.controller.jobs.aborted[4] = "h1 was silent for 2 s"
    await rig.controller.admit(JobSpec(4, ("h1", "h3")), 0)
    assert rig.controller.jobs.aborted == {}


async def test_a_switch_that_dies_costs_its_own_probes_only(
    rig: ControllerRig, caplog: pytest.LogCaptureFixture
) -> None:
    controller = rig.controller
    await rig.fakes["s2"].stop()
    while controller.switches.sessions["s2"]._switch.is_up:
        await asyncio.sleep(0.01)
    await controller.tick(0)
    from_s2 = sum(probe.switch == "s2" for probe in controller.prober.probes)
    assert from_s2 > 0
    assert sum(controller.switches.packet_outs_sent.values()) == len(controller.prober.probes) - from_s2
    assert "no probes: s2 at" in caplog.text
    for later in (1, 2, 3):
        await controller.tick(later * 10 * MS)
    assert caplog.text.count("no probes: s2 at") == 1  # said once, though each time anew they cannot be sent
    await rig.fakes["s2"].start()


async def test_a_controller_needs_a_session_with_every_switch(rig: ControllerRig) -> None:
    with raises(ControllerError, value=("s1", "s2", "s3", "s4")):
        Controller(FABRIC, Routes(FABRIC), {}, rig.strategy, OPTIONS)
    nowhere = IntConfig(flows=(), collector="h9")
    with raises(PlanError, value="h9"):
        Controller(
            FABRIC, Routes(FABRIC), rig.controller.switches.sessions, rig.strategy, replace(OPTIONS, watching=nowhere)
        )
    with raises(ControllerError, place="options", value=(0, 0.15)):
        ControllerOptions(probe_period_ns=0)


CONTAINED = replace(OPTIONS, contains_failures=True, stuck_ns=50 * MS)


def failing_for(number: int, monkeypatch: pytest.MonkeyPatch, kind: type, method: str) -> None:
    """Plant an exception in a method of one job, or of a job's number."""
    whole = getattr(kind, method)

    def planted(self: object, job: RunningJob | int, *arguments: object) -> object:
        if number == (job if isinstance(job, int) else job.number):
            raise ZeroDivisionError("planted")
        return whole(self, job, *arguments)

    monkeypatch.setattr(kind, method, planted)


@pytest.mark.parametrize("rig", [CONTAINED], indirect=True)
@pytest.mark.parametrize(
    ("kind", "method"),
    [(Migrator, "_exchange"), (Migrator, "_plan_again"), (JobMembers, "_remove_departed_of"), (RunningJob, "stuck")],
)
async def test_an_unexpected_exception_in_work_for_a_job_ends_that_job_alone(
    rig: ControllerRig, kind: type, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    controller = rig.controller
    for number in (4, 5):
        await controller.admit(JobSpec(number, ("h1", "h3")), 0)
    if kind is RunningJob:
        broken = controller.jobs[4]
        monkeypatch.setattr(kind, method, lambda self, _: 1 // 0 if self is broken else [])
    else:
        failing_for(4, monkeypatch, kind, method)
    if method == "_plan_again":
        await controller.reroute(controller.planner.routes)
    messages = await controller.tick(1)
    assert controller.jobs.keys() == {5}
    assert [(message.host, message.job) for message in messages if isinstance(message.content, Abort)] == [
        ("h1", 4),
        ("h3", 4),
    ]
    (logged,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert "ZeroDivisionError" in logged.getMessage()
    assert logged.exc_info is None
    await controller.tick(2)
    assert await controller.verify() == {}, "nothing of the job is left in switches"
    controller.moves.begin(5, 3)
    assert [message.job for message in await controller.tick(4)] == [5, 5]


@pytest.mark.parametrize("rig", [OPTIONS], indirect=True)
async def test_without_containment_an_unexpected_exception_passes(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in virtual time ends by a fault of its own code."""
    await rig.controller.admit(JobSpec(4, ("h1", "h3")), 0)
    failing_for(4, monkeypatch, Migrator, "_exchange")
    with pytest.raises(ZeroDivisionError):
        await rig.controller.tick(1)
    assert rig.controller.jobs.keys() == {4}


@pytest.mark.parametrize("rig", [replace(CONTAINED, decide_aside=True)], indirect=True)
async def test_jobs_stay_in_place_if_their_strategy_fails_unexpectedly(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user's file, perhaps: an admission fails without a trace, and a decision leaves the job as it is."""
    controller = rig.controller
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    monkeypatch.setattr(controller.moves.outlook, "background", lambda now_ns: _busy(0.5))
    monkeypatch.setattr(rig.strategy, "place", lambda problem, rng: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        await controller.admit(JobSpec(5, ("h1", "h2")), 0)
    async with asyncio.timeout(60):
        now_ns = 0
        while "job 4 stays in place" not in caplog.text:
            now_ns += 100 * MS
            await controller.tick(now_ns)
            await asyncio.sleep(0.001)
    assert controller.jobs.keys() == {4}
    assert await controller.verify() == {}


@pytest.mark.parametrize("rig", [replace(CONTAINED, apply_order=True)], indirect=True)
async def test_jobs_keep_their_places_if_their_order_fails_unexpectedly(
    rig: ControllerRig, caplog: pytest.LogCaptureFixture
) -> None:
    controller = rig.controller
    await controller.admit(JobSpec(4, ("h1", "h3")), 0)
    await controller.tick(1)
    before = controller.order.rankings(1)[4]
    controller.order.order = replace(controller.order.order, compute=Mock(side_effect=ZeroDivisionError))
    await controller.admit(JobSpec(5, ("h1", "h3")), 0)
    await controller.tick(2)
    assert controller.order.rankings(2) == {4: before}
    await controller.finish(4)
    await controller.tick(3)
    assert controller.order.rankings(3) == {}
    assert "ZeroDivisionError" in caplog.text
