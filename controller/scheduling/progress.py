"""Predicted progress of a job: curves of loss and accuracy that are fitted to its reports.

A value that falls is fitted by 1 / (b₀ k + b₁) + b₂ of the step k, with b ≥ 0 (the form of Optimus, Peng et al.,
EuroSys 2018). For each b₂ of a grid, non-negative least squares gives b₀ and b₁; recent reports count more (0.99 per
report of age, as in SLAQ, Zhang et al., SoCC 2017). Accuracy is fitted as the error 1 − (best accuracy so far). Loss is
divided by the job's first one, so that jobs with losses of different size compare.

Fits of the first reports are poor, and their predictions decide the order of young jobs. So the predicted gain is a
weighted mean of the fit's and of a prior that only knows the remaining error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from .demand import Floats
from .errors import SchedulingError

MIN_REPORTS: Final = 10
"""Fewer reports predict nothing."""
MAX_REPORTS: Final = 200
"""Number of the newest reports that a fit uses."""
_DECAY: Final = 0.99
_GRID: Final = 20
PRIOR_REPORTS: Final = 100
"""Number of reports from which the fit counts more than the prior: an error that falls as 1/k towards the fitted floor
has a gain of error / (k + steps) per step.
"""
_FLOOR_REPORTS: Final = 50
"""Number of reports from which the prior's floor is more than half of the fitted one."""
CONVERGED: Final = 0.95
"""Share of the final gain beyond which a job counts as converged."""
_SURE: Final = 50
"""Number of reports below which no job counts as converged: a curve that has not risen yet looks like a flat one."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve 1 / (slope · k + offset) + floor of a value that falls with the step k, in units of `scale`."""

    slope: float
    offset: float
    floor: float
    scale: float = 1.0

    def value(self, step: float) -> float:
        """Return the value after a number of steps."""
        below = self.slope * step + self.offset
        return self.scale * (self.floor + (1 / below if below > 0 else 0.0))

    @property
    def last(self) -> float:
        """Value after arbitrarily many steps."""
        return self.scale * self.floor if self.slope > 0 else self.value(0)


def fitted(steps: Sequence[float], values: Sequence[float]) -> Curve | None:
    """Fit a curve to values that fall.

    Args:
        steps: Step of each report, ascending.
        values: Value of each report, >= 0.

    Returns:
        The curve; None if there are fewer than MIN_REPORTS.

    Raises:
        SchedulingError: A value is negative or not finite, or the numbers of steps and values differ.
    """
    k, y = np.array(steps[-MAX_REPORTS:], np.float64), np.array(values[-MAX_REPORTS:], np.float64)
    if len(steps) != len(values) or not (np.isfinite(y) & (y >= 0)).all():
        raise SchedulingError("a fit needs a finite value >= 0 for each step", place="reports", value=len(values))
    if len(k) < MIN_REPORTS:
        return None
    scale = float(y.max()) or 1.0
    y = y / scale
    length = max(float(k.max()), 1.0)
    weights = _DECAY ** np.arange(len(y))[::-1]
    floors = np.linspace(0.0, 0.99 * float(y.min()), _GRID)
    above = np.maximum(y - floors[:, None], 1e-6)
    # errors of 1/above are above⁻² times those of the value, so these weights make both alike
    slopes, offsets = non_negative_line(k / length, 1 / above, weights * above**4)
    below = slopes[:, None] * (k / length) + offsets[:, None]
    values_found = floors[:, None] + np.divide(1, below, out=np.zeros_like(below), where=below > 0)
    errors = ((values_found - y) ** 2 * weights).sum(axis=1)
    best = int(errors.argmin())
    return Curve(float(slopes[best]) / length, float(offsets[best]), float(floors[best]), scale)


def non_negative_line(x: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the non-negative least squares b₀, b₁ of b₀ x + b₁ ≈ y for each row.

    With two unknowns, the solution is the unconstrained one, or has one of them 0.

    Args:
        x: (reports,).
        y: (rows, reports).
        weights: Weights of the squares, (rows, reports).
    """
    w, wx, wxx = weights.sum(axis=1), weights @ x, weights @ x**2
    wy, wxy = (weights * y).sum(axis=1), (weights * y) @ x
    det = np.maximum(w * wxx - wx**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope, offset = (w * wxy - wx * wy) / det, (wxx * wy - wx * wxy) / det
        inside = (det > 1e-12 * w * wxx) & (slope >= 0) & (offset >= 0)
        alone_slope, alone_offset = np.maximum(np.where(wxx > 0, wxy / wxx, 0.0), 0.0), np.maximum(wy / w, 0.0)
    # the better of the two edges: it takes more off the squares
    on_slope = np.where(wxx > 0, wxy * alone_slope, 0.0) > wy * alone_offset
    return (
        np.where(inside, slope, np.where(on_slope, alone_slope, 0.0)),
        np.where(inside, offset, np.where(on_slope, 0.0, alone_offset)),
    )


@dataclass(slots=True)
class ProgressCurve:
    """Reports of one job, and the predictions from them."""

    _steps: list[float]
    _errors: list[float]
    """Error after each report: 1 − the best accuracy so far, or the loss as a share of the first one."""
    _first_loss: float | None = None

    @classmethod
    def empty(cls) -> ProgressCurve:
        """Return the progress of a job without reports."""
        return cls([], [])

    def add(self, step: float, loss: float | None = None, accuracy: float | None = None) -> None:
        """Add a report. Accuracy in [0, 1] goes before loss; a job reports the same one each time.

        Raises:
            SchedulingError: The step is not larger than the last one, or there is neither value.
        """
        if self._steps and step <= self._steps[-1]:
            raise SchedulingError(f"must be > {self._steps[-1]:g}", place="step", value=step)
        if accuracy is not None:
            error = 1.0 - accuracy
        elif loss is not None:
            self._first_loss = self._first_loss or loss or 1.0
            error = loss / self._first_loss
        else:
            raise SchedulingError("needs a loss or an accuracy", place="report")
        best = min(error, self._errors[-1]) if self._errors else error
        self._steps.append(step)
        self._errors.append(max(best, 0.0))

    def predicted(self, steps: float) -> tuple[float | None, bool]:
        """Predict the gain of accuracy in each of the next steps, and whether the job has converged.

        Args:
            steps: Number of steps to look ahead.

        Returns:
            (gain per step, converged); the gain is None without enough reports.
        """
        curve = fitted(self._steps, self._errors)
        if curve is None:
            return None, False
        now, ahead, count = self._steps[-1], max(steps, 1.0), len(self._steps)
        fit = max(curve.value(now) - curve.value(now + ahead), 0.0) / ahead
        # a job that has not risen yet looks like one that never will; so young jobs are judged by what is left to gain
        floor = curve.last * count / (count + _FLOOR_REPORTS)
        prior = max(self._errors[-1] - floor, 0.0) / (now + ahead)
        gain = (PRIOR_REPORTS * prior + count * fit) / (PRIOR_REPORTS + count)
        whole = self._errors[0] - curve.last
        reached = self._errors[0] - self._errors[-1]
        return gain, len(self._steps) >= _SURE and whole > 0 and reached >= CONVERGED * whole
