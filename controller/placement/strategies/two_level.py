"""ATP's two levels (Lao et al., NSDI 2021): the workers' racks, then the switch that the parameter server hangs on."""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, rack_sums, tree_from_parents
from ..model.problem import Placement, PlacementError, Problem
from ..model.strategy import Need, StrategyDescription


class TwoLevel:
    """Rack sums meet at the server's switch, which sends the server one stream."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`. Raises PlacementError for a job without a server."""
        if problem.server is None:
            raise PlacementError(
                "is missing; the strategy needs one: name a host, or use rack", place="strategy atp: server"
            )
        last = problem.topology.attached_switch(problem.server).name
        wanted = dict.fromkeys(problem.workers, last) | rack_sums(problem)
        parents = {name: last for name in wanted.values() if name != last} | {last: problem.server}
        return tree_from_parents(problem, wanted, parents, problem.server) or closest_feasible_tree(problem, wanted)


DESCRIPTION: Final = StrategyDescription(
    "atp",
    "two-level ATP",
    "the workers' racks sum, then the parameter server's",
    TwoLevel,
    frozenset({Need.SERVER, Need.ROOM}),
    advice="a baseline with a server, one level of racks",
)
