"""Sums at every level of a fixed tree, as an operator sets it up once: the value of depth alone, without telemetry."""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, rack_sums, several_spines_tree, spine_trees, spines
from ..model.problem import Placement, Problem
from ..model.strategy import StrategyDescription


class Hierarchy:
    """All switches on the shortest paths from the racks to one spine, the first of the nearest, and on to the root."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        hubs = spines(problem)
        tree = next(spine_trees(problem, hubs), None) or several_spines_tree(problem, hubs, lambda *_: 0.0)
        return closest_feasible_tree(problem, rack_sums(problem)) if tree is None else tree


DESCRIPTION: Final = StrategyDescription(
    "hierarchy",
    "fixed hierarchy",
    "every switch on the way to one spine, always the same, and from there sums",
    Hierarchy,
    advice="a baseline: what is configured by hand",
)
