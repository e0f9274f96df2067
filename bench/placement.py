"""Decisions: how long they take, and how good they are

The widest tree of 1,000 workers over 320 switches is placed anew, and again after one link's load changed; fifty jobs
are placed together. On a smaller fabric it is held against the oracle, one mixed-integer program of the whole tree, as
is the method for scarce memory where every other switch has room; AGG and a linear program with randomised rounding are
held against the widest tree, by the time that a decision takes and by the slowest link of what is decided.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from weir.bench.measure import Aim, Figure, cpu_seconds
from weir.controller.placement import Costs, Placement, Problem
from weir.controller.placement.loads import LinkLoad
from weir.controller.placement.strategies import STRATEGIES, strategy
from weir.controller.placement.strategies.widest import WidestTree
from weir.controller.placement.striped import stripe
from weir.topologies import Endpoint, Routes, Topology, fat_tree, leaf_spine

RUNS: Final = 5
CHANGES: Final = 200
GRADIENT_BYTES: Final = 100_000_000


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    large = fat_tree(16)
    routes = Routes(large)
    yield _large(routes)
    yield _again(routes)
    yield _together(routes)
    yield from _held_against(leaf_spine(6, 2, 6), "widest", "oracle")
    yield from _held_against(leaf_spine(6, 3, 6), "scarce", "oracle", room=0.5)
    for name in ("agg", "grid"):
        yield from _held_against(leaf_spine(6, 2, 6), name, "widest")


def _drawn_loads(topology: Topology, rng: random.Random) -> dict[Endpoint, LinkLoad]:
    return {
        link: LinkLoad(topology.link_at(link).rate_bps * rng.choice((0.0, 0.3, 0.6, 0.8)))
        for link in topology.directed_links
        if rng.random() < 0.5 and topology.is_switch(link.node) and topology.is_switch(topology.peer(link).node)
    }


def _drawn(routes: Routes, rng: random.Random, workers: int) -> Problem:
    hosts = [host.name for host in routes.topology.hosts]
    server, *others = rng.sample(hosts, workers + 1)
    return Problem(routes, tuple(others), server, GRADIENT_BYTES, _drawn_loads(routes.topology, rng))


def _timed(place: Callable[[], Placement]) -> tuple[float, Placement]:
    """Seconds of this thread, which what else the machine does hardly changes, and what was placed."""
    started = time.thread_time()
    placement = place()
    return time.thread_time() - started, placement


def _large(routes: Routes) -> Figure:
    rng = random.Random(1)
    taken = []
    for _ in range(RUNS):
        problem = _drawn(routes, rng, 1_000)
        taken.append(_timed(partial(WidestTree().place, problem, rng))[0])
    name = f"1,000 workers, {len(routes.topology.switches)} switches placed"
    return Figure(name, "s", tuple(taken), less_is_better=True, aim=Aim(0.020))


def _again(routes: Routes) -> Figure:
    """Of each run the median over the changes; links between switches, drawn loads."""
    rng = random.Random(2)
    links = sorted(_drawn_loads(routes.topology, rng))
    medians = []
    for _ in range(RUNS):
        problem, widest = _drawn(routes, rng, 1_000), WidestTree()
        widest.place(problem, rng)
        taken = []
        for _ in range(CHANGES):
            link = rng.choice(links)
            load = LinkLoad(routes.topology.link_at(link).rate_bps * rng.choice((0.0, 0.3, 0.6, 0.8)))
            problem = replace(problem, loads={**problem.loads, link: load})
            taken.append(_timed(partial(widest.resolve, problem, {link: load}))[0])
        medians.append(sorted(taken)[CHANGES // 2])
    return Figure("the same after one link's load changed", "s", tuple(medians), less_is_better=True, aim=Aim(0.002))


def _together(routes: Routes) -> Figure:
    """Jobs of twenty hosts each."""
    taken = []
    for seed in range(RUNS):
        rng = random.Random(seed)
        hosts = [host.name for host in routes.topology.hosts]
        rng.shuffle(hosts)
        loads = _drawn_loads(routes.topology, rng)
        groups = [hosts[at : at + 20] for at in range(0, 1_000, 20)]
        problems = [Problem(routes, tuple(rest), server, GRADIENT_BYTES, loads) for server, *rest in groups]
        taken.append(cpu_seconds(partial(stripe, problems)))
    name = "50 jobs of 1,000 hosts together, striped"
    return Figure(name, "s", tuple(taken), less_is_better=True, aim=Aim(1.0))


def _held_against(topology: Topology, name: str, other: str, room: float = 1.0) -> Iterator[Figure]:
    """Both decide the same problems; each switch has room with this probability."""
    rng, routes = random.Random(3), Routes(topology)
    mine, theirs = strategy(name), strategy(other)
    turns: list[tuple[float, float]] = []
    links: list[tuple[float, float]] = []
    workers = len(topology.hosts) - 1
    for number in range(RUNS + 1):
        problem = _drawn(routes, rng, workers)
        problem = replace(problem, room={switch.name: int(rng.random() < room) for switch in topology.switches})
        taken, placement = _timed(partial(mine.place, problem, rng))
        peers, best = _timed(partial(theirs.place, problem, rng))
        if number == 0:
            continue  # the first compiles what later problems of the fabric share
        turns.append((taken, peers))
        costs = Costs(problem)
        links.append((costs.slowest_link_seconds(placement), costs.slowest_link_seconds(best)))
    what = f"{name}, {workers} workers, {len(topology.switches)} switches"
    for figure, pairs in ((what, turns), (f"slowest link of {what}", links)):
        own, others = zip(*pairs, strict=True)
        yield Figure(figure, "s", own, STRATEGIES[other].label, others, less_is_better=True)
