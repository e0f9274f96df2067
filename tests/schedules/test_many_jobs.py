"""Fifty jobs, and (long) two hundred, come and go over one fabric: slots are scarce, links lose packets, some workers
die.
"""

from __future__ import annotations

import os
import random
import sys

import pytest

from weir.controller.errors import ControllerError
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import JobSpec
from weir.tests.schedules.rig import MS, ScheduleRig
from weir.tests.schedules.sums import Summing, draw_tensors
from weir.topologies.generators import leaf_spine

SLOTS = 64
"""Slots of each switch: two or three jobs fit at once with their preferred window."""
STRATEGIES = ("ps", "rack", "random", "widest")


class Cluster:
    """Jobs that wait, run and end; each host is in one of them at a time."""

    def __init__(self, seed: int, jobs: int) -> None:
        self.jobs = jobs
        self.random = random.Random(seed)
        topology = leaf_spine(4, 2, 6, slots=SLOTS)
        self.rig = ScheduleRig(topology, strategy("ps"), seed=seed, poll_ns=20_000, link={"loss": 0.002})
        self.free = [host.name for host in topology.hosts]
        self.running: dict[int, Summing] = {}
        self.ended = 0
        self.starved = 0
        self.refused = 0
        self.killed = 0
        self.most = 0

    def draw(self, job: int) -> JobSpec:
        rng = self.random
        hosts = rng.sample(self.free, min(len(self.free), rng.randint(2, 8)))
        server = hosts.pop() if rng.random() < 0.8 and len(hosts) > 1 else None
        slots = rng.choice((4, 16, 32, 64))
        return JobSpec(job, tuple(hosts), server, slots, rng.randint(1, slots // 2))

    async def admit(self, spec: JobSpec) -> bool:
        self.rig.controller.planner.strategy = strategy(
            "widest" if spec.server is None else self.random.choice(STRATEGIES)
        )
        try:
            await self.rig.admit(spec)
        except ControllerError:  # without a server it needs a switch that has room
            self.refused += 1
            assert spec.server is None
            return False
        self.starved += bool(self.rig.controller.jobs[spec.job].note)
        self.free = [name for name in self.free if not self.rig.is_busy(name)]
        sizes = [self.random.choice((1, 100, 256, 1000, 5000)) for _ in range(self.random.randint(1, 3))]
        self.running[spec.job] = summing = Summing(self.rig, spec, draw_tensors(spec.job, sizes, len(spec.workers)))
        summing.submit_all()
        if len(spec.workers) > 2 and self.random.random() < 0.15:
            self.killed += 1
            self.rig.after(self.random.randint(0, 2 * MS), lambda: self.rig.kill(spec.workers[0], spec.job))
        self.most = max(self.most, len(self.running))
        return True

    async def end(self) -> None:
        """Those that have every sum."""
        for job, summing in list(self.running.items()):
            if summing.finished:
                summing.check()
                await self.rig.finish(job)
                del self.running[job]
                self.ended += 1
        self.free = [host.name for host in self.rig.topology.hosts if not self.rig.is_busy(host.name)]

    def look(self) -> None:
        for summing in self.running.values():
            summing.collect()

    async def run(self) -> None:
        await self.rig.controller.start()
        waiting = self.draw(1)
        job = 1
        while job <= self.jobs or self.running:
            # without a running job nothing would end
            if job <= self.jobs and len(self.free) >= 2 and (self.random.random() < 0.9 or not self.running):
                if await self.admit(waiting):
                    job += 1
                if job <= self.jobs and len(self.free) >= 2:
                    waiting = self.draw(job)
                    continue
            await self.rig.run(
                lambda: any(summing.finished for summing in self.running.values()), 3_000 * MS, "jobs", self.look
            )
            await self.end()
            if job <= self.jobs:
                waiting = self.draw(job)
        await self.rig.rest(10 * MS)
        await self.rig.check_empty()


@pytest.mark.parametrize("jobs", [50, pytest.param(200, marks=pytest.mark.long)])
async def test_jobs_leave_nothing_behind(jobs: int) -> None:
    seed = int(os.environ.get("WEIR_SEED") or 15)
    sys.stdout.write(f"WEIR_SEED={seed}\n")
    cluster = Cluster(seed, jobs)
    await cluster.run()
    sys.stdout.write(
        f"{cluster.ended} jobs, up to {cluster.most} at once; {cluster.starved} were given less than asked for, "
        f"{cluster.refused} had to wait for memory, {cluster.killed} lost a worker\n"
    )
    assert cluster.ended == jobs
    assert cluster.most >= 4
    assert cluster.starved >= 5
    assert cluster.killed
    cluster.rig.close()
