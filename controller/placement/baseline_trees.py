"""Trees of baselines: the requested assignment if that is a tree, else the nearest possible tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .exact.fan_in import fitted
from .model.problem import Placement, PlacementError, Problem


def closest_feasible_tree(problem: Problem, wanted: Mapping[str, str]) -> Placement:
    """Send each worker to the switch `wanted` for it, or to the root, and the switches' sums straight to the root.

    If that is no tree of nodes with room and within their fan-in, return the tree with the most workers at their wanted
    switch.

    Raises:
        PlacementError: There is no tree.
    """
    placement = fitted(problem, wanted)
    placement.check(problem)
    return placement


def tree_from_parents(
    problem: Problem, wanted: Mapping[str, str], parents: Mapping[str, str], root: str
) -> Placement | None:
    """Each worker at the switch `wanted` for it, sums along `parents`; None where that is no tree."""
    placement = Placement.trimmed({worker: wanted[worker] for worker in problem.workers}, parents, root)
    try:
        placement.check(problem)
    except PlacementError:
        return None
    return placement if all(problem.routes.reaches(*edge) for edge in placement.edges) else None


def rack_switches(problem: Problem) -> dict[str, str]:
    """Every worker at its own switch."""
    return {worker: rack for rack, workers in problem.racks.items() for worker in workers}


def rack_sums(problem: Problem) -> dict[str, str]:
    """Workers whose switch has room and two workers or more, at that switch."""
    worth = {rack for rack, workers in problem.racks.items() if len(workers) > 1 and problem.takes(rack)}
    return {worker: rack for worker, rack in rack_switches(problem).items() if rack in worth}


def within_reach(problem: Problem) -> dict[str, list[str]]:
    """Switches with room, by worker, that its stream certainly reaches on the path that is counted."""
    names = [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]
    of_rack = {rack: [name for name in names if problem.may_send(rack, name)] for rack in problem.racks}
    return {worker: of_rack[rack] for worker, rack in rack_switches(problem).items()}


def hub_switches(problem: Problem) -> Iterator[str]:
    """The switches that all racks can send to, the nearest first, and of equal ones in the fabric's order."""
    names = [switch.name for switch in problem.topology.switches]
    able = [name for name in names if all(problem.may_send(rack, name) for rack in problem.racks)]
    racks = [(rack, len(workers)) for rack, workers in problem.racks.items()]
    yield from sorted(able, key=lambda name: sum(count * problem.routes.hops(rack, name) for rack, count in racks))
