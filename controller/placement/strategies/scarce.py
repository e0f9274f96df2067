"""Scarce memory and narrow fan-in: some switches sum, the others forward the streams that routing sends through them.

A switch with room that streams pass through may as well sum them, if its fan-in allows: it then sends one stream on
instead of several (docs/placement-models.md has the proof). So hops need to pass only switches without room, which
leaves few hops, and a mixed-integer program (`tree_program`) decides over them. If fan-in may bind, it decides over all
hops.

The program looks for a tree within a time T, not for the smallest time: with T given, a link allows an integral number
of streams. Trees found bound the best time from above; the totally unimodular relaxation (`relaxation`) bounds it from
below. A tree at that very bound is tried first, which is thereby proven optimal. Rerouting (`rerouting`) finds one in
milliseconds, or another to begin with. If that is too slow, programs halve the interval between the bounds until they
meet. A program that exceeds its share of the branches is skipped: a slower tree is tried, and this one again at the
end.

All limits are counts, not times, so that results do not depend on the machine.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, sqrt
from typing import Final

from ..exact.fan_in import check_places, fitted
from ..exact.relaxation import bound_seconds
from ..exact.rerouting import Ways, rerouted
from ..exact.tree_program import OUTSIDE, TreeHop, TreeProgram, all_hops
from ..model.cost import PlacementCosts
from ..model.problem import Placement, Problem
from ..model.strategy import Need, StrategyDescription

_SAME: Final = 1e-9
"""Times that differ by this share or less are the same."""
_CLOSE: Final = 1.1
"""Bounds nearer than this are not halved again: the next tree asked for is any faster one."""
_SHARES: Final = (1 / 4, 1)
"""Shares of the remaining branches for a program. Programs that need more are skipped in favour of slower trees, and
repeated in the next turn.
"""
_PROGRAM: Final = 5
"""Least number of branches that a program counts for."""
_REROUTING: Final = 1 / 5
"""Share of `looks` for rerouting again, each time that the bound rises."""


@dataclass
class ScarceMemory:
    """Finds a tree whose slowest link is within `gap` of the best; exact with a gap of 0."""

    gap: float = 0.05
    nodes: int = 200
    """Maximum number of branches of all programs; then the best tree so far is used, and the placement's note states
    the proven gap.
    """
    looks: int = 2_000_000
    """Maximum number of hops that rerouting looks at."""
    largest: int = 500
    """Maximum number of hops of a program; one of more takes many seconds before its first branch."""
    relaxed: bool = True
    """True if the relaxation bounds the search, which starts and may end there."""
    programs: int = 0
    """Number of programs solved for the last problem."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        return self.improved(problem)

    def improved(self, problem: Problem, known: Placement | None = None) -> Placement:
        """Return the best tree found within the time limit.

        Args:
            problem: Fabric, job and loads.
            known: A tree to improve; returned if no better one is found.

        Raises:
            PlacementError: There is no tree.
        """
        check_places(problem)
        costs = PlacementCosts(problem)
        low = bound_seconds(problem, costs) if self.relaxed else costs.access_seconds(problem.hosts)
        search = _Search(problem, costs, self, low, known)
        search.reroute(1.0)
        for share in _SHARES:
            if search.narrow(share):
                break
        self.programs = search.programs
        if search.best is not known:
            search.use_fewer_switches()
        if search.best is None:  # there is no tree, which this says, or none was found in time
            search.set_best(fitted(problem, {}))
        best = search.best
        assert best is not None
        best.check(problem)
        if search.is_open:
            note = f"its slowest link may take up to {100 * (search.high / search.low - 1):.0f} % longer than need be"
            best = replace(best, note="; ".join(filter(None, (best.note, note))))
        return best


