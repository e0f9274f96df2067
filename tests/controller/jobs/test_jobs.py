"""Whole jobs in virtual time: the controller, emulated switches, and hosts with their protocol cores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.controller.controller import ControllerOptions
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.hosts import ParameterServerCore
from weir.tests.controller.job_rig import MS, Fixed, Job, JobRig, make_rig
from weir.topologies.generators import leaf_spine
from weir.wire.aggregation import CHUNKS, HEADER_BYTES, MESSAGE_BYTES
from weir.wire.control import Pause, Resume
from weir.wire.frames import FRAME_HEADER_BYTES

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=1_000_000_000)
JOB = 9
WORKERS = ("h1", "h2", "h3")
SERVER = "h4"
STUCK_NS = 40 * MS
OPTIONS = ControllerOptions(probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=MS, stuck_ns=STUCK_NS)

AT_SERVER = Placement({"h1": "s1", "h2": "s1", "h3": SERVER}, {"s1": SERVER}, SERVER)
AT_SWITCH = Placement({"h1": "s1", "h2": "s1", "h3": "s2"}, {"s1": "s2"}, "s2")


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_SERVER), OPTIONS) as rig:
        yield rig


async def admit(rig: JobRig, placement: Placement, server: str | None) -> Job:
    rig.controller.planner.strategy = Fixed(placement)
    return await rig.admit(JobSpec(JOB, WORKERS, server, slots=16, window=8))


@pytest.mark.parametrize(
    ("start", "server"),
    [pytest.param(AT_SERVER, SERVER, marks=pytest.mark.long), (AT_SWITCH, SERVER), (AT_SWITCH, None)],
)
async def test_a_job_sums_exactly_and_moves_in_the_middle(rig: JobRig, start: Placement, server: str | None) -> None:
    job = await admit(rig, start, server)
    rig.submit(job, 1)
    await rig.run(MS // 4)
    assert not rig.is_idle(job)
    target = None if server is None else AT_SERVER if start is AT_SWITCH else AT_SWITCH
    rig.controller.moves.begin(JOB, rig.fabric.now_ns, target)
    await rig.run(200 * MS, job)
    assert rig.controller.jobs[JOB].plan.generation == 2
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())


async def test_the_servers_rounds_are_fetched_after_a_root_change(
    rig: JobRig,
) -> None:
    job = await admit(rig, AT_SERVER, SERVER)
    rig.submit(job, 2)
    peer = TOPOLOGY.attached_switch(SERVER).name
    rig.fabric.set_link((SERVER, 0), loss=1.0, both=False)  # contributions reach the server, no result comes back
    await rig.run(STUCK_NS // 2)
    assert peer == "s2"
    assert [worker.core.rounds_complete for worker in job.workers.values()] == [0, 0, 0]
    server = job.agents[SERVER].core
    rig.fabric.set_link((SERVER, 0), loss=0.0, both=False)
    rig.controller.moves.begin(JOB, rig.fabric.now_ns, AT_SWITCH)
    await rig.run(200 * MS, job)
    assert isinstance(server, ParameterServerCore)
    assert (server.plan.generation, server.plan.children) == (2, ())
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert server.counters.answered >= 2 * 3  # each worker fetched the first two rounds, which nobody else had
    assert [worker.core.counters.unknown_round for worker in job.workers.values()] == [0, 0, 0]


async def test_a_sum_damaged_in_a_switch_is_undone_by_a_new_generation(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await admit(rig, AT_SWITCH, None)
    send = rig.fabric.send
    damaged: list[int] = []

    def damage_one(host: str, frames: NDArray[np.uint8], *where: Any) -> None:
        """The first contribution with lanes from h2 has a bit of its lane 7 flipped, which no switch can see."""
        if host == "h2" and not damaged and frames.shape[1] == FRAME_HEADER_BYTES + MESSAGE_BYTES:
            frames = frames.copy()
            frames[0, FRAME_HEADER_BYTES + HEADER_BYTES + 4 * 7 + 1] ^= 0x10
            damaged.append(rig.fabric.now_ns)
        send(host, frames, *where)

    monkeypatch.setattr(rig.fabric, "send", damage_one)
    rig.submit(job, 3)
    await rig.run(damaged[0] + STUCK_NS // 2 if damaged else STUCK_NS // 2)
    assert len(damaged) == 1
    assert not rig.is_idle(job)
    assert rig.controller.jobs[JOB].plan.generation == 1
    assert all(worker.core.counters.bad_check > 0 for worker in job.workers.values())
    await rig.run(400 * MS, job)
    assert rig.controller.jobs[JOB].plan.generation == 2
    assert rig.controller.jobs[JOB].plan.placement == AT_SWITCH
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert rig.fabric.now_ns < damaged[0] + 2 * STUCK_NS


async def test_late_copies_of_pause_and_resume_change_nothing(rig: JobRig) -> None:
    job = await admit(rig, AT_SWITCH, SERVER)
    rig.submit(job, 4)
    rig.controller.moves.begin(JOB, 0)
    await rig.run(200 * MS, job)
    for agent in job.agents.values():
        plan = agent.core.plan
        assert plan.generation == 2
        assert agent.pause(Pause(JOB, 1)) is None
        agent.resume(Resume(plan))
        assert agent.core.plan is plan
        assert agent.pause(Pause(JOB, 2)) is not None
        agent.resume(Resume(plan))  # of the generation that is being left
        assert agent.core.plan is plan
    assert all(worker.core.paused for worker in job.workers.values())


@pytest.mark.parametrize("first_round", [pytest.param(CHUNKS // 2 + 7, marks=pytest.mark.long), 3 * CHUNKS - 5])
async def test_a_late_root_server_knows_the_jobs_round(rig: JobRig, first_round: int) -> None:
    """A chunk's number identifies rounds within 2²³ of a known one: counted from 0 they would be taken for others, and
    rounds that only the server holds would be lost.
    """
    rig.first_round = first_round
    job = await admit(rig, AT_SWITCH, SERVER)
    rig.submit(job, 5)
    await rig.run(100 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    rig.controller.moves.begin(JOB, rig.fabric.now_ns, AT_SERVER)
    await rig.run(130 * MS, job)
    assert rig.controller.jobs[JOB].plan.placement == AT_SERVER
    window = rig.controller.jobs[JOB].plan.pacing.window
    rig.fabric.set_link((SERVER, 0), loss=1.0, both=False)
    rig.submit(job, 6)
    await rig.run(rig.fabric.now_ns + STUCK_NS // 2)
    rig.fabric.set_link((SERVER, 0), loss=0.0, both=False)
    rig.controller.moves.begin(JOB, rig.fabric.now_ns, AT_SWITCH)
    await rig.run(500 * MS, job)
    assert job.take(1) == dict.fromkeys(WORKERS, job.sum_of())
    resumes = [m.content for _, m in rig.told if isinstance(m.content, Resume) and m.host in WORKERS][-3:]
    address = int(TOPOLOGY.host(SERVER).address)
    finals = {tuple((final.round, final.holder) for final in resume.final) for resume in resumes}
    begun = first_round + 20 + 8  # rounds of the first tensor: its scales, its chunks
    scales = 8  # nothing else can be sent before their results
    assert finals == {tuple((begun + i, address) for i in range(min(window, scales)))}, "what the server alone had"
