"""Drawn hyper-parameter searches of several users on one fabric.

A search is a cojob that trains configurations of one model by successive halving: all of a stage's configurations train
for the same number of steps, then the worse half stops, and the others train for twice as many. Its jobs share the
model's size and its computation. Sizes are lognormal, as those of the models of a shared cluster.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...controller.placement.model.links import Links
from ...controller.placement.model.problem import Placement, Problem
from ...controller.placement.strategies import strategy
from ...topologies import Routes
from ..flows.coflows import Coflow, Pace, tree_coflow

WORKERS: Final = 4
MEDIAN_BYTES: Final = 10e6
SIGMA: Final = 0.5
"""Standard deviation of the logarithm of a model's bytes."""
CONFIGURATIONS: Final = (2, 4, 8)
"""Configurations of a search's first stage."""
STEPS: Final = (4, 10)
"""Steps of a search's first stage."""
COMPUTE: Final = (0.1, 1.2)
"""A step's computation, as a share of its communication alone."""
SPREAD_STEPS: Final = 10
"""Searches start within the time of so many steps of each of them."""


@dataclass(frozen=True, slots=True)
class SearchJob:
    """One configuration in one stage."""

    name: str
    workers: tuple[str, ...]
    server: str
    """Host that sums in place of switches without free slots."""
    gradient_bytes: int
    compute_seconds: float
    steps: int
    seed: int
    """Seed of its flows' hashing."""


@dataclass(frozen=True, slots=True)
class Cojob:
    """One cojob."""

    name: str
    begun_seconds: float
    stages: tuple[tuple[SearchJob, ...], ...]


def drawn_searches(
    routes: Routes, count: int, seed: int, *, sigma: float = SIGMA, single_stage: bool = False
) -> list[Cojob]:
    """Draw searches.

    Args:
        routes: The fabric.
        count: Number of searches.
        seed: Seed of everything that is drawn.
        sigma: Standard deviation of the logarithm of a model's bytes.
        single_stage: True if each has its first stage alone and all start at 0 s, so that one order serves them all.
    """
    rng = random.Random(f"searches {seed}")
    step = median_step_seconds(routes)
    searches = []
    for number in range(count):
        size = int(MEDIAN_BYTES * rng.lognormvariate(0, sigma))
        compute = rng.uniform(*COMPUTE) * step * size / MEDIAN_BYTES
        begun, steps, jobs = rng.random() * SPREAD_STEPS * count * step, rng.randint(*STEPS), rng.choice(CONFIGURATIONS)
        stages: list[tuple[SearchJob, ...]] = []
        while jobs and not (stages and single_stage):
            names = (f"c{number}s{len(stages)}j{index}" for index in range(jobs))
            stages.append(tuple(drawn_job(routes, name, size, compute, steps, rng) for name in names))
            jobs, steps = jobs // 2, 2 * steps
        searches.append(Cojob(f"c{number}", 0.0 if single_stage else begun, tuple(stages)))
    return searches


def median_step_seconds(routes: Routes) -> float:
    """Return the communication of a median model's step alone, in s, by the slowest link of a fabric."""
    return 8 * MEDIAN_BYTES / float(Links.of(routes).rate_bps.min())


def drawn_job(
    routes: Routes, name: str, size: int, compute_seconds: float, steps: int, rng: random.Random
) -> SearchJob:
    """Draw the hosts of a job, and the seed of its flows.

    Args:
        routes: Routes of the fabric.
        name: Name of the job.
        size: Bytes of a gradient.
        compute_seconds: Computation of a step, in s.
        steps: Number of steps.
        rng: Generator of hosts and seed.
    """
    hosts = [host.name for host in routes.topology.hosts]
    *workers, server = rng.sample(hosts, WORKERS + 1)
    return SearchJob(name, tuple(workers), server, size, compute_seconds, steps, rng.randrange(1 << 30))


def placed(
    routes: Routes,
    job: SearchJob,
    room: dict[str, int] | None = None,
    others: dict[int, float] | None = None,
) -> Placement:
    """Place a job on the widest tree that is left.

    Args:
        routes: The fabric.
        job: The job.
        room: Free places of each switch; None: every switch has room.
        others: Bytes that other jobs bring onto each link in a step, by the link's place.
    """
    ends = routes.topology.directed_links
    known = {ends[link]: value for link, value in (others or {}).items()}
    problem = Problem(routes, job.workers, job.server, job.gradient_bytes, room=room, others=known)
    return strategy("widest").place(problem, random.Random(job.seed))


def coflow_of(routes: Routes, job: SearchJob, placement: Placement) -> Coflow:
    """Return a placed job's streams as one flow, hashed by the job's seed."""
    return tree_coflow(routes, placement, Pace(), random.Random(job.seed))


def link_seconds(routes: Routes, job: SearchJob, coflow: Coflow) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the seconds of each directed link in one step of a job, (links,)."""
    rate = Links.of(routes).rate_bps
    seconds = np.zeros(len(rate))
    seconds[coflow.links] = 8 * job.gradient_bytes * coflow.streams / rate[coflow.links]
    return seconds
