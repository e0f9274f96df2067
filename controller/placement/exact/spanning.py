"""Connectivity and growth of trees between switches: native code, by Numba, on pairs by index."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

import numpy as np

from ....wire.native_code import allocating, native
from ..model.links import Bools, Floats, Ints, Links


@cache
def prepare() -> None:
    """Compile the native code, or load it, so that the first decision does not wait for it."""
    pairs, both = np.array([[0, 1]]), np.array([0, 1])
    _last_that_connects(pairs, np.array([0]), np.ones(1, np.bool_), both, 2)
    grown(pairs, np.ones(1, np.bool_), np.ones(1), both, 0, 2)
    covered(pairs, np.ones(1, np.bool_), np.ones(1), both, 0, 2)


def connected(links: Links, allowed: Bools, nodes: Collection[int]) -> bool:
    """Return True if these pairs (pairs,) connect all of these switches."""
    return len(nodes) == 1 or last_that_connects(links, np.arange(len(allowed)), allowed, nodes) is not None


def last_that_connects(links: Links, order: Ints, allowed: Bools, nodes: Collection[int]) -> int | None:
    """Return the first pair that, with the allowed ones before it, connects all of these switches; None if none does.

    Args:
        links: Pairs of switches with a link.
        order: Numbers of pairs in the order in which they are added, int64 (pairs,).
        allowed: Mask of the pairs that may be used, bool (pairs,).
        nodes: Numbers of the switches, two or more.
    """
    last = int(_last_that_connects(links.pairs, order, allowed, np.array([*nodes]), len(links.switches)))
    return None if last < 0 else last


@native
def _top(above: Ints, node: int) -> int:
    """Representative of a switch's connected component."""
    while above[node] != node:
        above[node] = above[above[node]]
        node = above[node]
    return node


@native
def joins(above: Ints, wanted: Bools, a: int, b: int) -> bool:
    """Link two switches, and return True if that connects wanted switches on both sides.

    Args:
        above: Parent of each switch in its component, int64 (switches,); changed.
        wanted: Mask of the components with a wanted switch, at their representatives, bool (switches,); changed.
        a: Number of one switch.
        b: Number of the other switch.
    """
    a, b = _top(above, a), _top(above, b)
    if a == b:
        return False
    both = wanted[a] and wanted[b]
    above[b] = a
    wanted[a] |= wanted[b]
    return bool(both)


@allocating
def _last_that_connects(pairs: Ints, order: Ints, allowed: Bools, nodes: Ints, switches: int) -> int:
    """−1: none does."""
    above, wanted = np.arange(switches), np.zeros(switches, np.bool_)
    wanted[nodes] = True
    left = len(nodes) - 1
    for index in order:
        if allowed[index] and joins(above, wanted, pairs[index, 0], pairs[index, 1]):
            left -= 1
            if not left:
                return int(index)
    return -1


@allocating
def grown(pairs: Ints, allowed: Bools, weights: Floats, children: Ints, root: int, fan_in: int) -> tuple[bool, Ints]:
    """Find a tree, as `trees.rooted_tree` does.

    Args:
        pairs: Switches of each pair with a link, int64 (pairs, 2).
        allowed: Mask of the pairs that may be used, bool (pairs,).
        weights: Weight of each pair, float64 (pairs,).
        children: Number of children that each terminal has already, int64 (switches,); −1 for other switches.
        root: Number of the root.
        fan_in: Maximum number of children of a switch.

    Returns:
        True if there is a tree, and the parent of each of its switches, int64 (switches,); −1 for the root and others.
    """
    count = len(children)
    parents = np.full(count, -1)
    starts, others, which = neighbours(pairs, allowed, count)
    costs = weights[which]
    distance, order, reached = _distances(starts, others, root, count)
    for node in range(count):
        if children[node] >= 0 and distance[node] < 0:
            return False, parents
    used, room = children >= 0, fan_in - np.maximum(children, 0)
    end = reached
    while end > 1:
        begin = end - 1
        while distance[order[begin - 1]] == distance[order[begin]]:
            begin -= 1
        level = order[begin:end]
        if not _serve(level[used[level]], starts, others, costs, distance, room, used, parents):
            return False, parents
        end = begin
    return True, parents


