"""Periods of jobs that share devices, against their formula."""

from __future__ import annotations

import math

import pytest

from weir.experiments.scheduling.crossing import Crossing, cross


@pytest.mark.parametrize("jobs", [2, 4])
@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("shared_link", [False, True])
def test_period_in_turns_is_that_of_the_formula(jobs: int, share: float, shared_link: bool) -> None:
    crossing = Crossing((1.0,) * jobs, (share,) * jobs, shared_link)
    periods = cross(crossing, "turns")
    assert periods.seconds == pytest.approx([crossing.formula_seconds] * jobs, rel=0.05)
    assert periods.held_while_summing == 0


def test_unequal_jobs_have_the_formula_as_lower_bound() -> None:
    crossing = Crossing((1.0, 0.5), (0.4, 1.6))
    periods = cross(crossing, "turns", 60)
    assert max(periods.seconds) >= crossing.formula_seconds * (1 - 1e-9)
    assert max(periods.seconds) <= 1.3 * crossing.formula_seconds


def test_one_after_the_other_takes_the_sum() -> None:
    periods = cross(Crossing((1.0, 1.0), (0.5, 0.5)), "one after the other")
    assert periods.seconds == pytest.approx([3.0, 3.0])


def test_uncoordinated_jobs_that_start_together_compute_together() -> None:
    periods = cross(Crossing((1.0, 1.0), (0.5, 0.5)), "uncoordinated")
    assert periods.seconds == pytest.approx([2.5, 2.5])


def test_killed_partner_leaves_the_devices_to_the_other() -> None:
    killed, other = cross(Crossing((1.0, 1.0), (0.5, 0.5)), "turns", kill_at=20.3).seconds
    assert math.isnan(killed)
    assert other == pytest.approx(1.5, rel=0.05)
