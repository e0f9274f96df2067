"""The widest tree: the optimum of one job if all switches have room, found in about the time of a sort.

If every switch can sum and no fan-in binds, a tree of adjacent hops is optimal. Take any tree of longer hops; the links
on its hops' paths contain a tree over the same workers and root in which every link carries one stream up and one
result down, so no more than before. Then the slowest link of the best tree is a bottleneck: weigh every pair of linked
switches by max(time up, time down). The smallest weight whose links, with all lighter ones, connect workers and root is
the optimum (a bottleneck Steiner tree, which a minimum spanning tree contains). docs/placement-models.md has the proof.

Many trees have that slowest link. The chosen one has the fewest hops from the root to every rack, then few switches,
then light links (`trees.rooted_tree`).

A tree is a widest one exactly while the links *faster* than its slowest do not connect its terminals. That is one pass
over the fabric, so a job is placed again only when needed: as long as the check confirms its tree it keeps it.

If traffic changes fast (`Problem.persistence` below LASTING), the slowest link of now says little about the next step,
and each further link may be a slow one then. Of trees with ever more slack, the one with the least expected time of its
slowest link is taken (`model.expectation`).

If fan-in leaves no such tree, a greedy cover fits one into it (`trees.fitted_tree`), over heavier links if need be. If
some switches have no room, the same trees over the others are compared with the bound that all of them would give; if
they do not reach it, the method for scarce memory is tried, too.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import is_, is_not
from typing import Final

import numpy as np

from ....topologies.model import Endpoint
from ....topologies.routing import Routes
from ..exact.native_trees import native_trees
from ..exact.spanning import connected, last_that_connects
from ..exact.trees import central, fitted_tree, placed, rooted_tree, user_switches
from ..model.cost import MIN_SHARE, PlacementCosts
from ..model.expectation import expected_slowest_seconds
from ..model.links import Bools, Floats, Ints, Links
from ..model.problem import Placement, Problem
from ..model.strategy import Need, StrategyDescription
from .scarce import ScarceMemory

_REMEMBERED: Final = 64
"""Jobs whose last tree is kept."""
_FEW: Final = 1 / 16
"""Share of the directed links above which a change is evaluated over all links."""
_SAME: Final = 1e-12
"""Times that differ by this share or less are the same."""
LASTING: Final = 0.5
"""Persistence from which on the present loads count as lasting."""
_SLACKS: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 1 / MIN_SHARE)
"""Slacks of the trees that are compared among fast changes; the last one allows every link."""


@dataclass(frozen=True)
class Terminals:
    """Nodes that a tree must connect, and nodes that it may pass."""

    links: Links
    racks: Mapping[int, int]
    """Workers on each switch that has some."""
    aggregators: Mapping[str, str]
    """Each worker's own switch."""
    root: int | None
    """The server's switch; None: any may be the root."""
    room: Bools
    """(switches,): whether each can take the job."""
    fan_in: int
    slack: float

    @classmethod
    def of(cls, problem: Problem, links: Links) -> Terminals:
        """Return the terminals of one job's problem."""
        return cls(
            links,
            {links.switch[rack]: len(workers) for rack, workers in problem.racks.items()},
            user_switches(problem),
            None if problem.server is None else links.switch[problem.topology.attached_switch(problem.server).name],
            _room(problem, links),
            problem.fan_in,
            problem.slack,
        )

    @cached_property
    def nodes(self) -> list[int]:
        """Indices of the racks' switches and of the server's, ascending."""
        return sorted({*self.racks, *(() if self.root is None else (self.root,))})

    @cached_property
    def usable(self) -> Bools:
        """(pairs,): both switches have room."""
        a, b = self.links.pairs.T
        usable: Bools = self.room[a] & self.room[b]
        return usable

    def connected(self, allowed: Bools) -> bool:
        """Return True if these pairs connect all of them."""
        return connected(self.links, allowed, self.nodes)

    def bottleneck(self, weights: Floats, least: float) -> float | None:
        """Return the least weight whose usable pairs, with all lighter ones, connect them; `least` where less would
        do.

        None where all usable pairs do not.
        """
        if len(self.nodes) == 1:
            return least
        last = last_that_connects(self.links, np.argsort(weights), self.usable, self.nodes)
        return None if last is None else max(least, float(weights[last]))

    def tree(self, weights: Floats, access: float, latency: Floats) -> tuple[int, dict[int, int]] | None:
        """Return the root and parents of the fastest tree over usable pairs; None if there is none, or fan-in leaves
        none.
        """
        return next(iter(self.trees((self.slack,), weights, access, latency)), None)

    def trees(
        self, slacks: Iterable[float], weights: Floats, access: float, latency: Floats
    ) -> list[tuple[int, dict[int, int]]]:
        """Return the different trees with these slacks, in their order; none if the first does not exist.

        Args:
            slacks: Shares by which the weight of a tree's links may exceed the least possible.
            weights: Weight of each pair of switches, (pairs,).
            access: Least bottleneck: no tree counts as lighter.
            latency: Latency of each pair of switches, in the unit of the weights, (pairs,).

        Returns:
            Root and parents of each tree.
        """
        if not self.room[self.nodes].all() or (most := self.bottleneck(weights, access)) is None:
            return []
        trees = list[tuple[int, dict[int, int]]]()
        for slack in slacks:
            tree = self._tree_within(most * (1 + slack), weights, latency)
            if tree is None:
                break
            if tree not in trees:
                trees.append(tree)
        return trees

    def _tree_within(self, most: float, weights: Floats, latency: Floats) -> tuple[int, dict[int, int]] | None:
        """Return root and parents of the fastest tree over usable pairs of at most this weight."""
        allowed = self.usable & (weights <= most)
        root = central(self.links, allowed, self.nodes) if self.root is None else self.root
        children = {root: 0, **self.racks}
        if max(children.values()) > self.fan_in:
            return None
        parents = rooted_tree(self.links, allowed, weights + latency, children, root, self.fan_in)
        if parents is None:  # fan-in leaves no tree of the fewest hops over the lightest pairs
            parents = fitted_tree(self.links, self.usable, weights, children, root, self.fan_in)
        return None if parents is None else (root, parents)


