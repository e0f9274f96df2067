"""AGG, the paper's model: each worker's stream goes to one switch, few switches aggregate, latencies are minimal.

One level of switches is below the server. A mixed-integer program over all switches with room (`tree_program`) chooses
those that aggregate, and how many streams of each rack go to each, with the fastest step there can be. The search is
limited by branches, not by time, so that its result does not depend on the machine; the placement's note has the gap
that is left. On fabrics with more than `LARGEST` ways of racks to switches a tree by rerouting (`rerouting`) is taken
without the program.

Then the switches are fixed, with the one stream that each sends on: that saving is concave, and no linear program can
express it. Streams that hashing spreads over several paths are fixed, too, since they share links (`network`). The
other streams are one commodity with convex costs on a graph, with each switch's remaining streams as a capacity:
totally unimodular, so that the linear program's vertices are integral, which is asserted on every solve (`lp`). It
makes the sorted times of all links lexicographically minimal.

A switch that has room for the job takes as many streams as it takes children, or fewer if `Agg.streams` says so. All of
a job's streams are summed in the same slots, so that free slots bound jobs (`Problem.room`) and not streams.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from ....errors.values import shown
from ....topologies.routing import Routes
from ....wire.aggregation import FAN_IN
from ..exact.lp import Effort, FlowProgram
from ..exact.relaxation import bound_seconds
from ..exact.rerouting import Ways, rerouted
from ..exact.tree_program import TreeHop, TreeProgram
from ..model.cost import PlacementCosts
from ..model.network import build
from ..model.problem import NoTree, Placement, PlacementError, Problem
from ..model.strategy import Need, StrategyDescription

LARGEST: Final = 500
"""Ways of racks to switches and of switches to the server. With more, the program would take minutes."""
_NODES: Final = 1_000
"""Branches of one program."""
_CLOSE: Final = 1e-3
"""A step that is longer by this share or less than the bound is not made shorter."""
_SAME: Final = 1e-9
_PROGRAMS: Final = 8
"""Maximum number of programs for one job: each but the first is asked for shorter paths."""


@dataclass
class Agg:
    """Keeps the compiled programs of the fabrics and racks that it has seen."""

    aggregations: int = FAN_IN
    """The most switches that aggregate; no more than the server takes children can."""
    streams: Mapping[str, int] = field(default_factory=dict)
    """The most streams that each switch takes; one that is not in it takes as many as it takes children."""
    nodes: int = _NODES
    """Maximum number of branches of one program; then its best tree so far counts."""
    effort: Effort = field(default_factory=Effort, init=False)
    _programs: dict[object, FlowProgram] = field(default_factory=dict, init=False)
    _routes: Routes | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.aggregations < 0:
            raise PlacementError(f"{self.aggregations}; it is 0 or more", place="aggregations", value=self.aggregations)
        if self.nodes < 1:
            raise PlacementError(f"{self.nodes}; it is 1 or more", place="nodes", value=self.nodes)
        if not isinstance(self.streams, Mapping):
            raise PlacementError(
                f"{shown(self.streams)} is no mapping of switches, such as {{s1: 4}}",
                place="streams",
                value=self.streams,
            )
        for name, most in self.streams.items():
            if isinstance(most, bool) or not isinstance(most, int) or most < 0:
                raise PlacementError(
                    f"{shown(most)}; a switch takes a whole number of 0 or more", place=f"streams of {name}", value=most
                )
        import_module("cvxpy")  # takes a second, which no decision should

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        if problem.server is None:
            raise PlacementError(
                "is missing; the strategy needs one: name a host, or use widest", place="strategy agg: server"
            )
        problem.check_ways()
        for name in self.streams:
            problem.topology.switch(name)
        costs = PlacementCosts(problem)
        choice = _Choice(problem, problem.server, costs, self)
        chosen = choice.fastest()
        even = self._evened(problem, problem.server, costs, chosen)
        best = min((even, chosen), key=lambda placement: _length(costs.completion_seconds(placement)))
        best.check(problem)
        return best.noted(choice.note(costs.completion_seconds(best))) if choice.is_open(best) else best

    def _evened(self, problem: Problem, server: str, costs: PlacementCosts, chosen: Placement) -> Placement:
        """The placement with the same switches whose links' times, in descending order, are lexicographically least."""
        program = self._program(problem, server)
        network = program.network
        rack_of = {worker: rack for rack, workers in problem.racks.items() for worker in workers}
        streams = Counter((rack_of[worker], sink) for worker, sink in chosen.aggregators.items())
        fixed = Counter({pair: count for pair, count in streams.items() if pair not in network.paths})
        supply = Counter[str]()
        taken = Counter[str]()
        for (rack, sink), count in streams.items():
            if (rack, sink) in fixed:
                taken[sink] += count
            else:
                supply[rack] += count
        base = costs.streams(
            [*rack_of.items(), *chosen.parents.items(), *(pair for pair in fixed.elements() if pair[0] != pair[1])]
        )
        capacity = {name: self.most(problem, name) - taken[name] for name in chosen.parents}
        capacity[server] = problem.fan_in - len(chosen.parents) - taken[server]
        flows = program.lexicographic(supply, capacity, network.times(costs, base)) if supply else []
        assert flows is not None, "the chosen placement is one of the flows"
        moved = fixed + Counter(network.decompose(supply, flows) if supply else {})
        return _placement(problem, server, moved)

    def most(self, problem: Problem, switch: str) -> int:
        """Return the maximum number of streams of a switch."""
        return min(self.streams.get(switch, problem.fan_in), problem.fan_in)

    def proof(self, problem: Problem) -> str:
        """Return a sentence which says that this problem's matrix is totally unimodular, and which streams are not
        in it.

        Raises:
            PlacementError: It is not.
        """
        if (server := problem.server) is None:
            raise PlacementError("the program of strategy agg needs a parameter server and the job has none; name one")
        program = self._program(problem, server)
        outside = [rack for rack in problem.racks if (rack, server) not in program.network.paths]
        if not outside:
            return program.proof()
        return (
            f"{program.proof()}; streams of {', '.join(outside)} to {server} are not in it: hashing spreads them, so "
            "that they share links, and their number is chosen with the switches"
        )

    def _program(self, problem: Problem, server: str) -> FlowProgram:
        """Program for streams of the racks to all switches with room and the server, compiled once."""
        if self._routes is not problem.routes:
            self._programs.clear()
            self._routes = problem.routes
        supply = {rack: len(workers) for rack, workers in problem.racks.items()}
        switches = tuple(switch.name for switch in problem.topology.switches if problem.takes(switch.name))
        key = (tuple(supply.items()), switches, server)
        if key not in self._programs:
            self._programs[key] = FlowProgram(build(problem.routes, supply, switches, server), self.effort)
        return self._programs[key]


