"""Scarce memory and narrow fan-in: some switches sum, the others forward what routing sends through them.

A switch with room that streams go through may as well sum them, where its fan-in allows: it then sends one stream on
where several went (docs/placement.md has the proof). So hops need go only through switches without room, which leaves
few, and a mixed-integer program (`tree_program`) decides over them. Where fan-in may bind, over all hops.

The program is asked for a tree within a time T, not for the least time: with T given, what a link allows is a whole
number of streams. Trees found bound the best time from above; the totally unimodular relaxation (`relaxation`) bounds
it from below, and says where to look first: most often there is a tree at that very bound, which is thereby proven the
best. Where there is none, halving what is between the bounds goes on until they meet.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from time import perf_counter
from typing import Final

from ..cost import Costs
from ..fan_in import fitted
from ..problem import Placement, Problem
from ..relaxation import bound_seconds
from ..strategy import Description, Need
from ..tree_program import OUTSIDE, Hop, TreeProgram, all_hops

_SAME: Final = 1e-9
"""Times that differ by this share or less are the same."""
_CLOSE: Final = 1.1
"""Bounds nearer than this are not halved again: the next tree asked for is any faster one."""


@dataclass
class ScarceMemory:
    """Finds a tree whose slowest link is within `gap` of the best; exact with a gap of 0."""

    gap: float = 0.05
    seconds: float = 2.0
    """Of wall-clock time; what is best by then is taken, and the placement's note says how good that surely is."""
    relaxed: bool = True
    """Whether the relaxation says where the search begins."""
    most_programs: float = inf
    programs: int = 0
    """How many were solved for the last problem."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        return self.improved(problem)

    def improved(self, problem: Problem, known: Placement | None = None) -> Placement:
        """The best tree found, `known` where none is better. Raises PlacementError where there is no tree."""
        until = perf_counter() + self.seconds
        self.programs = 0
        costs = Costs(problem)
        program = TreeProgram(problem, costs, hops(problem))
        low = bound_seconds(problem, costs) if self.relaxed else costs.access_seconds(problem.workers)
        worst = costs.slowest_link_there_is
        best, high = known, inf if known is None else costs.slowest_link_seconds(known)
        aim = low
        while high > low * (1 + self.gap + _SAME) and low < worst:
            if self.programs >= self.most_programs:
                break
            self.programs += 1
            found, decided = program.within(aim, max(until - perf_counter(), 0.01))
            if found is not None:
                best, high = found, costs.slowest_link_seconds(found)
            elif not decided:
                break
            else:
                low = max(low, aim * (1 + _SAME))
            aim = _next_aim(low, high)
        if best is None:  # there is no tree, which this says, or none was found in time
            best = fitted(problem, {})
            high = costs.slowest_link_seconds(best)
        best.check(problem)
        if high > low * (1 + self.gap + _SAME):
            note = f"its slowest link may take up to {100 * (high / low - 1):.0f} % longer than need be"
            best = replace(best, note="; ".join(filter(None, (best.note, note))))
        return best


def _next_aim(low: float, high: float) -> float:
    if high == inf:
        return 2 * low
    return sqrt(low * high) if high > _CLOSE * low else high * (1 - _SAME)


def hops(problem: Problem) -> list[Hop]:
    """Those that a best tree can be made of."""
    direct = list(_direct_hops(problem))
    children = Counter({rack: len(workers) for rack, workers in problem.racks.items() if problem.takes(rack)})
    for hop in direct:
        children[hop.sink] += 1 if hop.summed else len(problem.racks[hop.source])
    children[OUTSIDE] = 0
    return direct if max(children.values()) <= problem.fan_in else all_hops(problem)


def _direct_hops(problem: Problem) -> Iterator[Hop]:
    """Hops with no switch that has room on their way; a rack that has room itself keeps its workers."""
    for rack in problem.racks:
        if problem.takes(rack):
            yield Hop(rack, rack, False)
        else:
            for sink in _reached(problem, rack):
                yield Hop(rack, sink, False)
    for switch in problem.topology.switches:
        if problem.takes(switch.name):
            for sink in _reached(problem, switch.name):
                yield Hop(switch.name, sink, True)
            if problem.server is None:
                yield Hop(switch.name, OUTSIDE, True)


def _reached(problem: Problem, source: str) -> Iterator[str]:
    """Where a stream can go directly."""
    topology, routes = problem.topology, problem.routes
    seen, queue = {source}, deque([source])
    while queue:
        for far in topology.neighbours(queue.popleft()).values():
            if far.node not in seen and topology.is_switch(far.node):
                seen.add(far.node)
                if not problem.takes(far.node):
                    queue.append(far.node)
                elif problem.may_send(source, far.node) and _is_direct(problem, source, far.node):
                    yield far.node
    if (
        problem.server is not None
        and routes.reaches(source, problem.server)
        and _is_direct(problem, source, problem.server)
    ):
        yield problem.server


def _is_direct(problem: Problem, source: str, sink: str) -> bool:
    """Whether no switch with room is on the way; where hashing decides the way, none is taken to be."""
    path = problem.routes.unique_path(source, sink)
    return path is None or not any(problem.takes(problem.topology.peer(link).node) for link in path[:-1])


DESCRIPTION: Final = Description(
    "scarce",
    "scarce memory",
    "the best tree where few switches have room, by mixed-integer programs around a totally unimodular relaxation",
    lambda: ScarceMemory(gap=0.0, seconds=10.0),
    frozenset({Need.ROOM, Need.TELEMETRY}),
    resolves=True,
)
