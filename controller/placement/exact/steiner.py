"""Cheap trees that join given switches, on pairs by index.

From one end on, always the end that is nearest to the tree is added, by its shortest path; so a tree costs less than
twice the cheapest (Takahashi and Matsuyama, "An approximate solution for the Steiner problem in graphs", Mathematica
Japonica 24, 1980). One search continues from end to end: the tree is at distance 0 from then on, and only nodes that
become nearer are visited again. The switches found so may be joined by cheaper pairs than their shortest paths, so they
are joined again by the cheapest ones, without branches that lead to no end.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..model.links import Bools, Floats, Links
from .native_trees import native_trees
from .tree_scratch import scratch


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
    pairs, usable = np.ascontiguousarray(links.pairs, np.int64), np.ascontiguousarray(usable, np.bool_)
    costs, nodes = np.ascontiguousarray(costs, np.float64), np.array([*ends], np.int64)
    count = len(links.switches)
    inside, taken = np.empty(count, np.bool_), np.empty(len(pairs), np.bool_)
    ints, floats = scratch(len(pairs), count)
    is_connected = native_trees().ways(
        pairs.ctypes.data,
        usable.ctypes.data,
        costs.ctypes.data,
        len(pairs),
        nodes.ctypes.data,
        len(nodes),
        count,
        inside.ctypes.data,
        ints.ctypes.data,
        floats.ctypes.data,
        ints.shape[1],
    )
    if not is_connected:
        return None
    between = np.flatnonzero(usable & inside[pairs[:, 0]] & inside[pairs[:, 1]])
    order = between[np.argsort(costs[between], kind="stable")]  # of equal ones those with the lowest numbers
    native_trees().joined(
        pairs.ctypes.data,
        len(pairs),
        order.ctypes.data,
        len(order),
        nodes.ctypes.data,
        len(nodes),
        count,
        taken.ctypes.data,
        ints.ctypes.data,
        ints.shape[1],
    )
    return frozenset(np.flatnonzero(taken).tolist())
