"""The paper's model by enumeration: every assignment of workers to switches and the server, each link's streams summed.

Independent of the linear program and of the mixed-integer one: loads are counted link by link, over all streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from weir.controller.placement import PlacementCosts, Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Assigned:
    """An assignment of the workers, in the order of their racks."""

    sinks: tuple[str, ...]
    total: Floats
    """(links,): Σ of the streams' shares."""
    least: Floats
    """(links,): the least share of a stream that may take a link; 1 without any."""
    path_seconds: float

    def slowest(self, costs: PlacementCosts) -> float:
        load = np.where(self.total > 0, (self.total + 1 - self.least) * costs.seconds + costs.others, 0.0)
        return float(load.max())

    def sorted_times(self, costs: PlacementCosts) -> list[float]:
        """T_e of each link in use, queues included, slowest first; an idle one counts as 0."""
        load = (self.total + 1 - self.least) * costs.seconds + costs.others + costs.wait
        return sorted((round(float(each), 12) for each in np.where(self.total > 0, load, 0.0)), reverse=True)


class Enumeration:
    """All assignments of one problem within limits."""

    def __init__(self, problem: Problem, most: Mapping[str, int] | None = None, sums: int = 32) -> None:
        self._problem, self._most, self._sums = problem, most or {}, sums
        assert problem.server is not None
        self._server, self._costs = problem.server, PlacementCosts(problem)
        self._able = [
            switch.name
            for switch in problem.topology.switches
            if problem.takes(switch.name) and problem.may_send(switch.name, self._server)
        ]
        rack_of = {worker: rack for rack, workers in problem.racks.items() for worker in workers}
        self.workers = sorted(problem.workers, key=lambda worker: [*problem.racks].index(rack_of[worker]))
        self._racks = [rack_of[worker] for worker in self.workers]

    def fastest(self) -> float:
        """Seconds of the fastest step; infinite where no assignment is within the limits."""
        best = [inf]
        for each in self._from(self._empty, 0, Counter(), lambda: best[0]):
            best[0] = min(best[0], each.slowest(self._costs) + each.path_seconds)
        return best[0]

    def all(self) -> Iterator[Assigned]:
        return self._from(self._empty, 0, Counter(), lambda: inf)

    @cached_property
    def _empty(self) -> Assigned:
        links = len(self._costs.seconds)
        return Assigned((), np.zeros(links), np.ones(links), 0.0)

    def _from(
        self, so_far: Assigned, first: int, children: Counter[str], below: Callable[[], float]
    ) -> Iterator[Assigned]:
        """Assignments that begin like this; workers of one rack in the order of `_sinks`, for they are alike."""
        if so_far.slowest(self._costs) + so_far.path_seconds >= below() * (1 - 1e-12):
            return
        at = len(so_far.sinks)
        if at == len(self.workers):
            yield so_far
            return
        alike = at > 0 and self._racks[at] == self._racks[at - 1]
        for place, sink in enumerate((*self._able, self._server)):
            if (alike and place < first) or not self._problem.may_send(self._racks[at], sink):
                continue
            after = children + Counter((sink,))
            if sink != self._server and not children[sink]:
                after[self._server] += 1
            if self._within(after):
                yield from self._from(self._with(so_far, self.workers[at], sink, children), place, after, below)

    def _within(self, children: Mapping[str, int]) -> bool:
        fan_in = self._problem.fan_in
        used = [name for name, count in children.items() if count and name != self._server]
        return (
            children[self._server] <= fan_in
            and len(used) <= self._sums
            and all(children[name] <= min(self._most.get(name, fan_in), fan_in) for name in used)
        )

    def _with(self, so_far: Assigned, worker: str, sink: str, children: Counter[str]) -> Assigned:
        total, least = so_far.total.copy(), so_far.least.copy()
        hops = [(worker, sink)]
        path = self._both(worker, sink)
        if sink != self._server:
            path += self._both(sink, self._server)
            if not children[sink]:
                hops.append((sink, self._server))
        for hop in hops:
            for link, share in self._costs.steps(*hop):
                total[link] += share
                least[link] = min(least[link], share)
        return Assigned((*so_far.sinks, sink), total, least, max(so_far.path_seconds, path))

    def _both(self, a: str, b: str) -> float:
        return self._costs.latency_seconds(a, b) + self._costs.latency_seconds(b, a)
