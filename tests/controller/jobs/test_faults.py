"""Failures of hosts, switches and links during a job: the survivors' sums are exact, or everyone receives the
reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.controller.controller import ControllerOptions, Message
from weir.controller.errors import NoSuchJob
from weir.controller.jobs.membership import JobMembers, longest_silence_ns
from weir.controller.jobs.slow_paths import SlowPaths
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.hosts import ParameterServerCore
from weir.tests.controller.job_rig import MS, Fixed, JobRig, make_rig
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.wire.control import Abort, Held, Resume

TOPOLOGY = leaf_spine(2, 2, 3, rate_bps=1_000_000_000)
"""h1…h3 at s1, h4…h6 at s2; spines s3 and s4."""
WORKERS = ("h1", "h2", "h4")
SERVER, SPARE = "h5", "h3"
LEASE = 30 * MS
OPTIONS = ControllerOptions(
    probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=2 * MS, lease_ns=LEASE, stuck_ns=40 * MS
)
CONTINUE, WAIT, ABORT = FailurePolicy.CONTINUE, FailurePolicy.WAIT, FailurePolicy.ABORT

AT_SERVER = Placement({"h1": "s1", "h2": "s1", "h4": SERVER}, {"s1": SERVER}, SERVER)
AT_SPINE = Placement(dict.fromkeys(WORKERS, "s3"), {}, "s3")


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, strategy("widest"), OPTIONS) as rig:
        yield rig


def spec(server: str | None = None, policy: FailurePolicy = CONTINUE, **more: object) -> JobSpec:
    return JobSpec(1, WORKERS, server, slots=16, window=8, policy=policy, **more)  # type: ignore[arg-type]


def survivors_agree(sums: dict[str, bytes | None], *hosts: str) -> bool:
    return len({sums[host] for host in hosts}) == 1 and sums[hosts[0]] is not None


@pytest.mark.parametrize("server", [pytest.param(SERVER, marks=pytest.mark.long), None])
async def test_when_a_worker_dies_the_others_go_on_without_it(rig: JobRig, server: str | None) -> None:
    rig.controller.planner.strategy = Fixed(AT_SERVER if server else AT_SPINE)
    job = await rig.admit(spec(server))
    rig.submit(job, 1)
    await rig.run(MS // 4)
    rig.silent.add("h2")
    rig.controller.planner.strategy = strategy("widest")
    await rig.run(300 * MS, job)
    plan = rig.controller.jobs[1].plan
    assert (plan.generation, set(plan.workers)) == (2, {"h1", "h4"})
    assert survivors_agree(job.take(), "h1", "h4")
    rig.submit(job, 2)
    await rig.run(600 * MS, job)
    assert survivors_agree(job.take(1), "h1", "h4")
    rig.silent.clear()  # it was not dead but asleep, and learns what happened meanwhile
    await rig.run(rig.fabric.now_ns + 10 * MS)
    assert rig.aborted == {"h2": "rank 1 (h2) was silent for 0.03 s; the job went on without rank 1 (h2)"}
    assert await rig.controller.verify() == {}


async def test_survivors_of_a_death_sum_over_themselves(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec())
    await rig.run(6 * MS)  # it has been heard of
    rig.silent.add("h2")
    rig.submit(job, 1)
    rig.controller.planner.strategy = strategy("widest")
    await rig.run(300 * MS, job)
    total = job.take()
    assert survivors_agree(total, "h1", "h4")
    two, three = job.sum_of("h1", "h4"), job.sum_of()
    assert total["h1"] != three
    # the scales are those of three workers, the sum is over two: the same to the last bits of a float32
    assert abs(_floats(total["h1"]) - _floats(two)).max() < 1e-6


@pytest.mark.parametrize("server", [SERVER, pytest.param(None, marks=pytest.mark.long)])
async def test_a_waiting_job_continues_when_its_worker_returns(rig: JobRig, server: str | None) -> None:
    job = await rig.admit(spec(server, WAIT))
    rig.submit(job, 3)
    await rig.run(MS // 4)
    rig.silent.add("h4")
    await rig.run(200 * MS)
    paused = [worker.core.paused for name, worker in job.workers.items() if name != "h4"]
    assert paused == [True, True]
    assert rig.controller.jobs.waiting_for(1, rig.fabric.now_ns) == (
        "job 1, generation 1: moves on (rank 2 (h4) is silent); paused, waits for rank 2 (h4), silent for 0.2 s, "
        "as its policy is wait"
    )
    rig.silent.clear()
    await rig.run(500 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    await rig.run(rig.fabric.now_ns + 10 * MS)
    assert rig.controller.jobs.waiting_for(1, rig.fabric.now_ns) == "job 1, generation 2: waits for nothing"


@pytest.mark.parametrize(
    ("policy", "least", "says"),
    [
        (ABORT, 1, "rank 1 (h2) was silent for 0.03 s, and the job's policy is to abort"),
        (CONTINUE, 3, "rank 1 (h2) was silent for 0.03 s; 2 workers are left, and it needs 3"),
    ],
)
async def test_a_job_that_cannot_continue_aborts_with_the_reason(
    rig: JobRig, policy: FailurePolicy, least: int, says: str
) -> None:
    job = await rig.admit(spec(SERVER, policy, min_workers=least))
    rig.submit(job, 4)
    await rig.run(MS // 4)
    died_ns = rig.fabric.now_ns
    rig.silent.add("h2")
    await rig.run(200 * MS)
    assert rig.aborted == dict.fromkeys(("h1", "h4", SERVER), says)
    told = [at for at, message in rig.told if isinstance(message.content, Abort)]
    assert max(told) <= died_ns + LEASE + 2 * OPTIONS.probe_period_ns
    assert rig.controller.jobs == {}
    assert rig.controller.jobs.waiting_for(1, 0) == f"job 1: aborted: {says}"
    assert await rig.controller.verify() == {}
    assert set(rig.controller.planner.memory.jobs_that_fit(1024).values()) == {1}


async def test_hosts_that_fail_at_once_are_lost_at_once(rig: JobRig) -> None:
    for number, policy in enumerate((ABORT, CONTINUE), 1):
        await rig.admit(JobSpec(number, WORKERS, SERVER, slots=16, window=8, policy=policy))
    await rig.run(6 * MS)
    rig.silent |= {"h2", "h1"}
    await rig.run(200 * MS)
    both = "rank 0 (h1) was silent for 0.03 s; rank 1 (h2) was silent for 0.03 s"
    assert rig.controller.jobs.aborted == {1: f"{both}, and the job's policy is to abort"}
    assert (set(rig.controller.jobs[2].plan.workers), rig.controller.jobs[2].plan.generation) == ({"h4"}, 2)
    assert rig.controller.jobs.counts.leases_expired == 4


@pytest.mark.parametrize("spares", [pytest.param((), marks=pytest.mark.long), (SPARE,)])
async def test_when_the_server_dies_another_root_is_found(rig: JobRig, spares: tuple[str, ...]) -> None:
    rig.controller.planner.strategy = Fixed(AT_SERVER)
    job = await rig.admit(spec(SERVER, spares=spares))
    rig.submit(job, 5)
    await rig.run(MS // 4)
    assert not rig.is_idle(job)
    rig.silent.add(SERVER)
    rig.controller.planner.strategy = strategy("widest")
    for host in spares:
        rig.controller.members.heartbeat(1, host, 0, rig.fabric.now_ns)
    await rig.run(300 * MS, job)
    plan = rig.controller.jobs[1].plan
    assert plan.generation == 2
    if spares:
        assert (plan.spec.server, plan.placement.root) == (SPARE, SPARE)
        core = job.agents[SPARE].core
        assert isinstance(core, ParameterServerCore)
        assert replace(core.plan, first_round=0) == plan.server
    else:
        assert (plan.spec.server, TOPOLOGY.is_switch(plan.placement.root)) == (None, True)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert await rig.controller.verify() == {}


async def test_a_new_server_from_a_spare_continues_with_the_survivors(rig: JobRig) -> None:
    """A worker is lost while another has not heard of the new server yet."""
    rig.controller.planner.strategy = Fixed(AT_SERVER)
    job = await rig.admit(spec(SERVER, spares=(SPARE,)))
    rig.submit(job, 5)
    await rig.run(MS // 4)
    rig.silent.add(SERVER)
    rig.controller.planner.strategy = strategy("widest")
    rig.controller.members.heartbeat(1, SPARE, 0, rig.fabric.now_ns)
    tell = rig.tell

    def tell_late(message: Message) -> None:
        if message.host != "h2" or not isinstance(message.content, Resume) or "h4" in rig.controller.jobs[1].gone:
            tell(message)
        else:
            rig.silent.add("h4")

    rig.tell = tell_late  # type: ignore[method-assign]
    await rig.run(300 * MS, job)
    plan = rig.controller.jobs[1].plan
    assert (plan.generation, plan.placement.root, set(plan.workers)) == (3, SPARE, {"h1", "h2"})
    assert survivors_agree(job.take(), "h1", "h2")


async def test_jobs_and_routes_avoid_a_dead_switch_until_it_returns(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec())
    rig.submit(job, 6)
    await rig.run(MS // 4)
    assert not rig.is_idle(job)
    await rig.kill_switch("s3")
    rig.controller.planner.strategy = strategy("widest")
    await rig.run(300 * MS, job)
    plan = rig.controller.jobs[1].plan
    assert rig.controller.switches.lost == {"s3"}
    assert "s3" not in {*plan.switches, plan.placement.root}
    assert rig.controller.jobs[1].why == "s3 is lost", "and not that it was stuck, some time later"
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    lines = (await rig.controller.switches.sessions["s1"].read()).lines()
    assert not any("port=4" in line for line in lines if line.startswith("routes") and "10.0.2" in line)
    await rig.restart_switch("s3")
    await rig.run(rig.fabric.now_ns + 20 * MS)
    assert rig.controller.switches.lost == frozenset()
    assert await rig.controller.verify() == {}
    rig.submit(job, 7)
    rig.controller.moves.begin(1, rig.fabric.now_ns, AT_SPINE)
    await rig.run(rig.fabric.now_ns + 200 * MS, job)
    assert rig.controller.jobs[1].plan.placement == AT_SPINE
    assert job.take(1) == dict.fromkeys(WORKERS, job.sum_of())


async def test_a_restarted_switch_is_rewritten_and_its_sums_repeated(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec())
    rig.submit(job, 8)
    await rig.run(MS // 4)
    assert not rig.is_idle(job)
    await rig.restart_switch("s3")
    await rig.run(rig.fabric.now_ns + 100 * MS, job)
    assert rig.controller.jobs[1].plan.generation == 2
    assert rig.controller.jobs[1].plan.placement == AT_SPINE
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert await rig.controller.verify() == {}


async def test_a_broken_session_with_a_live_switch_disturbs_no_job(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec())
    rig.submit(job, 9)
    await rig.run(MS // 4)
    before = rig.switches["s3"].state
    await rig.break_session("s3")
    await rig.run(rig.fabric.now_ns + 100 * MS, job)
    assert rig.switches["s3"].state is before
    assert rig.controller.jobs[1].plan.generation == 1
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())


async def test_a_job_of_which_not_all_are_heard_is_not_settled(rig: JobRig) -> None:
    """A partial report of progress does not determine the job's traffic."""
    await rig.admit(spec())
    await rig.run(20 * MS)
    running = rig.controller.jobs[1]
    assert not running.rounds.unsettled
    running.silent["h1"] = 0
    assert running.rounds.unsettled
    running.silent.clear()
    running.left.add("h1")
    assert running.rounds.unsettled
    running.left.clear()
    running.joined.discard("h1")
    assert running.rounds.unsettled
    running.joined.add("h1")
    assert not running.rounds.unsettled
    moved = rig.controller.jobs.counts.moves
    rig.controller.moves.begin(1, rig.fabric.now_ns)
    assert running.rounds.unsettled
    assert rig.controller.jobs.counts.moves == moved + 1


