"""How fast a tree can be at all: the totally unimodular relaxation, and the widest tree as if all switches had room.

Forget where routing sends a stream, and that every switch that sums sends one stream on. What is left is one
commodity: every worker's stream leaves its rack and ends in any switch with room, or at the server, at most fan-in in
each. A time T allows ⌊T / seconds⌋ streams on a pair of switches, a figure of its own for each. On m parallel links
hashing may put a stream anywhere, and each then takes Σ p_i + 1 − min p_i of the time of one stream (`cost`): over
all of them, that is at most ⌊Σ T / seconds − m + 1⌋ streams, once T suffices for the slowest. The rows are the
node-arc incidence of a graph, so the program is totally unimodular, its vertices are integral, and a maximum flow
decides it. What it allows grows with T, so the least T that it and the connection of racks and root both allow is
found by halving; no tree is faster.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
import scipy.sparse.csgraph  # type: ignore[import-untyped]

from .cost import Costs
from .links import Floats
from .problem import Problem
from .spanning import connected

_HALVINGS: Final = 40


def bound_seconds(problem: Problem, costs: Costs) -> float:
    """No tree's slowest link takes less; infinite where there is no tree at all."""
    relaxation = _Relaxation(problem, costs)
    low = costs.access_seconds(problem.hosts)
    if relaxation.allows(low):
        return low
    high = costs.slowest_link_there_is
    if not relaxation.allows(high):
        return float("inf")
    for _ in range(_HALVINGS):
        if relaxation.next_above(low) >= high * (1 - 1e-12):
            break
        middle = (low + high) / 2
        low, high = (low, middle) if relaxation.allows(middle) else (middle, high)
    return relaxation.next_above(low)


class _Relaxation:
    def __init__(self, problem: Problem, costs: Costs) -> None:
        links = costs.links
        self._costs, self._links, self._pairs = costs, links, costs.seconds_of_pairs()
        self._rates, parallel = links.parallel(costs.seconds)
        with np.errstate(divide="ignore"):
            taken, _ = links.parallel(costs.seconds / costs.others)
        self._parallel = parallel + taken
        """(directions, pairs): what is missing from T times the rates: links in parallel, and others' streams."""
        self._racks = {links.switch[rack]: len(workers) for rack, workers in problem.racks.items()}
        self._room = np.array([problem.fan_in if problem.takes(name) else 0 for name in links.switches])
        self._nodes = set(self._racks)
        self._server: int | None = None
        if problem.server is not None:
            self._server = links.switch[problem.topology.attached_switch(problem.server).name]
            self._access = links.access[links.host[problem.server]]
            self._nodes.add(self._server)
        self._fan_in = problem.fan_in

    def next_above(self, seconds: float) -> float:
        """The least time above this one at which some link allows one stream more."""
        one_more = (np.floor(seconds * self._rates * (1 + 1e-12) - self._parallel + 1) + self._parallel) / self._rates
        times = np.where(seconds * (1 + 1e-12) < self._pairs, self._pairs, one_more.min(axis=0))
        if self._server is not None:
            more = self._costs.streams_within(seconds) + 1
            times = np.append(times, (self._costs.others + self._costs.seconds * more)[self._access])
        return float(times.min(initial=np.inf))

    def allows(self, seconds: float) -> bool:
        """Whether racks and root hang together, and every stream can end somewhere."""
        slack = seconds * (1 + 1e-9)
        return connected(self._links, self._pairs <= slack, self._nodes) and self._flows(slack)

    def _flows(self, seconds: float) -> bool:
        count, total = len(self._links.switches), sum(self._racks.values())
        source, sink = count, count + 1
        room = self._room.copy()
        if self._server is not None:
            room[self._server] += min(self._fan_in, int(self._costs.streams_within(seconds)[self._access].min()))
        streams = np.floor(seconds * self._rates - self._parallel + 1).min(axis=0)
        most = np.where(seconds < self._pairs, 0, np.minimum(streams, total))
        a, b = self._links.pairs.T
        capacity: Floats = np.concatenate((most, most, np.minimum(room, total), list(self._racks.values())))
        tails = np.concatenate((a, b, np.arange(count), np.full(len(self._racks), source)))
        heads = np.concatenate((b, a, np.full(count, sink), list(self._racks)))
        graph = scipy.sparse.csr_array((capacity.astype(np.int32), (tails, heads)), shape=(count + 2, count + 2))
        return int(scipy.sparse.csgraph.maximum_flow(graph, source, sink).flow_value) == total
