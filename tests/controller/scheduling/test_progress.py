"""Fits of known curves, and predictions from reports."""

from __future__ import annotations

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]

from weir.controller.scheduling.errors import SchedulingError
from weir.controller.scheduling.progress import MIN_REPORTS, ProgressCurve, fitted, non_negative_line


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("slope", [0.01, 0.2])
def test_fit_predicts_a_curve_of_its_own_form(floor: float, slope: float) -> None:
    steps = np.arange(1, 120)
    curve = fitted([*steps], [*(1 / (slope * steps + 1.5) + floor)])
    assert curve is not None
    assert curve.value(300) == pytest.approx(1 / (slope * 300 + 1.5) + floor, rel=0.08)


def test_fit_of_noisy_values_predicts_their_mean() -> None:
    rng = np.random.default_rng(5)
    steps = np.arange(1, 200)
    values = 2 / (0.1 * steps + 1) + 0.3
    curve = fitted([*steps], [*(values + rng.normal(0, 0.02, len(steps)))])
    assert curve is not None
    assert curve.value(300) == pytest.approx(2 / 31 + 0.3, abs=0.06)


def test_few_reports_predict_nothing() -> None:
    progress = ProgressCurve.empty()
    for step in range(1, MIN_REPORTS):
        progress.add(step, accuracy=0.1 * step)
    assert progress.predicted(10) == (None, False)


def test_a_job_that_has_levelled_off_has_converged() -> None:
    progress = ProgressCurve.empty()
    for step in range(1, 200):
        progress.add(step, accuracy=0.9 - 0.8 / (0.5 * step + 1))
    gain, converged = progress.predicted(10)
    assert gain is not None
    assert 0 <= gain < 1e-3
    assert converged


def test_gain_of_a_long_job_is_that_of_its_curve() -> None:
    progress = ProgressCurve.empty()
    for step in range(1, 1000):
        progress.add(step, loss=5 * (1 / (0.05 * step + 1) + 0.1))
    gain, converged = progress.predicted(10)
    first = 1 / 1.05 + 0.1
    assert gain == pytest.approx((1 / 50.95 - 1 / 51.45) / first / 10, rel=0.2)
    assert converged


def test_young_job_goes_before_one_that_has_levelled_off() -> None:
    young, level = ProgressCurve.empty(), ProgressCurve.empty()
    for step in range(1, 15):
        young.add(step, accuracy=0.1)
    for step in range(1, 300):
        level.add(step, accuracy=0.9 - 0.8 / (0.5 * step + 1))
    gains = [each.predicted(20)[0] for each in (young, level)]
    assert gains[0] is not None
    assert gains[1] is not None
    assert gains[0] > 10 * gains[1]


def test_accuracy_that_falls_back_does_not_count() -> None:
    rising, noisy = ProgressCurve.empty(), ProgressCurve.empty()
    for step in range(1, 30):
        best = step / (step + 5)
        rising.add(step, accuracy=best if step % 2 else (step - 1) / (step + 4))
        noisy.add(step, accuracy=best if step % 2 else 0.0)
    assert noisy.predicted(5) == rising.predicted(5)


def test_impossible_reports_are_refused() -> None:
    progress = ProgressCurve.empty()
    progress.add(3, loss=1.0)
    with pytest.raises(SchedulingError):
        progress.add(3, loss=0.9)
    with pytest.raises(SchedulingError):
        progress.add(4)
    with pytest.raises(SchedulingError):
        fitted([1, 2], [0.1, float("inf")])


@pytest.mark.parametrize("seed", range(5))
def test_two_unknowns_are_those_of_non_negative_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        x, rows = np.sort(rng.random(rng.integers(10, 60))), 3
        y = rng.normal(size=(rows, len(x))) + rng.choice([-3, 0, 3]) * x + rng.choice([-1, 0, 2])
        weights = rng.random((rows, len(x))) ** 4
        slopes, offsets = non_negative_line(x, y, weights)
        for row in range(rows):
            root = np.sqrt(weights[row])
            wanted, _ = scipy.optimize.nnls(np.column_stack([x, np.ones_like(x)]) * root[:, None], root * y[row])
            assert [slopes[row], offsets[row]] == pytest.approx(wanted, abs=1e-6)
