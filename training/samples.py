"""Assignment of samples to workers: endless shuffled passes over the data, in shares of any size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import TrainingError

Rows = NDArray[np.int64]


class Samples:
    """The rows of a data set in an order that a seed fixes: every pass (epoch) has each row once, in a new order.

    Position p of the order is the same for all workers, so workers with a common table of shares need no coordinator
    for rows.
    """

    def __init__(self, rows: int, seed: Sequence[int]) -> None:
        if rows < 1:
            raise TrainingError(f"a data set of {rows} rows; there is at least one")
        self._rows = rows
        self._seed = seed
        self._epochs: dict[int, Rows] = {}

    def rows(self, first: int, count: int) -> Rows:
        """Return `count` rows from position `first` on, shape (count,)."""
        positions = np.arange(first, first + count)
        epochs = positions // self._rows
        for old in [epoch for epoch in self._epochs if count and epoch < epochs[0]]:
            del self._epochs[old]
        indices = np.empty(count, np.int64)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            indices[inside] = self._order(int(epoch))[positions[inside] - epoch * self._rows]
        return indices

    def share(self, step: int, sizes: Sequence[int], rank: int) -> Rows:
        """Return a worker's rows of a step's batch, which the workers share by `sizes`; their sum is the same in
        every step.

        The shares of all, by rank, are the batch of one process alone.
        """
        before = sum(sizes[:rank])
        return self.rows(step * sum(sizes) + before, sizes[rank])

    def _order(self, epoch: int) -> Rows:
        if epoch not in self._epochs:
            self._epochs[epoch] = np.random.default_rng((*self._seed, epoch)).permutation(self._rows)
        return self._epochs[epoch]


class Shard:
    """The rows that one worker holds, in an order that a seed fixes."""

    def __init__(self, held: Rows, seed: Sequence[int]) -> None:
        """Take the rows.

        Args:
            held: Rows of the data set, (count,), at least one.
            seed: Seed of the order.
        """
        self._held = held
        self._order = Samples(len(held), seed)

    def rows(self, first: int, count: int) -> Rows:
        """Return rows of the data set from position `first` of the order on, (count,)."""
        chosen: Rows = self._held[self._order.rows(first, count)]
        return chosen


def label_shards(labels: NDArray[np.generic], workers: int, mixed: float, seed: int) -> list[Rows]:
    """Split a data set by label, so that workers hold different classes.

    Args:
        labels: Label of each row, (rows,).
        workers: Number of shards, of equal length except for a row.
        mixed: Share of the rows that are dealt out regardless of labels, in [0, 1]; 1 makes shards alike.
        seed: Seed of that deal.

    Returns:
        Rows of each worker, by rank; every row is in one shard.
    """
    if not 0 <= mixed <= 1 or not 1 <= workers <= len(labels):
        raise TrainingError(
            f"{workers} shards of {len(labels)} rows with a mixed share of {mixed}; allowed: at most as many shards as "
            "rows, and a share in [0, 1]"
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    cut = round(mixed * len(labels))
    dealt, sorted_rows = order[:cut], order[cut:][np.argsort(labels[order[cut:]], kind="stable")]
    parts = zip(np.array_split(dealt, workers)[::-1], np.array_split(sorted_rows, workers), strict=True)
    return [np.sort(np.concatenate(part)) for part in parts]
