"""Orders against their definitions, and the primal-dual order against all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from weir.controller.scheduling.demand import Floats, stages
from weir.controller.scheduling.errors import SchedulingError
from weir.controller.scheduling.orders import ORDERS
from weir.controller.scheduling.primal_dual import primal_dual_order
from weir.tests.controller.scheduling.demands import demand, drawn


def open_shop_cost(seconds: Floats, weights: Floats, order: tuple[int, ...] | list[int]) -> float:
    """Weighted sum of completion times of concurrent open shop."""
    ends = seconds[list(order)].cumsum(axis=0)
    busy = seconds[list(order)] > 0
    return float((weights[list(order)] * np.where(busy, ends, 0).max(axis=1)).sum())


@pytest.mark.parametrize("seed", range(8))
def test_primal_dual_order_is_within_twice_the_best_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.lognormal(0, 1, (6, 4)) * (rng.random((6, 4)) < 0.7)
    weights = rng.uniform(0.5, 2, 6)
    best = min(open_shop_cost(seconds, weights, order) for order in permutations(range(6)))
    found = primal_dual_order(seconds, weights)
    assert sorted(found) == [*range(6)]
    assert open_shop_cost(seconds, weights, found) <= 2 * best + 1e-9


def test_primal_dual_order_of_one_link_is_smiths_rule() -> None:
    rng = np.random.default_rng(3)
    seconds, weights = rng.lognormal(0, 1, (9, 1)), rng.uniform(0.5, 2, 9)
    assert primal_dual_order(seconds, weights) == [*np.argsort(seconds[:, 0] / weights)]


def test_items_without_demand_keep_their_order() -> None:
    assert primal_dual_order(np.zeros((3, 2)), np.ones(3)) == [0, 1, 2]


@pytest.mark.parametrize("name", ORDERS)
class TestEveryOrder:
    @pytest.mark.parametrize("seed", range(3))
    def test_each_job_is_in_one_tier(self, name: str, seed: int) -> None:
        demands = drawn(seed, 12, 9, 4)
        order = ORDERS[name].compute(demands)
        assert sorted(job for tier in order for job in tier) == sorted(of_job.job for of_job in demands)

    def test_no_job_gives_no_tier(self, name: str) -> None:
        assert ORDERS[name].compute([]) == ()


def test_stages_are_ordered_by_their_rest() -> None:
    """Three short jobs of a cojob together are longer than one job of another."""
    short = [demand(f"a{index}", [1.0], "a", 2) for index in range(3)]
    long = demand("b", [1.0], "b", 5)
    assert ORDERS["stage-srpt"].compute([*short, long])[0] == ("b",)
    assert ORDERS["grouper"].compute([*short, long])[0] == ("b",)
    assert ORDERS["sincronia-rest"].compute([*short, long])[-1] == ("b",)
    assert ORDERS["sincronia"].compute([*short, long])[0] == ("a0",)


def test_a_heavy_stage_at_the_head_shares_with_its_successor() -> None:
    heavy = demand("heavy", [100.0], begun_seconds=0)
    others = [demand(f"o{index}", [1.0], begun_seconds=index + 1) for index in range(4)]
    assert ORDERS["fifo-lm"].compute([*others, heavy]) == (("heavy", "o0"), ("o1",), ("o2",), ("o3",))


def test_bottleneck_of_a_step_and_intensity() -> None:
    wide, slow = demand("wide", [2.0, 2.0], compute_seconds=9, workers=4), demand("slow", [3.0, 0.0], workers=4)
    assert ORDERS["sebf"].compute([slow, wide]) == (("wide",), ("slow",))
    assert ORDERS["crux"].compute([slow, wide]) == (("wide",), ("slow",))


def test_jpas_orders_by_gain_per_second_with_a_guard() -> None:
    unknown = demand("unknown", [1.0])
    steep = demand("steep", [1.0], gain_per_step=0.1)
    light = demand("light", [0.1], gain_per_step=0.05)
    done = demand("done", [1.0], gain_per_step=0.9, converged=True)
    starved = demand("starved", [1.0], gain_per_step=0.0, periods_waited=20)
    order = ORDERS["jpas"].compute([done, steep, light, unknown, starved])
    assert order == (("starved",), ("unknown",), ("light",), ("steep",), ("done",))


def test_stages_sum_demand_and_take_the_slowest_job() -> None:
    one, other = demand("a", [1.0, 0.0], "c", 2, compute_seconds=1), demand("b", [0.0, 3.0], "c", 1)
    (stage,) = stages([one, other])
    assert [*stage.seconds] == [2.0, 3.0]
    assert stage.floor_seconds == stage.alone_seconds == 4.0


def test_demands_of_different_fabrics_are_refused() -> None:
    with pytest.raises(SchedulingError):
        stages([demand("a", [1.0]), demand("b", [1.0, 2.0])])


@pytest.mark.parametrize("values", [{"steps": -1}, {"compute_seconds": float("nan")}, {"weight": -2}])
def test_impossible_demand_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(SchedulingError):
        demand("a", [1.0], **values)  # type: ignore[arg-type]


def test_unknown_order_is_refused() -> None:
    with pytest.raises(SchedulingError) as caught:
        ORDERS.describe("grooper")
    assert "grouper" in (caught.value.allowed or ())
