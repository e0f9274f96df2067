"""Trees of baselines: the requested assignment if that is a tree, else the nearest possible tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ...topologies.model import Endpoint
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
    """Return a placement with sums along given parents; None if that is no tree.

    Args:
        problem: Placement problem.
        wanted: Switch that sums each worker, by worker.
        parents: Parent of each summing switch except the root; switches without workers below them are left out.
        root: Root of the tree.
    """
    placement = Placement.trimmed({worker: wanted[worker] for worker in problem.workers}, parents, root)
    try:
        placement.check(problem)
    except PlacementError:
        return None
    return placement if all(problem.routes.reaches(*edge) for edge in placement.edges) else None


def rack_switches(problem: Problem) -> dict[str, str]:
    """Return every worker at its own switch."""
    return {worker: rack for rack, workers in problem.racks.items() for worker in workers}


def rack_sums(problem: Problem) -> dict[str, str]:
    """Return workers whose switch has room and two workers or more, at that switch."""
    worth = {rack for rack, workers in problem.racks.items() if len(workers) > 1 and problem.takes(rack)}
    return {worker: rack for worker, rack in rack_switches(problem).items() if rack in worth}


def within_reach(problem: Problem) -> dict[str, list[str]]:
    """Return switches with room, by worker, that its stream certainly reaches on the path that is counted."""
    names = [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]
    of_rack = {rack: [name for name in names if problem.may_send(rack, name)] for rack in problem.racks}
    return {worker: of_rack[rack] for worker, rack in rack_switches(problem).items()}


def hub_switches(problem: Problem) -> Iterator[str]:
    """Yield the switches that all racks can send to, the nearest first, and of equal ones in the fabric's order."""
    names = [switch.name for switch in problem.topology.switches]
    able = [name for name in names if all(problem.may_send(rack, name) for rack in problem.racks)]
    yield from sorted(able, key=lambda name: worker_hops(problem, name))


def worker_hops(problem: Problem, switch: str) -> int:
    """Return links from each worker's rack to this switch, summed over the workers."""
    return sum(len(workers) * problem.routes.hops(rack, switch) for rack, workers in problem.racks.items())


def spines(problem: Problem) -> list[str]:
    """Return candidates for the switch over which all racks meet: `hub_switches`, then all others with room that
    racks reach, the nearest first.
    """
    hubs = list(hub_switches(problem))
    known = set(hubs)
    names = [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]
    reached = [
        name
        for name in names
        if name not in known and all(problem.routes.reaches(rack, name) for rack in problem.racks)
    ]
    return [*hubs, *sorted(reached, key=lambda name: worker_hops(problem, name))]


def spine_trees(problem: Problem, hubs: Iterable[str]) -> Iterator[Placement]:
    """Yield trees over one switch each, in which every switch sums; a switch without such a tree is left out."""
    last = None if problem.server is None else problem.topology.attached_switch(problem.server).name
    for hub in hubs:
        if (parents := spine_parents(problem, hub)) is None:
            continue
        if last is not None and problem.server is not None:
            parents[last] = problem.server
        tree = tree_from_parents(problem, rack_switches(problem), parents, problem.server or hub)
        if tree is not None:
            yield tree


def spine_parents(problem: Problem, hub: str) -> dict[str, str] | None:
    """Return parents on one shortest path from each rack to a switch, and from there to the server's switch.

    Of several shortest paths each switch takes its first port. None if no path leads to the server, or a node would
    have more children than it takes.
    """
    last = hub if problem.server is None else problem.topology.attached_switch(problem.server).name
    if not problem.routes.reaches(hub, last):
        return None
    parents: dict[str, str] = {}
    _add_path(problem, parents, hub, last)
    on_trunk = {last, *parents}
    for rack in problem.racks:
        if rack not in on_trunk:
            _add_path(problem, parents, rack, hub)
    children = Counter(parents.values())
    children.update({rack: len(workers) for rack, workers in problem.racks.items()})
    return None if max(children.values()) > problem.fan_in else parents


def several_spines_tree(
    problem: Problem, hubs: Iterable[str], seconds: Callable[[str, str], float]
) -> Placement | None:
    """Return the tree over as few spines as fan-in allows, if no single one can have all racks for children.

    Args:
        problem: The job.
        hubs: Candidates, the preferred ones first.
        seconds: Time of one stream between two linked switches; each rack takes the spine that is the fastest for it.

    Returns:
        None without a server, or if too few spines are linked with the server's switch and all racks.
    """
    if problem.server is None:
        return None
    routes, last = problem.routes, problem.topology.attached_switch(problem.server).name
    racks = [rack for rack in problem.racks if rack != last]
    linked = [hub for hub in hubs if all(routes.hops(node, hub) == 1 for node in (last, *racks))]
    chosen = sorted(linked, key=lambda hub: seconds(hub, last))[: -(-len(racks) // problem.fan_in)]
    free = dict.fromkeys(chosen, problem.fan_in)
    parents = {**dict.fromkeys(chosen, last), last: problem.server}
    for rack in racks:
        able = [hub for hub in chosen if free[hub]]
        if not able:
            return None
        parents[rack] = min(able, key=lambda hub: seconds(rack, hub))
        free[parents[rack]] -= 1
    return tree_from_parents(problem, rack_switches(problem), parents, problem.server)


def _add_path(problem: Problem, parents: dict[str, str], source: str, sink: str) -> None:
    """Add the hops of a path from source to sink, up to a switch that sends on already."""
    node = source
    while node != sink and node not in parents:
        port = problem.routes.next_hops(node, sink)[0]
        parents[node] = problem.topology.peer(Endpoint(node, port)).node
        node = parents[node]
