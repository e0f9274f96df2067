"""A worker's reports for its batch sizes: it times its computations, and predicts its speed for the decision.

Floating-point predictions may differ between machines. So each worker predicts only its own speed, and the sizes are
decided from everyone's reports.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import TrainingError
from ..machines import Readings
from .manager import RuleName
from .predictors import PREDICTORS
from .predictors.memoryless import Memoryless

REPORT_VALUES: Final = 3
"""Predicted samples per second; seconds of the last iteration; the most samples that it holds. 0: not known."""


class SpeedReporter:
    """One worker's: `observe` after it has computed, `report` before the next iteration."""

    def __init__(self, predictor: str = "narx", *, rule: RuleName = "analytic") -> None:
        """Make the reporter of one worker.

        Args:
            predictor: name of the predictor of speeds for the analytic rule, or the path of a Python file.
            rule: name of the rule. The numeric one uses times, and receives the last speed.

        Raises:
            TrainingError: There is no such predictor.
            MissingExtra: It needs a package that is not installed.
        """
        make = PREDICTORS.describe(predictor).make
        self._predictor = make() if rule == "analytic" else Memoryless()
        self._last_s = 0.0
        self._limit = 0

    def observe(self, samples: int, seconds: float, limit: int | None = None) -> None:
        """Record a computation of this worker; waiting for others and for the network is not in the time.

        `limit`: it has had no memory for more samples than that at once.
        """
        if not seconds > 0:
            raise TrainingError(f"{samples} samples in {seconds} s; a computation takes time", value=seconds)
        self._last_s = seconds
        self._limit = limit or self._limit
        self._predictor.observe(samples / seconds)

    def report(self, readings: Readings) -> NDArray[np.float64]:
        """Report on the next iteration, from the machine's current readings: float64, shape (REPORT_VALUES,)."""
        predicted = self._predictor.predict(readings)
        return np.array([predicted or 0.0, self._last_s, self._limit], np.float64)
