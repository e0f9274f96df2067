"""Trees of adjacent hops: every switch sends to one that it is linked to, so any tree of the fabric can be had.

A hop between neighbours has no other way than the link, whatever routing does, so a tree is free to go where no
shortest path would. `rooted_tree` grows one over the links that are allowed; `placed` makes a placement of it, in which
a switch with a single child is left out where routing takes the stream the same way without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
import scipy.sparse.csgraph  # type: ignore[import-untyped]

from ...topologies.routing import Routes
from .links import Bools, Floats, Ints, Links
from .problem import Placement, Problem


def rooted_tree(
    links: Links, allowed: Bools, weights: Floats, terminals: Mapping[int, int], root: int, fan_in: int
) -> dict[int, int] | None:
    """The parent of every switch but the root, over allowed pairs; None where fan-in leaves no such tree.

    Every terminal is as few hops from the root as can be; among those trees, level by level from the far end, switches
    are taken that serve the most of the level beyond them, and of equal ones the one by lighter links. `terminals` says
    how many children each has already, its workers.
    """
    neighbours = _neighbours(links, allowed, weights)
    distance, levels = {root: 0}, [[root]]
    while levels[-1]:
        beyond: list[int] = []
        for node in levels[-1]:
            for other, _ in neighbours[node]:
                if other not in distance:
                    distance[other] = len(levels)
                    beyond.append(other)
        levels.append(beyond)
    if not terminals.keys() <= distance.keys():
        return None
    parents: dict[int, int] = {}
    used = set(terminals)
    room = dict.fromkeys(distance, fan_in)
    for node, count in terminals.items():
        room[node] -= count
    for level in range(len(levels) - 1, 0, -1):
        wanting = [node for node in levels[level] if node in used]
        if not _serve(wanting, level, distance, neighbours, room, used, parents):
            return None
    return parents


def _neighbours(links: Links, allowed: Bools, weights: Floats) -> list[list[tuple[int, float]]]:
    """Of each switch, those that it may send to, with what the link costs."""
    neighbours: list[list[tuple[int, float]]] = [[] for _ in links.switches]
    for (a, b), weight in zip(links.pairs[allowed].tolist(), weights[allowed].tolist(), strict=True):
        neighbours[a].append((b, weight))
        neighbours[b].append((a, weight))
    return neighbours


def _serve(
    wanting: Sequence[int],
    level: int,
    distance: Mapping[int, int],
    neighbours: Sequence[Sequence[tuple[int, float]]],
    room: dict[int, int],
    used: set[int],
    parents: dict[int, int],
) -> bool:
    """Give each of a level's switches a parent one hop nearer: those in use first, then whoever serves most."""
    offers: dict[int, dict[int, float]] = {}
    for node in wanting:
        for other, weight in neighbours[node]:
            if distance[other] == level - 1:
                offers.setdefault(other, {})[node] = weight

    def rank(name: int) -> tuple[bool, int, float, int]:
        mine = offers[name]
        return name not in used, -min(len(mine), room[name]), sum(mine.values()) / len(mine), name

    left, ranks = set(wanting), {name: rank(name) for name in offers}
    while left and ranks:
        parent = min(ranks.values())[-1]
        del ranks[parent]
        mine = sorted(offers.pop(parent).items(), key=lambda offer: (offer[1], offer[0]))
        fewer: set[int] = set()
        for node, _ in mine[: max(room[parent], 0)]:
            parents[node] = parent
            room[parent] -= 1
            used.add(parent)
            left.discard(node)
            for other, _ in neighbours[node]:
                if other in offers and offers[other].pop(node, None) is not None:
                    fewer.add(other)
        for other in fewer:
            if offers[other]:
                ranks[other] = rank(other)
            else:
                del ranks[other], offers[other]
    return not left


def central(links: Links, allowed: Bools, terminals: Sequence[int]) -> int:
    """The switch whose farthest terminal is the nearest by allowed pairs; of equal ones, the nearest to them all."""
    a, b = links.pairs[allowed].T
    graph = scipy.sparse.csr_array((np.ones(len(a)), (a, b)), shape=(len(links.switches),) * 2)
    hops = scipy.sparse.csgraph.dijkstra(graph, directed=False, indices=terminals, unweighted=True)
    order: Ints = np.lexsort((hops.sum(axis=0), hops.max(axis=0)))
    return int(order[0])


def placed(problem: Problem, links: Links, parents: Mapping[int, int], root: int) -> Placement:
    """The placement of a tree of switches: workers at their own, the root's sum to the server if there is one."""
    names = links.switches
    above = {names[child]: names[parent] for child, parent in parents.items()}
    if problem.server is not None:
        above[names[root]] = problem.server
    aggregators = {worker: rack for rack, workers in problem.racks.items() for worker in workers}
    ordered = {worker: aggregators[worker] for worker in problem.workers}
    return shortened(problem.routes, Placement.trimmed(ordered, above, problem.server or names[root]))


def shortened(routes: Routes, placement: Placement) -> Placement:
    """Without switches that have one child alone and that its stream goes through anyway, to save their slots."""
    aggregators, parents = dict(placement.aggregators), dict(placement.parents)
    children = {node: list(mine) for node, mine in placement.children.items()}
    through: dict[str, tuple[str, ...]] = {}
    for node in [name for name, mine in children.items() if len(mine) == 1 and name in parents]:
        (child,), parent = children[node], parents[node]
        way = (*through.get(child, ()), node, *through.get(node, ()))
        if not _goes_through(routes, child, parent, way):
            continue
        (aggregators if child in aggregators else parents)[child] = parent
        children[parent] = [child if other == node else other for other in children[parent]]
        del parents[node]
        through[child] = way
    return Placement(aggregators, parents, placement.root, placement.note)


def _goes_through(routes: Routes, child: str, parent: str, way: Sequence[str]) -> bool:
    """Whether these switches are what both a stream and its result pass, and nothing else."""
    topology = routes.topology
    for start, end, between in ((child, parent, way), (parent, child, tuple(reversed(way)))):
        path = routes.unique_path(start, end)
        if path is None or tuple(topology.peer(link).node for link in path[:-1]) != tuple(between):
            return False
    return True
