"""Mean stage completion times of hyper-parameter searches that share a fabric, under each order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ...controller.scheduling.orders import ORDERS
from ...topologies import Routes, Topology, fat_tree, leaf_spine
from ..scheduling.play import Play, search_bound
from ..scheduling.searches import SIGMA, drawn_searches
from .paper import Paper, Quantity, Sample

STAGE_TIME: Final = Quantity("mean stage completion time", "s")
BOUND: Final = "bound"
"""Contender that is the lower bound of the linear program."""
SEARCHES: Final = (6, 12)
"""Number of searches: the first for seed 0, one more for each further seed, and again from the first."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Fabric and sizes of one comparison."""

    name: str
    fabric: Callable[[], Topology]
    sigma: float = SIGMA


CONDITIONS: Final = (
    Condition("leaf-spine, 16 hosts", lambda: leaf_spine(4, 2, 4)),
    Condition("fat-tree, 16 hosts", lambda: fat_tree(4)),
    Condition("leaf-spine, sizes of σ = 1", lambda: leaf_spine(4, 2, 4), sigma=1.0),
)


def searches_of(seed: int) -> int:
    """Return the number of searches of a seed."""
    low, high = SEARCHES
    return low + seed % (high - low + 1)


def stage_times(paper: Paper) -> Iterator[Sample]:
    """Measure `STAGE_TIME` of all contenders, which are orders, or the lower bound."""
    for condition in CONDITIONS:
        routes = Routes(condition.fabric())
        for seed in range(paper.seeds):
            searches = drawn_searches(routes, searches_of(seed), seed, sigma=condition.sigma)
            for contender in paper.contenders:
                if contender.name == BOUND:
                    value = search_bound(routes, searches)
                else:
                    value = Play(routes, searches, ORDERS[contender.name].compute).run()
                yield Sample(STAGE_TIME.name, condition.name, contender.name, seed, value)
