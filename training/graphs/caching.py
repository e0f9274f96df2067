"""Interface of caches of features, and the two kinds: rows that stay, and rows that change from batch to batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import TrainingError
from .graph import Graph, Nodes

Rows = NDArray[Any]
"""Features of nodes, (k, dimensions)."""
Fetch = Callable[[Nodes], Rows]
"""Reads the features of nodes from where they are kept."""


Rank = Callable[[Nodes, Nodes, int], NDArray[np.float64]]
"""Ranks of nodes that could be kept: of the nodes of a batch, the candidates, and the number of the batch."""


class Cache(Protocol):
    """Rows of some nodes."""

    hits: int
    asked: int

    def fetch(self, nodes: Nodes, missing: Fetch) -> Rows:
        """Return the features of nodes, each of which is named once; those that are not here are read by `missing`."""


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """Everything that a cache is made of."""

    graph: Graph
    capacity: int
    """Rows."""
    fetch: Fetch
    """Reads the rows that a cache holds from the start."""
    visits: Callable[[], Nodes]
    """Counts the reads of each node in an epoch of another order, (nodes,)."""
    order: Callable[[], Sequence[Nodes]]
    """Nodes of each batch to come, as the samplers will draw them."""
    rng: np.random.Generator


@dataclass(frozen=True, slots=True)
class CacheDescription:
    """A cache as it is registered: one in each module of `caches`, as DESCRIPTION."""

    name: str
    summary: str
    make: Callable[[CacheSetting], Cache]


class StaticCache:
    """Rows of nodes that are chosen once."""

    def __init__(self, nodes: int, kept: Nodes, rows: Rows) -> None:
        """Hold `rows` (k, dimensions) of the nodes `kept` (k,), of so many nodes."""
        self._place = np.full(nodes, -1, np.int64)
        self._place[kept] = np.arange(len(kept))
        self._rows = rows
        self.hits = 0
        self.asked = 0

    def fetch(self, nodes: Nodes, missing: Fetch) -> Rows:
        """Return the rows of nodes, (n, columns); those that are not cached come from `missing`."""
        places = self._place[nodes]
        here = places >= 0
        self.hits += int(here.sum())
        self.asked += len(nodes)
        return _merged(here, self._rows[places[here]], nodes, missing)


class ChangingCache:
    """Cache of rows, each with a rank that batches update. Rows of the highest rank are replaced.

    The rank makes it a cache of the least recently used rows, or one that drops the row needed latest.
    """

    def __init__(self, nodes: int, capacity: int, rank: Rank) -> None:
        """Hold up to `capacity` rows.

        Args:
            nodes: Number of nodes.
            capacity: Rows.
            rank: Ranks behind each batch, of which the lowest are kept.
        """
        self._place = np.full(nodes, -1, np.int64)
        self._capacity = capacity
        self._rank = rank
        self._kept: Nodes = np.empty(0, np.int64)
        self._rows: Rows | None = None
        self._batch = 0
        self.hits = 0
        self.asked = 0

    def hold(self, kept: Nodes, rows: Rows) -> None:
        """Hold these rows and no others."""
        self._place[self._kept] = -1
        self._place[kept] = np.arange(len(kept))
        self._kept, self._rows = kept, rows

    def fetch(self, nodes: Nodes, missing: Fetch) -> Rows:
        """Return the rows of nodes, (n, columns), and keep those with the lowest ranks among them and the cached
        ones.
        """
        places = self._place[nodes]
        here = places >= 0
        self.hits += int(here.sum())
        self.asked += len(nodes)
        rows = _merged(here, self._rows[places[here]] if self._rows is not None else None, nodes, missing)
        others = np.setdiff1d(self._kept, nodes, assume_unique=True)
        candidates = np.concatenate([nodes, others])
        ranks = self._rank(nodes, candidates, self._batch)
        best = np.argsort(ranks, kind="stable")[: self._capacity]
        best = best[np.isfinite(ranks[best])]
        fresh = best < len(nodes)
        made = np.empty((len(best), rows.shape[1]), rows.dtype)
        made[fresh] = rows[best[fresh]]
        if self._rows is not None:
            made[~fresh] = self._rows[self._place[candidates[best[~fresh]]]]
        self.hold(candidates[best], made)
        self._batch += 1
        return rows


def keep_best(setting: CacheSetting, scores: NDArray[Any]) -> StaticCache:
    """Keep the nodes with the highest scores; of equal ones those with the lowest number."""
    kept = np.argsort(-scores, kind="stable")[: setting.capacity]
    return StaticCache(setting.graph.nodes, kept, setting.fetch(kept))


def check_capacity(capacity: int, nodes: int) -> None:
    """Raise TrainingError for a cache of less than 0 rows, or more rows than there are nodes."""
    if not 0 <= capacity <= nodes:
        raise TrainingError(f"{capacity} rows; there are {nodes} nodes", place="cache", value=capacity)


def _merged(here: NDArray[np.bool_], rows: Rows | None, nodes: Nodes, missing: Fetch) -> Rows:
    read = missing(nodes[~here])
    if rows is None:
        return read
    merged = np.empty((len(nodes), read.shape[1]), read.dtype)
    merged[here] = rows
    merged[~here] = read
    return merged
