"""Traffic classes of an order, 0 the lowest: switches have queues of few priorities, so several tiers share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from .demand import Demand
from .errors import SchedulingError
from .order import Order

CLASSES: Final = 5
"""Traffic classes of jobs: priorities 1 to 5 of a switch with 8, which has one for other bulk and one for control."""


def leading_classes(order: Order, classes: int) -> dict[str, int]:
    """Return each job's class: a class for each of the first tiers, and the lowest for all other tiers together.

    Args:
        order: Tiers of jobs, the first before all others.
        classes: Number of classes.

    Raises:
        SchedulingError: There is no class.
    """
    _check(classes)
    return {job: max(classes - 1 - index, 0) for index, tier in enumerate(order) for job in tier}


def compressed_classes(order: Order, demands: Sequence[Demand], classes: int) -> dict[str, int]:
    """Return each job's class, so that the tiers that conflict most are in different ones, in their order.

    Tiers a and b conflict by Σ_e min(d_a(e), d_b(e)), the seconds that they want of the same links. The order is cut
    into consecutive classes so that the sum over pairs in different classes is largest (the maximum K-cut that Crux,
    SIGCOMM 2024, uses, for the one topological order that is given). Dynamic programming, O(tiers² · classes).

    Raises:
        SchedulingError: There is no class.
    """
    _check(classes)
    conflict = _conflicts(order, demands)
    tiers = len(order)
    if tiers <= classes:
        return leading_classes(order, classes)
    inside = np.zeros((tiers + 1, tiers + 1))  # conflicts among tiers i … j − 1, which one class would hide
    for i in range(tiers):
        for j in range(i + 1, tiers + 1):
            inside[i, j] = inside[i, j - 1] + conflict[i : j - 1, j - 1].sum()
    hidden = np.full((classes + 1, tiers + 1), np.inf)
    cut = np.zeros((classes + 1, tiers + 1), np.int64)
    hidden[0, 0] = 0.0
    for number in range(1, classes + 1):
        for end in range(1, tiers + 1):
            ways = hidden[number - 1, :end] + inside[:end, end]
            cut[number, end] = int(ways.argmin())
            hidden[number, end] = ways.min()
    ends, end = [], tiers
    for number in range(classes, 0, -1):
        ends.append((int(cut[number, end]), end))
        end = int(cut[number, end])
    return {job: class_ for class_, (first, last) in enumerate(ends) for tier in order[first:last] for job in tier}


def _conflicts(order: Order, demands: Sequence[Demand]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(tiers, tiers): seconds that two tiers want of the same links."""
    by_job: Mapping[str, Demand] = {demand.job: demand for demand in demands}
    wanted = [np.sum([by_job[job].steps_left * by_job[job].link_seconds for job in tier], axis=0) for tier in order]
    conflicts = np.zeros((len(order), len(order)))
    for a in range(len(order)):
        for b in range(a + 1, len(order)):
            conflicts[a, b] = np.minimum(wanted[a], wanted[b]).sum()
    return conflicts


def _check(classes: int) -> None:
    if classes < 1:
        raise SchedulingError("must be >= 1", place="classes", value=classes)
