"""Prediction that a speed stays as it was last."""

from __future__ import annotations

from typing import Final

from ...machines import Readings
from ..predictor import PredictorDescription


class Memoryless:
    """The last speed."""

    def __init__(self) -> None:
        self._last: float | None = None

    def predict(self, readings: Readings) -> float | None:
        return self._last

    def observe(self, speed: float) -> None:
        self._last = speed


DESCRIPTION: Final = PredictorDescription("memoryless", "the last speed", Memoryless)
