"""AGG: the best placement over sets of summing switches, each filled by the exact LP.

One stream leaves a switch however many come in. That saving is concave, so it cannot stand in a convex objective: the
set K of switches that sum is fixed first, and each switch's one outgoing stream with it, as a stream like a worker's:

    for every distance from the root, nearest first: the LP sends that distance's outgoing streams to switches of K that
    are nearer to the root, or to the server; at last it sends the workers' streams

each given the loads of those before it. Parents are strictly nearer to the root, so this is a tree of any depth.
Around it, sets K are tried: all of them in a small fabric, else from a few starts by adding, removing and exchanging
single switches. A greedy fill, which takes each stream to where its slowest link is fastest, screens the sets cheaply;
the LP fills the best few. What the greedy fill finds also bounds the LP from above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import combinations
from typing import Final

from ...topologies.routing import Routes
from ...wire.aggregation import FAN_IN
from .cost import Costs, Streams
from .fan_in import fitted
from .lp import Effort, FlowProgram
from .network import Network, build
from .problem import Placement, Problem

ENUMERATED_SWITCHES: Final = 8
"""With at most so many switches to choose from, all their sets are tried."""
MOST_SETS: Final = 400
"""Sets screened in a larger fabric."""
FILLED_BY_LP: Final = 5
"""The best so many of the screened sets are filled by the LP."""

Key = tuple[float, float, int, tuple[str, ...]]
"""Completion seconds, stream-seconds on all links, switches; less is better."""


@dataclass
class AggSearch:
    """Places one job after another; keeps the compiled programs of the fabrics and racks that it has seen."""

    effort: Effort = field(default_factory=Effort)
    _programs: dict[object, FlowProgram] = field(default_factory=dict)
    _routes: Routes | None = None

    def __post_init__(self) -> None:
        import_module("cvxpy")  # takes a second, which no decision should

    def place(self, problem: Problem) -> Placement:
        """The best placement found. Raises PlacementError when there is none."""
        if self._routes is not problem.routes:
            self._programs.clear()
            self._routes = problem.routes
        roots = [problem.server] if problem.server is not None else _root_switches(problem)
        costs = Costs(problem)
        screened: dict[tuple[str, frozenset[str]], tuple[Key, Placement]] = {}
        fillers = {root: _Filler(problem, costs, root, self) for root in roots}
        for filler in fillers.values():
            _Screen(filler, screened).run()
        if not screened:  # no set tried is wide enough
            narrow = fitted(problem, {})
            chosen = frozenset(narrow.parents) | ({narrow.root} - {problem.server})
            screened[narrow.root, chosen] = _key(costs, narrow), narrow
        best = sorted(screened.items(), key=lambda item: item[1][0])[:FILLED_BY_LP]
        found = [placement for _, (_, placement) in best]
        for (root, chosen), _ in best:
            exact = fillers[root].fill(chosen, exact=True)
            if exact is not None:
                found.append(exact)
        return min(found, key=lambda placement: _key(costs, placement))

    def program(self, problem: Problem, supply: Mapping[str, int], sinks: Sequence[str]) -> FlowProgram:
        """The program for streams of these switches to these switches or the server, compiled once."""
        key = (tuple(supply.items()), tuple(sinks), problem.server)
        if key not in self._programs:
            network = build(problem.routes, supply, sinks, problem.server)
            self._programs[key] = FlowProgram(network, self.effort)
        return self._programs[key]


class _Filler:
    """Turns sets of switches into placements, for one root."""

    def __init__(self, problem: Problem, costs: Costs, root: str, search: AggSearch) -> None:
        self.problem, self.costs, self.root = problem, costs, root
        routes, topology = problem.routes, problem.topology
        usable = [s.name for s in topology.switches if problem.takes(s.name) and routes.reaches(s.name, root)]
        self._distance = {name: routes.hops(name, root) for name in usable}
        racks = {rack: len(workers) for rack, workers in problem.racks.items()}
        self._workers = search.program(problem, racks, usable)
        self._summers: dict[int, FlowProgram] = {}
        for distance in sorted(set(self._distance.values()) - {0}):
            here = {name: 1 for name in usable if self._distance[name] == distance}
            nearer = [name for name in usable if self._distance[name] < distance]
            self._summers[distance] = search.program(problem, here, nearer)
        self._access = costs.streams((worker, rack) for rack, workers in problem.racks.items() for worker in workers)
        into = {sink for _, sink in self._workers.network.paths}
        for program in self._summers.values():
            into |= {sink for _, sink in program.network.paths}
        self.candidates = [name for name in usable if name in into]
        """Switches that anyone can send to."""

    def fill(self, chosen: frozenset[str], *, exact: bool) -> Placement | None:
        """The streams assigned, by the LP or greedily; switches that get none are left out. None: it cannot be done."""
        problem = self.problem
        streams = self._access.copy()
        room = dict.fromkeys(chosen, FAN_IN)
        if problem.server is not None:
            room[problem.server] = FAN_IN
        elif self.root not in chosen:
            return None
        parents: dict[str, str] = {}
        for program in self._summers.values():
            supply = {name: 1 for name in program.network.supply if name in chosen}
            assigned = _assign(program, supply, room, streams, self.costs, exact) if supply else {}
            if assigned is None:
                return None
            for source, sink in assigned:
                parents[source] = sink
                streams.add(self.costs.steps(source, sink))
                room[sink] -= 1
        assigned = _assign(self._workers, self._workers.network.supply, room, streams, self.costs, exact)
        if assigned is None:
            return None
        aggregators: dict[str, str] = {}
        waiting = {rack: iter(workers) for rack, workers in problem.racks.items()}
        for (rack, sink), count in assigned.items():
            aggregators.update((next(waiting[rack]), sink) for _ in range(count))
        return Placement.trimmed({worker: aggregators[worker] for worker in problem.workers}, parents, self.root)

    def tree(self, hub: str) -> frozenset[str]:
        """The switches on the unique paths from the racks to a switch, and from it to the root."""
        routes, topology = self.problem.routes, self.problem.topology
        paths = [routes.unique_path(rack, hub) or () for rack in self.problem.racks]
        paths.append(routes.unique_path(hub, self.root) or ())
        if self.problem.server is not None:
            hub_and_last = {hub, topology.attached_switch(self.problem.server).name}
        else:
            hub_and_last = {hub, self.root}
        return frozenset(hub_and_last | {end.node for path in paths for end in path})


class _Screen:
    """Sets of switches tried for one root, by the greedy fill."""

    def __init__(self, filler: _Filler, screened: dict[tuple[str, frozenset[str]], tuple[Key, Placement]]) -> None:
        self._filler, self._screened = filler, screened
        self._tried: dict[frozenset[str], Key | None] = {}

    def run(self) -> None:
        candidates = self._filler.candidates
        if len(candidates) <= ENUMERATED_SWITCHES:
            for size in range(len(candidates) + 1):
                for chosen in combinations(candidates, size):
                    self._try(frozenset(chosen))
            return
        keys = {start: key for start in self._starts() if (key := self._try(start)) is not None}
        here = min(keys, key=lambda start: keys[start], default=None)
        while here is not None and len(self._tried) < MOST_SETS:
            better = [(key, other) for other in self._neighbours(here) if (key := self._try(other)) is not None]
            key, other = min(better, key=lambda pair: pair[0], default=(keys[here], here))
            if key >= keys[here]:
                break
            here, keys[other] = other, key

    def _try(self, chosen: frozenset[str]) -> Key | None:
        if chosen not in self._tried:
            placement = self._filler.fill(chosen, exact=False)
            key = None if placement is None else _key(self._filler.costs, placement)
            self._tried[chosen] = key
            if placement is not None and key is not None:
                used = self._filler.root, chosen & {*placement.parents, placement.root}
                if used not in self._screened or key < self._screened[used][0]:
                    self._screened[used] = key, placement
        return self._tried[chosen]

    def _starts(self) -> Iterable[frozenset[str]]:
        """Nothing; the racks; and for each switch, the tree of all racks' unique paths to it and on to the root."""
        candidates, racks = frozenset(self._filler.candidates), frozenset(self._filler.problem.racks)
        yield from (frozenset(), racks & candidates)
        for hub in self._filler.candidates:
            tree = self._filler.tree(hub) & candidates
            yield from (tree, tree | (racks & candidates), frozenset((hub,)))

    def _neighbours(self, chosen: frozenset[str]) -> Iterable[frozenset[str]]:
        others = [name for name in self._filler.candidates if name not in chosen]
        for name in others:
            yield chosen | {name}
        for name in sorted(chosen):
            yield chosen - {name}
        for name in sorted(chosen):
            for other in others:
                if len(self._tried) >= MOST_SETS:
                    return
                yield chosen - {name} | {other}


