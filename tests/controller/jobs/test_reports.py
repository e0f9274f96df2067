"""A job's reports: the newest is kept, and the curve covers the whole job in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from weir.controller.jobs.reports import MAX_POINTS, Phases, Reports
from weir.wire.control import JobReport


def test_the_newest_report_is_kept() -> None:
    reports = Reports()
    assert reports.newest is None
    for step in range(3):
        reports.add(JobReport(step), step)
    assert reports.newest == JobReport(2)


@pytest.mark.parametrize("count", [1, MAX_POINTS - 1, MAX_POINTS, 3 * MAX_POINTS, 10_000])
def test_a_curve_is_even_and_bounded(count: int) -> None:
    reports = Reports()
    for step in range(count):
        reports.add(JobReport(step), 10 * step)
    steps = np.array([report.step for _, report in reports.curve])
    assert len(steps) < MAX_POINTS
    assert [time_ns for time_ns, _ in reports.curve] == (10 * steps).tolist()
    assert steps[0] == 0
    gaps = set(np.diff(steps).tolist())
    assert len(gaps) <= 1
    assert count - 1 - steps[-1] < max(gaps, default=1)


def test_phases_are_summed_over_all_reports() -> None:
    reports = Reports()
    for step in range(MAX_POINTS + 3):
        reports.add(JobReport(2 * step, steps=2, compute_ns=5, exposed_ns=3, bytes=9, waiting_ns=step % 2), step)
    count = MAX_POINTS + 3
    assert reports.phases == Phases(2 * count, 5 * count, 3 * count, count // 2)
