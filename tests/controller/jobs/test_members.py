"""Reports of hosts, the resulting state of a job, and the hosts taken for lost: without switches or hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.controller.errors import ControllerError, NoSuchJob
from weir.controller.jobs.job import RunningJob, WorkerProgress
from weir.controller.jobs.membership import JobMembers, longest_silence_ns
from weir.controller.jobs.registry import MAX_ABORTED, EventCounts
from weir.controller.jobs.slow_paths import SlowPaths
from weir.controller.leases import Leases
from weir.controller.options import ControllerOptions, Message
from weir.controller.placement import Placement
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller.pure_rig import MS, PureRig
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.wire.control import Abort, Held

FABRIC = leaf_spine(2, 1, 4)
"""h1…h4 at s1, h5…h8 at s2."""
LEASE = 100 * MS
S = 1_000_000_000
WORKERS = ("h1", "h2", "h5")


@pytest.fixture
def rig() -> PureRig:
    return PureRig(FABRIC, ControllerOptions(), lease_ns=LEASE)


def add(rig: PureRig, number: int = 7, workers: tuple[str, ...] = WORKERS, **more: object) -> RunningJob:
    """A job with server h8 that all its hosts have joined at 0."""
    spec = JobSpec(number, workers, "h8", slots=16, window=8, **more)  # type: ignore[arg-type]
    job = rig.add(spec, Placement(dict.fromkeys(workers, "h8"), {}, "h8"))
    for host in job.hosts:
        JobMembers(rig.jobs, rig.moves).heartbeat(number, host, 0, 0, waiting=False)
    return job


# --- leases ---


def test_a_host_silent_for_a_lease_is_lost_once_longest_first() -> None:
    leases = Leases[str](10)
    assert not leases.deadline_ns
    for now_ns, name in enumerate("abc"):
        leases.renew(name, now_ns)
    leases.renew("a", 5)
    assert (leases.deadline_ns, len(leases)) == (11, 3)
    assert leases.expire(10) == []
    assert leases.expire(11) == ["b"]
    assert not leases.lives("b")
    assert leases.expire(1_000) == ["c", "a"]
    assert (leases.expire(2_000), leases.deadline_ns, len(leases)) == ([], None, 0)


def test_a_lease_that_was_renewed_with_all_or_ended() -> None:
    leases = Leases[str](10)
    leases.renew("a", 0)
    leases.renew("b", 4)
    leases.end("nobody")
    leases.renew_all(20)
    assert leases.expire(29) == []
    leases.end("a")
    assert (leases.lives("a"), leases.lives("b")) == (False, True)
    assert leases.expire(30) == ["b"]


def test_without_a_length_nothing_runs_out() -> None:
    leases = Leases[str](None)
    leases.renew("a", 0)
    assert (leases.expire(1 << 60), leases.deadline_ns, leases.lives("a")) == ([], None, True)
    shortest = Leases[str](1)
    shortest.renew("a", 0)
    assert shortest.expire(1) == ["a"]
    for length in (0, -1):
        with raises(ControllerError, place="lease_ns", value=length):
            Leases(length)


# --- a worker's progress ---


def test_a_workers_rate_is_its_recent_maximum() -> None:
    worker = WorkerProgress(100, 5 * S, 5 * S, waiting=True)
    assert worker.rounds_per_second == 0.0
    worker.report(150, 6 * S, True, 4 * S)
    assert (worker.average, worker.last) == (50 / 4, (0.0, 50.0))
    worker.report(160, 8 * S, True, 4 * S)
    assert (worker.average, worker.last) == (12.5 + (5 - 12.5) * 2 / 4, (50.0, 5.0))
    assert worker.rounds_per_second == 50.0
    worker.report(176, 16 * S, True, 4 * S)
    assert (worker.average, worker.last) == (2.0, (5.0, 2.0)), "over more than the time of the average"
    worker.report(180, 16 * S, True, 4 * S)
    assert (worker.rounds, worker.last) == (180, (5.0, 2.0)), "two reports of one instant tell no rate"
    worker.report(181, 16 * S + 1, True, 4 * S)
    assert worker.last == (2.0, 1e9)


def test_rounds_that_are_incomplete_again_make_no_rate_negative() -> None:
    worker = WorkerProgress(100, 0, 0, waiting=True)
    worker.report(90, S, True, 4 * S)
    assert (worker.rounds, worker.average, worker.last, worker.completed_ns) == (90, 0.0, (0.0, 0.0), -1)
    worker.report(95, 2 * S, True, 4 * S)
    assert (worker.rounds_per_second, worker.completed_ns) == (5.0, 2 * S), "they are sent once more"


def test_a_worker_waits_since_its_last_round_or_its_start() -> None:
    worker = WorkerProgress(4, 1, 1, waiting=True)
    assert worker.completed_ns == -1
    told = [(4, 2, True), (5, 3, True), (5, 4, True), (5, 5, False), (5, 6, False), (5, 7, True), (5, 8, True)]
    seen = []
    for rounds, now_ns, waiting in told:
        worker.report(rounds, now_ns, waiting, S)
        seen.append((worker.completed_ns, worker.grown_ns))
    assert seen == [(-1, 1), (3, 3), (3, 3), (3, 5), (3, 6), (3, 7), (3, 7)]
    worker.report(3, 9, True, S)
    assert (worker.completed_ns, worker.grown_ns) == (3, 7), "a report of before says nothing new"
    worker.report(6, 10, False, S)
    assert (worker.completed_ns, worker.grown_ns) == (10, 10)


def test_how_far_a_job_is_is_told_by_all_its_workers(rig: PureRig) -> None:
    job = add(rig)
    told = job.rounds
    assert (told.least, told.most, told.heard_ns, told.unsettled) == (0, 0, 0, False)
    assert (job.first_round, job.newcomer) == (0, None), "no server has taken over"
    for rounds, (host, now_ns) in enumerate((("h1", 50), ("h2", 40), ("h5", 60)), 3):
        JobMembers(rig.jobs, rig.moves).heartbeat(7, host, rounds, now_ns)
    assert (job.rounds.least, job.rounds.most, job.rounds.heard_ns) == (3, 5, 40)
    assert job.rounds_per_second == pytest.approx(min(3 * S / 50, 4 * S / 40, 5 * S / 60))
    del job.progress["h1"]
    assert (job.rounds.least, job.rounds.most, job.rounds.heard_ns) == (4, 5, -1)
    job.progress.clear()
    assert (job.rounds.least, job.rounds.most, job.rounds.heard_ns) == (0, 0, -1)
    assert job.rounds_per_second == 0.0


def test_a_wait_without_a_round_for_too_long_is_stuck(rig: PureRig) -> None:
    job = add(rig)
    members = JobMembers(rig.jobs, rig.moves)
    members.heartbeat(7, "h1", 4, 10)
    members.heartbeat(7, "h2", 4, 10, waiting=False)
    members.heartbeat(7, "h1", 4, 30)
    members.heartbeat(7, "h2", 4, 30, waiting=False)
    assert (job.stuck(20), job.stuck(21)) == (["h1"], [])
    assert job.someone_waits
    job.moved_ns = 15
    assert (job.stuck(15), job.stuck(16)) == (["h1"], [])
    members.leave(7, "h1")
    assert job.stuck(1) == []
    assert not job.someone_waits
    del job.progress["h1"]
    assert job.stuck(1) == []


# --- the awaited event, for users ---


def test_a_job_names_its_awaited_event(rig: PureRig) -> None:
    job, members = add(rig), JobMembers(rig.jobs, rig.moves)

    def told(now_ns: int = 0) -> str:
        sentence = rig.jobs.waiting_for(7, now_ns)
        assert sentence.startswith("job 7, generation 1: ")
        return sentence.removeprefix("job 7, generation 1: ")

    assert told() == "waits for nothing"
    job.note = "fewer slots"
    assert told() == "waits for nothing; fewer slots"
    members.heartbeat(7, "h1", 5, 1 * S)
    members.heartbeat(7, "h5", 4, 2 * S)
    assert told(4 * S + S // 2) == "h1, h5 wait in round 4 since 2.5 s; h2 compute"
    members.heartbeat(7, "h2", 5, 2 * S)
    assert told(3 * S) == "h1, h2, h5 wait in round 4 since 1.0 s"
    for host in ("h2", "h8"):
        rig.jobs.leases.end((7, host))
    assert told() == "waits for rank 1 (h2), server (h8) to join"
    job.silent["h2"] = 1 * S
    assert told() == "waits for server (h8) to join"


async def test_a_moving_job_names_its_awaited_event(rig: PureRig) -> None:
    job = add(rig)
    rig.moves.begin(7, 0, why="it should")

    def told() -> str:
        return rig.jobs.waiting_for(7, 3 * S).removeprefix("job 7, generation 1: moves on (it should); ")

    assert told() == "waits for h1, h2, h5, h8 to pause"
    for host in job.hosts:
        rig.moves.held(7, host, Held(1, 0))
    assert told() == "waits for the switches to hold the new plan: it is being written"
    job.troubles = ControllerError("s1 refused"), ControllerError("s2 refused")
    assert told() == "waits for the switches to hold the new plan: s1 refused; s2 refused"
    job.silent["h1"] = 1 * S
    assert told() == "paused, waits for rank 0 (h1), silent for 2.0 s, as its policy is continue"
    job.silent.clear()
    await rig.advance(0)
    rig.moves.resumed(7, "h1", 2, 0)
    told_at_last = rig.jobs.waiting_for(7, 0)
    assert told_at_last == "job 7, generation 2: moves on (it should); waits for h2, h5, h8 to resume"


# --- participants ---


def test_only_a_job_s_own_hosts_are_heard(rig: PureRig) -> None:
    job = add(rig, spares=("h7",))
    members = JobMembers(rig.jobs, rig.moves)

    with raises(ControllerError, place="job 7", value="h3"):
        members.heartbeat(7, "h3", 1, 1)
    with raises(ControllerError, place="job 7", value="h3"):
        members.leave(7, "h3")
    with raises(ControllerError, place="job 7", value="h3"):
        members.fail(7, "h3", "it burns", 1)
    for host in ("h1", "h8", "h7"):
        job.check_part(host)
    job.plan = replace(job.plan, spec=replace(job.spec, server="h7", spares=()))
    job.gone["h8"] = "it burns"
    job.check_part("h8")
    assert job.hosts == (*WORKERS, "h7")
    waits = replace(job.plan, spec=replace(job.spec, policy=FailurePolicy.WAIT))
    assert [RunningJob(waits, 0).must_wait_for(host) for host in ("h1", "h8")] == [True, False]
    assert not job.must_wait_for("h1")


def test_a_removed_host_is_told_unless_it_has_left(rig: PureRig) -> None:
    job, members = add(rig), JobMembers(rig.jobs, rig.moves)
    job.gone |= {"h1": "h1 failed", "h2": "h2 has left"}
    job.left.add("h2")
    joined = set(job.joined)
    for host in ("h1", "h2"):
        rig.jobs.leases.end((7, host))
        members.heartbeat(7, host, 9, 5)
        assert not rig.jobs.leases.lives((7, host))
        assert job.progress[host].rounds == 0
    assert rig.jobs.pop_outbox() == [Message("h1", Abort(7, "h1 failed; the job went on without rank 0 (h1)"))]
    assert job.joined == joined


def test_a_host_that_leaves_is_neither_silent_nor_failed(rig: PureRig) -> None:
    job, members = add(rig), JobMembers(rig.jobs, rig.moves)
    job.silent["h1"] = 0
    members.leave(7, "h1")
    assert (job.silent, job.left) == ({}, {"h1"})
    assert not rig.jobs.leases.lives((7, "h1"))
    members.heartbeat(7, "h1", 5, 5)  # it was on its way
    assert not rig.jobs.leases.lives((7, "h1"))
    members.fail(7, "h1", "it was switched off", 6)
    assert (job.gone, job.move) == ({}, None)
    members.fail(7, "h2", "it burns", 6)
    assert job.gone == {"h2": "rank 1 (h2) failed: it burns"}


@pytest.mark.parametrize("first", [7, 8])
def test_jobs_do_not_wait_for_finished_hosts(rig: PureRig, first: int) -> None:
    """One of two jobs, in either order, has finished and the other continues, without the finished workers once a
    worker waits; no worker has left the job before them.
    """
    members = JobMembers(rig.jobs, rig.moves)
    add(rig, 6, ("h5",))
    jobs = {number: add(rig, number, workers) for number, workers in ((7, ("h1", "h2")), (8, ("h3", "h4")))}
    done, other = (jobs[number] for number in (first, 15 - first))
    members.remove_departed(0)
    assert [job.move for job in jobs.values()] == [None, None]
    left, stays = other.active
    members.leave(other.number, left)
    for host in done.active:
        members.leave(done.number, host)
    members.remove_departed(1)
    assert set(rig.jobs) == {6, other.number}
    assert (other.gone, other.move) == ({}, None), "nobody waits for whom has left"
    members.heartbeat(other.number, stays, 1, 2)
    members.remove_departed(2)
    assert other.gone == {left: f"rank 0 ({left}) has left"}
    assert other.move is not None


@pytest.mark.parametrize("why", ["it moves", "its server has left"])
def test_a_finished_host_is_released_when_the_job_changes_anyway(rig: PureRig, why: str) -> None:
    job, members = add(rig), JobMembers(rig.jobs, rig.moves)
    left = "h8" if why == "its server has left" else "h1"
    members.leave(7, left)
    if left == "h1":
        rig.moves.begin(7, 0)
    members.remove_departed(1)
    assert job.gone == {left: f"{'server' if left == 'h8' else 'rank 0'} ({left}) has left"}


@pytest.mark.parametrize("policy", [FailurePolicy.ABORT, FailurePolicy.WAIT])
def test_a_job_that_needs_all_aborts_when_a_worker_has_left(rig: PureRig, policy: FailurePolicy) -> None:
    job, members = add(rig, policy=policy), JobMembers(rig.jobs, rig.moves)
    members.leave(7, "h2")
    members.remove_departed(1)
    assert (job.gone, job.move) == ({}, None), "nobody waits for a sum"
    members.heartbeat(7, "h1", 1, 2)
    members.remove_departed(3)
    assert 7 not in rig.jobs
    assert rig.jobs.aborted[7].startswith("rank 1 (h2) left the job")
    assert {message.host for message in rig.jobs.pop_outbox()} == {"h1", "h5", "h8"}


def test_a_job_that_needs_all_finishes_after_its_server_left(rig: PureRig) -> None:
    job, members = add(rig, policy=FailurePolicy.ABORT), JobMembers(rig.jobs, rig.moves)
    members.heartbeat(7, "h1", 1, 2)
    members.leave(7, "h8")
    members.remove_departed(3)
    assert job.gone == {"h8": "server (h8) has left"}


class SlowTo(SlowPaths):
    """The network explains the silence of these hosts."""

    def __init__(self, rig: PureRig, *hosts: str) -> None:
        super().__init__(rig.planner, rig.links, "h8")
        self.hosts = hosts

    def why_slow(self, host: str, lease_ns: int, now_ns: int) -> str:
        return f"{lease_ns / MS:g} ms are little" if host in self.hosts else ""


def test_a_slow_host_does_not_delay_the_loss_of_others(rig: PureRig, caplog: pytest.LogCaptureFixture) -> None:
    job = add(rig)
    members = JobMembers(rig.jobs, rig.moves, SlowTo(rig, "h1", "h5"))
    rig.jobs.leases.renew((7, "h8"), LEASE)
    members.end_leases(LEASE)
    assert job.gone == {"h2": "rank 1 (h2) was silent for 0.1 s"}
    assert job.doubts == {"h1": 1, "h5": 1}
    assert rig.jobs.counts == EventCounts(moves=1, leases_expired=1, verdicts_deferred=2)
    assert "job 7: rank 0 (h1) is silent, but 100 ms are little: it is not taken for lost yet" in caplog.text
    assert all(rig.jobs.leases.lives((7, host)) for host in ("h1", "h5"))
    members.heartbeat(7, "h5", 1, LEASE)
    assert job.doubts == {"h1": 1}
    for lease in range(2, 11):
        for host in ("h5", "h8"):
            rig.jobs.leases.renew((7, host), lease * LEASE)
        assert "h1" not in job.gone
        members.end_leases(lease * LEASE)
    assert (
        job.gone["h1"]
        == f"rank 0 (h1) was silent for {longest_silence_ns(LEASE) / 1e9:g} s"
        == "rank 0 (h1) was silent for 1 s"
    )


def test_an_awaited_host_is_silent_since_its_last_heartbeat(rig: PureRig) -> None:
    job = add(rig, policy=FailurePolicy.WAIT)
    members = JobMembers(rig.jobs, rig.moves, SlowTo(rig, "h1"))
    for lease in range(1, 11):
        for host in ("h2", "h5", "h8"):
            rig.jobs.leases.renew((7, host), lease * LEASE)
        members.end_leases(lease * LEASE)
    assert (job.silent, job.gone, job.doubts) == ({"h1": 0}, {}, {})
    assert job.why == "rank 0 (h1) is silent"
    members.heartbeat(7, "h1", 0, 11 * LEASE)
    assert job.silent == {}


# --- the registry ---


def test_the_deadline_is_now_with_pending_messages_or_writes(rig: PureRig) -> None:
    assert rig.jobs.counts == EventCounts(0, 0, 0, 0, 0)
    assert rig.jobs.deadline_ns is None
    job = add(rig)
    assert rig.jobs.deadline_ns == LEASE
    rig.jobs.outbox.append(Message("h1", Abort(9, "another one")))
    assert rig.jobs.deadline_ns == 0
    assert rig.jobs.pop_outbox() == [Message("h1", Abort(9, "another one"))]
    assert rig.jobs.deadline_ns == LEASE
    rig.jobs.remove(job.number)
    assert (rig.jobs.ended, rig.jobs.deadline_ns) == (True, 0)
    rig.jobs.ended = False
    assert rig.jobs.deadline_ns is None, "with the job its leases have ended"
    with pytest.raises(NoSuchJob):
        rig.jobs[7]
    assert not rig.jobs.withdraw(7)


def test_a_reused_number_gets_no_message_of_its_last_job(rig: PureRig) -> None:
    aborts = [Message("h1", Abort(number, "old")) for number in (6, 7, 8)]
    rig.jobs.outbox += aborts
    add(rig)
    assert rig.jobs.pop_outbox() == [aborts[0], aborts[2]]
    assert rig.jobs.withdraw(7)


def test_why_jobs_were_aborted_is_remembered_of_the_last_ones() -> None:
    rig = PureRig(FABRIC, ControllerOptions())
    first = add(rig, 1)
    numbers = range(1, MAX_ABORTED + 2)
    for number in numbers:
        plan = replace(first.plan, spec=replace(first.spec, job=number))
        rig.jobs.add(RunningJob(plan, 0))
        rig.jobs.abort(number, f"reason {number}")
        told = [message.host for message in rig.jobs.pop_outbox()]
        assert told == [*WORKERS, "h8"]
    assert rig.jobs.aborted == {number: f"reason {number}" for number in numbers[1:]}
    assert rig.jobs.counts.aborted == len(numbers)
    assert rig.jobs.waiting_for(5, 0) == "job 5: aborted: reason 5"


def test_without_leases_all_hosts_live() -> None:
    rig = PureRig(FABRIC, ControllerOptions())
    job = add(rig)
    rig.jobs.leases.end((7, "h1"))
    assert [*rig.jobs.living(7, job.hosts)] == [*job.hosts]
    JobMembers(rig.jobs, rig.moves).end_leases(1 << 60)
    assert job.gone == {}
