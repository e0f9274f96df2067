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
        found = np.empty(count, np.int64)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            found[inside] = self._order(int(epoch))[positions[inside] - epoch * self._rows]
        return found

    def share(self, step: int, sizes: Sequence[int], rank: int) -> Rows:
        """A worker's rows of a step's batch, which the workers share by `sizes`; their sum is the same in every step.

        The shares of all, by rank, are the batch of one process alone.
        """
        before = sum(sizes[:rank])
        return self.rows(step * sum(sizes) + before, sizes[rank])

    def _order(self, epoch: int) -> Rows:
        if epoch not in self._epochs:
            self._epochs[epoch] = np.random.default_rng((*self._seed, epoch)).permutation(self._rows)
        return self._epochs[epoch]
