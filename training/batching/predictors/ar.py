"""Linear autoregression by least squares."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from ...errors import TrainingError
from ...machines import Readings
from ..predictor import PredictorDescription


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


DESCRIPTION: Final = PredictorDescription("ar", "linear in the last two speeds, by least squares", AutoRegressive)
