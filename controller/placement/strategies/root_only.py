"""One switch for all: a placement without levels."""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, hub_switches
from ..model.problem import Placement, Problem
from ..model.strategy import StrategyDescription


class RootOnly:
    """Every worker sends to the switch nearest to all, which sends the server one stream."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        hub = next(hub_switches(problem), None)
        return closest_feasible_tree(problem, {} if hub is None else dict.fromkeys(problem.workers, hub))


DESCRIPTION: Final = StrategyDescription(
    "root",
    "root-only",
    "every worker sends to one switch, the nearest to all",
    RootOnly,
    advice="one switch that all are near to, as in one rack",
)
