"""Placement decisions: time and quality.

The widest tree of 1,000 workers over 320 switches is placed, and placed again after one link's load changed, with and
without a change of the tree; likewise the tree of 100 workers on fabrics of three sizes, with the changed link given.
One such job is also decided by AGG's search over sets of switches, by a linear program with randomised rounding, and by
one mixed-integer program of the whole tree with a time limit. Fifty jobs are placed together, of 1,000 hosts in all and
of 1,000 workers each. On smaller fabrics the widest tree is compared with the oracle, and so is the method for scarce
memory with room in every other switch. AGG and the rounding are compared with the widest tree: by the time of a
decision and by the slowest link of its result.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from weir.bench.measure import Aim, Figure, cpu_seconds
from weir.controller.placement import Placement, PlacementCosts, Problem
from weir.controller.placement.exact.tree_program import TreeProgram
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.placement.model.search_limit import SearchLimit
from weir.controller.placement.multi_job.multi_tree import stripe
from weir.controller.placement.strategies import STRATEGIES, strategy
from weir.controller.placement.strategies.scarce import hops
from weir.controller.placement.strategies.widest import WidestTree
from weir.topologies import Endpoint, Routes, Topology, fat_tree, leaf_spine

RUNS: Final = 5
CHANGES: Final = 200
SIZES: Final = (8, 12, 16)
"""k of the fat-trees on which the link that changes is named."""
FEW_WORKERS: Final = 100
GRADIENT_BYTES: Final = 100_000_000
WORKERS: Final = 1_000
JOBS: Final = 50
NODES: Final = 100
"""Maximum number of branches of the mixed-integer program of the large job."""


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    routes = Routes(fat_tree(16))
    yield from _large(routes)
    yield from _again(routes)
    yield from _named()
    yield _together(routes, f"{JOBS} jobs of {WORKERS:,} hosts in all together, striped", _apart, RUNS)
    yield _together(routes, f"{JOBS} jobs of {WORKERS:,} workers each together, striped", _all_over, RUNS // 2)
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
    """Processor seconds of this thread, which other processes hardly affect, and the placement."""
    started = time.thread_time()
    placement = place()
    return time.thread_time() - started, placement


def _large(routes: Routes) -> Iterator[Figure]:
    rng = random.Random(1)
    problems = [_drawn(routes, rng, WORKERS) for _ in range(RUNS)]
    turns = [_timed(partial(WidestTree().place, problem, rng)) for problem in problems]
    what = f"{WORKERS:,} workers, {len(routes.topology.switches)} switches placed"
    yield Figure(what, "s", tuple(taken for taken, _ in turns), less_is_better=True, aim=Aim(0.020))
    problem, (mine, widest) = problems[0], turns[0]
    links = PlacementCosts(problem).slowest_link_seconds
    label = STRATEGIES["widest"].label
    for name in ("agg", "grid", None):
        if name is None:
            taken, tree, how = _by_one_program(problem)
        else:
            taken, tree = _timed(partial(strategy(name).place, problem, rng))
            how = f"{STRATEGIES[name].label}: {tree.note}" if tree.note else STRATEGIES[name].label
        yield Figure(f"the same by {how}", "s", (taken,), label, (mine,), less_is_better=True)
        if tree is not None:
            times = (links(tree),), label, (links(widest),)
            yield Figure(f"slowest link of the same by {how.split(':')[0]}", "s", *times, less_is_better=True)


def _by_one_program(problem: Problem) -> tuple[float, Placement | None, str]:
    """Seconds of this thread, the best tree by then, and how it ended."""
    started, costs = time.thread_time(), PlacementCosts(problem)
    tree_hops = hops(problem)
    placement, bound = TreeProgram(problem, costs, tree_hops).fastest(NODES)
    taken = time.thread_time() - started
    end = f"no tree in {NODES} branches"
    if placement is not None:
        proven = costs.slowest_link_seconds(placement) <= 1.0001 * bound
        end = "proven the best" if proven else f"did not end in {NODES} branches"
    return taken, placement, f"one mixed-integer program: {len(tree_hops):,} hops, {end}"


def _again(routes: Routes) -> Iterator[Figure]:
    """Medians over the changes of each run, separately for trees that stay and trees that change.

    Loads of links between switches are drawn at random, in turns with links of the tree that fill up.
    """
    rng = random.Random(2)
    runs = [_after_changes(_drawn(routes, rng, WORKERS), rng, is_named=False) for _ in range(RUNS)]
    for stays, how in ((True, "the tree stays"), (False, "another tree")):
        name = f"the same after one link's load changed: {how}"
        yield Figure(
            name, "s", tuple(statistics.median(run[stays]) for run in runs), less_is_better=True, aim=Aim(0.002)
        )


def _named() -> Iterator[Figure]:
    """Decisions on three fabrics with the changed link given and the tree unchanged; loads are drawn at random."""
    for k in SIZES:
        routes, rng = Routes(fat_tree(k)), random.Random(2)
        runs = [_after_changes(_drawn(routes, rng, FEW_WORKERS), rng, is_named=True) for _ in range(RUNS)]
        what = f"{FEW_WORKERS} workers, {len(routes.topology.switches)} switches, a named link's load changed"
        yield Figure(
            f"{what}: the tree stays", "s", tuple(statistics.median(run[True]) for run in runs), less_is_better=True
        )


def _after_changes(problem: Problem, rng: random.Random, *, is_named: bool) -> dict[bool, list[float]]:
    """Seconds of each change, by whether the tree is the same after it."""
    topology, widest = problem.topology, WidestTree()
    links = sorted(_drawn_loads(topology, rng))
    tree = widest.place(problem, rng)
    taken: dict[bool, list[float]] = {True: [], False: []}
    for change in range(CHANGES):
        link, share = rng.choice(links), rng.choice((0.0, 0.3, 0.6, 0.8))
        if change % 2 and not is_named:
            ways = [end for hop in tree.parents.items() for end in problem.routes.shares(*hop)]
            link, share = rng.choice([end for end in ways if topology.is_switch(topology.peer(end).node)]), 0.9
        load = LinkLoad(topology.link_at(link).rate_bps * share)
        problem = replace(problem, loads={**problem.loads, link: load})
        again = partial(widest.resolve, problem, [link]) if is_named else partial(widest.place, problem, rng)
        seconds, found = _timed(again)
        taken[found == tree].append(seconds)
        tree = found
    return taken


def _apart(hosts: Sequence[str], rng: random.Random) -> list[Sequence[str]]:
    """Equally many hosts for each job, disjoint from the other jobs' hosts."""
    workers_each = WORKERS // JOBS
    drawn = rng.sample(hosts, workers_each * JOBS)
    return [drawn[index : index + workers_each] for index in range(0, len(drawn), workers_each)]


def _all_over(hosts: Sequence[str], rng: random.Random) -> list[Sequence[str]]:
    """A server for each job, and as many workers as all jobs have above: nearly all hosts that there are."""
    return [rng.sample(hosts, WORKERS + 1) for _ in range(JOBS)]


def _together(
    routes: Routes, name: str, draw: Callable[[Sequence[str], random.Random], list[Sequence[str]]], runs: int
) -> Figure:
    taken = []
    for seed in range(runs):
        rng = random.Random(seed)
        groups = draw([host.name for host in routes.topology.hosts], rng)
        loads = _drawn_loads(routes.topology, rng)
        problems = [Problem(routes, tuple(rest), server, GRADIENT_BYTES, loads) for server, *rest in groups]
        taken.append(cpu_seconds(partial(stripe, problems, limit=SearchLimit())))
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
        costs = PlacementCosts(problem)
        links.append((costs.slowest_link_seconds(placement), costs.slowest_link_seconds(best)))
    what = f"{name}, {workers} workers, {len(topology.switches)} switches"
    for figure, pairs in ((what, turns), (f"slowest link of {what}", links)):
        own, others = zip(*pairs, strict=True)
        yield Figure(figure, "s", own, STRATEGIES[other].label, others, less_is_better=True)
