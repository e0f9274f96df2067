"""Times of jobs with learning curves to shares of their converged accuracy, under each order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...controller.scheduling.orders import ORDERS
from ...topologies import Routes, leaf_spine
from ..scheduling.learning import Learning, drawn_learners
from .paper import Paper, Quantity, Sample

NINETY_PERCENT: Final = Quantity("mean time to 90 % of the converged accuracy", "s")
NEARLY_ALL: Final = Quantity("mean time to 95 % of the converged accuracy", "s")
LAST_END: Final = Quantity("end of the last job", "s")
ORACLE: Final = "oracle"
"""Contender with JPAS's order and the true curves."""
CONDITION: Final = "8 jobs, leaf-spine, 16 hosts"


def learning_times(paper: Paper) -> Iterator[Sample]:
    """Measure the three figures of all contenders, which are orders, or the oracle."""
    routes = Routes(leaf_spine(4, 2, 4))
    for seed in range(paper.seeds):
        learners = drawn_learners(routes, seed)
        for contender in paper.contenders:
            oracle = contender.name == ORACLE
            order = ORDERS["jpas" if oracle else contender.name]
            times = Learning(routes, learners, order, oracle=oracle).run()
            yield Sample(NINETY_PERCENT.name, CONDITION, contender.name, seed, times.to_share[0.9])
            yield Sample(NEARLY_ALL.name, CONDITION, contender.name, seed, times.to_share[0.95])
            yield Sample(LAST_END.name, CONDITION, contender.name, seed, times.last_end)
