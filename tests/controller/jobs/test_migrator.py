"""Generations of jobs, and the removal of hosts from them: the mover alone, without switches."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from weir.controller.errors import ControllerError, PlanError
from weir.controller.jobs.job import RunningJob, WorkerProgress
from weir.controller.jobs.membership import JobMembers
from weir.controller.jobs.restore import restore_jobs
from weir.controller.options import ControllerOptions, Message
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller.pure_rig import MS, PureRig
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint, Host, Link, Switch, Topology
from weir.topologies.targets import LIKE_TOFINO
from weir.wire.control import Abort, FinalRound, Held, Pacing, Pause, Resume, ServerPlan

TOPOLOGY = leaf_spine(2, 2, 3, slots=512)
"""h1…h3 at s1, h4…h6 at s2; spines s3 and s4."""
WORKERS = ("h1", "h2", "h4")
SERVER, SPARE = "h5", "h3"
RETRY, PATIENCE, STUCK = 20 * MS, 200 * MS, 50 * MS
OPTIONS = ControllerOptions(solve_period_ns=0, retry_ns=RETRY, patience_ns=PATIENCE, stuck_ns=STUCK)
BEGAN = 3 * MS


def at(root: str, *workers: str) -> Placement:
    return Placement(dict.fromkeys(workers or WORKERS, root), {}, root)


def spec(number: int = 1, **more: Any) -> JobSpec:
    return JobSpec(number, **{"workers": WORKERS, **more})


def rig(lease_ns: int | None = None, path: Path | None = None) -> PureRig:
    return PureRig(TOPOLOGY, OPTIONS, lease_ns=lease_ns, path=path)


def again(folder: Path) -> PureRig:
    """State of a new controller that finds the folder's journal as its predecessor left it."""
    shutil.copy(folder / "journal", folder / "left")
    after = rig(path=folder / "left")
    restore_jobs(TOPOLOGY, after.planner, after.jobs, after.moves, 0)
    return after


def address(host: str) -> int:
    return int(TOPOLOGY.host(host).address)


def deadline(rig: PureRig) -> int | None:
    """Now: a type checker takes an attribute that was asserted once for lasting."""
    return rig.moves.deadline_ns


def pauses(hosts: Iterable[str], generation: int = 1, job: int = 1) -> list[Message]:
    return [Message(host, Pause(job, generation)) for host in sorted(hosts, key=address)]


def hold(rig: PureRig, *hosts: str, generation: int = 1, first: int = 5, job: int = 1) -> None:
    for host in hosts:
        rig.moves.held(job, host, Held(generation, first))


def resumed(rig: PureRig, *hosts: str, generation: int = 2, now_ns: int = 0) -> None:
    for host in hosts:
        rig.moves.resumed(1, host, generation, now_ns)


def kinds(messages: list[Message]) -> dict[str, type]:
    return {message.host: type(message.content) for message in messages}


# --- one move ---


async def test_a_move_pauses_writes_and_resumes_at_one_instant() -> None:
    fabric = rig()
    job = fabric.add(spec(server=SERVER), at("s3"), BEGAN)
    assert deadline(fabric) is None
    fabric.moves.begin(1, BEGAN, at("s4"))
    assert (fabric.moves.deadline_ns, job.why, job.paused_ns) == (BEGAN, "asked to", BEGAN)
    assert await fabric.advance(BEGAN) == pauses((*WORKERS, SERVER))
    assert (fabric.moves.deadline_ns, fabric.written) == (BEGAN + RETRY, [])
    hold(fabric, *WORKERS)
    assert await fabric.advance(BEGAN + RETRY) == pauses((SERVER,))
    hold(fabric, SERVER)
    assert fabric.moves.deadline_ns == 0
    told = await fabric.advance(BEGAN + RETRY)
    assert kinds(told) == dict.fromkeys((*WORKERS, SERVER), Resume)
    assert fabric.written == [frozenset({"s4"})]
    assert job.plan == fabric.planner.plan(job.spec, at("s4"), 2)
    assert fabric.planner.memory.held(1).keys() == {"s4"}
    assert fabric.planner.history(1).last_used == {"s3": 1, "s4": 2}
    assert fabric.moves.deadline_ns == BEGAN + 2 * RETRY
    fabric.moves.begin(1, BEGAN + RETRY, at("s3"))  # while it moves, which does nothing
    ended_ns = BEGAN + RETRY + MS
    job.plan = replace(job.plan, pacing=Pacing(hold_ns=5 * MS))
    resumed(fabric, SERVER, *WORKERS[1:], generation=2, now_ns=ended_ns)
    resumed(fabric, WORKERS[0], generation=1, now_ns=ended_ns)  # a copy of an earlier one
    assert job.move is not None
    resumed(fabric, WORKERS[0], generation=2, now_ns=ended_ns)
    assert fabric.jobs[1].move is None
    assert (job.target, job.moved_ns, fabric.jobs.counts.moves) == (None, ended_ns, 1)
    assert list(fabric.moves.pauses_ns) == [RETRY + 6 * MS], "with what hosts hold back after it"
    assert (await fabric.advance(ended_ns), deadline(fabric)) == ([], None)
    resumed(fabric, WORKERS[0], generation=2, now_ns=ended_ns + MS)  # a copy of the last one
    hold(fabric, WORKERS[0])
    assert job.moved_ns == ended_ns