async def test_workers_that_a_lost_leaf_cuts_off_are_done_without(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec())
    rig.submit(job, 10)
    await rig.run(MS // 4)
    rig.controller.planner.strategy = strategy("widest")
    await rig.kill_switch("s2")  # h4 hangs on it
    await rig.run(300 * MS)
    plan = rig.controller.jobs[1].plan
    assert set(plan.workers) == {"h1", "h2"}
    assert survivors_agree(job.take(), "h1", "h2")
    assert rig.aborted["h4"].startswith("no way leads to h4")


async def test_a_waiting_job_is_placed_again_when_its_way_is_back(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec(None, WAIT))
    rig.submit(job, 11)
    await rig.run(MS // 4)
    rig.controller.planner.strategy = strategy("widest")
    await rig.kill_switch("s2")
    await rig.run(200 * MS)
    assert (
        "waits for the switches to hold the new plan: job 1: no way to h4 without the links and switches that are "
        in (rig.controller.jobs.waiting_for(1, rig.fabric.now_ns))
    )
    await rig.restart_switch("s2")
    await rig.run(rig.fabric.now_ns + 200 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())


async def test_a_link_down_during_a_sum_is_routed_around(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec())
    rig.submit(job, 12, chunks=60)
    await rig.run(MS // 4)
    rig.fabric.set_link(("s1", 4), up=False)  # to s3
    await rig.run(400 * MS, job)
    assert rig.controller.prober.link_watch.down == {Endpoint("s1", 4), TOPOLOGY.peer(Endpoint("s1", 4))}
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    rig.fabric.set_link(("s1", 4), up=True)
    await rig.run(rig.fabric.now_ns + 100 * MS)
    assert rig.controller.prober.link_watch.down == frozenset()
    assert await rig.controller.verify() == {}


async def test_hosts_leave_one_by_one_and_the_job_ends_with_the_last(rig: JobRig) -> None:
    job = await rig.admit(spec(SERVER))
    rig.submit(job, 13)
    await rig.run(100 * MS, job)
    now_ns = rig.fabric.now_ns
    rig.controller.members.leave(1, "h1")
    rig.silent.add("h1")
    await rig.run(now_ns + 2 * LEASE)
    assert rig.controller.jobs[1].plan.generation == 1  # nobody waits for it
    rig.submit(job, 14)
    await rig.run(now_ns + 4 * LEASE)
    assert rig.controller.jobs[1].plan.generation == 2
    assert survivors_agree(job.take(1), "h2", "h4")
    for host in ("h2", "h4"):
        rig.controller.members.leave(1, host)
    await rig.run(rig.fabric.now_ns + 10 * MS)
    assert rig.controller.jobs == {}
    assert rig.aborted == {}
    assert await rig.controller.verify() == {}


def _floats(data: bytes | None) -> NDArray[np.float32]:
    assert data is not None
    return np.frombuffer(data, np.float32)


async def test_impossible_answers_end_the_job_but_not_the_controller(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    await rig.admit(spec())
    rig.controller.moves.begin(1, 0)
    for host, first in zip(WORKERS, (900, 900, 3), strict=True):
        rig.controller.moves.held(1, host, Held(1, first))
    await rig.run(5 * MS)
    assert set(rig.aborted) == set(WORKERS)
    assert "round 3 is final but no host keeps its result any more" in rig.controller.jobs.aborted[1]
    with raises(NoSuchJob, job=1):
        rig.controller.moves.held(1, "h1", Held(1, 0))


async def test_a_job_that_waits_outlives_the_loss_of_every_switch(rig: JobRig) -> None:
    job = await rig.admit(spec(SERVER, WAIT))
    rig.submit(job, 15)
    await rig.run(MS // 4)
    names = [node.name for node in TOPOLOGY.switches]
    for name in names:
        await rig.kill_switch(name)
    await rig.run(150 * MS)
    assert rig.controller.switches.lost == set(names)
    assert "no way to h1, h2, h4" in rig.controller.jobs.waiting_for(1, rig.fabric.now_ns)
    for name in names:
        await rig.restart_switch(name)
    await rig.run(rig.fabric.now_ns + 300 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert await rig.controller.verify() == {}


async def test_two_workers_and_the_server_die_one_after_the_other(rig: JobRig) -> None:
    rig.controller.planner.strategy = Fixed(AT_SERVER)
    job = await rig.admit(spec(SERVER))
    rig.submit(job, 16, chunks=60)
    await rig.run(6 * MS)
    rig.controller.planner.strategy = strategy("widest")
    rig.submit(job, 17, chunks=60)
    for host in ("h2", SERVER, "h1"):
        rig.silent.add(host)
        await rig.run(rig.fabric.now_ns + LEASE // 2)  # the next one dies before this one is lost, or in its move
    await rig.run(rig.fabric.now_ns + 300 * MS, job)
    assert set(rig.controller.jobs[1].plan.workers) == {"h4"}
    assert job.take(1)["h4"] is not None
    rig.silent.add("h4")
    await rig.run(rig.fabric.now_ns + 3 * LEASE)
    assert rig.controller.jobs.aborted == {1: "rank 2 (h4) was silent for 0.03 s; no worker is left"}
    assert await rig.controller.verify() == {}


class SlowToH2(SlowPaths):
    """Telemetry that explains any silence of h2."""

    def why_slow(self, host: str, lease_ns: int, now_ns: int) -> str:
        return "nothing was heard of s1-p2 of late" if host == "h2" else ""


async def test_an_explained_silence_is_a_loss_after_ten_leases(rig: JobRig) -> None:
    controller = rig.controller
    paths = SlowToH2(controller.planner, controller.links, SERVER)
    controller.members = JobMembers(controller.jobs, controller.moves, paths)
    await rig.admit(spec())
    counts, gone = controller.jobs.counts, controller.jobs[1].gone
    await rig.run(MS)
    rig.silent.add("h2")
    await rig.run(3 * LEASE)
    assert counts.verdicts_deferred == 2
    rig.silent.clear()  # leases in a row are counted anew
    await rig.run(4 * LEASE)
    rig.silent.add("h2")
    began_ns = rig.fabric.now_ns
    await rig.run(began_ns + 10 * LEASE - 10 * MS)
    assert gone == {}
    await rig.run(began_ns + 10 * LEASE + 2 * MS)
    assert gone == {"h2": f"rank 1 (h2) was silent for {longest_silence_ns(LEASE) / 1e9:g} s"}
    assert gone == {"h2": "rank 1 (h2) was silent for 0.3 s"}
    assert counts.verdicts_deferred == 2 + 9
