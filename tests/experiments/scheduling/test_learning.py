"""Jobs with given curves under orders by progress."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from weir.controller.scheduling.orders import ORDERS
from weir.experiments.scheduling.curves import STEPS, LearningCurve, learning_curve
from weir.experiments.scheduling.learning import Learner, Learning
from weir.experiments.scheduling.searches import SearchJob
from weir.topologies import Routes, leaf_spine

ROUTES: Final = Routes(leaf_spine(2, 1, 4))
WORKERS: Final = ("h1", "h2", "h5", "h6")


def learner(name: str, speed: float, begun_seconds: float = 0.0) -> Learner:
    """A job that reaches 90 % of its accuracy after 9 / speed steps."""
    steps = np.arange(1, STEPS + 1)
    curve = LearningCurve(1 - 1 / (speed * steps + 1))
    return Learner(SearchJob(name, WORKERS, "h8", 1_000_000, 0.002, STEPS, 1), begun_seconds, curve)


@pytest.mark.parametrize("oracle", [False, True])
def test_gaining_job_goes_before_one_that_has_levelled_off(oracle: bool) -> None:
    jobs = [learner("old", 5.0), learner("new", 0.5, begun_seconds=2.0)]
    fair = Learning(ROUTES, jobs, ORDERS["fair"]).run()
    jpas = Learning(ROUTES, jobs, ORDERS["jpas"], oracle=oracle).run()
    assert jpas.to_share[0.9] < 0.95 * fair.to_share[0.9]
    assert jpas.last_end <= 1.05 * fair.last_end


def test_times_are_those_of_the_curve_for_a_job_alone() -> None:
    job = learner("alone", 1.0)
    times = Learning(ROUTES, [job], ORDERS["jpas"]).run()
    step = times.last_end / STEPS
    assert times.to_share[0.9] == pytest.approx(step * job.curve.steps_to(0.9))
    assert times.to_share[0.95] == pytest.approx(step * job.curve.steps_to(0.95))


def test_a_real_curve_rises_and_is_replayed() -> None:
    curve = learning_curve("digits", 16, 0.1, seed=1)
    assert curve.converged > 0.9
    assert 1 < curve.steps_to(0.9) <= curve.steps_to(0.95) < STEPS
    assert learning_curve.__wrapped__("digits", 16, 0.1, seed=1).accuracy.tolist() == curve.accuracy.tolist()