async def test_rounds_that_a_moved_jobs_hosts_fetch_count_until_all_have_them() -> None:
    """h4 lacks three rounds that h1 and h2 have; they cross every link between them both ways."""
    fabric = rig()
    job = fabric.add(spec(), at("s3"))
    assert fabric.moves.fetches(0) == {}
    fabric.moves.begin(1, 0, at("s4"))
    await fabric.advance(0)
    hold(fabric, "h1", "h2", first=8)
    hold(fabric, "h4", first=5)
    await fabric.advance(0)
    packets = fabric.moves.fetches(0)[1]
    assert packets[Endpoint("h4", 0)] == packets[TOPOLOGY.peer(Endpoint("h4", 0))] == 3 + 1, "and a copy"
    assert sum(packets[TOPOLOGY.peer(Endpoint(host, 0))] for host in ("h1", "h2")) == 3 + 2
    job.plan = replace(job.plan, pacing=Pacing(round_trip_ns=2 * MS))
    for host, rounds in (("h1", 8), ("h2", 9), ("h4", 7)):
        job.progress[host] = WorkerProgress(rounds, 0, 0, waiting=False)
    assert fabric.moves.fetches(MS)[1] == packets
    job.progress["h4"].rounds = 8
    assert fabric.moves.fetches(2 * MS)[1] == packets, "a copy may be under way"
    assert fabric.moves.fetches(4 * MS) == {}


def test_a_restarted_controller_counts_the_fetches_of_a_move() -> None:
    fabric = rig()
    job = fabric.add(spec(), at("s3"))
    fabric.moves.restore(job, "asked to", {"h4": (FinalRound(6, address("h1")),)}, (), 0)
    assert fabric.moves.fetches(0)[1][Endpoint("h1", 0)] == 2


async def test_without_another_place_a_move_leads_to_where_the_job_is() -> None:
    fabric = rig()
    job = fabric.add(spec(), at("s3"))
    fabric.moves.begin(1, 0)
    hold(fabric, *WORKERS)
    await fabric.advance(0)
    assert job.plan == fabric.planner.plan(job.spec, at("s3"), 2)


async def test_a_refusing_switch_is_retried_before_any_resume() -> None:
    fabric = rig()
    job = fabric.add(spec(), at("s3"))
    fabric.moves.begin(1, 0, at("s4"))
    hold(fabric, *WORKERS)
    fabric.troubles = [ControllerError("s4 is full")]
    assert await fabric.advance(BEGAN) == []
    assert (fabric.moves.deadline_ns, list(map(str, job.troubles))) == (BEGAN + RETRY, ["s4 is full"])
    fabric.troubles = []
    assert await fabric.advance(BEGAN + RETRY - 1) == []
    assert len(fabric.written) == 1
    assert kinds(await fabric.advance(BEGAN + RETRY)) == dict.fromkeys(WORKERS, Resume)
    assert (len(fabric.written), job.troubles) == (2, ())


