"""The strongest of all fixed hierarchies: the one over the spine that is the fastest by telemetry, chosen again while
the job runs.
"""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, rack_sums, several_spines_tree, spine_parents, spine_trees, spines
from ..model.cost import PlacementCosts
from ..model.problem import Placement, Problem
from ..model.strategy import Need, StrategyDescription


class BestSpine:
    """Tree over one spine whose slowest link is the fastest; of equal ones the nearest spine.

    If a spine cannot have all racks for children, as few spines as possible share them.
    """

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        costs = PlacementCosts(problem)
        weights, links = costs.seconds_of_pairs(), costs.links
        slowest: dict[str, float] = {}
        hubs = spines(problem)

        def seconds(child: str, node: str) -> float:
            return float(weights[links.pair[links.switch[child], links.switch[node]]])

        for hub in hubs:
            if (parents := spine_parents(problem, hub)) is not None:
                slowest[hub] = max((seconds(*hop) for hop in parents.items()), default=0.0)
        tree = next(spine_trees(problem, sorted(slowest, key=lambda hub: slowest[hub])), None)
        tree = several_spines_tree(problem, hubs, seconds) if tree is None else tree
        return closest_feasible_tree(problem, rack_sums(problem)) if tree is None else tree


DESCRIPTION: Final = StrategyDescription(
    "best-spine",
    "best-spine",
    "of the fixed hierarchies over all spines, the one that is the fastest by telemetry; moved when that changes",
    BestSpine,
    frozenset({Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    advice="a baseline: one spine for all racks, but the right one",
)