@allocating
def neighbours(pairs: Ints, allowed: Bools, count: int) -> tuple[Ints, Ints, Ints]:
    """Return the adjacency lists: start of each switch's list (switches + 1,), the neighbours that it may send to,
    and the pairs.
    """
    starts = np.zeros(count + 1, np.int64)
    for index in range(len(pairs)):
        if allowed[index]:
            starts[pairs[index, 0] + 1] += 1
            starts[pairs[index, 1] + 1] += 1
    starts = np.cumsum(starts)
    ends, others, which = starts.copy(), np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int64)
    for index in range(len(pairs)):
        if allowed[index]:
            for side in range(2):
                node = pairs[index, side]
                others[ends[node]], which[ends[node]] = pairs[index, 1 - side], index
                ends[node] += 1
    return starts, others, which


@allocating
def _distances(starts: Ints, others: Ints, root: int, count: int) -> tuple[Ints, Ints, int]:
    """Hops from the root (switches,), −1 where none lead; switches in the order in which they are met, and how many."""
    distance, order, reached = np.full(count, -1), np.empty(count, np.int64), 1
    distance[root], order[0] = 0, root
    at = 0
    while at < reached:
        node = order[at]
        for edge in range(starts[node], starts[node + 1]):
            if distance[others[edge]] < 0:
                distance[others[edge]] = distance[node] + 1
                order[reached] = others[edge]
                reached += 1
        at += 1
    return distance, order, reached


@allocating
def _serve(
    wanting: Ints,
    starts: Ints,
    others: Ints,
    costs: Floats,
    distance: Ints,
    room: Ints,
    used: Bools,
    parents: Ints,
) -> bool:
    """Give each of a level's switches a parent one hop nearer.

    Parents in use come first, then those that serve most; ties go to lighter links.
    """
    count = len(distance)
    firsts, mine, weights = _offers(wanting, starts, others, costs, distance)
    serves, weight = np.zeros(count, np.int64), np.zeros(count)
    changed = firsts[1:] > firsts[:-1]
    left = len(wanting)
    while left:
        best = -1
        for node in range(count):
            if changed[node]:
                changed[node] = False
                serves[node], weight[node] = 0, 0.0
                for index in range(firsts[node], firsts[node + 1]):
                    if parents[mine[index]] < 0:
                        serves[node] += 1
                        weight[node] += weights[index]
            if serves[node] and (best < 0 or _is_better(node, best, used, serves, room, weight)):
                best = node
        if best < 0:
            return False
        for _ in range(min(serves[best], room[best])):
            child = _lightest(firsts[best], firsts[best + 1], mine, weights, parents)
            parents[child] = best
            room[best] -= 1
            used[best] = True
            left -= 1
            for edge in range(starts[child], starts[child + 1]):
                if serves[others[edge]]:
                    changed[others[edge]] = True
        serves[best] = 0
        changed[best] = False
    return True


@allocating
def _offers(wanting: Ints, starts: Ints, others: Ints, costs: Floats, distance: Ints) -> tuple[Ints, Ints, Floats]:
    """Candidates by parent: start of each switch's list (switches + 1,), the switches that it may serve, and link
    costs.
    """
    firsts = np.zeros(len(distance) + 1, np.int64)
    for node in wanting:
        for edge in range(starts[node], starts[node + 1]):
            if distance[others[edge]] == distance[node] - 1:
                firsts[others[edge] + 1] += 1
    firsts = np.cumsum(firsts)
    ends, mine, weights = firsts.copy(), np.empty(firsts[-1], np.int64), np.empty(firsts[-1])
    for node in wanting:
        for edge in range(starts[node], starts[node + 1]):
            other = others[edge]
            if distance[other] == distance[node] - 1:
                mine[ends[other]], weights[ends[other]] = node, costs[edge]
                ends[other] += 1
    return firsts, mine, weights


@native
def _is_better(node: int, best: int, used: Bools, serves: Ints, room: Ints, weight: Floats) -> bool:
    """Compare two possible parents; of equal ones the lower number, seen before, wins."""
    if used[node] != used[best]:
        return bool(used[node])
    most, max_of_best = min(serves[node], room[node]), min(serves[best], room[best])
    if most != max_of_best:
        return bool(most > max_of_best)
    return bool(weight[node] / serves[node] < weight[best] / serves[best])


@native
def _lightest(begin: int, end: int, mine: Ints, weights: Floats, parents: Ints) -> Any:
    """Lightest child without a parent; of equal ones the lower number."""
    best = -1
    for index in range(begin, end):
        lighter = (
            best < 0 or weights[index] < weights[best] or (weights[index] == weights[best] and mine[index] < mine[best])
        )
        if parents[mine[index]] < 0 and lighter:
            best = index
    return mine[best]


