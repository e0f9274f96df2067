"""Interface of a predictor of one worker's speed, and its entry in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..machines import Readings


class Predictor(Protocol):
    """Predictor of one worker: queried before each iteration, updated after it."""

    def predict(self, readings: Readings) -> float | None:
        """Predict the samples per second of the next iteration from the machine's current readings; None without
        data.
        """

    def observe(self, speed: float) -> None:
        """Record the speed of the iteration, in samples per second."""


@dataclass(frozen=True, slots=True)
class PredictorDescription:
    """A predictor as it is registered: one in each module of `predictors`, as DESCRIPTION."""

    name: str
    """Name in run files."""
    summary: str
    make: Callable[[], Predictor]
    """Make the predictor of one worker. Raises MissingExtra if its package is not installed."""
