"""A custom strategy: `weir run examples/user_workload.yaml --strategy examples/user_strategy.py`.

A strategy decides where a job's gradients are summed. It receives the fabric, its routes, the switches with free slots
and, in `problem.loads`, the background traffic of each link; it returns a tree: each node's parent.
"""

from __future__ import annotations

import random

from weir.controller.placement import Placement, Problem
from weir.controller.placement.baseline_trees import closest_feasible_tree, hub_switches
from weir.controller.placement.strategies import StrategyDescription


class LeastLoadedHub:
    """All workers send to the one switch whose links others use least, among those that all of them reach."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        def others_bps(switch: str) -> float:
            return sum(load.background_bps for end, load in problem.loads.items() if end.node == switch)

        hub = min(hub_switches(problem), key=others_bps, default=None)  # of equal ones the nearest, which comes first
        return closest_feasible_tree(problem, {} if hub is None else dict.fromkeys(problem.workers, hub))


DESCRIPTION = StrategyDescription(
    "user_strategy", "quietest hub", "every worker sends to the least loaded switch", LeastLoadedHub, resolves=True
)
