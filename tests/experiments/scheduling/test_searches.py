"""Searches on a fabric: the same draws, stages one after the other, and a bound that no order beats."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Final

import pytest

from weir.controller.scheduling.demand import Demand
from weir.controller.scheduling.order import Order
from weir.controller.scheduling.orders import ORDERS
from weir.experiments.scheduling.play import Play, search_bound, wished_room
from weir.experiments.scheduling.searches import drawn_searches
from weir.topologies import Routes, leaf_spine

ROUTES: Final = Routes(leaf_spine(2, 1, 4))


def test_draws_are_replayed_from_their_seed() -> None:
    assert drawn_searches(ROUTES, 3, 7) == drawn_searches(ROUTES, 3, 7)
    assert drawn_searches(ROUTES, 3, 7) != drawn_searches(ROUTES, 3, 8)


def test_each_stage_halves_configurations_and_doubles_steps() -> None:
    for search in drawn_searches(ROUTES, 4, 1):
        counts = [len(stage) for stage in search.stages]
        assert counts[-1] == 1
        assert all(a == 2 * b for a, b in pairwise(counts))
        assert [stage[0].steps for stage in search.stages] == [
            search.stages[0][0].steps << index for index in range(len(counts))
        ]


@pytest.mark.parametrize("name", ORDERS)
def test_no_order_beats_the_bound(name: str) -> None:
    searches = drawn_searches(ROUTES, 3, 2)
    play = Play(ROUTES, searches, ORDERS[name].compute)
    assert play.run() >= search_bound(ROUTES, searches)
    assert len(play.stage_seconds) == sum(len(search.stages) for search in searches)


def test_grouper_is_close_to_the_best_of_all_orders() -> None:
    searches = drawn_searches(ROUTES, 3, 4, single_stage=True)

    def best(order: tuple[str, ...]) -> float:
        def compute(demands: list[Demand]) -> Order:
            return tuple(tuple(demand.job for demand in demands if demand.cojob == cojob) for cojob in order)

        return Play(ROUTES, searches, compute).run()  # type: ignore[arg-type]

    times = [best(order) for order in permutations([search.name for search in searches])]
    found = Play(ROUTES, searches, ORDERS["grouper"].compute).run()
    assert found <= 1.05 * min(times)
    assert max(times) > 1.1 * min(times)


@pytest.mark.parametrize("follows", ["nothing", "placement", "slots"])
def test_scarce_slots_are_given_back(follows: str) -> None:
    searches = drawn_searches(ROUTES, 3, 5)
    room = wished_room(ROUTES, searches)
    play = Play(ROUTES, searches, ORDERS["grouper"].compute, room, follows)  # type: ignore[arg-type]
    assert play.run() > 0
    assert play.free == room
