"""Aggregation by rack, as in SwitchML and ATP (Sapio et al. and Lao et al., NSDI 2021)."""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, rack_sums
from ..model.problem import Placement, Problem
from ..model.strategy import StrategyDescription


class RackOnly:
    """Switches with two workers or more sum, and each sends one stream to the root."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        return closest_feasible_tree(problem, rack_sums(problem))


DESCRIPTION: Final = StrategyDescription(
    "rack",
    "rack-only",
    "a switch with two workers or more sums their gradients; the sums go to the root",
    RackOnly,
    advice="a baseline: switches that know their rack alone",
)
