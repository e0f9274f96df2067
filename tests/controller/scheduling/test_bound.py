"""The lower bound against the best of all orders and against a simulated fluid."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from weir.controller.scheduling.bound import completion_bound
from weir.controller.scheduling.demand import Stage
from weir.controller.scheduling.errors import SchedulingError


def drawn(seed: int, count: int, links: int, floors: bool = False, starts: bool = False) -> list[Stage]:
    rng = np.random.default_rng(seed)
    return [
        Stage(
            f"c{index}",
            (f"j{index}",),
            rng.lognormal(0, 1, links),
            float(rng.uniform(0, 8)) if floors else 0.0,
            float(rng.uniform(0, 6)) if starts else 0.0,
            1.0,
        )
        for index in range(count)
    ]


def served(stages: list[Stage], order: tuple[int, ...]) -> float:
    """Mean completion time if each link serves present stages in this order and may stop one for another."""
    ends = np.zeros(len(stages))
    for link in range(len(stages[0].seconds)):
        left = np.array([stage.seconds[link] for stage in stages])
        starts = np.array([stage.begun_seconds for stage in stages])
        now = 0.0
        while (left > 1e-12).any():
            present = [item for item in order if left[item] > 1e-12 and starts[item] <= now]
            coming = starts[(starts > now) & (left > 1e-12)].min(initial=np.inf)
            if not present:
                now = coming
                continue
            step = min(left[present[0]], coming - now)
            left[present[0]] -= step
            now += step
            ends[present[0]] = max(ends[present[0]], now)
    waited = [max(ends[index] - stage.begun_seconds, stage.floor_seconds) for index, stage in enumerate(stages)]
    return float(np.mean(waited))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("floors", "starts"), [(False, False), (True, False), (True, True)])
def test_bound_is_below_the_best_of_all_orders(seed: int, floors: bool, starts: bool) -> None:
    stages = drawn(seed, 5, 3, floors, starts)
    best = min(served(stages, order) for order in permutations(range(5)))
    assert 0.5 * best <= completion_bound(stages) <= best * (1 + 1e-6)


def test_bound_of_one_link_is_the_optimum() -> None:
    stages = drawn(5, 6, 1)
    times = np.sort([stage.seconds[0] for stage in stages]).cumsum()
    assert completion_bound(stages) == pytest.approx(times.mean(), rel=1e-6)


def test_bound_without_network_is_the_mean_floor() -> None:
    stages = [Stage("a", ("a",), np.zeros(2), 4.0, 0.0, 1.0), Stage("b", ("b",), np.zeros(2), 2.0, 1.0, 3.0)]
    assert completion_bound(stages) == pytest.approx((4 + 3 * 2) / 4)


def test_bound_of_nothing_is_refused() -> None:
    with pytest.raises(SchedulingError):
        completion_bound([])
