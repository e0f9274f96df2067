"""Connectivity and growth of trees between switches, on pairs by index."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ....machine_code.functions import NativeFunction
from ..model.links import Bools, Floats, Ints, Links
from .native_trees import native_trees
from .tree_scratch import scratch


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
    pairs, wanted = np.ascontiguousarray(links.pairs, np.int64), np.array([*nodes], np.int64)
    order, allowed = np.ascontiguousarray(order, np.int64), np.ascontiguousarray(allowed, np.bool_)
    count = len(links.switches)
    above, flags = np.empty(count, np.int64), np.empty(count, np.bool_)
    last = native_trees().last_that_connects(
        pairs.ctypes.data,
        len(pairs),
        order.ctypes.data,
        len(order),
        allowed.ctypes.data,
        wanted.ctypes.data,
        len(wanted),
        count,
        above.ctypes.data,
        flags.ctypes.data,
    )
    return None if last < 0 else last


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
    return _tree(native_trees().grown, pairs, allowed, weights, children, root, fan_in)


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
    return _tree(native_trees().covered, pairs, allowed, weights, children, root, fan_in)


def _tree(
    function: NativeFunction, pairs: Ints, allowed: Bools, weights: Floats, children: Ints, root: int, fan_in: int
) -> tuple[bool, Ints]:
    pairs, children = np.ascontiguousarray(pairs, np.int64), np.ascontiguousarray(children, np.int64)
    allowed, weights = np.ascontiguousarray(allowed, np.bool_), np.ascontiguousarray(weights, np.float64)
    count = len(children)
    parents = np.empty(count, np.int64)
    ints, floats = scratch(len(pairs), count)
    found = function(
        pairs.ctypes.data,
        allowed.ctypes.data,
        weights.ctypes.data,
        len(pairs),
        children.ctypes.data,
        count,
        root,
        fan_in,
        parents.ctypes.data,
        ints.ctypes.data,
        floats.ctypes.data,
        ints.shape[1],
    )
    return bool(found), parents
