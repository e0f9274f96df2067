"""Trees within every node's fan-in, as close as possible to a strategy's request.

A strategy requests a switch for each worker's stream. If every such switch can send its sum straight to the root, and
no node gets more children than its fan-in, that is the tree. Otherwise switches nearer to the root gather the excess
(`greedy_fan_in`), if that is proven to be the nearest tree, or the fabric is large. In all other cases a mixed-integer
program decides:

    y_s   whether switch s sums                       x_{a,p}   streams of rack or switch a that go to p

    Σ_p x_{r,p} = workers of rack r       Σ_p x_{s,p} = y_s       Σ_a x_{a,s} ≤ F · y_s,  Σ_a x_{a,root} ≤ F

with an arc from a to p where the shortest path is the only one, or p is the server, and p is nearer to the root than a
switch a is, so that there are no cycles. It moves the fewest workers from their requested switches, and then uses the
fewest switches.

The program has a limit of branches, so that its result does not depend on the machine. When it ends there, the best
tree found so far is used, or else one by first fit, and the placement's note says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]

from ..model.problem import NoTree, Placement, PlacementError, Problem
from .greedy_fan_in import gathered
from .milp_result import is_infeasible, is_stopped

NODES: Final = 500
"""Maximum number of branches of the search for one root."""
_STOPS: Final = 3
"""Number of roots whose search may stop without a tree, if a switch is the root."""
LARGEST: Final = 2_000
"""Ways from racks to switches. With more, a tree that is found at once is taken as it is; the program takes seconds."""
_GATHERED: Final = "its tree is near to the strategy's, and was not compared with all others: the fabric is large"


def fitted(problem: Problem, wanted: Mapping[str, str], nodes: int = NODES) -> Placement:
    """Return the tree with the most workers at their `wanted` switch (workers without one: the root).

    After `nodes` branches any tree is accepted. Without a server, the root is the switch nearest to all racks for which
    there is such a tree.

    Raises:
        PlacementError: No root has a tree, or none was found in so many branches; names the cause.
    """
    check_places(problem)
    roots = [problem.server] if problem.server is not None else _central_first(problem)
    if len(problem.racks) * len(problem.topology.switches) > LARGEST:
        for root in roots:
            placement, nearest = gathered(problem, root, wanted)
            if placement is not None:
                return placement if nearest else replace(placement, note=_GATHERED)
    stopped = 0
    for root in roots:
        if stopped >= _STOPS:
            break
        placement, nearest = gathered(problem, root, wanted)
        if placement is not None and nearest:
            return _noted(placement, "one of another root", nodes) if stopped else placement
        program = _Program(problem, root, problem.fan_in)
        placement, proven = program.solve(wanted, nodes)
        if proven and placement is not None:
            return placement
        if not proven:
            stopped += 1
            if (any_tree := placement or program.first_fit(wanted) or program.first_fit({})) is not None:
                how = "the best one seen" if placement is not None else "one by first fit"
                return _noted(any_tree, how, nodes)
    if stopped:
        raise PlacementError(
            f"no tree for {len(problem.workers)} workers was found in {nodes} branches, though there may be one; take "
            "fewer workers, or another strategy"
        )
    problem.check_ways()
    raise NoTree(_cause(problem, roots, nodes))


def _noted(placement: Placement, how: str, nodes: int) -> Placement:
    note = f"its tree is {how}, for the search for the nearest to the strategy's ended after {nodes} branches"
    return replace(placement, note=note)


def _central_first(problem: Problem) -> list[str]:
    """The switches with room that all racks have a way to, by their distance from the workers."""
    routes = problem.routes
    usable = [
        switch.name
        for switch in problem.topology.switches
        if problem.takes(switch.name) and all(routes.reaches(rack, switch.name) for rack in problem.racks)
    ]
    racks = [(rack, len(workers)) for rack, workers in problem.racks.items()]
    return sorted(usable, key=lambda name: sum(count * routes.hops(rack, name) for rack, count in racks))


@dataclass(frozen=True, slots=True)
class _Arc:
    """Streams from a rack's workers, or from a switch that sums."""

    source: str
    sink: str
    most: int
    cost: int
    summed: bool
    """True if the stream is a switch's sum."""
    moved: bool = False
    """True if these workers are wanted elsewhere."""


