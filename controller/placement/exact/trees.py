"""Trees of adjacent hops: every switch sends to one that it is linked to, so any tree of the fabric can be had.

A hop between neighbours has no other way than the link, whatever routing does, so a tree is free to go where no
shortest path would. `rooted_tree` grows one over the links that are allowed; `placed` makes a placement of it, in which
a switch with a single child is left out where routing takes the stream the same way without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import scipy  # type: ignore[import-untyped]

from ....topologies.routing import Routes
from ..model.links import Bools, Floats, Ints, Links
from ..model.problem import Placement, Problem
from .spanning import covered, grown


def rooted_tree(
    links: Links, allowed: Bools, weights: Floats, terminals: Mapping[int, int], root: int, fan_in: int
) -> dict[int, int] | None:
    """Return a tree with the fewest hops from the root to every terminal; None if fan-in leaves no such tree.

    Among those trees, level by level from the far end, switches are taken that serve the most of the level beyond them,
    and of equal ones the one with lighter links.

    Args:
        links: Pairs of switches with a link.
        allowed: Mask of the pairs that may be used, bool (pairs,).
        weights: Weight of each pair, float64 (pairs,).
        terminals: Number of children that each terminal has already, which are its workers, by switch.
        root: Number of the root.
        fan_in: Maximum number of children of a switch.

    Returns:
        Parent of every switch of the tree except the root.
    """
    children = _children(links, terminals)
    is_complete, parents = grown(links.pairs, allowed, weights, children, root, fan_in)
    return _mapping(parents) if is_complete else None


def _children(links: Links, terminals: Mapping[int, int]) -> Ints:
    """(switches,) how many children each terminal has; −1 for all others."""
    children = np.full(len(links.switches), -1)
    children[[*terminals]] = [*terminals.values()]
    return children


def _mapping(parents: Ints) -> dict[int, int]:
    """Parents by switch, without the switches that have none."""
    return {int(node): int(parents[node]) for node in np.flatnonzero(parents >= 0)}


def fitted_tree(
    links: Links, usable: Bools, weights: Floats, terminals: Mapping[int, int], root: int, fan_in: int
) -> dict[int, int] | None:
    """Return a tree within fan-in, with pairs as light as the greedy cover finds; None if even all pairs leave no tree.

    The weight of the heaviest pair is found by bisection over the weights of all pairs.

    Args:
        links: Pairs of switches with a link.
        usable: Mask of the pairs that may be used, bool (pairs,).
        weights: Time of each pair, float64 (pairs,); pairs with infinite times are not used.
        terminals: Number of children that each terminal has already, which are its workers, by switch.
        root: Number of the root.
        fan_in: Maximum number of children of a switch.

    Returns:
        Parent of every switch of the tree except the root.
    """
    children = _children(links, terminals)
    levels = np.unique(weights[usable & np.isfinite(weights)])
    low, high, best = 0, len(levels) - 1, None
    while low <= high:
        middle = (low + high) // 2
        is_complete, parents = covered(
            links.pairs, usable & (weights <= levels[middle]), weights, children, root, fan_in
        )
        if is_complete:
            best, high = parents, middle - 1
        else:
            low = middle + 1
    return None if best is None else _mapping(best)


def central(links: Links, allowed: Bools, terminals: Sequence[int]) -> int:
    """Return the switch whose farthest terminal is the nearest by allowed pairs; of equal ones, the nearest to them
    all.
    """
    a, b = links.pairs[allowed].T
    graph = scipy.sparse.csr_array((np.ones(len(a)), (a, b)), shape=(len(links.switches),) * 2)
    hops = scipy.sparse.csgraph.dijkstra(graph, directed=False, indices=terminals, unweighted=True)
    order: Ints = np.lexsort((hops.sum(axis=0), hops.max(axis=0)))
    return int(order[0])


def user_switches(problem: Problem) -> dict[str, str]:
    """Return the switch that each worker is attached to."""
    return {worker: problem.topology.attached_switch(worker).name for worker in problem.workers}


def placed(
    problem: Problem, links: Links, parents: Mapping[int, int], root: int, aggregators: Mapping[str, str]
) -> Placement:
    """Return the placement of a tree of switches. The root's sum goes to the server if there is one.

    Args:
        problem: Placement problem.
        links: Switches by number.
        parents: Parent of each switch of the tree except the root, by number.
        root: Number of the root.
        aggregators: Switch that sums each worker, by name, such as `user_switches` returns.
    """
    names = links.switches
    above = {names[child]: names[parent] for child, parent in parents.items()}
    if problem.server is not None:
        above[names[root]] = problem.server
    return shortened(problem.routes, Placement.trimmed(aggregators, above, problem.server or names[root]))


def shortened(routes: Routes, placement: Placement) -> Placement:
    """Return the placement without switches with a single child whose stream passes them anyway, to save their
    slots.
    """
    aggregators, parents = dict(placement.aggregators), dict(placement.parents)
    counts = Counter([*aggregators.values(), *parents.values()])
    alone = {node for node, count in counts.items() if count == 1}
    only_child = {node: child for above in (aggregators, parents) for child, node in above.items() if node in alone}
    through: dict[str, tuple[str, ...]] = {}
    for node in [name for name in counts if name in only_child and name in parents]:
        child, parent = only_child[node], parents[node]
        way = (*through.get(child, ()), node, *through.get(node, ()))
        if not routes.is_only_path((child, *way, parent)):
            continue
        (aggregators if child in aggregators else parents)[child] = parent
        if parent in only_child:
            only_child[parent] = child
        del parents[node]
        through[child] = way
    return Placement(aggregators, parents, placement.root, placement.note)
