"""Means over seeds with intervals of confidence, and comparisons of strategies under the same draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE: Final = 0.95
_RESAMPLES: Final = 2_000
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and where it is with `CONFIDENCE`."""

    value: float
    low: float
    high: float


def mean(values: Sequence[float]) -> Interval:
    """Return the mean with its confidence interval by Student's t. The interval of one value is the value."""
    sample = np.asarray(values, np.float64)
    middle = float(sample.mean())
    if len(sample) < 2 or np.ptp(sample) == 0.0:
        return Interval(middle, middle, middle)
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(sample) - 1) * scipy.stats.sem(sample))
    return Interval(middle, middle - half, middle + half)


def paired(figure: Callable[..., float], *samples: Sequence[float]) -> Interval:
    """Return a figure of means of several strategies (`figure(*means)`), by bootstrap over the seeds, the same for
    all: a seed is drawn with all that ran under it. Percentiles of 2,000 resamples.
    """
    table: Floats = np.asarray(samples, np.float64)
    value = figure(*table.mean(axis=1))
    if table.shape[1] < 2:
        return Interval(value, value, value)
    chosen = np.random.default_rng(_SEED).integers(0, table.shape[1], (_RESAMPLES, table.shape[1]))
    means = table[:, chosen].mean(axis=2)
    drawn = np.array([figure(*column) for column in means.T])
    low, high = np.percentile(drawn, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return Interval(value, float(low), float(high))


def saved(mine: float, other: float) -> float:
    """Share of `other`'s time that is saved; negative where mine is slower."""
    return 1.0 - mine / other


def depth_share(server: float, blind: float, best: float) -> float:
    """Share of the saving over the server alone that sums at every level achieve without telemetry.

    The rest up to 1 is telemetry's share. NaN without any saving.
    """
    return part_of_saving(server, server, blind, best)


def part_of_saving(server: float, before: float, after: float, best: float) -> float:
    """Return the share of the saving over the server alone by which one method exceeds another.

    Args:
        server: Time of the server alone; all four times have the same unit.
        before: Time of the worse method.
        after: Time of the better method.
        best: Time of the method whose saving counts as 1.

    Returns:
        Share, 1 for all of the saving; NaN if the best method saves nothing.
    """
    return (before - after) / (server - best) if server > best else float("nan")