class _Program:
    """The mixed-integer program for one root."""

    def __init__(self, problem: Problem, root: str, fan_in: int) -> None:
        self._problem, self._root, self._fan_in = problem, root, fan_in
        routes = problem.routes
        self._distance = {
            switch.name: routes.hops(switch.name, root)
            for switch in problem.topology.switches
            if switch.name != root and problem.takes(switch.name) and routes.reaches(switch.name, root)
        }

    def solve(self, wanted: Mapping[str, str], nodes: int) -> tuple[Placement | None, bool]:
        """Return the best tree found, or None, and True if the result is proven (optimal, or no tree exists).

        `nodes` limits the branches of the search.
        """
        arcs = [*self._rack_arcs(wanted), *self._switch_arcs()]
        switches = list(self._distance)
        columns = {name: index for index, name in enumerate(switches)}
        racks = self._problem.racks
        if racks.keys() - {arc.source for arc in arcs if not arc.summed}:
            return None, True
        leaving = {(rack, False): row for row, rack in enumerate(racks)}
        leaving |= {(name, True): len(racks) + index for name, index in columns.items()}
        entering = {name: len(leaving) + index for index, name in enumerate((*switches, self._root))}
        cells = [(leaving[name, True], column, -1) for name, column in columns.items()]
        cells += [(entering[name], column, -self._fan_in) for name, column in columns.items()]
        for column, arc in enumerate(arcs, start=len(switches)):
            cells += [(leaving[arc.source, arc.summed], column, 1), (entering[arc.sink], column, 1)]
        rows, places, values = zip(*cells, strict=True)
        shape = len(leaving) + len(entering), len(switches) + len(arcs)
        supply = [len(workers) for workers in racks.values()] + [0] * len(switches)
        solved = scipy.optimize.milp(
            np.array([1] * len(switches) + [arc.cost for arc in arcs]),
            integrality=np.ones(shape[1]),
            bounds=scipy.optimize.Bounds(0, np.array([1] * len(switches) + [arc.most for arc in arcs])),
            constraints=scipy.optimize.LinearConstraint(
                scipy.sparse.csr_array((values, (rows, places)), shape=shape),
                np.array(supply + [-np.inf] * len(entering)),
                np.array(supply + [0] * len(switches) + [self._fan_in]),
            ),
            options={"mip_rel_gap": 0.0, "node_limit": nodes},
        )
        stopped = is_stopped(solved)
        if solved.x is None and (stopped or is_infeasible(solved)):
            return None, not stopped
        if solved.x is None:
            raise PlacementError(f"HiGHS ended the fan-in program with: {solved.message}; it should be optimal")
        flows = np.round(solved.x[len(switches) :]).astype(np.int64)
        placement = self._placement(wanted, {arc: int(flow) for arc, flow in zip(arcs, flows, strict=True) if flow})
        return placement, not stopped

    def first_fit(self, wanted: Mapping[str, str]) -> Placement | None:
        """Return some tree: workers first, then sums from the farthest on, each go to the farthest node that they
        may send to, rather to one in use, for places are fewest near the root. None where that leads nowhere,
        though there may be a tree.
        """
        distance = {**self._distance, self._root: -1}
        places = dict.fromkeys(distance, self._fan_in)
        parents: dict[str, str] = {}

        def sink_of(child: str, wish: str = "", nearer_than: float = float("inf")) -> str:
            """Next node for a child; empty if there is none."""
            for sink in sorted(distance, key=lambda name: (name != wish, -distance[name], name not in parents)):
                if distance[sink] < nearer_than and places[sink] and self._problem.may_send(child, sink):
                    places[sink] -= 1
                    if sink != self._root:
                        parents.setdefault(sink, "")
                    return sink
            return ""

        aggregators = {worker: sink_of(worker, wanted.get(worker, "")) for worker in self._problem.workers}
        for switch in sorted(self._distance, key=lambda name: -distance[name]):
            if switch in parents:
                parents[switch] = sink_of(switch, nearer_than=distance[switch])
        if not all((*aggregators.values(), *parents.values())):
            return None
        return Placement.trimmed(aggregators, parents, self._root)

    def _rack_arcs(self, wanted: Mapping[str, str]) -> Iterable[_Arc]:
        dear = len(self._distance) + 1
        for rack, workers in self._problem.racks.items():
            wishes = Counter(wanted.get(worker, self._root) for worker in workers)
            for sink in (*self._distance, self._root):
                if self._problem.may_send(rack, sink):
                    if wishes[sink]:
                        yield _Arc(rack, sink, wishes[sink], 0, summed=False)
                    if wishes[sink] < len(workers):
                        yield _Arc(rack, sink, len(workers) - wishes[sink], dear, summed=False, moved=True)

    def _switch_arcs(self) -> Iterable[_Arc]:
        for source, distance in self._distance.items():
            nearer = [name for name, other in self._distance.items() if other < distance]
            for sink in (*nearer, self._root):
                if self._problem.may_send(source, sink):
                    yield _Arc(source, sink, 1, 0, summed=True)

    def _placement(self, wanted: Mapping[str, str], flows: Mapping[_Arc, int]) -> Placement:
        stay = {(arc.source, arc.sink): flow for arc, flow in flows.items() if not arc.summed and not arc.moved}
        leave: dict[str, list[str]] = {}
        for arc, flow in flows.items():
            if arc.moved:
                leave.setdefault(arc.source, []).extend([arc.sink] * flow)
        aggregators: dict[str, str] = {}
        for worker in self._problem.workers:
            rack, sink = self._problem.topology.attached_switch(worker).name, wanted.get(worker, self._root)
            if stay.get((rack, sink), 0):
                stay[rack, sink] -= 1
            else:
                sink = leave[rack].pop()
            aggregators[worker] = sink
        parents = {arc.source: arc.sink for arc in flows if arc.summed}
        return Placement.trimmed(aggregators, parents, self._root)