async def test_several_moves_share_the_first_deadline_and_diverge() -> None:
    fabric = rig()
    fabric.add(spec(1), at("s3"))
    fabric.add(spec(2), at("s4"))
    third = fabric.add(spec(3), at("s3"))
    fabric.moves.begin(2, 5 * MS)
    fabric.moves.begin(1, 7 * MS)
    assert fabric.moves.deadline_ns == 5 * MS
    assert await fabric.advance(7 * MS) == [*pauses(WORKERS), *pauses(WORKERS, job=2)]
    third.renew = "it is due"
    assert fabric.moves.deadline_ns == 0
    assert await fabric.advance(8 * MS) == pauses(WORKERS, job=3)
    assert (third.why, third.renew) == ("it is due", "")


async def test_work_due_during_a_move_begins_after_it() -> None:
    fabric = rig()
    job = fabric.add(spec(), at("s3"))
    fabric.moves.begin(1, 0)
    await fabric.advance(0)
    job.renew = "it is due"
    assert fabric.moves.deadline_ns == RETRY
    hold(fabric, *WORKERS)
    await fabric.advance(MS)
    resumed(fabric, *WORKERS, now_ns=MS)
    assert await fabric.advance(MS) == pauses(WORKERS, generation=2)


async def test_impossible_answers_end_the_job_without_a_write() -> None:
    fabric = rig()
    fabric.add(spec(), at("s3"))
    fabric.moves.begin(1, 0)
    hold(fabric, *WORKERS[:2], first=900)
    hold(fabric, WORKERS[2], first=3)
    assert "round 3 is final but no host keeps" in fabric.jobs.aborted[1]
    assert kinds(await fabric.advance(0)) == dict.fromkeys(WORKERS, Abort)
    assert fabric.written == []
    fabric.add(spec(2), at("s3"))
    with raises(ControllerError, place="job 2", value="h6"):
        fabric.moves.held(2, "h6", Held(1, 0))


async def test_a_silent_host_is_lost_and_the_last_worker_ends_the_job() -> None:
    fabric = rig()
    job = fabric.add(spec(server=SERVER), at("s3"))
    other = fabric.add(spec(2), at("s4"))
    fabric.moves.begin(1, 0)
    fabric.moves.begin(2, 0)
    await fabric.advance(0)
    hold(fabric, "h1", SERVER)
    told = await fabric.advance(PATIENCE)
    assert job.gone == {host: f"{host} did not answer" for host in ("h2", "h4")}
    assert kinds([message for message in told if message.job == 1]) == {"h1": Resume, SERVER: Resume}
    assert fabric.jobs.aborted == {2: "job 2: no worker answered the pause; none is left to continue with"}
    assert other.number not in fabric.jobs
    assert kinds([message for message in told if message.job == 2]) == dict.fromkeys(WORKERS, Abort)
    assert len(fabric.written) == 1


async def test_a_silent_required_host_ends_the_job_and_its_move() -> None:
    fabric = rig()
    fabric.add(spec(min_workers=3), at("s3"))
    fabric.moves.begin(1, 0)
    await fabric.advance(0)
    hold(fabric, "h1", "h2")
    told = await fabric.advance(PATIENCE)
    assert fabric.jobs.aborted == {1: "h4 did not answer; 2 workers are left, and it needs 3"}
    assert kinds(told) == dict.fromkeys(WORKERS, Abort)
    assert fabric.written == []


async def test_a_job_that_waits_gives_nobody_up() -> None:
    fabric = rig()
    job = fabric.add(spec(policy=FailurePolicy.WAIT), at("s3"))
    fabric.moves.begin(1, 0)
    await fabric.advance(0)
    assert await fabric.advance(10 * PATIENCE) == pauses(WORKERS)
    assert job.gone == {}


# --- why a job moves ---


def waits(job: RunningJob, *hosts: str, since_ns: int, now_ns: int) -> None:
    for host in WORKERS:
        job.progress[host] = WorkerProgress(1, now_ns, since_ns if host in hosts else now_ns, True)


