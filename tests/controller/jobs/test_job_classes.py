"""Traffic classes of running jobs: how a change reaches switches and hosts, and what it leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from weir.controller.controller import ControllerOptions
from weir.controller.errors import NoSuchJob, PlanError
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.tables import DROP_REASONS, DROPS
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.hosts.errors import InvalidPlan
from weir.tests.controller.job_rig import MS, Fixed, Job, JobRig, make_rig
from weir.topologies.generators import leaf_spine
from weir.wire.control import JobReport, TrafficClass
from weir.wire.frames import BULK_PRIORITY, JOB_CLASSES

TOPOLOGY = leaf_spine(2, 1, 4, rate_bps=1_000_000_000)
OPTIONS = ControllerOptions(probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=MS, stuck_ns=40 * MS)
TREE = Placement({"h1": "s1", "h2": "s1", "h5": "s2"}, {"s1": "s3", "s2": "s3"}, "s3")
SPEC = JobSpec(9, ("h1", "h2", "h5"), slots=16, window=8)


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, Fixed(TREE), OPTIONS) as rig:
        yield rig


def retransmitted(job: Job) -> int:
    return sum(worker.core.counters.retransmitted for worker in job.workers.values())


def depths(rig: JobRig) -> set[int]:
    """Priorities above bulk whose queues have held packets."""
    queues = (switch.port_queues(port) for switch in rig.switches.values() for port in switch.ports)
    held = {priority for port in queues for priority, queue in enumerate(port) if queue.max_depth_packets}
    return held & set(JOB_CLASSES[1:])


@pytest.mark.parametrize("priority", JOB_CLASSES[1:])
async def test_a_job_is_summed_in_its_class(rig: JobRig, priority: int) -> None:
    job = await rig.admit(replace(SPEC, classes=(priority,)))
    rig.fabric.reset_maxima()
    rig.submit(job, 1)
    await rig.run(4 * MS, job)
    assert job.take() == dict.fromkeys(SPEC.workers, job.sum_of())
    assert depths(rig) == {priority}
    assert retransmitted(job) == 0


async def test_a_change_of_class_costs_no_pause_and_no_round(rig: JobRig) -> None:
    """The class goes up and down in the middle of sums; nothing is policed, lost or summed twice."""
    job = await rig.admit(SPEC)
    for turn, priority in enumerate([5, 2, BULK_PRIORITY, 3]):
        await rig.run(rig.fabric.now_ns + 100 * MS)  # packets of the last change are gone
        rig.submit(job, turn, chunks=200)
        await rig.run(rig.fabric.now_ns + MS // 2)
        assert not rig.is_idle(job)
        rig.controller.classify(9, priority, rig.fabric.now_ns)
        await rig.run(rig.fabric.now_ns + 400 * MS, job)
        assert job.take(turn) == dict.fromkeys(SPEC.workers, job.sum_of())
        assert {agent.core.plan.traffic_class for agent in job.agents.values()} == {priority}
    assert rig.controller.jobs[9].plan.generation == 1
    assert [message.content for _, message in rig.told] == [
        TrafficClass(9, priority) for priority in (5, 2, BULK_PRIORITY, 3) for _ in SPEC.workers
    ]
    for session in rig.controller.switches.sessions.values():
        drops = await session.read_counter(DROPS)
        assert {reason for reason, count in zip(DROP_REASONS, drops, strict=True) if count} <= {"duplicate", "late"}


async def test_a_second_change_waits_until_packets_of_the_first_are_gone(rig: JobRig) -> None:
    await rig.admit(SPEC)
    for priority in (5, 4):
        rig.controller.classify(9, priority, rig.fabric.now_ns)
    await rig.run(MS)
    assert rig.controller.jobs[9].spec.classes == (5, BULK_PRIORITY)
    await rig.run(rig.fabric.now_ns + 400 * MS)
    rig.controller.classify(9, 4, rig.fabric.now_ns)
    assert rig.controller.jobs[9].spec.classes == (4, 5)


async def test_hosts_hear_of_a_class_after_their_switches_admit_it(rig: JobRig) -> None:
    job = await rig.admit(SPEC)
    await rig.kill_switch("s2")
    rig.controller.classify(9, 5, rig.fabric.now_ns)
    await rig.run(rig.fabric.now_ns + 2 * MS)
    assert not [message for _, message in rig.told if isinstance(message.content, TrafficClass)]
    assert {agent.core.plan.traffic_class for agent in job.agents.values()} == {BULK_PRIORITY}


async def test_a_class_survives_a_restart_of_the_controller(pipeline: CompiledPipeline, tmp_path: Path) -> None:
    async with make_rig(TOPOLOGY, pipeline, Fixed(TREE), OPTIONS, tmp_path / "journal") as rig:
        await rig.admit(SPEC)
        rig.controller.classify(9, 4, rig.fabric.now_ns)
        await rig.run(2 * MS)
        await rig.stop_controller()
        await rig.start_controller(Fixed(TREE))
        assert rig.controller.jobs[9].spec.classes == (4, BULK_PRIORITY)
        assert not await rig.controller.verify()


async def test_jobs_take_the_classes_of_their_order(pipeline: CompiledPipeline) -> None:
    """Two searches of one job each: stage SRPT puts the one that ends first before the other."""
    options = replace(OPTIONS, order="stage-srpt", apply_order=True, order_ns=MS)
    async with make_rig(TOPOLOGY, pipeline, Fixed(TREE), options) as rig:
        jobs = [await rig.admit(replace(SPEC, job=1))]
        rig.controller.planner.strategy = Fixed(
            Placement({"h3": "s1", "h4": "s1", "h6": "s2"}, {"s1": "s3", "s2": "s3"}, "s3")
        )
        jobs.append(await rig.admit(replace(SPEC, job=2, workers=("h3", "h4", "h6"))))
        for number, steps in ((1, 100), (2, 5)):
            report = JobReport(step=1, steps_left=steps, stage=f"search{number}/1")
            rig.controller.jobs[number].reports.add(report, rig.fabric.now_ns)
        for turn in range(2):
            for job in jobs:
                rig.submit(job, turn)
            await rig.run(rig.fabric.now_ns + 500 * MS, *jobs)
            await rig.run(rig.fabric.now_ns + 200 * MS)
        first, second = (rig.controller.jobs[number].spec.traffic_class for number in (1, 2))
        assert (first, second) == (4, 5)
        for job, priority in zip(jobs, (first, second), strict=True):
            assert {worker.core.plan.traffic_class for worker in job.workers.values()} == {priority}


async def test_an_order_leaves_a_job_in_the_class_that_it_keeps(pipeline: CompiledPipeline, tmp_path: Path) -> None:
    options = replace(OPTIONS, order="stage-srpt", apply_order=True, order_ns=MS)
    async with make_rig(TOPOLOGY, pipeline, Fixed(TREE), options, tmp_path / "journal") as rig:
        await rig.admit(replace(SPEC, job=1, classes=(2,), keeps_class=True))
        rig.controller.planner.strategy = Fixed(
            Placement({"h3": "s1", "h4": "s1", "h6": "s2"}, {"s1": "s3", "s2": "s3"}, "s3")
        )
        await rig.admit(replace(SPEC, job=2, workers=("h3", "h4", "h6")))
        for number, steps in ((1, 5), (2, 100)):
            report = JobReport(step=1, steps_left=steps, stage=f"search{number}/1")
            rig.controller.jobs[number].reports.add(report, rig.fabric.now_ns)
        await rig.run(rig.fabric.now_ns + 200 * MS)
        assert rig.controller.order.rankings(rig.fabric.now_ns)[1].place == 1
        assert [rig.controller.jobs[number].spec.classes[0] for number in (1, 2)] == [2, 4]
        await rig.stop_controller()
        await rig.start_controller(Fixed(TREE))
        assert rig.controller.jobs[1].spec.keeps_class


@pytest.mark.parametrize("priority", [0, 6, 7, -1])
async def test_classes_of_others_are_refused(rig: JobRig, priority: int) -> None:
    job = await rig.admit(SPEC)
    with pytest.raises(PlanError) as raised:
        rig.controller.classify(9, priority, 0)
    assert raised.value.value == (priority, BULK_PRIORITY)
    with pytest.raises(InvalidPlan) as refused:
        job.workers["h1"].core.classify(TrafficClass(9, priority))
    assert refused.value.value == priority
    assert rig.controller.jobs[9].spec.classes == (BULK_PRIORITY,)


async def test_a_class_of_an_unknown_job_is_refused(rig: JobRig) -> None:
    job = await rig.admit(SPEC)
    with pytest.raises(NoSuchJob):
        rig.controller.classify(8, 5, 0)
    with pytest.raises(InvalidPlan) as raised:
        job.workers["h1"].core.classify(TrafficClass(8, 5))
    assert raised.value.value == 8
