"""Sums at every level of a fixed tree, as an operator sets it up once: the value of depth alone, without telemetry."""

from __future__ import annotations

import random
from typing import Final

from ..baseline_trees import closest_feasible_tree, hub_switches, rack_sums, rack_switches, tree_from_parents
from ..model.problem import Placement, Problem
from ..model.strategy import Description


class Hierarchy:
    """All switches on the shortest paths from the racks to one spine, the first of the nearest, and on to the root."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        routes, topology = problem.routes, problem.topology
        for hub in hub_switches(problem):
            parents: dict[str, str] = {}
            last = hub if problem.server is None else topology.attached_switch(problem.server).name
            ways = [routes.unique_path(hub, last), *(routes.unique_path(rack, hub) for rack in problem.racks)]
            for way in ways:
                for link in way or ():
                    parents.setdefault(link.node, topology.peer(link).node)
            if problem.server is not None:
                parents[last] = problem.server
            if ways[0] is not None and (
                tree := tree_from_parents(problem, rack_switches(problem), parents, problem.server or last)
            ):
                return tree
        return closest_feasible_tree(problem, rack_sums(problem))


DESCRIPTION: Final = Description(
    "hierarchy",
    "fixed hierarchy",
    "every switch on the way to one spine, always the same, and from there sums",
    Hierarchy,
    advice="a baseline: what is configured by hand",
)