def test_a_stuck_job_gets_a_new_generation_unless_it_moves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "weir.controller.jobs.migrator")
    fabric = rig()
    jobs = [fabric.add(spec(number), at("s3")) for number in (1, 2)]
    fabric.moves.begin(2, 0)
    caplog.clear()
    for job in jobs:
        waits(job, "h1", "h4", since_ns=BEGAN, now_ns=BEGAN + STUCK)
    fabric.moves.repair(BEGAN + STUCK)
    assert [job.why for job in jobs] == ["no progress at h1, h4", "asked to"]
    assert [record.getMessage() for record in caplog.records] == [
        "job 1 starts a new generation: no progress at h1, h4",
        "job 1 leaves generation 1: no progress at h1, h4",
    ]
    assert fabric.jobs.counts.moves == 2
    fabric = PureRig(TOPOLOGY, ControllerOptions(solve_period_ns=0))
    job = fabric.add(spec(), at("s3"))
    waits(job, "h1", since_ns=0, now_ns=1000 * MS)
    fabric.moves.repair(1000 * MS)
    assert job.move is None


async def at_s3_or_not(fabric: PureRig) -> tuple[RunningJob, ...]:
    """Job 1 sums at s3 and job 2 at s4; job 3 pauses at s3, and job 4 resumes there."""
    jobs = tuple(fabric.add(spec(n), at(s)) for n, s in ((1, "s3"), (2, "s4"), (3, "s3"), (4, "s4")))
    fabric.moves.begin(4, 0, at("s3"))
    hold(fabric, *WORKERS, job=4)
    await fabric.advance(0)
    fabric.moves.begin(3, 0)
    return jobs


async def test_a_lost_switch_moves_the_jobs_that_use_it_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    fabric = rig()
    at_s3, at_s4, pausing, resuming = await at_s3_or_not(fabric)
    before = at_s4.plan
    fabric.planner.update_topology((), {"s3"})
    fabric.moves.update_topology({"s3"}, MS)
    assert (at_s3.why, at_s4.move, pausing.renew, resuming.renew) == ("s3 is lost", None, "", "s3 is lost")
    assert at_s4.plan is not before, "it is laid anew, by the routes that are left"
    assert at_s4.plan.generation == 1
    fabric.planner.update_topology({Endpoint("s2", 5)}, {"s3"})
    fabric.moves.update_topology({"s3"}, MS)
    assert at_s4.why == "the links that are left do not carry its tree"


def with_pipes() -> Topology:
    """h1 at s1, h2 and h4 at s2 and h3 at s3, all chips with two pipes; s1 reaches s2 by its first pipe, and s3 by its
    second.
    """
    switches = tuple(Switch(f"s{at}", at, target=LIKE_TOFINO) for at in (1, 2, 3))
    hosts = tuple(Host(f"h{at}", IPv4Address(f"10.0.1.{at}")) for at in (1, 2, 3, 4))
    between = [(("s1", 8), ("s2", 8)), (("s1", 136), ("s3", 8)), (("s3", 9), ("s2", 9))]
    to_hosts = [(("h1", 0), ("s1", 9)), (("h2", 0), ("s2", 10)), (("h3", 0), ("s3", 10)), (("h4", 0), ("s2", 11))]
    links = tuple(Link(Endpoint(*start), Endpoint(*end)) for start, end in between + to_hosts)
    return Topology("pipes", hosts, switches, links)


async def test_a_chips_changed_pipes_move_the_job() -> None:
    fabric = PureRig(with_pipes(), OPTIONS)
    fabric.planner.strategy = strategy("widest")
    split = fabric.add(spec(1, workers=("h1", "h2"), slots=16, window=8), at("s1", "h1", "h2"))
    other = fabric.add(spec(2, workers=("h1", "h4"), slots=16, window=8), at("s2", "h1", "h4"))
    before = other.plan = replace(other.plan, pacing=Pacing(gap_ns=700))
    fabric.planner.update_topology({Endpoint("s1", 8)}, ())
    fabric.moves.update_topology((), 0)
    assert split.why == "the links that are left do not carry its tree"
    assert (other.move, other.plan.generation) == (None, 1)
    assert other.plan is not before, "it is laid anew, by the routes that are left"
    assert other.plan.pacing == before.pacing, "its hosts were told nothing else"
    hold(fabric, "h1", "h2")
    assert kinds(await fabric.advance(MS)) == {"h1": Resume, "h2": Resume}
    assert split.plan.placement == at("s3", "h1", "h2")