def check_places(problem: Problem) -> None:
    """Raise NoTree if all nodes that may sum have fewer places together than the workers need: no search is needed."""
    count, nodes = len(problem.workers), _summing_nodes(problem)
    if nodes and count <= _most_workers(problem, nodes):
        return
    problem.check_ways()
    if not nodes:
        names = ", ".join(problem.workers)
        able = [switch.name for switch in problem.topology.switches if switch.slots]
        if able and problem.unreachable.issuperset(able):
            down = ", ".join(able)
            raise NoTree(f"the path is down: {down} do not answer or have no live link, and no other switch can sum")
        raise NoTree(f"no switch has room for the job of {names}; free slots, or give it a server")
    raise NoTree(_too_few(problem, f"at most {_most_workers(problem, nodes)} workers"))


def _summing_nodes(problem: Problem) -> int:
    room = sum(problem.takes(switch.name) for switch in problem.topology.switches)
    return room + (problem.server is not None)


def _most_workers(problem: Problem, nodes: int) -> int:
    """Places of a tree of all nodes: each but the root takes one itself."""
    return problem.fan_in * nodes - (nodes - 1)


def _too_few(problem: Problem, limit: str) -> str:
    room = _summing_nodes(problem) - (problem.server is not None)
    nodes = f"the {room} switches with room"
    if problem.server is not None:
        nodes = f"server {problem.server} and {nodes}"
    return (
        f"no tree sums {len(problem.workers)} workers: a node takes at most {problem.fan_in} children, and {nodes} "
        f"{limit}; free slots in more switches, or take fewer workers"
    )


def _cause(problem: Problem, roots: list[str], most: int) -> str:
    """Reason why there is no tree though there are places enough, and a remedy."""
    if problem.server is None:
        nodes = len(problem.workers) + _summing_nodes(problem)
        wide = (_Program(problem, root, nodes).solve({}, most) for root in roots)
        if all(proven and placement is None for placement, proven in wide):
            names = ", ".join(problem.workers)
            return f"no switch with room is one that {names} can be summed at: paths must be single; give it a server"
    return _too_few(problem, "have too few single paths between them")
