"""The judge of all others: one mixed-integer program of the whole tree, any depth, any parents, for small cases."""

from __future__ import annotations

import random
from typing import Final

from ..cost import Costs
from ..problem import Placement, PlacementError, Problem
from ..strategy import Description, Need
from ..tree_program import TreeProgram, all_hops

MOST_HOPS: Final = 20_000


class Oracle:
    """Takes seconds to minutes."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        hops = all_hops(problem)
        if len(hops) > MOST_HOPS:
            raise PlacementError(
                f"the oracle's program would have {len(hops)} hops of {MOST_HOPS} at most; ask widest or scarce"
            )
        placement, _ = TreeProgram(problem, Costs(problem), hops).fastest()
        if placement is None:
            raise PlacementError(
                f"no tree sums {', '.join(problem.workers)}: give more switches room, or take fewer workers"
            )
        placement.check(problem)
        return placement


DESCRIPTION: Final = Description(
    "oracle",
    "oracle",
    "the whole tree by one mixed-integer program, for small cases",
    Oracle,
    frozenset({Need.ROOM, Need.TELEMETRY}),
    resolves=True,
)
