"""Jobs come and go: memory is never assigned twice nor lost, starved jobs finish, and old rounds in slots match no
job.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from weir.controller.controller import ControllerOptions
from weir.controller.errors import PlanError
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.generations import LONGEST_ABSENCE
from weir.controller.planning.plan import JobSpec
from weir.tests.controller.job_rig import MS, Fixed, Job, JobRig, make_rig
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.wire.aggregation import FAN_IN

TOPOLOGY = leaf_spine(2, 2, 3, rate_bps=1_000_000_000, slots=64)
OPTIONS = ControllerOptions(probe_period_ns=50 * MS, solve_period_ns=0, retry_ns=MS)
HOSTS = [host.name for host in TOPOLOGY.hosts]


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, strategy("widest"), OPTIONS) as rig:
        yield rig


def check_memory(rig: JobRig) -> None:
    """No two jobs share a slot or a rid, and only running jobs have any."""
    for node in TOPOLOGY.switches:
        held = [
            rig.controller.planner.memory.held(number)[node.name]
            for number in rig.controller.jobs
            if node.name in rig.controller.planner.memory.held(number)
        ]
        slots = [slot for each in held for slot in range(each.slot_base, each.slot_base + each.slots)]
        rids = [rid for each in held for rid in range(each.first_rid, each.first_rid + FAN_IN)]
        assert len(slots) == len(set(slots)) <= node.slots
        assert len(rids) == len(set(rids))
        assert rig.controller.planner.memory.free_slots[node.name] == node.slots - len(slots)


async def come_and_go(rig: JobRig, rng: random.Random, jobs: int) -> list[str]:
    """Run this many jobs, up to five at a time, with few numbers that are reused; return their messages."""
    running: list[Job] = []
    notes: list[str] = []
    for turn in range(jobs):
        free = [number for number in range(1, 8) if number not in rig.controller.jobs]
        workers = rng.sample(HOSTS, rng.randint(1, 4))
        server = rng.choice([host for host in HOSTS if host not in workers])
        slots = rng.choice([8, 16, 32, 64])
        spec = JobSpec(rng.choice(free), tuple(workers), server, slots, rng.randint(1, slots // 2))
        job = await rig.admit(spec)
        notes.append(rig.controller.jobs[spec.job].note)
        running.append(job)
        check_memory(rig)
        rig.submit(job, turn, chunks=rng.randint(1, 12))
        if len(running) == 5 or turn == jobs - 1:
            await rig.run(rig.fabric.now_ns + 400 * MS, *running)
            for each in running:
                assert each.take() == dict.fromkeys(each.workers, each.sum_of()), each.number
            rng.shuffle(running)
            while running and (turn == jobs - 1 or len(running) > 2):
                gone = running.pop()
                await rig.controller.finish(gone.number)
                del rig.jobs[gone.number]
                check_memory(rig)
            for each in running:
                rig.submit(each, turn + 1000, chunks=2)
                await rig.run(rig.fabric.now_ns + 400 * MS, each)
                assert each.take(1) == dict.fromkeys(each.workers, each.sum_of())
                await rig.controller.finish(each.number)
                del rig.jobs[each.number]
            running.clear()
    assert set(rig.controller.planner.memory.free_slots.values()) == {64}
    assert await rig.controller.verify() == {}
    return notes


async def test_jobs_come_and_go_and_every_sum_is_right(rig: JobRig) -> None:
    seed = 1
    print(f"seed {seed}")  # noqa: T201
    notes = await come_and_go(rig, random.Random(seed), 25)
    assert any("alone" in note for note in notes)
    assert any(" slots and a window of " in note for note in notes)
    assert any(not note for note in notes)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_two_hundred_jobs_come_and_go_and_every_sum_is_right(rig: JobRig) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    await come_and_go(rig, random.Random(seed), 200)


async def test_a_reused_number_does_not_match_its_old_rounds(rig: JobRig) -> None:
    """The same number, switch and slots: had it begun with generation 1 again, the slots' old rounds would be newer."""
    rig.controller.planner.strategy = Fixed(Placement({"h1": "s1", "h2": "s1"}, {}, "s1"))
    for turn in range(3):
        job = await rig.admit(JobSpec(5, ("h1", "h2"), slots=2, window=1))
        rig.submit(job, turn, chunks=9 - 3 * turn)
        rig.controller.moves.begin(5, rig.fabric.now_ns)
        await rig.run(rig.fabric.now_ns + 100 * MS, job)
        assert rig.controller.jobs[5].plan.generation == 2 * turn + 2
        assert job.take() == dict.fromkeys(("h1", "h2"), job.sum_of())
        await rig.controller.finish(5)
        del rig.jobs[5]


async def test_a_switch_long_unused_by_a_job_is_not_reused(rig: JobRig) -> None:
    at = {name: Placement({"h1": name, "h2": name}, {}, name) for name in ("s1", "s3")}
    rig.controller.planner.strategy = Fixed(at["s1"])
    job = await rig.admit(JobSpec(5, ("h1", "h2"), slots=16, window=8))
    rig.submit(job, 1)
    await rig.run(rig.fabric.now_ns + 50 * MS, job)
    rig.controller.planner.strategy = Fixed(at["s3"])
    for _ in range(LONGEST_ABSENCE):
        rig.controller.moves.begin(5, rig.fabric.now_ns, at["s3"])
        await rig.run(rig.fabric.now_ns + 20 * MS, job)
    with raises(PlanError, place="job 5", value=("s1",)):
        rig.controller.moves.begin(5, rig.fabric.now_ns, at["s1"])
    rig.submit(job, 2)
    await rig.run(rig.fabric.now_ns + 50 * MS, job)
    assert job.take(1) == dict.fromkeys(("h1", "h2"), job.sum_of())
