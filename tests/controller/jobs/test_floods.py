"""Floods from hosts of no job: probes pass through them, and no host counts as cut off because of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import replace

import pytest

from weir.controller.controller import ControllerOptions
from weir.controller.jobs.carried import links_carried
from weir.controller.jobs.job import WorkerProgress
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.tests.controller.job_rig import MS, Fixed, JobRig, make_rig
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint

TOPOLOGY = leaf_spine(2, 1, 3, rate_bps=1_000_000_000, uplink_rate_bps=100_000_000)
"""h1…h3 at s1, h4…h6 at s2; the spine s3 is the only way between them."""
WORKERS = ("h1", "h2", "h4")
LEASE = 20 * MS
OPTIONS = ControllerOptions(
    probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=2 * MS, lease_ns=LEASE, stuck_ns=40 * MS
)
AT_SPINE = Placement(dict.fromkeys(WORKERS, "s3"), {}, "s3")
BETWEEN = {Endpoint("s1", 4), Endpoint("s3", 1), Endpoint("s2", 4), Endpoint("s3", 2)}
"""The links between switches."""


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_SPINE), OPTIONS) as rig:
        yield rig


def flood(rig: JobRig, source: str, destination: str, stop_ns: int) -> None:
    """Ten times what the way between the leaves carries."""
    rig.emulated.add_flow(source, destination, payload_bytes=1000, rate_bps=1e9, stop_ns=stop_ns)


async def test_a_flood_from_a_stranger_takes_no_worker_out_of_a_job(rig: JobRig) -> None:
    job = await rig.admit(JobSpec(1, WORKERS, slots=16, window=8))
    rig.submit(job, 1)
    stop_ns = 12 * LEASE
    flood(rig, "h3", "h6", stop_ns)
    flood(rig, "h6", "h3", stop_ns)
    await rig.run(stop_ns)
    assert rig.emulated.fabric.now_ns == stop_ns
    assert rig.controller.prober.link_watch.down == frozenset()
    await rig.run(stop_ns + 20 * LEASE, job)
    assert rig.aborted == {}
    assert set(rig.controller.jobs[1].plan.workers) == set(WORKERS)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())


async def test_completed_rounds_vouch_for_the_links_of_their_ways(rig: JobRig) -> None:
    def carried(since_ns: int) -> Collection[Endpoint]:
        return links_carried(rig.controller.jobs.values(), rig.controller.planner.routes, since_ns)

    job = await rig.admit(JobSpec(1, WORKERS, slots=16, window=8))
    assert carried(0) == frozenset()
    rig.submit(job, 4, chunks=400)
    await rig.run(15 * MS)
    hosts = {Endpoint(host, 0) for host in WORKERS} | {Endpoint("s1", 1), Endpoint("s1", 2), Endpoint("s2", 1)}
    assert carried(0) == hosts | BETWEEN
    assert carried(rig.fabric.now_ns + 1) == frozenset()
    [running] = rig.controller.jobs.values()
    running.progress["h4"] = replace(running.progress["h4"], completed_ns=-1)
    assert carried(0) == (hosts | BETWEEN) - {Endpoint("s2", 1), Endpoint("s3", 2)}


async def test_a_worker_that_alone_claims_rounds_vouches_for_no_link(rig: JobRig) -> None:
    """A tenant's liar in a job whose other workers stand still."""
    job = await rig.admit(JobSpec(1, WORKERS, slots=16, window=8))
    rig.submit(job, 4, chunks=400)
    await rig.run(15 * MS)
    [running] = rig.controller.jobs.values()
    for honest in ("h2", "h4"):
        running.progress[honest] = replace(running.progress[honest], completed_ns=-1)
    assert links_carried([running], rig.controller.planner.routes, 0) == frozenset()


async def test_claims_do_not_count_for_links_of_a_job_that_waits(rig: JobRig) -> None:
    """A tenant whose hosts all lie: another tenant's job stands still on a dead link that the two jobs share."""
    for number in (1, 2):
        await rig.admit(JobSpec(number, WORKERS, slots=16, window=8))
    routes, now_ns, lease_ago_ns = rig.controller.planner.routes, 10 * LEASE, 9 * LEASE
    liar, victim = (rig.controller.jobs[number] for number in (1, 2))
    for host in WORKERS:
        liar.progress[host] = WorkerProgress(7, now_ns, now_ns, waiting=True, completed_ns=now_ns)
    claimed = links_carried([liar], routes, lease_ago_ns)
    assert claimed >= BETWEEN
    for grown_ns, waiting, believed in ((lease_ago_ns, True, claimed), (0, True, frozenset()), (0, False, claimed)):
        victim.progress["h1"] = WorkerProgress(7, now_ns, grown_ns, waiting)
        assert links_carried([liar, victim], routes, lease_ago_ns) == believed