async def test_a_restarted_switch_makes_a_generation_due_for_its_sums() -> None:
    fabric = rig()
    at_s3, at_s4, pausing, resuming = await at_s3_or_not(fabric)
    fabric.moves.renew(["s3"])
    why = "s3 has started anew"
    assert [job.renew for job in (at_s3, at_s4, pausing, resuming)] == [why, "", "", why]


def test_hosts_are_told_another_pace_once_all_are_there() -> None:
    fabric = rig()
    jobs = [fabric.add(spec(number), at("s3")) for number in (1, 2, 3, 4)]
    for job in jobs[1:]:
        job.joined = {*WORKERS}
    jobs[2].renew = "it is due"
    fabric.moves.begin(4, 0)
    fabric.moves.pace(dict.fromkeys((1, 2, 3, 4), 1_000_400))
    assert [job.renew for job in jobs] == ["", "its hosts are to send a round each 1000 us", "it is due", ""]
    jobs[1].renew = ""
    fabric.moves.pace({2: 0})
    assert jobs[1].renew == "no gap is needed"


# --- lost participants ---


@pytest.mark.parametrize(
    ("how", "lost", "says"),
    [
        ({}, WORKERS, "h1 died; h2 died; h4 died; no worker is left"),
        ({"policy": FailurePolicy.ABORT}, ("h2",), "h2 died, and the job's policy is to abort"),
        (
            {"policy": FailurePolicy.WAIT},
            ("h2",),
            "h2 died; it cannot come back, for which the job's policy would wait",
        ),
        ({"min_workers": 3}, ("h2",), "h2 died; 2 workers are left, and it needs 3"),
        ({"min_workers": 2}, ("h2",), ""),
        ({"policy": FailurePolicy.ABORT}, (SERVER,), ""),
        ({"policy": FailurePolicy.WAIT}, (SERVER,), ""),
    ],
)
def test_a_job_continues_or_aborts_on_a_loss_by_its_policy(
    how: dict[str, Any], lost: tuple[str, ...], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    fabric = rig(lease_ns=1000 * MS)
    job = fabric.add(spec(server=SERVER, **how), at("s3"))
    for host in job.hosts:
        fabric.jobs.leases.renew((1, host), 0)
    job.silent["h2"] = 0
    reasons = {host: f"{host} died" for host in lost}
    fabric.moves.mark_lost(job, reasons, MS)
    why = "; ".join(reasons.values())
    assert (fabric.jobs.aborted, job.gone) == ({1: says} if says else {}, reasons)
    assert f"job 1: {why}" in [record.getMessage() for record in caplog.records]
    if not says:
        assert (job.why, job.move is not None) == (why, True)
        assert {host for host in job.hosts if fabric.jobs.leases.lives((1, host))} == {*job.hosts} - {*lost}
        assert not any(fabric.jobs.leases.lives((1, host)) for host in lost)
        assert ("h2" in job.silent) == ("h2" not in lost)
    begun = fabric.jobs.counts.moves
    caplog.clear()
    fabric.moves.mark_lost(job, reasons, 2 * MS)
    assert (caplog.records, fabric.jobs.counts.moves) == ([], begun), "it is known already"


@pytest.mark.parametrize("paused", [False, True])
async def test_a_host_that_leaves_during_a_move_is_not_awaited(paused: bool) -> None:
    fabric = rig()
    job = fabric.add(spec(), at("s3"))
    fabric.moves.begin(1, 0)
    if paused:
        hold(fabric, *WORKERS)
    else:
        hold(fabric, *WORKERS[:2])
    fabric.moves.go_without(job, {"h4": "h4 has left"}, 0)
    assert job.gone == {"h4": "h4 has left"}
    fabric.planner.strategy.place = lambda problem, rng: at("s4", *problem.workers)  # type: ignore[method-assign]
    assert kinds(await fabric.advance(0)) == {"h1": Resume, "h2": Resume}
    hold(fabric, "h4")  # which is nothing any more
    fabric.moves.go_without(job, {"h1": "h1 has left", "h2": "h2 has left"}, 0)
    assert fabric.jobs.aborted[1].startswith("job 1: no worker answered")


@pytest.mark.parametrize(
    ("heard", "server", "spares"), [((), None, ()), (("h6",), "h6", (SPARE,)), ((SPARE, "h6"), SPARE, ("h6",))]
)
async def test_a_server_is_followed_by_the_first_spare_that_lives(
    heard: tuple[str, ...], server: str | None, spares: tuple[str, ...]
) -> None:
    """It begins where the slowest worker is, and confirms its plan as others their Resumes. Where none lives, a switch
    is the root.
    """
    fabric = rig(lease_ns=1000 * MS)
    job = fabric.add(spec(server=SERVER, spares=(SPARE, "h6")), at(SERVER))
    for host in (*WORKERS, SERVER, *heard):
        fabric.jobs.leases.renew((1, host), 0)
    root = server or "s3"
    fabric.planner.strategy.place = lambda problem, rng: at(root, *problem.workers)  # type: ignore[method-assign]
    fabric.moves.mark_lost(job, {SERVER: "it died"}, 0)
    assert (job.spec.server, job.spec.spares, job.newcomer) == (server, spares, server)
    assert await fabric.advance(0) == pauses(WORKERS)
    hold(fabric, *WORKERS[1:], first=7)
    hold(fabric, WORKERS[0], first=6)
    told = {message.host: message.content for message in await fabric.advance(MS)}
    assert job.first_round == (6 if server else 0)
    if server:
        taking_over = told.pop(server)
        assert isinstance(taking_over, ServerPlan)
        assert (taking_over.generation, taking_over.first_round) == (2, 6)
        resumed(fabric, *WORKERS, now_ns=MS)
        assert job.move is not None
        resumed(fabric, server, now_ns=MS)
    else:
        resumed(fabric, *WORKERS, now_ns=MS)
    assert {type(content) for content in told.values()} == {Resume}
    assert (job.move, job.newcomer) == (None, None)
    fabric.moves.begin(1, 2 * MS)
    assert await fabric.advance(2 * MS) == pauses((*WORKERS, *([server] if server else [])), generation=2)


async def has_taken_over(fabric: PureRig) -> RunningJob:
    """The server was lost in the middle of the job, and the spare was told to follow it in generation 2, from round 5
    on; of the workers h1 has resumed.
    """
    job = fabric.add(spec(server=SERVER, spares=(SPARE,)), at(SERVER))
    fabric.planner.strategy.place = lambda problem, rng: at(SPARE, *problem.workers)  # type: ignore[method-assign]
    fabric.moves.mark_lost(job, {SERVER: "it died"}, 0)
    hold(fabric, *WORKERS)
    told = kinds(await fabric.advance(0))
    assert (told[SPARE], job.first_round) == (ServerPlan, 5)
    resumed(fabric, "h1")
    return job


@pytest.mark.parametrize("confirms", ["its plan", "the pause that follows"])
async def test_a_spare_in_service_pauses_and_resumes_like_others(confirms: str) -> None:
    """Another host is lost before all have resumed, so that the same move pauses everyone again: a server that runs
    takes no first plan any more. Its confirmation of that may have been lost.
    """
    fabric = rig()
    job = await has_taken_over(fabric)
    if confirms == "its plan":
        resumed(fabric, SPARE)
    fabric.moves.mark_lost(job, {"h4": "it died, too"}, MS)
    told = await fabric.advance(MS)
    assert [message for message in told if isinstance(message.content, Pause)] == pauses(("h1", "h2", SPARE), 2)
    hold(fabric, "h1", "h2", SPARE, generation=2)
    assert kinds(await fabric.advance(2 * MS)) == dict.fromkeys(("h1", "h2", SPARE), Resume)
    resumed(fabric, "h1", "h2", SPARE, generation=3)
    assert (job.move, job.plan.generation) == (None, 3)


async def test_an_idle_spare_gets_its_first_plan_until_it_answers() -> None:
    fabric = rig()
    job = await has_taken_over(fabric)
    fabric.moves.resumed(1, SPARE, 1, 0)  # of no plan that it was told
    fabric.moves.mark_lost(job, {"h4": "it died, too"}, MS)
    for now_ns in (MS, MS + RETRY):
        told = [m.content for m in await fabric.advance(now_ns) if m.host == SPARE]
        assert isinstance(told[0], ServerPlan)
        assert (told[0].generation, told[0].first_round, told[1:]) == (2, 5, [Pause(1, 2)])


async def test_absent_spares_are_refused_when_they_come() -> None:
    fabric = rig(lease_ns=1000 * MS)
    job = fabric.add(spec(server=SERVER, spares=(SPARE, "h6")), at(SERVER))
    fabric.moves.mark_lost(job, {SERVER: "it died"}, 0)
    members = JobMembers(fabric.jobs, fabric.moves)
    for spare in (SPARE, "h6"):
        members.heartbeat(1, spare, 0, MS)
    assert fabric.jobs.pop_outbox() == [
        Message(spare, Abort(1, f"{spare} was not there to follow h5; the job went on without server ({spare})"))
        for spare in (SPARE, "h6")
    ]


# --- where nobody finds a place ---


def cut(*leaves: str) -> set[Endpoint]:
    """The links between these leaves and the spines."""
    return {Endpoint(leaf, port) for leaf in leaves for port in (4, 5)}


@pytest.mark.parametrize(
    ("how", "lost"),
    [
        ({}, {"h4"}),
        ({"policy": FailurePolicy.WAIT}, set()),
        ({"server": "h3"}, {"h4"}),
        ({"server": "h5"}, {"h5"}),
        ({"server": "h5", "workers": ("h1", "h4")}, {"h1"}),
    ],
)
async def test_a_job_does_without_hosts_that_no_way_leads_to(
    how: dict[str, Any], lost: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Rather without its server than without more than half of its workers."""
    fabric = rig()
    each = spec(**how)
    job = fabric.add(each, at("s3", *each.workers))
    fabric.planner.update_topology(cut("s2"), ())
    fabric.moves.update_topology((), 0)
    hosts = job.hosts
    assert await fabric.advance(0) == pauses(hosts)
    hold(fabric, *hosts)
    assert await fabric.advance(MS) == []
    assert fabric.written == []
    assert set(job.gone) == lost
    assert all(why == f"no way leads to {host}" for host, why in job.gone.items())
    [first] = [record.getMessage() for record in caplog.records if "finds no place" in record.getMessage()]
    assert first.startswith("job 1 finds no place: job 1: no way to ")
    assert job.retry_at_ns == MS + RETRY
    if not lost:
        assert await fabric.advance(MS + RETRY - 1) == []
        assert await fabric.advance(MS + RETRY) == []
        assert job.retry_at_ns == MS + 2 * RETRY
        assert caplog.text.count("finds no place") == 1, "it is said once"


async def test_a_place_without_slots_is_logged_and_retried() -> None:
    fabric = rig()
    job = fabric.add(spec(slots=256), at("s3"))
    fabric.moves.begin(1, 0, at("s4"))
    hold(fabric, *WORKERS)
    fabric.planner.memory.retain(1, ["s3"])
    for number in (2, 3):
        fabric.add(spec(number, slots=256), at("s4"))
    assert await fabric.advance(MS) == []
    assert (fabric.written, job.gone, job.retry_at_ns) == ([], {}, MS + RETRY)
    assert "s4: aggregation slots" in str(job.troubles[0])


def test_a_plan_without_slots_begins_no_move() -> None:
    fabric = rig()
    job = fabric.add(spec(slots=256), at("s3"))
    for number in (2, 3):
        fabric.add(spec(number, slots=256), at("s4"))
    with pytest.raises(PlanError):
        fabric.moves.begin(1, 0, at("s4"))
    assert job.move is None
    assert fabric.planner.memory.held(1).keys() == {"s3"}


# --- after a restart ---


def test_a_move_that_had_not_come_to_its_resumes_begins_anew() -> None:
    fabric = rig()
    job = fabric.add(spec(), at("s3"))
    fabric.moves.restore(job, "h2 is silent", None, (), BEGAN)
    assert (job.move, job.renew) == (None, "h2 is silent, when the controller was restarted")


@pytest.mark.parametrize("joins", [False, True])
async def test_a_move_in_its_resumes_continues_with_the_unconfirmed(joins: bool) -> None:
    fabric = rig()
    job = fabric.add(spec(server=SERVER), at(SERVER))
    job.plan = fabric.planner.plan(job.spec, at(SERVER), 2)
    final = (FinalRound(7, address("h2")),)
    if joins:
        job.newcomer, job.first_round = SERVER, 6
    fabric.moves.restore(job, "it is due", {"h1": final, SERVER: (), "h6": ()}, (5, 9), BEGAN)
    assert (job.why, job.paused_ns) == ("it is due", BEGAN)
    told = {message.host: message.content for message in await fabric.advance(BEGAN)}
    assert told.keys() == {"h1", SERVER}
    assert told["h1"] == Resume(job.plan.host_plans()["h1"], final, (5, 9))
    server = job.plan.host_plans(job.first_round)[SERVER]
    assert told[SERVER] == (server if joins else Resume(server))
    resumed(fabric, "h1", SERVER, now_ns=BEGAN)
    assert job.move is None
    assert await fabric.advance(BEGAN) == pauses((*WORKERS, SERVER), generation=2)


@pytest.mark.parametrize("all_resumed", [False, True])
async def test_the_next_controller_pauses_a_spare_in_service_too(tmp_path: Path, all_resumed: bool) -> None:
    """The controller dies when another host has been lost: while not all have resumed, or before they are paused."""
    fabric = rig(path=tmp_path / "journal")
    job = await has_taken_over(fabric)
    fabric.jobs.write_journal()
    resumed(fabric, SPARE)
    assert fabric.jobs.journal.is_due
    fabric.moves.mark_lost(job, {"h4": "it died, too"}, MS)
    if all_resumed:
        resumed(fabric, "h2")
    fabric.jobs.write_journal()
    after = again(tmp_path)
    told = await after.advance(MS)
    if not all_resumed:
        assert kinds(told) == {"h2": Resume}
        resumed(after, "h2")
        told = await after.advance(2 * MS)
    assert told == pauses(("h1", "h2", SPARE), generation=2)


async def test_the_next_controller_sums_the_same_rounds_again(tmp_path: Path) -> None:
    fabric = rig(path=tmp_path / "journal")
    fabric.add(spec(), at("s3"))
    fabric.moves.begin(1, 0)
    fabric.moves.held(1, "h1", Held(1, 7, done=frozenset({5, 6})))
    hold(fabric, "h2", "h4")
    told = {message.host: message.content for message in await fabric.advance(0) if isinstance(message.content, Resume)}
    assert {host: resume.again for host, resume in told.items()} == dict.fromkeys(WORKERS, (5, 6))
    resumed(fabric, "h1")
    fabric.jobs.write_journal()
    after = again(tmp_path)
    assert await after.advance(MS) == [Message(host, told[host]) for host in ("h2", "h4")]


# --- state that outlives the controller ---


@pytest.mark.parametrize("step", ["begins", "resumes", "is over", "loses a host"])
async def test_a_job_is_written_down_at_each_step_of_a_move(tmp_path: Path, step: str) -> None:
    fabric = rig(path=tmp_path / "journal")
    job = fabric.add(spec(), at("s3"))
    steps = ["begins", "resumes", "is over"]

    async def go(what: str) -> None:
        match what:
            case "begins":
                fabric.moves.begin(1, 0)
            case "resumes":
                hold(fabric, *WORKERS)
                await fabric.advance(0)
            case "is over":
                resumed(fabric, *WORKERS)
            case _:
                fabric.moves.begin(1, 0)
                fabric.jobs.write_journal()
                fabric.moves.mark_lost(job, {"h4": "it died"}, 0)

    for before in steps[: steps.index(step)] if step in steps else []:
        await go(before)
    fabric.jobs.write_journal()
    assert not fabric.jobs.journal.is_due
    await go(step)
    assert fabric.jobs.journal.is_due