def _assign(
    program: FlowProgram,
    supply: Mapping[str, int],
    room: Mapping[str, int],
    streams: Streams,
    costs: Costs,
    exact: bool,
) -> dict[tuple[str, str], int] | None:
    """How many streams of each source go to each sink; None where there is no room."""
    network = program.network
    greedy = _greedy(network, supply, room, streams, costs)
    if not exact or (greedy is not None and all(len(_open(network, source, room)) == 1 for source in supply)):
        return greedy
    known = None if greedy is None else network.flows(greedy)
    solved = program.lexicographic(supply, room, network.times(costs, streams), known)
    return None if solved is None else network.decompose(supply, solved)


def _greedy(
    network: Network, supply: Mapping[str, int], room: Mapping[str, int], streams: Streams, costs: Costs
) -> dict[tuple[str, str], int] | None:
    """One stream after another goes where its slowest link is fastest."""
    streams, left = streams.copy(), dict(room)
    assigned: dict[tuple[str, str], int] = {}
    for source, count in supply.items():
        stale: Iterable[str] = _open(network, source, left)
        offers: dict[str, tuple[float, float, str]] = dict.fromkeys(stale, (0.0, 0.0, ""))
        for _ in range(count):
            for sink in stale:
                if sink in offers:
                    offers[sink] = (*costs.offer(streams, network.steps[source, sink]), sink)
            if not offers:
                return None
            sink = min(offers.values())[2]
            streams.add(network.steps[source, sink])
            assigned[source, sink] = assigned.get((source, sink), 0) + 1
            left[sink] -= 1
            if not left[sink]:
                del offers[sink]
            stale = network.sharing[source, sink]
    return assigned


def _open(network: Network, source: str, room: Mapping[str, int]) -> list[str]:
    return [sink for sink in network.sinks(source) if room.get(sink)]


def _root_switches(problem: Problem) -> list[str]:
    return [switch.name for switch in problem.topology.switches if problem.takes(switch.name)]


def _key(costs: Costs, placement: Placement) -> Key:
    """Rounded, so that sums in another order are no difference."""
    completion, work = costs.weigh(placement)
    names = (*placement.parents, placement.root)
    return float(f"{completion:.9g}"), float(f"{work:.9g}"), len(names), tuple(sorted(names))
