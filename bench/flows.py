"""The flow-level simulator: virtual time per second in a large fabric.

A fat-tree of 320 switches and 1,024 hosts; ten jobs of a hundred workers each, a hundred megabytes in each of their
steps. Background flows have the sizes of a data-mining cluster's flows above 100 MB, which carry most of its bytes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

from weir.bench.measure import Figure
from weir.controller.placement import Problem
from weir.controller.placement.model.links import Links
from weir.controller.placement.strategies import strategy
from weir.experiments.flows import background
from weir.experiments.flows.coflows import Pace, tree_coflow
from weir.experiments.flows.simulator import Simulator
from weir.topologies import Routes, fat_tree

RUNS: Final = 3
SIMULATED_SECONDS: Final = 300.0
JOBS: Final = 10
WORKERS: Final = 100
GRADIENT_BYTES: Final = 100_000_000
LOAD: Final = 0.1


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    routes = Routes(fat_tree(16))
    _timed(routes, random.Random(0), 1.0)  # compiles, or loads what was
    faster, events = [], []
    for seed in range(RUNS):
        seconds, divided = _timed(routes, random.Random(seed), SIMULATED_SECONDS)
        faster.append(SIMULATED_SECONDS / seconds)
        events.append(seconds / divided)
    yield Figure(f"{JOBS * WORKERS:,} workers, 320 switches: simulated seconds in one", "s/s", tuple(faster))
    yield Figure("the same: rates divided anew, time of each", "s", tuple(events), less_is_better=True)


def _timed(routes: Routes, rng: random.Random, until: float) -> tuple[float, int]:
    """Seconds of this thread until then in simulated time, and how often rates were divided."""
    hosts = [host.name for host in routes.topology.hosts]
    rng.shuffle(hosts)
    others = background.flows(routes, "datamining", LOAD, until, rng, min_bytes=100e6)
    simulator = Simulator(Links.of(routes).rate_bps, others)
    for number in range(JOBS):
        server, *workers = hosts[number * (WORKERS + 1) : (number + 1) * (WORKERS + 1)]
        problem = Problem(routes, tuple(workers), server, GRADIENT_BYTES)
        tree = strategy("widest").place(problem, rng)
        steps = int(SIMULATED_SECONDS)  # none is done with so many by then
        simulator.add(f"job {number}", GRADIENT_BYTES, [(tree_coflow(routes, tree, Pace(), rng), 1.0)], steps, 0.5)
    started = time.thread_time()
    simulator.run(until)
    return time.thread_time() - started, simulator.events
