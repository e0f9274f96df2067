"""Lower bound of any tree's time: the totally unimodular relaxation, and the widest tree as if all switches had room.

The relaxation ignores where routing sends a stream, and that every aggregating switch sends one stream on. The rest is
one commodity: every worker's stream leaves its rack and ends in any switch with room, or at the server, at most fan-in
in each. A time T allows ⌊T / seconds⌋ streams on a pair of switches, a number of its own for each. On m parallel links
hashing may put a stream anywhere, and each then takes Σ p_i + 1 − min p_i of the time of one stream (`cost`): over all
of them, that is at most ⌊Σ T / seconds − m + 1⌋ streams, once T suffices for the slowest. The rows are the node-arc
incidence of a graph, so the program is totally unimodular, its vertices are integral, and a maximum flow decides it.

If hashing spreads streams to the server over several paths, a pair has fractional shares q of them. One with q < 1
among them leaves at most Σ T / seconds − m + q, so a pair's capacity is the larger of that, with the largest q, and the
integer above. The way back has shares of its own; the flow up is at most the capacity back, times the largest ratio of
a stream's share up to its share back. Such capacities are not integral, and the program is the flow's own relaxation:
its vertices are not integral, but the bound still holds.

A time that is too short has a cut that does not let all streams through. No tree is faster than the smallest time in
which this cut does, which is tried next, until no cut is left. Nor is a tree faster than the pairs that connect racks
and root.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]

from ..model.cost import PlacementCosts
from ..model.links import Bools, Floats, Ints
from ..model.problem import Problem
from .spanning import last_that_connects

_HALVINGS: Final = 64
_GRAINS: Final = 1 << 29
"""Number of units in which all streams together are counted: flows are integral."""


def bound_seconds(problem: Problem, costs: PlacementCosts) -> float:
    """Return a lower bound of every tree's slowest link in seconds; infinite if there is no tree at all."""
    relaxation = _Relaxation(problem, costs)
    seconds = max(costs.access_seconds(problem.hosts), relaxation.connected_seconds())
    while seconds < np.inf and (cut := relaxation.cut(seconds)) is not None:
        seconds = relaxation.seconds_of(cut, seconds)
    return seconds


class _Relaxation:
    """A graph of the switches, where streams come from and end."""

    def __init__(self, problem: Problem, costs: PlacementCosts) -> None:
        links = costs.links
        self._costs, self._links, self._pairs = costs, links, costs.seconds_of_pairs()
        self._rates, parallel = links.parallel(costs.seconds)
        with np.errstate(divide="ignore"):
            taken, _ = links.parallel(costs.seconds / costs.others)
        self._parallel = parallel + taken
        """(directions, pairs): reduction of T times the rates, by parallel links and others' streams."""
        self._up, self._back, self._more_up = _spread(problem, costs)
        racks = {links.switch[rack]: len(workers) for rack, workers in problem.racks.items()}
        self._room = np.array([problem.fan_in if problem.takes(name) else 0 for name in links.switches])
        self._nodes = set(racks)
        self._server: int | None = None
        if problem.server is not None:
            self._server = links.switch[problem.topology.attached_switch(problem.server).name]
            self._access = links.access[links.host[problem.server]]
            self._nodes.add(self._server)
        self._fan_in, self._total = problem.fan_in, len(problem.workers)
        (a, b), count = links.pairs.T, len(links.switches)
        source, sink = count, count + 1
        self._tails: Ints = np.concatenate((a, b, np.arange(count), np.full(len(racks), source)))
        self._heads: Ints = np.concatenate((b, a, np.full(count, sink), [*racks]))
        self._workers = np.array([*racks.values()])

    def connected_seconds(self) -> float:
        """Return the least time of pairs that racks and root hang together by; infinite where they do not."""
        if len(self._nodes) == 1:
            return 0.0
        order = np.argsort(self._pairs)
        last = last_that_connects(self._links, order, np.ones(len(order), np.bool_), self._nodes)
        return np.inf if last is None else float(self._pairs[last])

    def cut(self, seconds: float) -> Bools | None:
        """Return a mask (arcs,) of those that do not let all streams through in this time; None: all can end
        somewhere.
        """
        parts = _GRAINS // self._total
        capacity = np.ceil(self._capacities(seconds * (1 + 1e-9)) * parts).astype(np.int32)
        nodes = len(self._room) + 2
        graph = scipy.sparse.csr_array((capacity, (self._tails, self._heads)), shape=(nodes, nodes))
        flow = scipy.sparse.csgraph.maximum_flow(graph, nodes - 2, nodes - 1)
        if flow.flow_value == self._total * parts:
            return None
        left = scipy.sparse.csr_array(graph - flow.flow > 0)
        near = np.zeros(nodes, np.bool_)
        near[scipy.sparse.csgraph.breadth_first_order(left, nodes - 2, return_predecessors=False)] = True
        cut: Bools = near[self._tails] & ~near[self._heads]
        return cut

    def seconds_of(self, cut: Bools, seconds: float) -> float:
        """Return the least time above this one in which these arcs let all streams through; infinite: they never do."""
        low, high = seconds, self._costs.slowest_link_there_is
        if high <= low or self._capacities(high)[cut].sum() < self._total:
            return np.inf
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._capacities(middle)[cut].sum() >= self._total else (middle, high)
        return high

    def _capacities(self, seconds: float) -> Floats:
        """(arcs,): streams that pairs, either way, switches, the server and workers take in this time."""
        room = self._room.copy()
        if self._server is not None:
            room[self._server] += min(self._fan_in, int(self._costs.streams_within(seconds)[self._access].min()))
        left = seconds * self._rates * (1 + 1e-12) - self._parallel
        whole = np.floor(left + 1)
        up, back = np.maximum(whole, left + self._up), np.maximum(whole, left + self._back)
        streams = np.minimum(up, self._more_up * back[::-1])
        most = np.where(seconds * (1 + 1e-12) < self._pairs, 0.0, np.clip(streams, 0, self._total))
        capacities: Floats = np.concatenate((*most, np.minimum(room, self._total), self._workers))
        return capacities


def _spread(problem: Problem, costs: PlacementCosts) -> tuple[Floats, Floats, Floats]:
    """Shares of the workers' streams to the server that hashing spreads, each of shape (directions, pairs).

    First and second, the largest share below 1 of a stream that takes the pair up, and of one that comes back by it, 0
    without such streams. Third, the largest ratio of a stream's share up to its share back, on the pair's other
    direction, at least 1.
    """
    links, routes, server = costs.links, problem.routes, problem.server
    up, back = np.zeros((2, 2, len(links.pairs)))
    more = np.ones((2, len(links.pairs)))
    for rack in problem.racks:
        if server is None or not routes.reaches(rack, server):
            continue
        there, here = np.zeros((2, 2, len(links.pairs)))
        for shares, way in ((routes.shares(rack, server), there), (routes.shares(server, rack), here)):
            at = np.array([links.number[link] for link in shares], np.int64)
            between = links.pair_of[at] >= 0
            places = (links.downward[at].astype(np.int64)[between], links.pair_of[at][between])
            np.add.at(way, places, np.array([*shares.values()])[between])
        for most, way in ((up, there), (back, here)):
            np.maximum(most, way, out=most, where=way < 1 - 1e-9)
        np.maximum(more, there / np.where(here[::-1] > 0, here[::-1], 1.0), out=more)
    return up, back, more
