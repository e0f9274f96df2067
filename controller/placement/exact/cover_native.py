"""Growth of trees by greedy cover (native code, by Numba), in memory of the caller, as `spanning_native`."""

from __future__ import annotations

import numpy as np
from numba import carray

from ....wire.native_code import native, whole
from .spanning_native import Floats, Ints, neighbours
from .tree_scratch import FLOAT_ROWS, ROWS


@whole
def covered(  # type: ignore[no-untyped-def]
    pairs_at, allowed_at, weights_at, pair_count, children_at, count, root, fan_in,
    parents_at, ints_at, floats_at, width
):  # fmt: skip
    """Grow a tree from the root by greedy cover, for fan-in that leaves no tree with the fewest hops. Arguments and
    result are those of `grown`.

    The next parent is the switch of the tree, or a neighbour of one with a place left, that serves the most terminals
    that are not in the tree; terminals with the fewest other neighbours are served first.
    """
    pairs, allowed = carray(pairs_at, (pair_count, 2), np.int64), carray(allowed_at, (pair_count,), np.bool_)
    weights, children = carray(weights_at, (pair_count,), np.float64), carray(children_at, (count,), np.int64)
    parents, rows = carray(parents_at, (count,), np.int64), carray(ints_at, (ROWS, width), np.int64)
    starts, others, which = rows[0], rows[1], rows[2]
    room, waiting, inside, serves = rows[3, :count], rows[4, :count], rows[5, :count], rows[6, :count]
    costs = carray(floats_at, (FLOAT_ROWS, width), np.float64)[0]
    parents[:] = -1
    neighbours(pairs, allowed, starts, others, which, rows[7], count)
    for edge in range(starts[count]):
        costs[edge] = weights[which[edge]]
    for node in range(count):
        room[node] = fan_in - max(children[node], 0)
        waiting[node], inside[node], serves[node] = children[node] >= 0, False, 0
    waiting[root], inside[root] = False, True
    left = 0
    for node in range(count):
        left += waiting[node]
        for edge in range(starts[node], starts[node + 1]):
            serves[node] += waiting[others[edge]]
    while left:
        best, joint = _next_parent(starts, others, costs, serves, room, inside)
        if best < 0:
            best, joint = _step_outwards(starts, others, waiting, room, inside, rows[7, :count], rows[8, :count])
            if best < 0:
                return 0
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
    return 1


@native
def _next_parent(starts: Ints, others: Ints, costs: Floats, serves: Ints, room: Ints, inside: Ints) -> tuple[int, int]:
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
def _rarest(starts: Ints, others: Ints, costs: Floats, waiting: Ints, room: Ints, parent: int) -> int:
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


@native
def _step_outwards(
    starts: Ints, others: Ints, waiting: Ints, room: Ints, inside: Ints, before: Ints, queue: Ints
) -> tuple[int, int]:
    """The first hop from the tree on a shortest way to a waiting switch, and its parent; −1 if there is no way."""
    before[:] = -1
    end = 0
    for node in range(len(waiting)):
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
