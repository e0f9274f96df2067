"""Heuristic trees: grown stream by stream, each on the then cheapest path, and improved at the slowest link.

A link costs the increase of Σ_e (T_e / T)^8 by one more stream, with T the target time: little while a link is faster
than T, and much beyond. A stream goes from its rack by hops (`tree_program`) to the first switch that is in the tree
already and has a place left; switches on the path join the tree, with the one stream that each sends on. So a path is a
shortest path, and the tree joins ends by their shortest paths (Takahashi and Matsuyama, Math. Japonica 24, 1980), but
with costs that grow with the load.

Then streams on the slowest link are removed, one after another, racks' and sums alike, and rerouted on the cheapest
path without them. That goes on while the sum falls, so it ends. Nothing is proven: bounds show how good a tree is.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ..model.cost import PlacementCosts
from ..model.links import Floats
from ..model.problem import Placement, Problem
from .tree_program import OUTSIDE, TreeHop

_POWER: Final = 8
_THRIFTY: Final = 0.1
"""Initial extra cost of a switch: of paths with similar loads, the one with fewer switches is chosen."""
_LAVISH: Final = 1e-6
"""The same where that gave no tree as fast as was hoped for."""
_MAX_TRIES: Final = 5
"""Maximum number of tries per root: racks by their workers, with and without the extra cost, and then in random
orders.
"""
_LESS: Final = 1 - 1e-9
_MAX_ROOTS: Final = 3
"""Maximum number of roots tried without a server, the nearest to all workers first."""
Node = tuple[str, bool]
"""A rack's workers, or a switch (True) that sums."""


def rerouted(
    problem: Problem, costs: PlacementCosts, ways: Ways, seconds: float, is_over: Callable[[], bool]
) -> Placement | None:
    """Return the fastest tree found by placing the racks one after the other; None if none was found.

    The search ends with the first tree that is as fast as `seconds`.

    Args:
        problem: Placement problem.
        costs: Costs of the problem.
        ways: Paths between switches.
        seconds: Time of the slowest link that is good enough, in s.
        is_over: Returns True when the search must end.
    """
    candidates: list[tuple[float, Placement]] = []
    order, rng = sorted(problem.racks, key=lambda rack: -len(problem.racks[rack])), random.Random(0)
    roots = _roots(problem, ways)
    for turn in range(_MAX_TRIES):
        for root in roots:
            tree = _Tree(problem, costs, ways, root, seconds, _LAVISH if turn else _THRIFTY)
            if not tree.grow(order, is_over):
                continue
            tree.mend(is_over)
            placement = tree.placement()
            candidates.append((costs.slowest_link_seconds(placement), placement))
            if candidates[-1][0] * _LESS <= seconds:
                return placement
        if is_over():
            break
        if turn:
            rng.shuffle(order)
    return min(candidates, key=lambda candidate: (candidate[0], len(candidate[1].parents)), default=(0.0, None))[1]


def _roots(problem: Problem, ways: Ways) -> list[str]:
    if problem.server is not None:
        return [problem.server]
    routes, racks = problem.routes, [(rack, len(workers)) for rack, workers in problem.racks.items()]
    able = [name for name in ways.roots if all(routes.reaches(rack, name) for rack in problem.racks)]
    far = {name: sum(count * routes.hops(rack, name) for rack, count in racks) for name in able}
    return sorted(able, key=lambda name: (far[name], name))[:_MAX_ROOTS]


