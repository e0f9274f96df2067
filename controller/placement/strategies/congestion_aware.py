"""Trees that grow from each switch's view of its own ports, as Canary's do (De Sensi et al., 2023)."""

from __future__ import annotations

import random
from typing import Final

from ....topologies.model import Endpoint
from ..baseline_trees import closest_feasible_tree, hub_switches, rack_sums, rack_switches, tree_from_parents
from ..exact.trees import shortened
from ..model.cost import PlacementCosts
from ..model.problem import Placement, Problem
from ..model.strategy import Need, StrategyDescription


class CongestionAware:
    """Every switch sends towards the root by its least loaded shortest way; streams that meet are summed."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        topology, routes, costs = problem.topology, problem.routes, PlacementCosts(problem)
        seconds, number = costs.with_one, costs.links.number
        last = topology.attached_switch(problem.server).name if problem.server else next(hub_switches(problem), "")
        parents: dict[str, str] = {}
        waiting = [name for name in problem.racks if last and routes.reaches(name, last)]
        while waiting:
            node = waiting.pop()
            if node != last and node not in parents:
                ways = [Endpoint(node, port) for port in routes.next_hops(node, last)]
                parents[node] = topology.peer(min(ways, key=lambda way: (seconds[number[way]], way))).node
                waiting.append(parents[node])
        if problem.server is not None:
            parents[last] = problem.server
        tree = tree_from_parents(problem, rack_switches(problem), parents, problem.server or last)
        return closest_feasible_tree(problem, rack_sums(problem)) if tree is None else shortened(routes, tree)


DESCRIPTION: Final = StrategyDescription(
    "canary",
    "congestion-aware",
    "every switch sends towards the root by its least loaded port, and sums what meets there",
    CongestionAware,
    frozenset({Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    advice="a baseline: trees by local load alone",
)
