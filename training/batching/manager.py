"""The batch size manager: what a worker asks before each iteration.

Every worker has one. What it reports goes to all by an all-gather over the fabric, and all compute the same sizes from
the same reports, so nobody has to be asked and nobody's loss takes the manager along. Only a worker's own speed is
foretold by floating-point code that may differ between machines, and that is done before the reports are gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import TrainingError
from ..machines import Readings
from .analytic import equal_shares, proportional_shares
from .narx import Narx
from .numeric import NumericRule
from .predictors import AutoRegressive, Memoryless, MovingAverage, Predictor

RuleName = Literal["analytic", "numeric"]
RULES: Final[tuple[RuleName, ...]] = get_args(RuleName)

PREDICTORS: Final[dict[str, Callable[[], Predictor]]] = {
    "memoryless": Memoryless,
    "ema": MovingAverage,
    "ar": AutoRegressive,
    "narx": Narx,
}

_PERSISTENT: Final = 7

REPORT_VALUES: Final = 3
"""Predicted samples per second; seconds of the last iteration; the most samples that it holds. 0: not known."""


class BatchSizeManager:
    """One worker's: `report` before an iteration, `decide` with the reports of all, `observe` after it has computed."""

    def __init__(
        self,
        total: int,
        workers: int,
        *,
        rule: RuleName = "analytic",
        predictor: str = "narx",
        step: int = 5,
        gain: float = 0.05,
        at_once: float = 0.15,
    ) -> None:
        """`total` samples are shared in each iteration. Under the analytic rule sizes change when the iteration would
        be longer without by the share `at_once`, or by `gain` for some iterations on end; `step` is the numeric
        rule's (`NumericRule`).
        """
        if rule not in RULES:
            raise TrainingError(f'rule "{rule}" for batch sizes is unknown; there are {", ".join(RULES)}')
        if predictor not in PREDICTORS:
            raise TrainingError(f'predictor "{predictor}" is unknown; there are {", ".join(PREDICTORS)}')
        self._total = total
        self._gain = gain
        self._at_once = at_once
        self._uneven = 0
        """Iterations on end that would have been shorter with other sizes."""
        self._predictor = PREDICTORS[predictor if rule == "analytic" else "memoryless"]()
        self._numeric = NumericRule(total, workers, step=step) if rule == "numeric" else None
        self._sizes = equal_shares(total, workers)
        self._last_s = 0.0
        self._limit = 0

    @property
    def sizes(self) -> list[int]:
        """As they were decided last, by rank; equal at the start."""
        return list(self._sizes)

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
        """For all workers, from what can be read of this one's machine now: float64, shape (REPORT_VALUES,)."""
        predicted = self._predictor.predict(readings)
        return np.array([predicted or 0.0, self._last_s, self._limit], np.float64)

    def decide(self, reports: NDArray[np.float64]) -> list[int]:
        """Everyone's sizes in the next iteration, by rank, from the reports of all: shape (workers, REPORT_VALUES)."""
        rows: list[Any] = reports.tolist()
        limits = [int(limit) or None for _, _, limit in rows]
        speeds, times = [speed for speed, _, _ in rows], [time for _, time, _ in rows]
        if self._numeric is not None:
            self._numeric.learn_limits(limits)
            if all(times):
                self._numeric.observe(times)
            self._sizes = self._numeric.sizes
        elif all(speeds):
            self._sizes = self._proportional(speeds, limits)
        return self.sizes

    def _proportional(self, speeds: Sequence[float], limits: Sequence[int | None]) -> list[int]:
        wanted = proportional_shares(self._total, speeds, limits)
        fits = all(limit is None or size <= limit for size, limit in zip(self._sizes, limits, strict=True))
        longer = _longest(self._sizes, speeds) / _longest(wanted, speeds) - 1
        self._uneven = self._uneven + 1 if longer > self._gain else 0
        if fits and longer <= self._at_once and self._uneven < _PERSISTENT:
            return self._sizes
        self._uneven = 0
        return wanted


def _longest(sizes: Sequence[int], speeds: Sequence[float]) -> float:
    return max(size / speed for size, speed in zip(sizes, speeds, strict=True))
