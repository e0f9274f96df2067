"""Trees that join given switches at a low cost (native code, by Numba), in memory of the caller."""

from __future__ import annotations

import numpy as np
from numba import carray
from numpy.typing import NDArray

from ....wire.native_code import native, whole
from .cover_native import covered
from .spanning_native import grown, joins, last_that_connects, neighbours
from .tree_scratch import FLOAT_ROWS, ROWS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = ["covered", "grown", "joined", "last_that_connects", "ways"]


@whole
def ways(  # type: ignore[no-untyped-def]
    pairs_at, usable_at, costs_at, pair_count, ends_at, end_count, count, inside_at, ints_at, floats_at, width
):
    """Find the switches on the paths that join some switches. Return 1 if all are joined, else 0.

    Args:
        pairs_at: Switches of each pair, int64 (pairs, 2); this and all other `_at` are addresses.
        usable_at: Mask of the pairs that may be used, bool (pairs,).
        costs_at: Cost of each pair, float64 (pairs,).
        pair_count: Number of pairs.
        ends_at: Numbers of the switches to join, int64.
        end_count: Number of these.
        count: Number of switches.
        inside_at: Receives the mask of the switches, bool (switches,).
        ints_at: Room for ROWS rows of `width` int64.
        floats_at: Room for FLOAT_ROWS rows of `width` float64.
        width: Length of a row, as for `spanning_native.grown`.
    """
    pairs, usable = carray(pairs_at, (pair_count, 2), np.int64), carray(usable_at, (pair_count,), np.bool_)
    costs, ends = carray(costs_at, (pair_count,), np.float64), carray(ends_at, (end_count,), np.int64)
    inside, rows = carray(inside_at, (count,), np.bool_), carray(ints_at, (ROWS, width), np.int64)
    distance = carray(floats_at, (FLOAT_ROWS, width), np.float64)[0]
    starts, others, which = rows[0], rows[1], rows[2]
    wanted, before, heap, place = rows[3], rows[4], rows[5], rows[6]
    neighbours(pairs, usable, starts, others, which, rows[7], count)
    for node in range(count):
        inside[node], wanted[node], distance[node], before[node], place[node] = False, 0, np.inf, -1, -1
    for node in ends:
        wanted[node] = 1
    heap[0], place[ends[0]], distance[ends[0]], size = ends[0], 0, 0.0, 1
    inside[ends[0]], wanted[ends[0]] = True, 0
    left = 0
    for node in range(count):
        left += wanted[node]
    while size and left:
        node = heap[0]
        size -= 1
        place[node] = -1
        if size:
            heap[0] = heap[size]
            _sink(heap, place, distance, size)
        if wanted[node]:
            wanted[node] = 0
            left -= 1
            while not inside[node]:
                inside[node], distance[node] = True, 0.0
                size = _rise(heap, place, distance, size, node)
                node = before[node]
            continue
        for edge in range(starts[node], starts[node + 1]):
            other, away = others[edge], distance[node] + costs[which[edge]]
            if away < distance[other]:
                distance[other], before[other] = away, node
                size = _rise(heap, place, distance, size, other)
    return 1 if left == 0 else 0


@whole
def joined(  # type: ignore[no-untyped-def]
    pairs_at, pair_count, order_at, order_count, ends_at, end_count, count, taken_at, ints_at, width
):
    """Join switches by the first pairs of an order that do, without branches that lead to none of the ends. Return 0.

    Args:
        pairs_at: Switches of each pair, int64 (pairs, 2); this and all other `_at` are addresses.
        pair_count: Number of pairs.
        order_at: Numbers of the pairs to use, int64, in the order in which they are tried.
        order_count: Number of these.
        ends_at: Numbers of the switches that the tree must keep, int64.
        end_count: Number of these.
        count: Number of switches.
        taken_at: Receives the mask of the tree's pairs, bool (pairs,).
        ints_at: Room for ROWS rows of `width` int64.
        width: Length of a row, as for `spanning_native.grown`.
    """
    pairs, taken = carray(pairs_at, (pair_count, 2), np.int64), carray(taken_at, (pair_count,), np.bool_)
    rows = carray(ints_at, (ROWS, width), np.int64)
    starts, others, which, above, degree, kept = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
    for node in range(count):
        above[node], kept[node] = node, 1
    taken[:] = False
    for pair in carray(order_at, (order_count,), np.int64):
        taken[pair] = joins(above, kept, pairs[pair, 0], pairs[pair, 1])
    neighbours(pairs, taken, starts, others, which, rows[6], count)
    for node in range(count):
        degree[node], kept[node] = starts[node + 1] - starts[node], 0
    for node in carray(ends_at, (end_count,), np.int64):
        kept[node] = 1
    for first in range(count):
        node = first
        while degree[node] == 1 and not kept[node]:
            degree[node] = 0
            for edge in range(starts[node], starts[node + 1]):
                if taken[which[edge]]:
                    taken[which[edge]] = False
                    node = others[edge]
                    break
            degree[node] -= 1
    return 0


@native
def _nearer(distance: Floats, one: int, other: int) -> bool:
    """Order of two switches by distance; of equally near ones, the lower number comes first."""
    return bool(distance[one] < distance[other] or (distance[one] == distance[other] and one < other))


@native
def _rise(heap: Ints, place: Ints, distance: Floats, size: int, node: int) -> int:
    """Put a node, which is nearer than before, where it belongs; how many wait then."""
    at = place[node]
    if at < 0:
        at = size
        size += 1
    while at and _nearer(distance, node, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        place[heap[at]] = at
        at = (at - 1) // 2
    heap[at] = node
    place[node] = at
    return size


@native
def _sink(heap: Ints, place: Ints, distance: Floats, size: int) -> None:
    """Put the first of those that wait where it belongs."""
    node, at = heap[0], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _nearer(distance, heap[below + 1], heap[below]):
            below += 1
        if not _nearer(distance, heap[below], node):
            break
        heap[at] = heap[below]
        place[heap[at]] = at
        at = below
    heap[at] = node
    place[node] = at
