"""Each worker for itself, in turn."""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, rack_switches, within_reach
from ..model.problem import Placement, Problem
from ..model.strategy import StrategyDescription


class NearestGreedy:
    """Every worker takes the nearest switch that still has a place; the sums go to the root."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        places: dict[str, int] = {}
        wanted: dict[str, str] = {}
        reach = within_reach(problem)
        near = {
            rack: sorted(reach[workers[0]], key=lambda name: problem.routes.hops(rack, name))
            for rack, workers in problem.racks.items()
        }
        racks = rack_switches(problem)
        for worker in problem.workers:
            free = (name for name in near[racks[worker]] if places.get(name, 0) < problem.fan_in)
            if offer := next(free, None):
                wanted[worker] = offer
                places[offer] = places.get(offer, 0) + 1
        return closest_feasible_tree(problem, wanted)


DESCRIPTION: Final = StrategyDescription(
    "nearest",
    "nearest greedy",
    "every worker sends to the nearest switch that has a place left",
    NearestGreedy,
    advice="a baseline, without a solver",
)
