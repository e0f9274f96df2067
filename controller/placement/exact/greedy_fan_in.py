"""Greedy trees close to a strategy's request: if the root gets too many children, other switches gather some.

1. All workers are at their requested switches, and every switch sends its sum straight to the root. A worker whose
   switch has no free place starts at its own rack's switch, or at the next switch with a free place.
2. While the root has too many children, the switch that relieves it most takes as many of them as it has places for.
   Switches that aggregate already come before others. If sums alone do not suffice, workers are taken, too.

The result is proven to be the nearest tree if no worker was moved and no fewer switches suffice. Let k be the number of
sums and R that of workers at a root with F places. Let A be the places for these sums at switches that aggregate
anyway. Then k + R − F − A sums need an additional switch; each such switch takes F of them, and sends a sum itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..model.problem import Placement, Problem


def gathered(problem: Problem, root: str, wanted: Mapping[str, str]) -> tuple[Placement | None, bool]:
    """Return a tree with this root, or None where none was found; and whether it is proven that none is nearer.

    Where what is wanted leads to no tree, all workers begin at their racks.
    """
    placement, nearest = _Gathering(problem, root).tree(wanted)
    if placement is None:
        at_racks = {worker: rack for rack, workers in problem.racks.items() for worker in workers}
        placement, nearest = _Gathering(problem, root).tree(at_racks)[0], False
    return placement, nearest


class _Gathering:
    def __init__(self, problem: Problem, root: str) -> None:
        self._problem, self._root = problem, root
        routes = problem.routes
        self._distance = {
            switch.name: routes.hops(switch.name, root)
            for switch in problem.topology.switches
            if switch.name != root and problem.takes(switch.name) and routes.reaches(switch.name, root)
        }
        self._aggregators: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        self._places = dict.fromkeys(self._distance, problem.fan_in)
        self._known: dict[tuple[str, str], bool] = {}

    def tree(self, wanted: Mapping[str, str]) -> tuple[Placement | None, bool]:
        moved = self._seat(wanted)
        if len(self._aggregators) < len(self._problem.workers):
            return None, False
        sums = sorted(set(self._aggregators.values()) - {self._root})
        if not all(self._may_send(name, self._root) for name in sums):
            return None, False
        self._parents = dict.fromkeys(sums, self._root)
        least = self._min_more(sums)
        moved += self._relieve(workers_too=False)
        moved += self._relieve(workers_too=True)
        if len(self._at_root()) > self._problem.fan_in:
            return None, False
        placement = Placement.trimmed(self._aggregators, self._parents, self._root)
        return placement, not moved and len(placement.parents) == len(sums) + least

    # --- workers ---

    def _seat(self, wanted: Mapping[str, str]) -> int:
        """Every worker where it is wanted, or near; how many are not where they are wanted."""
        problem = self._problem
        displaced: list[str] = []
        near: dict[str, list[str]] = {}  # by rack: where its workers may go, those that are full taken off
        for worker in problem.workers:
            sink = wanted.get(worker, self._root)
            if not self._assign(worker, sink):
                displaced.append(worker)
        for worker in displaced:
            rack = problem.topology.attached_switch(worker).name
            if rack not in near:
                sinks = [name for name in self._distance if self._may_send(rack, name)]
                near[rack] = [*sorted(sinks, key=lambda name: problem.routes.hops(rack, name)), self._root]
            while near[rack] and not self._assign(worker, near[rack][0]):
                del near[rack][0]
        self._aggregators = {name: self._aggregators[name] for name in problem.workers if name in self._aggregators}
        return len(displaced)

    def _assign(self, worker: str, sink: str) -> bool:
        rack = self._problem.topology.attached_switch(worker).name
        if sink == self._root:
            fits = self._may_send(rack, sink)
        else:
            fits = self._places.get(sink, 0) > 0 and self._may_send(rack, sink)
            if fits:
                self._places[sink] -= 1
        if fits:
            self._aggregators[worker] = sink
        return fits

    # --- sums ---

    def _at_root(self) -> list[str]:
        workers = [worker for worker, sink in self._aggregators.items() if sink == self._root]
        return workers + [name for name, parent in self._parents.items() if parent == self._root]

    def _min_more(self, sums: Iterable[str]) -> int:
        """Minimum number of additional switches that must gather."""
        fan_in = self._problem.fan_in
        over = len(self._at_root()) - fan_in
        if over <= 0:
            return 0
        for name in sums:
            if places := self._places[name]:
                over -= min(places, sum(1 for child in sums if self._may_gather(child, name)))
        return max(0, math.ceil(over / (fan_in - 1))) if fan_in > 1 else 0

    def _relieve(self, *, workers_too: bool) -> int:
        """Have switches gather what is too much for the root; how many workers they took."""
        moved = 0
        nearest = sorted(self._distance, key=lambda name: self._distance[name])
        while (over := len(at_root := self._at_root()) - self._problem.fan_in) > 0:
            best, children = "", list[str]()
            relief = 0
            for name in sorted(nearest, key=lambda name: name not in self._parents):
                more = 0 if name in self._parents else 1
                most = min(self._places[name], over + more)
                if most - more <= relief:
                    continue
                mine = self._gatherable(name, at_root, most, workers_too)
                if len(mine) - more > relief:
                    best, children, relief = name, mine, len(mine) - more
                    if relief == over or (len(mine) == self._problem.fan_in and not workers_too):
                        break  # nobody relieves it more, or none by another full switch
            if not best:
                break
            moved += self._gather(best, children)
        return moved

    def _gatherable(self, name: str, at_root: list[str], most: int, workers_too: bool) -> list[str]:
        """Children of the root that a switch can take, sums before workers."""
        mine: list[str] = []
        if name not in self._parents and not self._may_send(name, self._root):
            return mine
        racks = self._problem.topology
        for child in reversed(at_root):
            if len(mine) == most:
                break
            if child in self._aggregators:
                if workers_too and self._may_send(racks.attached_switch(child).name, name):
                    mine.append(child)
            elif self._may_gather(child, name):
                mine.append(child)
        return mine

    def _gather(self, name: str, children: list[str]) -> int:
        """Attach children to a switch; return how many of them are workers."""
        self._parents.setdefault(name, self._root)
        self._places[name] -= len(children)
        workers = [child for child in children if child in self._aggregators]
        self._aggregators.update(dict.fromkeys(workers, name))
        self._parents.update(dict.fromkeys(set(children) - set(workers), name))
        return len(workers)

    def _may_gather(self, child: str, name: str) -> bool:
        """Nearer to the root, so no circle can be."""
        return self._distance[name] < self._distance[child] and self._may_send(child, name)

    def _may_send(self, child: str, parent: str) -> bool:
        if (child, parent) not in self._known:
            self._known[child, parent] = self._problem.may_send(child, parent)
        return self._known[child, parent]
