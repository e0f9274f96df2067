"""AGG, the paper's model: each worker's stream goes to one switch, few switches aggregate, latencies are minimal.

One level of switches is below the server. The set of aggregating switches is fixed first, with the one stream that each
sends on, since that saving is concave and no linear program can express it. The rest, streams to switches, is one
commodity with convex costs on a graph, with each switch's remaining streams as a capacity: totally unimodular, so that
the linear program's vertices are integral, which is asserted on every solve (`lp`). It makes the sorted times of all
links lexicographically minimal.

All switches with room may aggregate at first. Unused ones are dropped, with their streams; and from then on the one
with the fewest streams, until one is left. Then switches are added, beginning with none: each time the one with which
the job is the fastest, as long as it gets faster. The fastest of these placements with no more switches than the limit
is used. After ten seconds it is the best of those seen or, if none was small enough, the tree nearest to the last one
with as many of its switches as allowed, those with the most streams. Both searches are greedy: other sets may be faster
(docs/placement-models.md says by how much).

A switch that has room for the job takes as many streams as it takes children, or fewer if `Agg.streams` says so. All of
a job's streams are summed in the same slots, so that free slots bound jobs (`Problem.room`) and not streams.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from time import perf_counter
from typing import Final

from ....topologies.routing import Routes
from ....wire.aggregation import FAN_IN
from ..baseline_trees import closest_feasible_tree
from ..exact.lp import Effort, FlowProgram
from ..model.cost import Costs
from ..model.network import build
from ..model.problem import NoTree, Placement, PlacementError, Problem
from ..model.strategy import Description, Need


@dataclass
class Agg:
    """Keeps the compiled programs of the fabrics and racks that it has seen."""

    aggregations: int = FAN_IN
    """The most switches that aggregate; no more than the server takes children can."""
    streams: Mapping[str, int] = field(default_factory=dict)
    """The most streams that each switch takes; one that is not in it takes as many as it takes children."""
    effort: Effort = field(default_factory=Effort)
    seconds: float = 10.0
    """Wall-clock limit; then the best result so far is used, and the placement's note says so."""
    _programs: dict[object, FlowProgram] = field(default_factory=dict)
    _routes: Routes | None = None

    def __post_init__(self) -> None:
        for name, most in self.streams.items():
            if most < 0:
                raise PlacementError(f"{most}; a switch takes 0 or more", place=f"streams of {name}", value=most)
        import_module("cvxpy")  # takes a second, which no decision should

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        if problem.server is None:
            raise PlacementError(
                "the job has none and the strategy needs one; name one, or use widest", place="strategy agg: server"
            )
        problem.check_ways()
        until = perf_counter() + self.seconds
        program = self._program(problem, problem.server)
        costs = Costs(problem)
        candidates = sorted({sink for _, sink in program.network.paths} - {problem.server})
        search = _Search(problem, problem.server, costs, program, self, until)
        wanted = search.drop(candidates)
        search.add(candidates)
        notes = [f"not every set of switches was tried in {self.seconds:g} s"] if search.is_late else []
        found = search.found
        if not found:
            near = closest_feasible_tree(problem, wanted)
            self._check(problem, near)
            return replace(near, note="; ".join(filter(None, (near.note, *notes))))
        best = min(found, key=lambda placement: (costs.completion_seconds(placement), len(placement.parents)))
        best.check(problem)
        if left_out := program.network.left_out:
            notes.append(
                f"{left_out} ways of racks to switches are left out: with them a flow would not say who goes where"
            )
        return replace(best, note="; ".join(notes)) if notes else best

    def most(self, problem: Problem, aggregating: Iterable[str]) -> dict[str, int]:
        """Maximum number of streams of each of these switches."""
        return {name: min(self.streams.get(name, problem.fan_in), problem.fan_in) for name in aggregating}

    def _check(self, problem: Problem, placement: Placement) -> None:
        """Raises PlacementError where a switch gets more streams than it takes."""
        most = self.most(problem, placement.parents)
        for name, taken in most.items():
            if (count := len(placement.children[name])) > taken:
                raise NoTree(
                    f"strategy agg found no placement in which no switch takes more streams than it may: {name} would "
                    f"get {count} of {taken} at most; let switches take more, or take fewer workers"
                )

    def proof(self, problem: Problem) -> str:
        """That this problem's matrix is totally unimodular, in a sentence. Raises PlacementError where it is not."""
        if problem.server is None:
            raise PlacementError("the program of strategy agg needs a parameter server and the job has none; name one")
        return self._program(problem, problem.server).proof()

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