@dataclass
class _Kept:
    """A job's tree as it was found last, and the times that it stands by."""

    terminals: Terminals
    costs: PlacementCosts
    access: float
    """The slowest of the hosts' own links, which every tree has."""
    weights: Floats
    """(pairs,): seconds that one stream up and one result down take between two linked switches."""
    pairs: Ints
    """Linked switches that the tree's hops go between."""
    placement: Placement
    slowest: float = 0.0
    """The largest weight among these pairs."""

    def __post_init__(self) -> None:
        self.slowest = self._slowest()

    def _slowest(self) -> float:
        return float(self.weights[self.pairs].max(initial=0.0))

    def update(self, problem: Problem) -> None:
        """Evaluate all links' present loads."""
        self.costs = PlacementCosts(problem)
        self.access, self.weights = self.costs.access_seconds(problem.hosts), self.costs.seconds_of_pairs()
        self.slowest = self._slowest()

    def has_room_of(self, problem: Problem) -> bool:
        """Return True if the same switches have room as when the tree was found."""
        links, was = self.terminals.links, self.costs.problem.room
        return problem.room is was or np.array_equal(_room(problem, links), self.terminals.room)

    @property
    def wider(self) -> float:
        """A tree is replaced by one whose pairs all take less than that."""
        return self.slowest * (1 - _SAME) / (1 + self.terminals.slack)

    def stands(self) -> bool:
        """Return True if no tree is wider by more than its slack, even if all switches had room."""
        return self.wider <= self.access or not self.terminals.connected(self.weights < self.wider)

    def change(self, problem: Problem, changed: Collection[Endpoint]) -> bool:
        """Update the loads of these links; return True if the tree is certainly still the widest, without a pass over
        the fabric.

        That is so if no pair became one of those that are faster than it must be.
        """
        links, faster, slowest, access = self.terminals.links, self.wider, self.slowest, self.access
        self.costs.change(problem, changed)
        of_pairs = links.pair_of[np.array([links.number[link] for link in changed], np.int64)]
        pairs = np.unique(of_pairs[of_pairs >= 0])
        before, now = self.weights[pairs], np.array([self.costs.seconds_of_pair(pair) for pair in pairs.tolist()])
        self.weights[pairs] = now
        if (of_pairs < 0).any():
            self.access = self.costs.access_seconds(problem.hosts)
        self.slowest = self._slowest()
        came = (now < self.wider) & (before >= faster)
        stands = faster > access and self.slowest <= slowest and not came.any()
        return stands or self.wider <= self.access