class Ways:
    """Hops by the node that they leave, with their links in one array."""

    def __init__(self, costs: PlacementCosts, hops: Sequence[TreeHop], most: Mapping[str, int] | None = None) -> None:
        """`most` limits the children of switches, up to their fan-in, which is the limit of a switch not in it."""
        self._most, self._fan_in = most or {}, costs.problem.fan_in
        self.idle = len(costs.seconds)
        """A link that costs nothing, for hops that take none."""
        leaving: dict[Node, list[TreeHop]] = {}
        for hop in hops:
            if hop.sink != OUTSIDE:
                leaving.setdefault((hop.source, hop.summed), []).append(hop)
        self.leaving = leaving
        self.roots = [hop.source for hop in hops if hop.sink == OUTSIDE]
        self.steps = {
            hop: costs.steps(hop.source, hop.sink) if hop.source != hop.sink else ()
            for mine in leaving.values()
            for hop in mine
        }
        self._links: dict[Node, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        self._starts: dict[Node, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        for node, mine in leaving.items():
            links = [[link for link, _ in self.steps[hop]] or [self.idle] for hop in mine]
            self._links[node] = np.array([link for way in links for link in way], np.int64)
            self._starts[node] = np.cumsum([0, *map(len, links)])[:-1]

    def takes(self, sink: str, children: int) -> bool:
        """Return True if a node with so many children takes another one."""
        return children < self._most.get(sink, self._fan_in)

    def prices(self, node: Node, of_links: Floats) -> list[float]:
        """Return the cost of each hop that leaves a node."""
        prices: list[float] = np.add.reduceat(of_links[self._links[node]], self._starts[node]).tolist()
        return prices


@dataclass
class _Tree:
    """A growing tree, with its load on every link."""

    problem: Problem
    costs: PlacementCosts
    ways: Ways
    root: str
    hoped: float
    """Seconds of the slowest link that no tree is faster than."""
    switch: float
    """Extra cost of a switch."""
    above: dict[str, TreeHop] = field(default_factory=dict)
    """The hop by which each switch sends its sum on."""
    streams: Counter[TreeHop] = field(default_factory=Counter)
    """Number of racks' streams on each hop."""
    children: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._total = [0.0] * (self.ways.idle + 1)
        self._hashed: dict[int, Counter[float]] = {}
        self._seconds: list[float] = [*self.costs.seconds.tolist(), 0.0]
        self._others: list[float] = [*self.costs.others.tolist(), 0.0]
        self._prices: Floats = np.zeros(self.ways.idle + 1)
        for link in range(self.ways.idle):
            self._price(link)

    def grow(self, racks: Sequence[str], is_over: Callable[[], bool]) -> bool:
        """Add the streams of these racks, one after another; return True if all fit."""
        for rack in racks:
            for _ in self.problem.racks[rack]:
                if is_over() or (way := self._way((rack, False), frozenset())) is None:
                    return False
                for hop in way:
                    self._add(hop)
        return True

    def mend(self, is_over: Callable[[], bool]) -> None:
        """Take streams off the slowest link as long as that helps."""
        while not is_over():
            slowest = max(range(self.ways.idle), key=self._time)
            if self._time(slowest) * _LESS <= self.hoped:
                return
            on_it = [hop for hop in (*self.streams, *self.above.values()) if slowest in dict(self.ways.steps[hop])]
            if not any(self._move(hop) for hop in on_it if not is_over()):
                return

    def placement(self) -> Placement:
        waiting = {rack: iter(workers) for rack, workers in self.problem.racks.items()}
        into = {
            next(waiting[hop.source]): hop.sink for hop, count in self.streams.items() for _ in range(count) if count
        }
        parents = {name: hop.sink for name, hop in self.above.items()}
        return Placement.trimmed({worker: into[worker] for worker in self.problem.workers}, parents, self.root)

    def _move(self, hop: TreeHop) -> bool:
        """Reroute one stream of this hop if that reduces the sum; return True on success."""
        taken = self._remove_branch(hop)
        barred = self._below(hop.source) if hop.summed else frozenset[str]()
        way = self._way((hop.source, hop.summed), barred)
        if way is not None and way != taken:
            steps = [step for each in (*taken, *way) for step in self.ways.steps[each]]
            for each in taken:
                self._add(each)
            before = self._sum_on(steps)
            for each in taken:
                self._remove(each)
            for each in way:
                self._add(each)
            if self._sum_on(steps) < before * _LESS:
                return True
            for each in way:
                self._remove(each)
        for each in taken:
            self._add(each)
        return False

    def _way(self, start: Node, barred: frozenset[str]) -> list[TreeHop] | None:
        """The cheapest hops into the tree, the first one first."""
        ways, least = self.ways, {start: 0.0}
        by: dict[Node, tuple[Node, TreeHop]] = {}
        heap: list[tuple[float, Node]] = [(0.0, start)]
        while heap:
            so_far, node = heapq.heappop(heap)
            if so_far > least[node]:
                continue
            if node != start and (node[0] == self.root or node[0] in self.above):
                way: list[TreeHop] = []
                while node != start:
                    node, hop = by[node]
                    way.append(hop)
                return way[::-1]
            if node not in ways.leaving:
                continue
            for hop, price in zip(ways.leaving[node], ways.prices(node, self._prices), strict=True):
                sink = (hop.sink, True)
                if hop.sink in barred or not ways.takes(hop.sink, self.children[hop.sink]):
                    continue
                new = hop.sink != self.root and hop.sink not in self.above
                total = so_far + price + self.switch * (1 + new)
                if total < least.get(sink, np.inf):
                    least[sink], by[sink] = total, (node, hop)
                    heapq.heappush(heap, (total, sink))
        return None

    def _below(self, switch: str) -> frozenset[str]:
        """The switch, and those whose sums come to it."""
        below, grew = {switch}, True
        while grew:
            more = {name for name, hop in self.above.items() if hop.sink in below} - below
            below |= more
            grew = bool(more)
        return frozenset(below)

    def _add(self, hop: TreeHop) -> None:
        if hop.summed:
            self.above[hop.source] = hop
        else:
            self.streams[hop] += 1
        self.children[hop.sink] += 1
        for link, share in self.ways.steps[hop]:
            self._total[link] += share
            if share < 1:
                self._hashed.setdefault(link, Counter())[share] += 1
            self._price(link)

    def _remove(self, hop: TreeHop) -> None:
        if hop.summed:
            del self.above[hop.source]
        else:
            self.streams[hop] -= 1
            if not self.streams[hop]:
                del self.streams[hop]
        self.children[hop.sink] -= 1
        for link, share in self.ways.steps[hop]:
            self._total[link] -= share
            if share < 1:
                self._hashed[link][share] -= 1
            self._price(link)

    def _remove_branch(self, hop: TreeHop) -> list[TreeHop]:
        """Remove one stream of this hop, and the sums that are not needed without it."""
        taken = [hop]
        self._remove(hop)
        while not self.children[hop.sink] and hop.sink in self.above:
            hop = self.above[hop.sink]
            taken.append(hop)
            self._remove(hop)
        return taken

    def _time(self, link: int) -> float:
        total = self._total[link]
        if total < 1e-9:
            return 0.0
        least = min((share for share, count in self._hashed.get(link, {}).items() if count), default=1.0)
        return self._others[link] + (total + 1 - least) * self._seconds[link]

    def _sum_on(self, steps: Sequence[tuple[int, float]]) -> float:
        """Σ (T_e / T)^8 over these links."""
        return sum((self._time(link) / self.hoped) ** _POWER for link in {link for link, _ in steps})

    def _price(self, link: int) -> None:
        """Update a link's cost for one more stream, which counts in full wherever hashing puts it."""
        before, after = self._time(link), self._others[link] + (self._total[link] + 1) * self._seconds[link]
        more = (after / self.hoped) ** _POWER - (before / self.hoped) ** _POWER
        self._prices[link] = max(more, 0.0)
