"""Last iterations of a worker, as inputs and targets of a learned predictor."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..machines import Readings

Floats = NDArray[np.float64]

_TINY_SPREAD: Final = 1e-12


class SpeedHistory:
    """The last iterations with the network's inputs for each: the p speeds before it, and readings."""

    def __init__(self, order: int, memory: int, *, past_only: bool) -> None:
        self._order = order
        self._memory = memory
        self._newest = 1 if past_only else 0
        self._seen = np.empty((3, 2 * memory))
        """Speed and readings of each iteration; room for twice as many as are kept, so that they seldom move."""
        self._inputs = np.zeros((2 * memory, 3 * order))
        """Inputs per iteration. The first `order` iterations have no predecessors, and zeros here."""
        self._first = self._end = 0
        self._readings = Readings(1.0, 1.0)
        self._begun = False
        """True if the machine was read for the last iteration; otherwise it counts as in the one before."""
        self._mean, self._spread = np.zeros(3), np.ones(3)

    def __len__(self) -> int:
        return self._end - self._first

    def read(self, readings: Readings) -> None:
        """Begin an iteration with these readings of the machine."""
        self._readings, self._begun = readings, True
        if self._end == len(self._inputs):
            kept = slice(self._first, self._end)
            self._first, self._end = 0, self._end - self._first
            self._seen[:, : self._end] = self._seen[:, kept].copy()
            self._inputs[: self._end] = self._inputs[kept].copy()
        end, order = self._end, self._order
        self._seen[:, end] = 0.0, readings.cpu, readings.memory
        if end >= order:
            told, newest = self._inputs[end].reshape(3, order), end - self._newest
            told[0] = self._seen[0, end - order : end][::-1]
            told[1:] = self._seen[1:, newest - order + 1 : newest + 1][:, ::-1]

    def append(self, speed: float) -> None:
        """Append the speed that the present iteration had."""
        if not self._begun:
            self.read(self._readings)
        self._begun = False
        self._seen[0, self._end] = speed
        self._end += 1
        self._first = max(self._first, self._end - self._memory)
        kept = self._seen[:, self._first : self._end]
        self._mean = np.add.reduce(kept, 1) / len(self)
        apart = kept - self._mean[:, None]
        spread = np.sqrt(np.einsum("ij,ij->i", apart, apart) / len(self))
        self._spread = np.where(spread > _TINY_SPREAD, spread, 1.0)

    @property
    def mean_speed(self) -> float:
        """Mean of the speeds in the history, in samples per second."""
        return float(self._mean[0])

    @property
    def spread_of_speed(self) -> float:
        """Standard deviation of the speeds in the history."""
        return float(self._spread[0])

    def within(self, speed: float) -> float:
        """Return the nearest speed that is not beyond those that were seen."""
        seen = self._seen[0, self._first : self._end]
        return min(max(speed, float(seen.min())), float(seen.max()))

    @property
    def next_inputs(self) -> Floats:
        """Inputs of the iteration that has begun."""
        inputs: Floats = self._inputs[self._end]
        return inputs

    def scaled(self, inputs: Floats) -> Floats:
        """Return inputs as a network has them: less their means, in units of their spreads."""
        scaled: Floats = (inputs - self._mean.repeat(self._order)) / self._spread.repeat(self._order)
        return scaled

    def batches(self, chosen: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the scaled inputs (batches, size, 3 · order) and speeds (batches, size) of the chosen iterations,
        which are counted from the oldest that is kept.
        """
        places = chosen + self._first
        return self.scaled(self._inputs[places]), (self._seen[0, places] - self._mean[0]) / self._spread[0]