class _Search:
    """State of the search for one problem's best tree."""

    def __init__(
        self, problem: Problem, costs: PlacementCosts, limits: ScarceMemory, low: float, known: Placement | None
    ) -> None:
        self._problem, self._costs, self._limits = problem, costs, limits
        self._left = limits.nodes
        self.low = low
        """Seconds; no tree's slowest link takes less."""
        self.best = known
        self.high = inf if known is None else costs.slowest_link_seconds(known)
        """Seconds of the best tree's slowest link."""
        self.programs = 0
        self._hops = hops(problem)
        self._worst = costs.slowest_link_there_is

    @property
    def is_open(self) -> bool:
        """True if the bounds are still further apart than allowed."""
        return self.high > self.low * (1 + self._limits.gap + _SAME)

    def set_best(self, placement: Placement) -> None:
        self.best, self.high = placement, self._costs.slowest_link_seconds(placement)

    def reroute(self, share: float) -> None:
        """Look for a tree as fast as the bound without a program, with this share of the looks at hops."""
        if self.low == inf or self.high <= self.low * (1 + _SAME):
            return
        streams = itertools.count(int(share * self._limits.looks / max(len(self._hops), 1)), -1)
        tree = rerouted(self._problem, self._costs, self._ways, self.low, lambda: next(streams) <= 0)
        if tree is not None and self._costs.slowest_link_seconds(tree) < self.high * (1 - _SAME):
            self.set_best(tree)

    def narrow(self, share: float) -> bool:
        """Ask programs for trees between the bounds, each with this share of the branches that are left; whether none
        was passed over.
        """
        unsure, decided = self.low if self.programs else 0.0, True
        while self.is_open and self.low < self._worst and self._may_solve:
            aim = _next_aim(max(self.low, unsure), self.high) if self.programs else self.low
            if aim <= unsure or (aim > self._worst and unsure > self.low):
                break
            self.programs += 1
            tree, proven = self._program.within(aim, self._slice(share))
            self._left -= max(self._program.nodes, _PROGRAM)
            if tree is not None:
                self.set_best(tree)
            elif proven:
                self.low = max(self.low, aim * (1 + _SAME))
                self.reroute(_REROUTING)
            else:
                unsure, decided = aim, False
        return decided

    def use_fewer_switches(self) -> None:
        """Use a tree as fast as the best one, if one of fewer switches is found in the branches that are left."""
        if self.best is None or not self._may_solve:
            return
        tree = self._program.fewest(self.high, self._slice(1.0))
        if tree is not None and len(tree.parents) < len(self.best.parents):
            self.set_best(tree)

    @cached_property
    def _program(self) -> TreeProgram:
        return TreeProgram(self._problem, self._costs, self._hops)

    @cached_property
    def _ways(self) -> Ways:
        return Ways(self._costs, self._hops)

    @property
    def _may_solve(self) -> bool:
        return self._left > 0 and len(self._hops) <= self._limits.largest

    def _slice(self, share: float) -> int:
        """This share of the remaining branches."""
        return max(int(share * self._left), 1)


def _next_aim(low: float, high: float) -> float:
    if high == inf:
        return 2 * low
    return sqrt(low * high) if high > _CLOSE * low else high * (1 - _SAME)


def hops(problem: Problem) -> list[TreeHop]:
    """Return those that a best tree can be made of."""
    direct = list(_direct_hops(problem))
    children = Counter({rack: len(workers) for rack, workers in problem.racks.items() if problem.takes(rack)})
    for hop in direct:
        children[hop.sink] += 1 if hop.summed else len(problem.racks[hop.source])
    children[OUTSIDE] = 0
    return direct if max(children.values()) <= problem.fan_in else all_hops(problem)


def _direct_hops(problem: Problem) -> Iterator[TreeHop]:
    """Hops with no switch that has room on their way; a rack that has room itself keeps its workers."""
    for rack in problem.racks:
        if problem.takes(rack):
            yield TreeHop(rack, rack, False)
        else:
            for sink in _reached(problem, rack):
                yield TreeHop(rack, sink, False)
    for switch in problem.topology.switches:
        if problem.takes(switch.name):
            for sink in _reached(problem, switch.name):
                yield TreeHop(switch.name, sink, True)
            if problem.server is None:
                yield TreeHop(switch.name, OUTSIDE, True)


def _reached(problem: Problem, source: str) -> Iterator[str]:
    """Nodes that a stream can reach directly."""
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
    """Return True if no switch with room is on the path; paths that depend on hashing count as direct."""
    path = problem.routes.unique_path(source, sink)
    return path is None or not any(problem.takes(problem.topology.peer(link).node) for link in path[:-1])


DESCRIPTION: Final = StrategyDescription(
    "scarce",
    "scarce memory",
    "the best tree where few switches have room, by mixed-integer programs around a totally unimodular relaxation",
    lambda: ScarceMemory(gap=0.0, nodes=2_000, looks=10_000_000, largest=2_000),
    frozenset({Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    advice="few switches sum, or have few slots left",
)
