"""A worker's side of its batch sizes: it times its computations, and foretells its speed for whoever decides.

What floating-point code foretells may differ between machines. So each worker foretells its own speed alone, and the
sizes are decided from everyone's reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import TrainingError
from ..machines import Readings
from .manager import RuleName
from .narx import Narx
from .predictors import AutoRegressive, Memoryless, MovingAverage, Predictor

PREDICTORS: Final[dict[str, Callable[[], Predictor]]] = {
    "memoryless": Memoryless,
    "ema": MovingAverage,
    "ar": AutoRegressive,
    "narx": Narx,
}

REPORT_VALUES: Final = 3
"""Predicted samples per second; seconds of the last iteration; the most samples that it holds. 0: not known."""


class SpeedReporter:
    """One worker's: `observe` after it has computed, `report` before the next iteration."""

    def __init__(self, predictor: str = "narx", *, rule: RuleName = "analytic") -> None:
        """`predictor` foretells the speed for the analytic `rule`; the numeric one goes by times, and is told the last
        speed.
        """
        if predictor not in PREDICTORS:
            raise TrainingError(f'predictor "{predictor}" is unknown; there are {", ".join(PREDICTORS)}')
        self._predictor = PREDICTORS[predictor]() if rule == "analytic" else Memoryless()
        self._last_s = 0.0
        self._limit = 0

    def observe(self, samples: int, seconds: float, limit: int | None = None) -> None:
        """This worker has computed; waiting for others and for the network is not in the time.

        `limit`: it has had no memory for more samples than that at once.
        """
        if not seconds > 0:
            raise TrainingError(f"{samples} samples in {seconds} s; a computation takes time")
        self._last_s = seconds
        self._limit = limit or self._limit
        self._predictor.observe(samples / seconds)

    def report(self, readings: Readings) -> NDArray[np.float64]:
        """What can be said of the next iteration, from what can be read of the machine now: float64, shape
        (REPORT_VALUES,).
        """
        predicted = self._predictor.predict(readings)
        return np.array([predicted or 0.0, self._last_s, self._limit], np.float64)
