"""No switch aggregates: the reference of every gain."""

from __future__ import annotations

import random
from typing import Final

from ..model.problem import Placement, PlacementError, Problem
from ..model.strategy import Need, StrategyDescription


class ServerOnly:
    """Every worker sends to the parameter server."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`. Raises PlacementError without a server, or beyond its fan-in."""
        if problem.server is None:
            raise PlacementError(
                "is missing; the strategy needs one: name a host, or use widest", place="strategy ps: server"
            )
        if len(problem.workers) > problem.fan_in:
            raise PlacementError(
                f"strategy ps sums at {problem.server} alone, which takes at most {problem.fan_in} children, and the "
                f"job has {len(problem.workers)} workers; use rack, random or widest, which put switches in between",
                value=len(problem.workers),
            )
        problem.check_ways()
        placement = Placement(dict.fromkeys(problem.workers, problem.server), {}, problem.server)
        placement.check(problem)
        return placement


DESCRIPTION: Final = StrategyDescription(
    "ps",
    "server only",
    "every worker sends to the parameter server",
    ServerOnly,
    frozenset({Need.SERVER}),
    advice="no switch sums; the baseline of all",
)
