"""Failures at random moments, several at once: survivors agree to the bit, or the job ends and says why."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from weir.controller.controller import ControllerOptions
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller.job_rig import MS, Job, JobRig, make_rig
from weir.topologies.generators import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 3, rate_bps=1_000_000_000)
SERVER, SPARE = "h5", "h3"
OPTIONS = ControllerOptions(
    probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=2 * MS, lease_ns=30 * MS, stuck_ns=40 * MS
)


class Mishaps:
    """Possible faults, each at any time."""

    def __init__(self, rig: JobRig, job: Job, spec: JobSpec, rng: random.Random) -> None:
        self.rig, self.job, self.spec, self.rng = rig, job, spec, rng
        self.log: list[str] = []

    async def happen(self) -> None:
        """One of them."""
        kinds = [self.host_falls_silent, self.host_wakes, self.switch_restarts, self.switch_dies, self.link_breaks]
        kinds += [self.links_heal, self.job_moves, self.controller_dies]
        await self.rng.choice(kinds)()

    def note(self, what: str) -> None:
        self.log.append(f"{self.rig.fabric.now_ns / MS:.2f} ms: {what}")

    async def host_falls_silent(self) -> None:
        able = [h for h in (*self.spec.workers, SERVER) if h not in self.rig.silent]
        if len(able) > 2:
            host = self.rng.choice(able)
            self.note(f"{host} falls silent")
            self.rig.silent.add(host)

    async def host_wakes(self) -> None:
        for host in sorted(self.rig.silent):
            self.note(f"{host} wakes")
            self.rig.silent.discard(host)
            if host in self.job.agents:
                self.job.agents[host].flush()

    async def switch_restarts(self) -> None:
        name = self.rng.choice([node.name for node in TOPOLOGY.switches])
        self.note(f"{name} starts anew")
        await self.rig.restart_switch(name)

    async def switch_dies(self) -> None:
        if not self.rig.dead:
            name = self.rng.choice(["s3", "s4"])
            self.note(f"{name} dies")
            await self.rig.kill_switch(name)

    async def link_breaks(self) -> None:
        leaf, port = self.rng.choice(["s1", "s2"]), self.rng.choice([4, 5])
        self.note(f"the link at {leaf}-p{port} breaks")
        self.rig.fabric.set_link((leaf, port), up=False)

    async def links_heal(self) -> None:
        self.note("links heal")
        for leaf in ("s1", "s2"):
            for port in (4, 5):
                if TOPOLOGY.neighbours(leaf)[port].node not in self.rig.dead:
                    self.rig.fabric.set_link((leaf, port), up=True)

    async def job_moves(self) -> None:
        if 1 in self.rig.controller.jobs:
            self.note("asked to move")
            self.rig.controller.moves.begin(1, self.rig.fabric.now_ns)

    async def controller_dies(self) -> None:
        self.note("the controller dies")
        await self.rig.stop_controller()
        await self.rig.start_controller(strategy("widest"))

    async def end(self) -> None:
        """All that can be mended is."""
        await self.links_heal()
        await self.host_wakes()
        for name in sorted(self.rig.dead):
            self.note(f"{name} starts anew")
            await self.rig.restart_switch(name)


async def play(seed: int, pipeline: CompiledPipeline, journal: Path) -> None:
    rng = random.Random(seed)
    policy = rng.choice(list(FailurePolicy))
    server = rng.choice([None, SERVER])
    spec = JobSpec(1, ("h1", "h2", "h4", "h6"), server, 16, 8, policy=policy, spares=(SPARE,) if server else ())
    async with make_rig(TOPOLOGY, pipeline, strategy("widest"), OPTIONS, journal) as rig:
        job = await rig.admit(spec)
        await rig.run(6 * MS)
        mishaps = Mishaps(rig, job, spec, rng)
        if server is None:
            rig.silent.add(SERVER)
        for _ in range(rng.randint(1, 4)):
            rig.submit(job, seed, chunks=rng.randint(1, 80))
            for _ in range(rng.randint(0, 3)):
                await rig.run(rig.fabric.now_ns + rng.choice([MS // 10, MS // 2, 5 * MS, 40 * MS, 80 * MS]))
                await mishaps.happen()
        await mishaps.end()
        await rig.run(rig.fabric.now_ns + 1_000 * MS, *(() if rig.aborted else (job,)))
        await rig.run(rig.fabric.now_ns + 20 * MS)
        story = "\n".join([f"seed {seed}: {spec}", *mishaps.log])
        check(rig, job, policy, story)
        assert await rig.controller.verify() == {}, story


def check(rig: JobRig, job: Job, policy: FailurePolicy, story: str) -> None:
    """A participant to the end has every sum, the same as the others; without losses these are the sums of all."""
    if 1 not in rig.controller.jobs:
        assert rig.aborted or 1 in rig.controller.jobs.aborted, story  # the one that told them may have died since
        assert policy is not FailurePolicy.WAIT, story
        return
    members = [name for name in rig.controller.jobs[1].plan.workers if name not in rig.silent]
    says = f"{story}\n{rig.controller.jobs.waiting_for(1, rig.fabric.now_ns)}"
    assert members, says
    assert all(job.workers[name].core.idle for name in members), says
    handle = 0
    while (sums := {name: job.workers[name].core.pop_result(handle) for name in members})[members[0]] is not None:
        assert len({total.array.tobytes() for total in sums.values() if total is not None}) == 1, says
        assert all(total is not None for total in sums.values()), says
        handle += 1
    assert handle > 0, says
    if policy is FailurePolicy.WAIT:
        assert set(members) == set(job.workers), says


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
async def test_random_failures(pipeline: CompiledPipeline, tmp_path: Path, seed: int) -> None:
    await play(seed, pipeline, tmp_path / "journal")


@pytest.mark.long(minutes=8)
@pytest.mark.timeout(3600)
async def test_many_random_failures(pipeline: CompiledPipeline, tmp_path: Path) -> None:
    for _ in range(80):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")  # noqa: T201
        await play(seed, pipeline, tmp_path / f"journal-{seed}")
