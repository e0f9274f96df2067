"""The measurement of large batches: its Adasum is the collective's, and courses end where they are to."""

from __future__ import annotations

import numpy as np
import pytest

from weir.experiments.repetition.large_batches import BatchCondition, adasum, combining, rates_of, steps_to_loss
from weir.tests.hosts.collectives.test_adasum import everywhere


def test_adasum_of_the_measurement_is_that_of_the_collective() -> None:
    vectors = np.random.default_rng(0).standard_normal((8, 60))
    found = everywhere(vectors, "adasum", cuts=[10, 25])[0]
    assert adasum([*vectors], [10, 15, 35]) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize("contender", ["mean", "adasum", "racks", "adacons", "lars"])
def test_equal_gradients_are_combined_to_themselves(contender: str) -> None:
    gradient = np.arange(1, 13, dtype=np.float32)
    assert combining(contender, [5, 7])([gradient] * 8) == pytest.approx(gradient, rel=1e-5)


def test_adasum_needs_fewer_steps_than_the_mean_at_a_low_rate() -> None:
    setting = BatchCondition("digits", 1.0, 8)
    adasum_steps, mean_steps = (steps_to_loss(setting, name, 0.1, 0) for name in ("adasum", "mean"))
    assert adasum_steps is not None
    assert mean_steps is not None
    assert adasum_steps < 0.8 * mean_steps


def test_course_that_ends_at_its_limit_misses_the_loss() -> None:
    assert steps_to_loss(BatchCondition("digits", 0.2, 8), "mean", 0.01, 0, limit=3) is None


def test_rates_are_around_the_common_one_for_what_averages() -> None:
    assert 0.4 in rates_of("mean")
    assert max(rates_of("lamb")) < 0.4 < min(rates_of("lars"))
