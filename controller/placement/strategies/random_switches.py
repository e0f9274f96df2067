"""Random choice: the baseline that every informed method must beat."""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, within_reach
from ..model.problem import Placement, Problem
from ..model.strategy import StrategyDescription


class RandomSwitches:
    """A switch for every worker by lot, among those that it may send to and that have a place left."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        taken: dict[str, int] = {}
        wanted: dict[str, str] = {}
        reach = within_reach(problem)
        for worker in problem.workers:
            eligible = [name for name in reach[worker] if taken.get(name, 0) < problem.fan_in]
            if eligible:
                wanted[worker] = rng.choice(eligible)
                taken[wanted[worker]] = taken.get(wanted[worker], 0) + 1
        return closest_feasible_tree(problem, wanted)


DESCRIPTION: Final = StrategyDescription(
    "random",
    "random",
    "every worker takes one of the switches that it may send to, by lot",
    RandomSwitches,
    advice="a baseline: chance",
)