class _Choice:
    """Choice of the aggregating switches for one job, and of the streams into each."""

    def __init__(self, problem: Problem, server: str, costs: PlacementCosts, agg: Agg) -> None:
        self._problem, self._costs, self._agg = problem, costs, agg
        able = [
            switch.name
            for switch in problem.topology.switches
            if problem.takes(switch.name) and problem.may_send(switch.name, server)
        ]
        self._most = {name: agg.most(problem, name) for name in able}
        self._hops = [
            TreeHop(rack, sink, False)
            for rack in problem.racks
            for sink in (*able, server)
            if problem.may_send(rack, sink)
        ] + [TreeHop(name, server, True) for name in able]
        self._round_trips = {hop: self._round_trip(hop) for hop in self._hops if not hop.summed}
        self.least = math.inf
        """Seconds; no placement's step takes less."""

    def fastest(self) -> Placement:
        """Return the fastest placement found.

        Raises:
            NoTree: There is none, or none was found.
        """
        best = self._rerouted()
        if len(self._hops) > LARGEST:
            self.least = self._shortest + bound_seconds(self._problem, self._costs)
        else:
            best = self._decided(best)
        if best is None:
            raise NoTree(
                "strategy agg found no placement in which no switch takes more streams than it may; let switches take "
                "more, or take fewer workers"
            )
        return best

    def is_open(self, placement: Placement) -> bool:
        """Return True if a faster placement is not excluded."""
        return self._costs.completion_seconds(placement) > self.least * (1 + 2 * _CLOSE)

    def note(self, seconds: float) -> str:
        """Describe the gap between this time and the bound."""
        if self.least <= 0:
            return "its step was not compared with all other sets of switches"
        return f"with other switches its step might take up to {100 * (1 - self.least / seconds):.0f} % less"

    @property
    def _shortest(self) -> float:
        """Seconds of the longest path, if each rack takes its shortest one."""
        least = dict.fromkeys(self._problem.racks, math.inf)
        for hop, seconds in self._round_trips.items():
            least[hop.source] = min(least[hop.source], seconds)
        return max(least.values())

    def _round_trip(self, hop: TreeHop) -> float:
        """Seconds of a packet from the rack's farthest worker to the server and back."""
        costs, server = self._costs, str(self._problem.server)

        def both(a: str, b: str) -> float:
            return costs.latency_seconds(a, b) + costs.latency_seconds(b, a)

        to_sink = max(both(worker, hop.sink) for worker in self._problem.racks[hop.source])
        return to_sink + (0.0 if hop.sink == server else both(hop.sink, server))

    def _rerouted(self) -> Placement | None:
        """A placement found without a program; None: none with few enough switches was found."""
        hops, costs = self._hops, self._costs
        while True:
            ways = Ways(costs, hops, self._most)
            tree = rerouted(self._problem, costs, ways, bound_seconds(self._problem, costs), lambda: False)
            if tree is None or len(tree.parents) <= self._agg.aggregations:
                return tree
            fewest = min(tree.parents, key=lambda name: (len(tree.children[name]), name))
            hops = [hop for hop in hops if fewest not in (hop.source if hop.summed else "", hop.sink)]

    def _decided(self, best: Placement | None) -> Placement | None:
        """The best placement of all, or the given one if none is faster.

        The first program minimises the slowest link's time. The next ones are asked for shorter paths than the last
        result, as long as those may make up for a slower link.
        """
        costs, paths_below = self._costs, math.inf
        length = math.inf if best is None else costs.completion_seconds(best)
        for _ in range(_PROGRAMS):
            hops = [hop for hop in self._hops if hop.summed or self._round_trips[hop] < paths_below]
            program = TreeProgram(self._problem, costs, hops, self._most, self._agg.aggregations)
            nodes, bound = program.fastest(self._agg.nodes, length - self._shortest)
            if nodes is None:
                self.least = min(self.least, max(bound + self._shortest, 0.0), length)
                break
            paths_below = costs.longest_path_seconds(nodes)
            if (seconds := costs.completion_seconds(nodes)) < length:
                best, length = nodes, seconds
            self.least = min(self.least, bound + paths_below)
            stopped = costs.slowest_link_seconds(nodes) > bound * (1 + _CLOSE)
            if stopped or length <= (bound + self._shortest) * (1 + _CLOSE):
                self.least = min(self.least, bound + self._shortest)
                break
        else:
            self.least = min(self.least, bound + self._shortest)
        return best


def _length(seconds: float) -> float:
    """Seconds, rounded so that sums in another order are equal."""
    return float(f"{seconds:.9g}")


def _placement(problem: Problem, server: str, streams: Mapping[tuple[str, str], int]) -> Placement:
    waiting = {rack: iter(workers) for rack, workers in problem.racks.items()}
    aggregators = {next(waiting[rack]): sink for (rack, sink), count in streams.items() for _ in range(count)}
    used = {sink for _, sink in streams} - {server}
    return Placement(
        {worker: aggregators[worker] for worker in problem.workers}, dict.fromkeys(sorted(used), server), server
    )


DESCRIPTION: Final = StrategyDescription(
    "agg",
    "AGG",
    "each worker's stream to one of few switches, by a totally unimodular linear program over telemetry",
    Agg,
    frozenset({Need.SERVER, Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    advice="a server with many links and few switches that sum",
)
