"""Connectivity and growth of trees between switches (native code, by Numba), in memory of the caller.

Scratch is one array of rows, each as long as the longest list. Flags in it are integers, 0 or 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray
from numpy.typing import NDArray

from ....wire.native_code import native, whole
from .tree_scratch import FLOAT_ROWS, ROWS

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


@whole
def last_that_connects(  # type: ignore[no-untyped-def]
    pairs_at, pair_count, order_at, order_count, allowed_at, nodes_at, node_count, count, above_at, wanted_at
):
    """Return the first pair that, with the allowed ones before it, connects all of these switches; −1: none does.

    Args:
        pairs_at: Switches of each pair, int64 (pairs, 2); this and all other `_at` are addresses.
        pair_count: Number of pairs.
        order_at: Numbers of pairs in the order in which they are added, int64.
        order_count: Number of these.
        allowed_at: Mask of the pairs that may be used, bool (pairs,).
        nodes_at: Numbers of the switches to connect, int64.
        node_count: Number of these.
        count: Number of switches.
        above_at: Room for an int64 per switch.
        wanted_at: Room for a bool per switch.
    """
    pairs, allowed = carray(pairs_at, (pair_count, 2), np.int64), carray(allowed_at, (pair_count,), np.bool_)
    above, wanted = carray(above_at, (count,), np.int64), carray(wanted_at, (count,), np.bool_)
    for node in range(count):
        above[node], wanted[node] = node, False
    for node in carray(nodes_at, (node_count,), np.int64):
        wanted[node] = True
    left = node_count - 1
    for index in carray(order_at, (order_count,), np.int64):
        if allowed[index] and joins(above, wanted, pairs[index, 0], pairs[index, 1]):
            left -= 1
            if not left:
                return index
    return -1


@native
def neighbours(pairs: Ints, allowed: Any, starts: Ints, others: Ints, which: Ints, ends: Ints, count: int) -> None:
    """Write the adjacency lists: start of each switch's list (switches + 1,), the neighbours that it may send to, and
    the pairs. `ends` is room for a number per switch.
    """
    starts[: count + 1] = 0
    for index in range(len(pairs)):
        if allowed[index]:
            starts[pairs[index, 0] + 1] += 1
            starts[pairs[index, 1] + 1] += 1
    for node in range(count):
        starts[node + 1] += starts[node]
        ends[node] = starts[node]
    for index in range(len(pairs)):
        if allowed[index]:
            for side in range(2):
                node = pairs[index, side]
                others[ends[node]], which[ends[node]] = pairs[index, 1 - side], index
                ends[node] += 1


@whole
def grown(  # type: ignore[no-untyped-def]
    pairs_at, allowed_at, weights_at, pair_count, children_at, count, root, fan_in,
    parents_at, ints_at, floats_at, width
):  # fmt: skip
    """Find a tree, as `trees.rooted_tree` does. Return 1 if there is a tree, else 0.

    Args:
        pairs_at: Switches of each pair, int64 (pairs, 2); this and all other `_at` are addresses.
        allowed_at: Mask of the pairs that may be used, bool (pairs,).
        weights_at: Weight of each pair, float64 (pairs,).
        pair_count: Number of pairs.
        children_at: Number of children that each terminal has already, int64 (switches,); −1 for other switches.
        count: Number of switches.
        root: Number of the root.
        fan_in: Maximum number of children of a switch.
        parents_at: Receives the parent of each switch, int64 (switches,); −1 for the root and others.
        ints_at: Room for ROWS rows of `width` int64.
        floats_at: Room for FLOAT_ROWS rows of `width` float64.
        width: Length of a row: the number of switches and one, or twice the number of pairs if that is more.
    """
    pairs, allowed = carray(pairs_at, (pair_count, 2), np.int64), carray(allowed_at, (pair_count,), np.bool_)
    weights, children = carray(weights_at, (pair_count,), np.float64), carray(children_at, (count,), np.int64)
    parents, rows = carray(parents_at, (count,), np.int64), carray(ints_at, (ROWS, width), np.int64)
    floats = carray(floats_at, (FLOAT_ROWS, width), np.float64)
    starts, others, which, costs = rows[0], rows[1], rows[2], floats[0]
    distance, order, used, room, wanting = rows[3], rows[4], rows[5], rows[6], rows[7]
    parents[:] = -1
    neighbours(pairs, allowed, starts, others, which, rows[8], count)
    for edge in range(starts[count]):
        costs[edge] = weights[which[edge]]
    reached = _distances(starts, others, root, count, distance, order)
    for node in range(count):
        if children[node] >= 0 and distance[node] < 0:
            return 0
        used[node], room[node] = children[node] >= 0, fan_in - max(children[node], 0)
    end = reached
    while end > 1:
        begin = end - 1
        while distance[order[begin - 1]] == distance[order[begin]]:
            begin -= 1
        left = 0
        for place in range(begin, end):
            if used[order[place]]:
                wanting[left] = order[place]
                left += 1
        level = wanting[:left]
        if not _serve(level, starts, others, costs, distance, room, used, parents, rows[8:], floats[1:], count):
            return 0
        end = begin
    return 1


@native
def _distances(starts: Ints, others: Ints, root: int, count: int, distance: Ints, order: Ints) -> int:
    """Write the hops from the root (switches,), −1 where none lead, and the switches in the order in which they are
    met; return how many.
    """
    distance[:count] = -1
    distance[root], order[0], reached = 0, root, 1
    at = 0
    while at < reached:
        node = order[at]
        for edge in range(starts[node], starts[node + 1]):
            if distance[others[edge]] < 0:
                distance[others[edge]] = distance[node] + 1
                order[reached] = others[edge]
                reached += 1
        at += 1
    return reached


@native
def _serve(
    wanting: Ints,
    starts: Ints,
    others: Ints,
    costs: Floats,
    distance: Ints,
    room: Ints,
    used: Ints,
    parents: Ints,
    rows: Ints,
    floats: Floats,
    count: int,
) -> bool:
    """Give each of a level's switches a parent one hop nearer.

    Parents in use come first, then those that serve most; ties go to lighter links.
    """
    firsts, mine, serves, changed, weights, weight = rows[0], rows[1], rows[2], rows[3], floats[0], floats[1]
    _offer(wanting, starts, others, costs, distance, firsts, mine, rows[2], weights, count)
    for node in range(count):
        serves[node], weight[node], changed[node] = 0, 0.0, firsts[node + 1] > firsts[node]
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


@native
def _offer(
    wanting: Ints,
    starts: Ints,
    others: Ints,
    costs: Floats,
    distance: Ints,
    firsts: Ints,
    mine: Ints,
    ends: Ints,
    weights: Floats,
    count: int,
) -> None:
    """Write candidates by parent: start of each switch's list (switches + 1,), the switches that it may serve, and
    link costs.
    """
    firsts[: count + 1] = 0
    for node in wanting:
        for edge in range(starts[node], starts[node + 1]):
            if distance[others[edge]] == distance[node] - 1:
                firsts[others[edge] + 1] += 1
    for node in range(count):
        firsts[node + 1] += firsts[node]
        ends[node] = firsts[node]
    for node in wanting:
        for edge in range(starts[node], starts[node + 1]):
            other = others[edge]
            if distance[other] == distance[node] - 1:
                mine[ends[other]], weights[ends[other]] = node, costs[edge]
                ends[other] += 1


@native
def _is_better(node: int, best: int, used: Ints, serves: Ints, room: Ints, weight: Floats) -> bool:
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
