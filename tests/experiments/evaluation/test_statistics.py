"""Means and intervals, against scipy and the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats  # type: ignore[import-untyped]

from weir.experiments.evaluation import statistics


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_of_a_mean_is_students(seed: int) -> None:
    values = np.random.default_rng(seed).exponential(3.0, 20)
    found = statistics.mean(values.tolist())
    low, high = scipy.stats.t.interval(
        0.95, len(values) - 1, values.mean(), values.std(ddof=1) / math.sqrt(len(values))
    )
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))


def test_one_value_and_equal_values_have_no_width() -> None:
    assert statistics.mean([3.0]) == statistics.Interval(3.0, 3.0, 3.0)
    assert statistics.mean([3.0, 3.0]) == statistics.Interval(3.0, 3.0, 3.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_paired_figure_is_scipys_bootstrap(seed: int) -> None:
    """Up to the randomness of 2,000 resamples."""
    rng = np.random.default_rng(seed)
    ours = rng.exponential(3.0, 20)
    theirs = ours * rng.uniform(1.2, 2.0, 20)
    found = statistics.paired(statistics.saved, ours.tolist(), theirs.tolist())
    expected = scipy.stats.bootstrap(
        (ours, theirs),
        lambda a, b, axis: 1 - a.mean(axis=axis) / b.mean(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(9),
    ).confidence_interval
    assert found.value == pytest.approx(1 - ours.mean() / theirs.mean())
    width = expected.high - expected.low
    assert found.low == pytest.approx(expected.low, abs=0.1 * width)
    assert found.high == pytest.approx(expected.high, abs=0.1 * width)


def test_pairs_stay_together() -> None:
    """Twice as fast at every seed is twice as fast, however the seeds differ."""
    found = statistics.paired(statistics.saved, [1.0, 50.0, 7.0], [2.0, 100.0, 14.0])
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_shares_of_depth_and_telemetry() -> None:
    assert statistics.depth_share(100.0, 30.0, 20.0) == pytest.approx(70 / 80)
    assert math.isnan(statistics.depth_share(20.0, 20.0, 20.0))
