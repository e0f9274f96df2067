"""Searches in packets: six jobs of three searches on a leaf-spine, whose classes follow an order of the controller."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig

LEAVES, SEARCHES, JOBS = 4, 3, 2
_END_NS = 3_000_000_000


@dataclass(frozen=True)
class Outcome:
    """One played draw."""

    completion_ns: list[int]
    """Time from a search's start until the last of its jobs ends."""
    broken: list[str]
    drops: dict[str, int]
    generations: set[int]
    class_changes: int
    class_bounds: int
    """Number of queues above bulk that had a bound."""


def draw(seed: int, order: str | None, sums: int) -> RunConfig:
    """Three searches of two jobs with four workers each, one in each rack; lognormal sizes, each summed so often."""
    rng = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = []
    per_leaf = SEARCHES * JOBS + 1
    for search in range(SEARCHES):
        scale = float(np.exp(rng.normal(0, 0.7)))
        for _ in range(JOBS):
            hosts = [f"h{per_leaf * leaf + 1 + len(jobs)}" for leaf in range(LEAVES)]
            values = int(20_000 * scale * float(rng.uniform(0.7, 1.3)))
            jobs.append({"workers": hosts, "values": values, "sums": sums, "search": "abc"[search], "start": "6ms"})
    fabric = {"kind": "leaf-spine", "leaves": LEAVES, "spines": 1, "hosts_per_leaf": per_leaf}
    return RunConfig.model_validate(
        {
            "name": "searches",
            "fabric": {"name": "searches", "generate": {**fabric, "rate": "1Gbit", "delay": "2us"}},
            "job": {"workers": [f"h{per_leaf}", f"h{2 * per_leaf}"], "window": 8, "slots": 16},
            "training": {"hidden": 68},
            "other_jobs": [{**job, "window": 8, "slots": 16} for job in jobs],
            "control": {"warm_up": "2ms", "solve_interval": "2ms", "order": order},
            "congestion": {"lease": "500us"},  # so that six jobs that join at once need not wait long for room
            "strategies": ["hierarchy"],
        }
    )


async def play(config: RunConfig) -> Outcome:
    async with Cluster(config, "hierarchy") as cluster:
        traces: list[Any] = []
        while len(traces) < SEARCHES * JOBS or not all(trace.left_ns for trace in traces):
            assert cluster.now_ns < _END_NS, "some job does not end"
            await cluster.compute(1_000_000)
            traces = [trace for trace in cluster.figures.jobs if trace.workers == LEAVES]
        ends = [trace.left_ns - trace.joined_ns for trace in traces]
        drops = await cluster.figures.drops()
        return Outcome(
            [max(ends[JOBS * search : JOBS * (search + 1)]) for search in range(SEARCHES)],
            list(cluster.figures.broken_promises),
            {reason: count for reason, count in drops.items() if count},
            {job.plan.generation for job in cluster.controller.jobs.values()},
            cluster.controller.classes.changes,
            len(cluster.figures.class_promised),
        )


def test_searches_in_their_orders_classes_end_earlier_in_the_mean() -> None:
    together, ordered = (asyncio.run(play(draw(0, order, sums=3))) for order in (None, "grouper"))
    assert np.mean(ordered.completion_ns) < 0.9 * np.mean(together.completion_ns)
    assert min(ordered.completion_ns) < 0.65 * min(together.completion_ns)
    assert together.class_changes == 0 < SEARCHES * JOBS <= ordered.class_changes
    assert ordered.class_bounds > 0
    for outcome in (together, ordered):
        assert outcome.broken == []
        assert "policed" not in outcome.drops
        assert outcome.generations == {1}


@pytest.mark.long
def test_classes_keep_their_bounds_in_drawn_searches() -> None:
    """The mean over searches and draws is at most 0.88 of that with all jobs in one class."""
    means = []
    for seed in range(10):
        together, ordered = (asyncio.run(play(draw(seed, order, sums=8))) for order in (None, "grouper"))
        assert ordered.broken == []
        assert "policed" not in ordered.drops
        means.append((np.mean(ordered.completion_ns), np.mean(together.completion_ns)))
    mine, theirs = np.mean(means, axis=0)
    assert mine <= 0.88 * theirs, mine / theirs
