"""The best combination of several jobs' trees, by enumeration over subsets of the links between switches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from weir.controller.placement import Problem
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.placement.multi_job.joint import RunningAggregation
from weir.topologies import Endpoint, Routes, Topology, leaf_spine

Mode = Literal["equal", "weights", "priorities"]
Rows = NDArray[np.float64]

_SHAPES: Final = ((2, 2), (3, 2), (2, 3), (3, 3), (4, 2))
_MBIT: Final = 1_000_000


def drawn_problems(seed: int, mode: Mode) -> list[tuple[Problem, float, int]]:
    """Two to four jobs on four to six switches, each with its weight and priority."""
    rng = random.Random(f"{seed} {mode}")
    topology = _with_drawn_rates(leaf_spine(*rng.choice(_SHAPES), 8), rng)
    routes, loads = Routes(topology), dict[Endpoint, LinkLoad]()
    if rng.random() < 0.5:
        between = [link for link in topology.directed_links if _joins_switches(topology, link)]
        loads = {
            link: LinkLoad(rng.random() * 0.8 * topology.link_at(link).rate_bps)
            for link in between
            if rng.random() < 0.5
        }
    hosts = [host.name for host in topology.hosts]
    rng.shuffle(hosts)
    found = []
    for _ in range(rng.randint(2, 4)):
        size = rng.randint(2, 3 if len(topology.hosts) < 24 else 5)
        workers, hosts = hosts[:size], hosts[size:]
        server = hosts.pop() if rng.random() < 0.6 else None
        size_bytes = rng.choice((5_000_000, 10_000_000, 25_000_000))
        weight = float(rng.choice((1, 2, 3))) if mode == "weights" else 1.0
        priority = rng.randint(0, 2) if mode == "priorities" else 0
        room = {switch.name: 8 for switch in topology.switches}
        found.append((Problem(routes, tuple(workers), server, size_bytes, loads, room), weight, priority))
    return found


def _with_drawn_rates(topology: Topology, rng: random.Random) -> Topology:
    """Links between switches of 100 Mbit/s to 1 Gbit/s, or all of 500 Mbit/s; hosts' links of 2 Gbit/s."""
    equal = rng.random() < 0.3
    links = [
        replace(
            link,
            rate_bps=_MBIT
            * (
                (500 if equal else rng.choice((100, 200, 300, 500, 1000)))
                if all(topology.is_switch(end.node) for end in link.ends)
                else 2000
            ),
        )
        for link in topology.links
    ]
    return replace(topology, links=tuple(links))


def _joins_switches(topology: Topology, link: Endpoint) -> bool:
    return topology.is_switch(link.node) and topology.is_switch(topology.peer(link).node)


def best_slowest(jobs: Sequence[RunningAggregation]) -> float:
    """Least weighted seconds of the slowest job of the highest priority, over all combinations of all jobs' trees."""
    jobs = sorted(jobs, key=lambda job: -job.priority)
    weights = [job.weight if job.priority == jobs[0].priority else 0.0 for job in jobs]
    rows = [_rows(job.problem) for job in jobs]
    return _least(rows, weights, np.zeros(rows[0].shape[1]), [], np.inf)


def _least(rows: Sequence[Rows], weights: Sequence[float], load: Rows, chosen: list[Rows], best: float) -> float:
    job = len(chosen)
    if max((_seconds(row, load) * weight for row, weight in zip(chosen, weights, strict=False)), default=0.0) >= best:
        return best
    if job == len(rows) - 1:
        loads = load + rows[job]
        times = np.where(rows[job] > 0, loads, 0.0).max(axis=1) * weights[job]
        for each, weight in zip(chosen, weights, strict=False):
            times = np.maximum(times, np.where(each > 0, loads, 0.0).max(axis=1) * weight)
        return min(best, float(times.min()))
    for row in rows[job]:
        best = _least(rows, weights, load + row, [*chosen, row], best)
    return best


def _seconds(row: Rows, load: Rows) -> float:
    return float(load[row > 0].max())


def _rows(problem: Problem) -> Rows:
    """(trees, links): seconds of the streams of each tree on each directed link."""
    topology = problem.topology
    links = topology.directed_links
    number = {link: index for index, link in enumerate(links)}
    free = np.array(
        [
            topology.link_at(link).rate_bps - (problem.loads[link].background_bps if link in problem.loads else 0.0)
            for link in links
        ]
    )
    base = np.zeros(len(links))
    for host in problem.hosts:
        base[[number[Endpoint(host, 0)], number[topology.peer(Endpoint(host, 0))]]] = 1.0
    rows = []
    for tree in _trees(problem):
        row = base.copy()
        row[[number[link] for link in links if frozenset((link.node, topology.peer(link).node)) in tree]] = 1.0
        rows.append(row)
    seconds: Rows = np.array(rows) * 8 * problem.gradient_bytes / free
    return seconds


def _trees(problem: Problem) -> list[frozenset[frozenset[str]]]:
    """Pairs of linked switches of every tree that joins racks and root without another leaf."""
    topology = problem.topology
    graph = nx.Graph()
    for link in topology.links:
        a, b = (end.node for end in link.ends)
        if topology.is_switch(a) and topology.is_switch(b):
            graph.add_edge(a, b)
    ends = {*problem.racks}
    if problem.server is not None:
        ends.add(topology.attached_switch(problem.server).name)
    found = []
    others = [node for node in graph if node not in ends]
    for extra in itertools.chain.from_iterable(itertools.combinations(others, n) for n in range(len(others) + 1)):
        inside = graph.subgraph([*ends, *extra])
        for edges in itertools.combinations(list(inside.edges), len(inside) - 1):
            tree = nx.Graph(edges)
            tree.add_nodes_from(inside)
            if nx.is_connected(tree) and all(tree.degree(node) > 1 for node in extra):
                found.append(frozenset(map(frozenset, edges)))
    return found
