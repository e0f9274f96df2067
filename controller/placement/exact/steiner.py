"""Cheap trees that join given switches: native code, by Numba, on pairs by index.

From one end on, always the end that is nearest to the tree is added, by its shortest path; so a tree costs less than
twice the cheapest (Takahashi and Matsuyama, "An approximate solution for the Steiner problem in graphs", Mathematica
Japonica 24, 1980). One search continues from end to end: the tree is at distance 0 from then on, and only nodes that
become nearer are visited again. The switches found so may be joined by cheaper pairs than their shortest paths, so they
are joined again by the cheapest ones, without branches that lead to no end.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import numpy as np

from ....wire.native_code import allocating, native
from ..model.links import Bools, Floats, Ints, Links
from .spanning import joins, neighbours


@cache
def prepare() -> None:
    """Compile the native code, or load it, so that the first decision does not wait for it."""
    _joined(np.array([[0, 1]]), np.ones(1, np.bool_), np.ones(1), np.array([0, 1]), 2)


def cheap_tree(links: Links, usable: Bools, costs: Floats, ends: Collection[int]) -> frozenset[int] | None:
    """Return the pairs of a cheap tree that joins some switches; None if usable pairs do not connect them.

    Args:
        links: Pairs of switches with a link.
        usable: Mask of the pairs that may be used, bool (pairs,).
        costs: Cost of each pair, float64 (pairs,), above 0.
        ends: Numbers of the switches to join.

    Returns:
        Numbers of the tree's pairs.
    """
    is_connected, taken = _joined(links.pairs, usable, costs, np.array([*ends]), len(links.switches))
    return frozenset(np.flatnonzero(taken).tolist()) if is_connected else None


@allocating
def _joined(pairs: Ints, usable: Bools, costs: Floats, ends: Ints, count: int) -> tuple[bool, Bools]:
    """Return whether all ends are joined, and the pairs (pairs,) that join them."""
    is_connected, inside = _ways(pairs, usable, costs, ends, count)
    return is_connected, _pruned(pairs, _spanning(pairs, usable, costs, inside), ends, count)


@allocating
def _ways(pairs: Ints, usable: Bools, costs: Floats, ends: Ints, count: int) -> tuple[bool, Bools]:
    """Return whether all ends are joined, and the switches (switches,) on the paths that join them."""
    starts, others, which = neighbours(pairs, usable, count)
    inside, wanted = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    wanted[ends] = True
    distance, before = np.full(count, np.inf), np.full(count, -1)
    heap, place, size = np.empty(count, np.int64), np.full(count, -1), 1
    heap[0], place[ends[0]], distance[ends[0]] = ends[0], 0, 0.0
    inside[ends[0]], wanted[ends[0]] = True, False
    left = wanted.sum()
    while size and left:
        node = heap[0]
        size -= 1
        place[node] = -1
        if size:
            heap[0] = heap[size]
            _sink(heap, place, distance, size)
        if wanted[node]:
            wanted[node] = False
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
    return left == 0, inside


@allocating
def _spanning(pairs: Ints, usable: Bools, costs: Floats, inside: Bools) -> Bools:
    """The cheapest pairs (pairs,) that join these switches (switches,); of equal ones those with the lowest numbers."""
    between = np.flatnonzero(usable & inside[pairs[:, 0]] & inside[pairs[:, 1]])
    above, taken = np.arange(len(inside)), np.zeros(len(pairs), np.bool_)
    for pair in between[np.argsort(costs[between], kind="mergesort")]:
        taken[pair] = joins(above, inside, pairs[pair, 0], pairs[pair, 1])
    return taken


@allocating
def _pruned(pairs: Ints, taken: Bools, ends: Ints, count: int) -> Bools:
    """The pairs (pairs,) of a tree without branches that lead to none of these switches."""
    starts, others, which = neighbours(pairs, taken, count)
    degree, kept = starts[1:] - starts[:-1], np.zeros(count, np.bool_)
    kept[ends] = True
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
    return taken


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