class WidestTree:
    """Remembers each job's last tree, and keeps to it as long as none is wider."""

    def __init__(self) -> None:
        native_trees()  # now, so that the first decision does not wait for it
        self._kept: dict[tuple[object, ...], _Kept] = {}
        self._routes: Routes | None = None
        self._scarce = ScarceMemory()
        self._loads = _Comparison()

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`. A job's last tree is changed, and kept if no tree is wider."""
        links = Links.of(problem.routes)
        if problem.persistence < LASTING and (expected := self._expected_fastest(problem, links)) is not None:
            return expected
        kept = self._kept_of(problem)
        if kept is None:
            costs = PlacementCosts(problem)
            access, weights = costs.access_seconds(problem.hosts), costs.seconds_of_pairs()
            return self._solve(problem, Terminals.of(problem, links), costs, access, weights)
        before, most = kept.costs.problem, int(_FEW * len(links.number))
        changed = self._loads.differing(before.loads, problem.loads, most)
        if len(changed) <= most:
            changed |= _differing(before.others, problem.others, most)
        if len(changed) <= most:
            return self._kept_or_new(problem, kept, kept.change(problem, sorted(changed)))
        kept.update(problem)
        return self._kept_or_new(problem, kept, False)

    def resolve(self, problem: Problem, changed: Collection[Endpoint]) -> Placement:
        """Place a job whose last problem differs from this one only in the loads of these links.

        A change that does not touch the tree is settled without a pass over the fabric.
        """
        if problem.persistence < LASTING or (kept := self._kept_of(problem)) is None:
            return self.place(problem, random.Random(0))
        return self._kept_or_new(problem, kept, kept.change(problem, changed))

    def _expected_fastest(self, problem: Problem, links: Links) -> Placement | None:
        """Return the tree whose slowest link takes the least expected time; of equal ones that with the least slack.

        None if fan-in or memory leave no tree of adjacent hops.
        """
        terminals, costs = Terminals.of(problem, links), PlacementCosts(problem)
        access, weights = costs.access_seconds(problem.hosts), costs.seconds_of_pairs()
        placements = [
            placed(problem, links, parents, root, terminals.aggregators)
            for root, parents in terminals.trees(_SLACKS, weights, access, costs.latency_of_pairs())
        ]
        if not placements:
            return None
        best = min(placements, key=lambda each: expected_slowest_seconds(costs, each, problem.persistence))
        best.check(problem)
        return best

    def _kept_of(self, problem: Problem) -> _Kept | None:
        """The job's tree, where the routes are those of before, and there is room where there was."""
        if self._routes is not problem.routes:
            self._kept.clear()
            self._routes = problem.routes
        kept = self._kept.get(_key(problem))
        return kept if kept is not None and kept.has_room_of(problem) else None

    def _kept_or_new(self, problem: Problem, kept: _Kept, stands: bool) -> Placement:
        if not stands and not kept.stands():
            return self._solve(problem, kept.terminals, kept.costs, kept.access, kept.weights)
        return kept.placement

    def _solve(
        self, problem: Problem, terminals: Terminals, costs: PlacementCosts, access: float, weights: Floats
    ) -> Placement:
        self._kept.pop(_key(problem), None)
        if (tree := terminals.tree(weights, access, costs.latency_of_pairs())) is None:
            return self._scarce.improved(problem)
        root, parents = tree
        placement = placed(problem, costs.links, parents, root, terminals.aggregators)
        placement.check(problem)
        pairs = np.array(sorted(costs.links.pair[edge] for edge in parents.items()), np.int64)
        kept = _Kept(terminals, costs, access, weights, pairs, placement)
        if not kept.stands():
            return self._scarce.improved(problem, placement)
        while len(self._kept) >= _REMEMBERED:
            del self._kept[next(iter(self._kept))]
        self._kept[_key(problem)] = kept
        return placement


class _Comparison:
    """Links that differ between two mappings. The last result is kept: all jobs have the same readings."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[Endpoint, object], Mapping[Endpoint, object], int, frozenset[Endpoint]] | None = None

    def differing(
        self, was: Mapping[Endpoint, object], now_is: Mapping[Endpoint, object], most: int
    ) -> frozenset[Endpoint]:
        """Return the links whose values differ; if they are more than `most`, at least one more than that."""
        if was is now_is:
            return frozenset()
        last = self._last
        if last is None or last[0] is not was or last[1] is not now_is or last[2] != most:
            last = self._last = was, now_is, most, _differing(was, now_is, most)
        return last[3]


def _differing(was: Mapping[Endpoint, object], now_is: Mapping[Endpoint, object], most: int) -> frozenset[Endpoint]:
    """Compare two mappings, as `_Comparison.differing` does."""
    links: set[Endpoint] = set()
    look: Iterable[tuple[Endpoint, object]] = now_is.items()
    if len(was) <= len(now_is) and all(map(is_, was, now_is)):  # mostly: a copy with some values changed or added
        added = itertools.islice(look, len(was), None)
        look = itertools.chain(itertools.compress(look, map(is_not, was.values(), now_is.values())), added)
    else:
        links.update(was.keys() - now_is.keys())
    get = was.get
    new = (link for link, reading in look if (old := get(link)) is not reading and old != reading)
    links.update(itertools.islice(new, most + 1))
    return frozenset(links)


def _room(problem: Problem, links: Links) -> Bools:
    """(switches,)"""
    room: Bools = links.slots > 0
    if problem.room is not None:
        room &= np.array([problem.room.get(name, 0) > 0 for name in links.switches])
    return room


def _key(problem: Problem) -> tuple[object, ...]:
    return problem.workers, problem.server, problem.gradient_bytes, problem.fan_in, problem.slack


DESCRIPTION: Final = StrategyDescription(
    "widest",
    "widest tree",
    "the tree whose slowest link is the fastest there can be, by telemetry; moved when that changes",
    WidestTree,
    frozenset({Need.ROOM, Need.TELEMETRY}),
    resolves=True,
    jointly=True,
    advice="the default: any fabric whose switches can sum",
)
