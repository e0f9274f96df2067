"""The judge of all others: one mixed-integer program of the whole tree, any depth, any parents, for small cases."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Final

from ..exact.tree_program import TreeProgram, all_hops
from ..model.cost import PlacementCosts
from ..model.problem import NoTree, Placement, PlacementError, Problem
from ..model.strategy import Need, StrategyDescription
from .scarce import ScarceMemory

MAX_HOPS: Final = 20_000
_SAME: Final = 1e-4
"""Times that differ by this share or less are the same."""


@dataclass
class OracleStrategy:
    """Takes seconds to minutes."""

    nodes: int = 20_000
    """Maximum number of branches; then the best tree so far is used, and its note states the proven gap."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`. Raises PlacementError above `MAX_HOPS` hops."""
        hops = all_hops(problem)
        if len(hops) > MAX_HOPS:
            raise PlacementError(
                f"the oracle's program would have {len(hops)} hops of {MAX_HOPS} at most; ask widest or scarce"
            )
        costs = PlacementCosts(problem)
        placement, bound = TreeProgram(problem, costs, hops).fastest(self.nodes)
        if placement is None and bound == math.inf:
            problem.check_ways()
            raise NoTree(f"no tree sums {', '.join(problem.workers)}: give more switches room, or take fewer workers")
        if placement is None:
            fast = ScarceMemory().improved(problem)
            return replace(fast, note=f"the oracle found no tree in {self.nodes} branches; this is one by scarce")
        placement.check(problem)
        if (slowest := costs.slowest_link_seconds(placement)) > bound * (1 + _SAME):
            most = f"{100 * (slowest / bound - 1):.1f} %" if bound > 0 else "any share"
            note = f"not proven in {self.nodes} branches: its slowest link may take up to {most} longer than need be"
            placement = replace(placement, note=note)
        return placement


DESCRIPTION: Final = StrategyDescription(
    "oracle",
    "oracle",
    "the whole tree by one mixed-integer program, for small cases",
    OracleStrategy,
    frozenset({Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    advice="to judge others; up to about 20 workers",
)