@allocating
def covered(pairs: Ints, allowed: Bools, weights: Floats, children: Ints, root: int, fan_in: int) -> tuple[bool, Ints]:
    """Grow a tree from the root by greedy cover, for fan-in that leaves no tree with the fewest hops.

    The next parent is the switch of the tree, or a neighbour of one with a place left, that serves the most terminals
    that are not in the tree; terminals with the fewest other neighbours are served first.

    Args:
        pairs: Switches of each pair with a link, int64 (pairs, 2).
        allowed: Mask of the pairs that may be used, bool (pairs,).
        weights: Weight of each pair, float64 (pairs,).
        children: Number of children that each terminal has already, int64 (switches,); −1 for other switches.
        root: Number of the root.
        fan_in: Maximum number of children of a switch.

    Returns:
        True if there is a tree, and the parent of each of its switches, int64 (switches,); −1 for the root and others.
    """
    count = len(children)
    parents = np.full(count, -1)
    starts, others, which = neighbours(pairs, allowed, count)
    costs = weights[which]
    room = fan_in - np.maximum(children, 0)
    waiting, inside = children >= 0, np.zeros(count, np.bool_)
    waiting[root], inside[root] = False, True
    left = int(waiting.sum())
    serves = np.zeros(count, np.int64)
    for node in range(count):
        for edge in range(starts[node], starts[node + 1]):
            serves[node] += waiting[others[edge]]
    while left:
        best, joint = _next_parent(starts, others, costs, serves, room, inside)
        if best < 0:
            best, joint = _step_outwards(starts, others, waiting, room, inside)
            if best < 0:
                return False, parents
        if not inside[best]:
            parents[best], inside[best] = joint, True
            room[joint] -= 1
            if waiting[best]:
                waiting[best] = False
                left -= 1
                for edge in range(starts[best], starts[best + 1]):
                    serves[others[edge]] -= 1
        while room[best] > 0 and serves[best] > 0:
            child = _rarest(starts, others, costs, waiting, room, best)
            parents[child], inside[child], waiting[child] = best, True, False
            room[best] -= 1
            left -= 1
            for edge in range(starts[child], starts[child + 1]):
                serves[others[edge]] -= 1
    return True, parents


@native
def _next_parent(starts: Ints, others: Ints, costs: Floats, serves: Ints, room: Ints, inside: Bools) -> tuple[int, int]:
    """The switch that can serve the most terminals, and its own parent; −1 if none serves any."""
    best, joint, most = -1, -1, 0
    for node in range(len(serves)):
        gain = min(serves[node], room[node])
        if gain <= most:
            continue
        if inside[node]:
            best, joint, most = node, node, gain
            continue
        near, lightest = -1, np.inf
        for edge in range(starts[node], starts[node + 1]):
            if inside[others[edge]] and room[others[edge]] > 0 and costs[edge] < lightest:
                near, lightest = others[edge], costs[edge]
        if near >= 0:
            best, joint, most = node, near, gain
    return best, joint


@native
def _rarest(starts: Ints, others: Ints, costs: Floats, waiting: Bools, room: Ints, parent: int) -> int:
    """The waiting neighbour with the fewest other switches that have a place for it; of equal ones, by lighter link."""
    child, fewest, lightest = -1, 0, 0.0
    for edge in range(starts[parent], starts[parent + 1]):
        node = others[edge]
        if not waiting[node]:
            continue
        places = 0
        for further in range(starts[node], starts[node + 1]):
            places += room[others[further]] > 0
        if child < 0 or places < fewest or (places == fewest and costs[edge] < lightest):
            child, fewest, lightest = node, places, costs[edge]
    return int(child)


@allocating
def _step_outwards(starts: Ints, others: Ints, waiting: Bools, room: Ints, inside: Bools) -> tuple[int, int]:
    """The first hop from the tree on a shortest way to a waiting switch, and its parent; −1 if there is no way."""
    count = len(waiting)
    before, queue, end = np.full(count, -1), np.empty(count, np.int64), 0
    for node in range(count):
        if inside[node] and room[node] > 0:
            before[node], queue[end] = node, node
            end += 1
    at = 0
    while at < end:
        node = queue[at]
        at += 1
        for edge in range(starts[node], starts[node + 1]):
            other = others[edge]
            if before[other] >= 0 or inside[other]:
                continue
            before[other] = node
            if waiting[other]:
                while not inside[before[other]]:
                    other = before[other]
                return other, before[other]
            if room[other] > 0:
                queue[end] = other
                end += 1
    return -1, -1
