"""Predictors that learn while they predict, each beside a running median."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final, Protocol

import numpy as np

from ..machines import Readings
from .history import Floats, SpeedHistory

_BATCH: Final = 32
_ERROR_MEMORY: Final = 0.02
"""Weight of the newest in the errors by which network and median are compared."""


class RunningMedian:
    """Median of the last five speeds: single slow iterations do not change it."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=5)

    def predict(self, readings: Readings) -> float | None:
        return median(self._last) if self._last else None

    def observe(self, speed: float) -> None:
        self._last.append(speed)


class Network(Protocol):
    """Network from the scaled inputs of `SpeedHistory` to a scaled speed."""

    def foretold(self, inputs: Floats) -> float:
        """Predict the speed of one iteration from its inputs, (3 · order,)."""

    def train(self, inputs: Floats, wanted: Floats) -> None:
        """Learn from a batch: inputs (size, 3 · order), speeds (size,)."""


class Learned:
    """A network that is trained by a few batches in every iteration.

    Until it has seen `warm_up` iterations, and whenever its recent errors exceed a running median's, the median is used
    instead. Predictions stay within the range of observed speeds.
    """

    def __init__(
        self,
        network: Network,
        order: int,
        rng: np.random.Generator,
        *,
        memory: int = 1000,
        warm_up: int = 100,
        updates: int = 2,
        past_only: bool = False,
    ) -> None:
        """Begin without a history.

        Args:
            network: The network.
            order: Number of last speeds, and of readings, in its inputs.
            rng: Generator that draws the batches.
            memory: Last iterations that it learns from.
            warm_up: Iterations before its first prediction.
            updates: Batches of an iteration.
            past_only: True to leave out the readings of the iteration itself.
        """
        self._rng = rng
        self._network = network
        self._history = SpeedHistory(order, memory, past_only=past_only)
        self._order = order
        self._warm_up = warm_up
        self._updates = updates
        self._median = RunningMedian()
        self._predicted: tuple[float | None, float | None] = None, None
        """Predictions of the network and of the median for the current iteration."""
        self._errors = [0.0, 0.0]

    def predict(self, readings: Readings) -> float | None:
        history = self._history
        history.read(readings)
        steady = self._median.predict(readings)
        network = None
        if len(history) >= self._warm_up:
            said = self._network.foretold(history.scaled(history.next_inputs))
            network = history.within(said * history.spread_of_speed + history.mean_speed)
        self._predicted = network, steady
        return network if network is not None and self._errors[0] <= self._errors[1] else steady

    def observe(self, speed: float) -> None:
        for index, predicted in enumerate(self._predicted):
            if predicted is not None and self._predicted[0] is not None:
                self._errors[index] += _ERROR_MEMORY * (abs(speed - predicted) - self._errors[index])
        self._median.observe(speed)
        history = self._history
        history.append(speed)
        if len(history) >= max(self._warm_up // 2, 2 * self._order + 1):
            chosen = self._rng.integers(self._order, len(history), (self._updates, _BATCH))
            for inputs, wanted in zip(*history.batches(chosen), strict=True):
                self._network.train(inputs, wanted)