@dataclass
class _Search:
    """Sets of switches that were tried for one job."""

    problem: Problem
    server: str
    costs: Costs
    program: FlowProgram
    agg: Agg
    until: float
    """Time by the clock after which no other set is begun."""
    found: list[Placement] = field(default_factory=list)
    """Placements of sets all of whose switches are used, and that are within the limit."""

    @property
    def is_late(self) -> bool:
        return perf_counter() > self.until

    def drop(self, aggregating: Sequence[str]) -> dict[str, str]:
        """Drop unused switches, then the one with the fewest streams, and so on.

        If time ends before that, return the workers' choices among the allowed number of switches of the last set.
        """
        while (streams := self._assign(aggregating)) is not None:
            taken = _into(streams)
            used = sorted(name for name in taken if name != self.server)
            if self.is_late:
                most = sorted(used, key=lambda name: (-taken[name], name))[: self.agg.aggregations]
                aggregators = _placement(self.problem, self.server, streams).aggregators
                return {worker: sink for worker, sink in aggregators.items() if sink in most}
            if not aggregating:
                break
            fewest = min(used, key=lambda name: (taken[name], name), default="")
            aggregating = [name for name in used if len(used) < len(aggregating) or name != fewest]
        return {}

    def add(self, candidates: Sequence[str]) -> None:
        """Add switches, beginning with none: each time the one with which the job is the fastest, while that helps."""
        chosen: list[str] = []
        before = math.inf
        while len(chosen) < self.agg.aggregations and not self.is_late:
            tried = [
                (self.costs.completion_seconds(self.found[-1]), name)
                for name in candidates
                if name not in chosen and not self.is_late and self._is_used([*chosen, name])
            ]
            if not tried or min(tried)[0] >= before:
                return
            before, best = min(tried)
            chosen.append(best)

    def _is_used(self, aggregating: Sequence[str]) -> bool:
        """Return True if workers can send to these and use each of them: then the set is the last one in `found`."""
        count = len(self.found)
        self._assign(aggregating)
        return len(self.found) > count

    def _assign(self, aggregating: Sequence[str]) -> Mapping[tuple[str, str], int] | None:
        most = self.agg.most(self.problem, aggregating)
        streams = _assign(self.problem, self.costs, self.program, most, self.until)
        if streams is None or len(aggregating) > self.agg.aggregations:
            return streams
        if {sink for _, sink in streams} - {self.server} == set(aggregating):
            self.found.append(_placement(self.problem, self.server, streams))
        return streams


def _into(streams: Mapping[tuple[str, str], int]) -> Counter[str]:
    """Number of streams into each node."""
    into: Counter[str] = Counter()
    for (_, sink), count in streams.items():
        into[sink] += count
    return into


def _assign(
    problem: Problem, costs: Costs, program: FlowProgram, most: Mapping[str, int], until: float
) -> Mapping[tuple[str, str], int] | None:
    """Number of streams of each rack to each of these switches, within their limits, or the server; None if
    impossible.
    """
    server = problem.server
    assert server is not None
    network = program.network
    own = [(worker, rack) for rack, workers in problem.racks.items() for worker in workers]
    base = costs.streams([*own, *((name, server) for name in most)])
    capacity = {**most, server: max(problem.fan_in - len(most), 0)}
    flows = program.lexicographic(network.supply, capacity, network.times(costs, base), until)
    return None if flows is None else network.decompose(network.supply, flows)


def _placement(problem: Problem, server: str, streams: Mapping[tuple[str, str], int]) -> Placement:
    waiting = {rack: iter(workers) for rack, workers in problem.racks.items()}
    aggregators = {next(waiting[rack]): sink for (rack, sink), count in streams.items() for _ in range(count)}
    used = {sink for _, sink in streams} - {server}
    return Placement(
        {worker: aggregators[worker] for worker in problem.workers}, dict.fromkeys(sorted(used), server), server
    )


DESCRIPTION: Final = Description(
    "agg",
    "AGG",
    "each worker's stream to one of few switches, by a totally unimodular linear program over telemetry",
    Agg,
    frozenset({Need.SERVER, Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    advice="a server with many links and few switches that sum",
)
