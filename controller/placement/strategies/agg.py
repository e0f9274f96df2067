"""AGG, the paper's model: each worker's stream goes to one switch, few switches aggregate, latencies are least.

One level of switches stands below the server. Which switches aggregate is fixed first, with the one stream that each
sends on, for that saving is concave and no linear program can say it. What is left, streams to switches, is one
commodity with convex costs on a graph, with how many streams a switch still takes as a capacity: totally unimodular, so
that the linear program's vertices are integral, which is asserted on every solve (`lp`). It makes the sorted times of
all links lexicographically least.

All switches with room may aggregate at first; those that nobody chooses are dropped, with their streams; and from then
on the one with the fewest streams, until one is left. The fastest of these placements with no more switches than the
limit is taken; after ten seconds, that of those seen, or where none was few enough the tree nearest to the last one
with as many of its switches as may be, those with the most streams. Dropping is greedy: other sets may be faster
(docs/placement.md says by how much).

A switch that has room for the job takes as many streams as it takes children, or fewer where `Agg.streams` says so of
it: all of a job's streams are summed in the same slots, so that what is free there bounds jobs (`Problem.room`) and not
streams.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from time import perf_counter
from typing import Final

from ....topologies.routing import Routes
from ....wire.aggregation import FAN_IN
from ..cost import Costs
from ..lp import Effort, FlowProgram
from ..network import build
from ..problem import Placement, PlacementError, Problem
from ..strategy import Description, Need
from ..wishes import nearest


@dataclass
class Agg:
    """Keeps the compiled programs of the fabrics and racks that it has seen."""

    aggregations: int = FAN_IN
    """The most switches that aggregate; no more than the server takes children can."""
    streams: Mapping[str, int] = field(default_factory=dict)
    """The most streams that each switch takes; one that is not in it takes as many as it takes children."""
    effort: Effort = field(default_factory=Effort)
    seconds: float = 10.0
    """Of wall-clock time; the best that was found by then is taken, and the placement's note says so."""
    _programs: dict[object, FlowProgram] = field(default_factory=dict)
    _routes: Routes | None = None

    def __post_init__(self) -> None:
        for name, most in self.streams.items():
            if most < 0:
                raise PlacementError(f"streams of {name}: {most}; a switch takes 0 or more")
        import_module("cvxpy")  # takes a second, which no decision should

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        if problem.server is None:
            raise PlacementError("strategy agg needs a parameter server and the job has none; name one, or use widest")
        problem.check_ways()
        until = perf_counter() + self.seconds
        program = self._program(problem, problem.server)
        costs = Costs(problem)
        aggregating = [name for name in {sink for _, sink in program.network.paths} if name != problem.server]
        found: list[Placement] = []
        wanted: dict[str, str] = {}
        notes: list[str] = []
        while (streams := _assign(problem, costs, program, self._most(problem, aggregating), until)) is not None:
            if stopped := perf_counter() > until:
                notes.append(f"not every set of switches was tried in {self.seconds:g} s")
            taken = _into(streams)
            used = sorted(name for name in taken if name != problem.server)
            if len(used) == len(aggregating) and len(used) <= self.aggregations:
                found.append(_placement(problem, problem.server, streams))
            if stopped:
                most = sorted(used, key=lambda name: (-taken[name], name))[: self.aggregations]
                aggregators = _placement(problem, problem.server, streams).aggregators
                wanted = {worker: sink for worker, sink in aggregators.items() if sink in most}
            if not aggregating or stopped:
                break
            fewest = min(used, key=lambda name: (taken[name], name), default="")
            aggregating = [name for name in used if len(used) < len(aggregating) or name != fewest]
        if not found:
            near = nearest(problem, wanted)
            self._check(problem, near)
            return replace(near, note="; ".join(filter(None, (near.note, *notes))))
        best = min(found, key=lambda placement: (costs.completion_seconds(placement), len(placement.parents)))
        best.check(problem)
        if left_out := program.network.left_out:
            notes.append(
                f"{left_out} ways of racks to switches are left out: with them a flow would not say who goes where"
            )
        return replace(best, note="; ".join(notes)) if notes else best

    def _most(self, problem: Problem, aggregating: Iterable[str]) -> dict[str, int]:
        """How many streams each of these switches takes."""
        return {name: min(self.streams.get(name, problem.fan_in), problem.fan_in) for name in aggregating}

    def _check(self, problem: Problem, placement: Placement) -> None:
        """Raises PlacementError where a switch gets more streams than it takes."""
        most = self._most(problem, placement.parents)
        for name, taken in most.items():
            if (count := len(placement.children[name])) > taken:
                raise PlacementError(
                    f"strategy agg found no placement in which no switch takes more streams than it may: {name} would "
                    f"get {count} of {taken} at most; let switches take more, or take fewer workers"
                )

    def proof(self, problem: Problem) -> str:
        """That this problem's matrix is totally unimodular, in a sentence. Raises PlacementError where it is not."""
        if problem.server is None:
            raise PlacementError("the program of strategy agg needs a parameter server and the job has none; name one")
        return self._program(problem, problem.server).proof()

    def _program(self, problem: Problem, server: str) -> FlowProgram:
        """For streams of the racks to all switches with room and the server, compiled once."""
        if self._routes is not problem.routes:
            self._programs.clear()
            self._routes = problem.routes
        supply = {rack: len(workers) for rack, workers in problem.racks.items()}
        switches = tuple(switch.name for switch in problem.topology.switches if problem.takes(switch.name))
        key = (tuple(supply.items()), switches, server)
        if key not in self._programs:
            self._programs[key] = FlowProgram(build(problem.routes, supply, switches, server), self.effort)
        return self._programs[key]


def _into(streams: Mapping[tuple[str, str], int]) -> Counter[str]:
    """How many streams each node gets."""
    into: Counter[str] = Counter()
    for (_, sink), count in streams.items():
        into[sink] += count
    return into


def _assign(
    problem: Problem, costs: Costs, program: FlowProgram, most: Mapping[str, int], until: float
) -> Mapping[tuple[str, str], int] | None:
    """How many streams of each rack go to each of these switches, which take so many at most, or the server; None where
    they cannot.
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
)
