"""Prediction of a worker's speed in its next iteration from its past speeds."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Protocol

import numpy as np

from ..errors import TrainingError
from ..machines import Readings


class Predictor(Protocol):
    """Predictor of one worker: queried before each iteration, updated after it."""

    def predict(self, readings: Readings) -> float | None:
        """Predict the samples per second of the next iteration from the machine's current readings; None without
        data.
        """

    def observe(self, speed: float) -> None:
        """Record the speed of the iteration, in samples per second."""


class Memoryless:
    """The last one."""

    def __init__(self) -> None:
        self._last: float | None = None

    def predict(self, readings: Readings) -> float | None:
        return self._last

    def observe(self, speed: float) -> None:
        self._last = speed


class MovingAverage:
    """Exponentially weighted, with this weight for the newest."""

    def __init__(self, newest: float = 0.2) -> None:
        if not 0 < newest <= 1:
            raise TrainingError(f"a moving average in which the newest weighs {newest}; it is above 0, and 1 at most")
        self._newest = newest
        self._mean: float | None = None

    def predict(self, readings: Readings) -> float | None:
        return self._mean

    def observe(self, speed: float) -> None:
        self._mean = speed if self._mean is None else self._mean + self._newest * (speed - self._mean)


class RunningMedian:
    """Median of the last five speeds: single slow iterations do not change it."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=5)

    def predict(self, readings: Readings) -> float | None:
        return median(self._last) if self._last else None

    def observe(self, speed: float) -> None:
        self._last.append(speed)


class AutoRegressive:
    """A linear function of the last `order` speeds, by least squares over the last `memory` iterations."""

    def __init__(self, order: int = 2, memory: int = 1000, refit: int = 20) -> None:
        if order < 1 or refit < 1:
            raise TrainingError(
                f"an autoregression of order {order}, fitted every {refit} iterations; both are above 0"
            )
        self._order = order
        self._refit = refit
        self._speeds: deque[float] = deque(maxlen=memory)
        self._coefficients: np.ndarray | None = None
        self._observed = 0

    def predict(self, readings: Readings) -> float | None:
        if self._coefficients is None:
            return self._speeds[-1] if self._speeds else None
        last = [self._speeds[-1 - lag] for lag in range(self._order)]
        predicted = float(self._coefficients[0] + self._coefficients[1:] @ np.array(last))
        return min(max(predicted, min(self._speeds)), max(self._speeds))

    def observe(self, speed: float) -> None:
        self._speeds.append(speed)
        self._observed += 1
        if len(self._speeds) >= 10 * self._order and self._observed % self._refit == 0:
            speeds, order = np.array(self._speeds), self._order
            lagged = [speeds[order - 1 - lag : len(speeds) - 1 - lag] for lag in range(order)]
            columns = np.stack([np.ones(len(speeds) - order), *lagged], axis=1)
            self._coefficients = np.linalg.lstsq(columns, speeds[order:], rcond=None)[0]
