"""Exponentially weighted moving average of the speeds."""

from __future__ import annotations

from typing import Final

from ...errors import TrainingError
from ...machines import Readings
from ..predictor import PredictorDescription


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


DESCRIPTION: Final = PredictorDescription("ema", "moving average, weight 0.2 for the newest speed", MovingAverage)
