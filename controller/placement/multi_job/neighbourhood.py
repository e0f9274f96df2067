"""Trees of several jobs chosen at the same time, so that one moves for the sake of another that counts more.

Few jobs with several trees, on a small fabric, are decided together over all their trees, which is exact. Of more jobs,
a slow one and some of those on its slowest link are decided together while all others stay. Their trees are the known
ones, and cheap ones by the load of the links. This is repeated for the next slow job while the times fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from ....topologies.routing import Routes
from ..model.links import Bools, Floats, Links
from ..model.problem import Placement, PlacementError
from ..model.search_limit import SearchLimit
from .combination import best_combination, every_tree
from .multi_tree import Jobs, cheap_by_load

FEW: Final = 8
"""Jobs with a choice of trees up to which all are decided together."""
_TOGETHER: Final = 4
"""Jobs that are decided together if there are more."""
_SLOWEST: Final = 3
"""Number of the slowest jobs of each priority around which that is tried."""
_ROUNDS: Final = 30
_MANY_PAIRS: Final = 64
"""Pairs of linked switches above which trees are not enumerated."""
_SAME: Final = 1e-6
"""Times that differ by this share or less are the same."""
_VISITS: Final = 8
"""Visits of each link that deciding one of these jobs counts as."""
_NODES: Final = 200
"""Branches of each search if more than `FEW` jobs have a choice."""

_TREES: WeakKeyDictionary[Routes, dict[tuple[bytes, tuple[int, ...]], list[frozenset[int]] | None]] = (
    WeakKeyDictionary()
)


def all_trees(jobs: Jobs, job: int) -> list[frozenset[int]] | None:
    """Return the pairs of every tree of a job that can be best; None if there are too many. Kept for each fabric."""
    if len(jobs.links.pairs) > _MANY_PAIRS:
        return None
    known = _TREES.setdefault(jobs.problems[job].routes, {})
    key = (jobs.usable[job].tobytes(), tuple(jobs.nodes[job]))
    if key not in known:
        known[key] = every_tree(jobs.links, jobs.usable[job], jobs.nodes[job])
    return known[key]


class Neighbourhood:
    """Search over several jobs' trees at the same time."""

    def __init__(
        self,
        jobs: Jobs,
        movable: Sequence[bool],
        weights: Floats,
        classes: Sequence[np.ndarray[tuple[int], np.dtype[np.intp]]],
        seconds_of_byte: Floats,
        limit: SearchLimit,
        least: Floats | None = None,
    ) -> None:
        """Create a search.

        Args:
            jobs: The jobs, with unweighted times.
            movable: True for each job that may get another tree.
            weights: (jobs,): factors of their times.
            classes: Places of the jobs of each priority, the highest first.
            seconds_of_byte: (links,): seconds that a byte takes on each directed link.
            limit: Limit at which no other search begins.
            least: (jobs,): lower bounds of their weighted times, at which they are not decided again.
        """
        self._jobs, self._weights, self._classes = jobs, weights, classes
        self._free = [job for job, may in enumerate(movable) if may]
        self._of_byte, self._limit = seconds_of_byte, limit
        self._least: Floats = np.zeros(len(movable)) if least is None else least
        self._sizes = [problem.gradient_bytes for problem in jobs.problems]

    def improved(self, placements: Sequence[Placement], bytes_of: Sequence[Floats]) -> tuple[list[Placement], bool]:
        """Return placements whose times are less, or the same ones, and whether they are proven to be the best.

        Args:
            placements: One per job.
            bytes_of: (links,) of each job: its bytes on each directed link.
        """
        improved, loads = list(placements), list(bytes_of)
        trees = {job: all_trees(self._jobs, job) for job in self._free}
        every = {job: tree for job, tree in trees.items() if tree is not None}
        choosing = sum(len(tree) > 1 for tree in every.values())
        if len(every) == len(trees) and choosing <= FEW and self._decide(every, improved, loads, nodes=None):
            return improved, True
        pool = {job: list(tree or ()) for job, tree in trees.items()}
        for _ in range(_ROUNDS):
            if not any(self._around(job, pool, improved, loads) for job in self._deciding(loads)):
                break
        return improved, False

    def _deciding(self, loads: Sequence[Floats]) -> list[int]:
        """The slowest jobs of each priority above their bounds, times weight, the highest priority first."""
        times = self._times(loads)
        open_ones = [of[times[of] > self._least[of] * (1 + _SAME)] for of in self._classes]
        return [int(job) for of in open_ones for job in of[np.argsort(-times[of], kind="stable")][:_SLOWEST]]

    def _times(self, loads: Sequence[Floats]) -> Floats:
        links = np.sum(loads, axis=0) * self._of_byte
        times: Floats = np.array([links[load > 0].max(initial=0.0) for load in loads])
        times *= self._weights
        return times

    def _around(
        self, job: int, pool: dict[int, list[frozenset[int]]], found: list[Placement], loads: list[Floats]
    ) -> bool:
        """Decide the jobs on this job's slowest link together; return True if that gains anything."""
        if self._limit.is_reached:
            return False
        slowest = int(np.where(loads[job] > 0, np.sum(loads, axis=0) * self._of_byte, 0.0).argmax())
        users = sorted((other for other in self._free if loads[other][slowest] > 0), key=lambda at: self._weights[at])
        group = [job, *(other for other in users if other != job)] if job in self._free else users
        group = group[:_TOGETHER]
        if not group:
            return False
        rest = np.sum(loads, axis=0) - np.sum([loads[each] for each in group], axis=0)
        pairs = self._jobs.links.slowest_of_pairs(rest * self._of_byte)
        pair = int(self._jobs.links.pair_of[slowest])
        choices: dict[int, list[frozenset[int]]] = {}
        self._limit.spend(_VISITS * len(group) * len(loads[job]))
        for each in group:
            fresh = [cheap_by_load(self._jobs, each, pairs)]
            fresh += [cheap_by_load(self._jobs, each, pairs, without=pair)] if pair >= 0 else []
            pool[each] += [tree for tree in dict.fromkeys(fresh) if tree is not None and tree not in pool[each]]
            choices[each] = pool[each]
        before = [*found]
        self._decide(choices, found, loads, nodes=_NODES)
        return found != before

    def _decide(
        self,
        choices: dict[int, list[frozenset[int]]],
        found: list[Placement],
        loads: list[Floats],
        nodes: int | None,
    ) -> bool:
        """Take the best combination of these jobs' trees, each with its present one; return True if it is proven."""
        rows = [load[None] * self._of_byte for load in loads]
        others: dict[int, list[frozenset[int]]] = {}
        for job, trees in choices.items():
            differing = self._rows(job, trees)
            differs = np.flatnonzero((np.abs(differing - rows[job]) > _SAME * rows[job]).any(axis=1))
            others[job] = [trees[index] for index in differs.tolist()]
            rows[job] = np.concatenate([rows[job], differing[differs]])
        limit = {} if nodes is None else {"nodes": nodes}
        best = best_combination(rows, self._weights, self._classes, [0] * len(rows), **limit)
        moved = {job: others[job][at - 1] for job, at in enumerate(best.chosen) if at}
        try:
            placements = {job: self._jobs.placement(job, self._jobs.rooted(job, tree)) for job, tree in moved.items()}
        except PlacementError:  # more children than a switch takes
            return False
        for job, placement in placements.items():
            found[job], loads[job] = placement, rows[job][best.chosen[job]] / self._of_byte
        return best.proven

    def _rows(self, job: int, trees: Sequence[frozenset[int]]) -> Floats:
        """(trees, links): seconds of a job's streams by each tree: one up and one down on each of its pairs.

        Streams on hosts' links are the same by every tree of adjacent hops.
        """
        links = self._jobs.links
        on: Bools = np.zeros((len(trees), len(links.pairs) + 1), np.bool_)
        for index, tree in enumerate(trees):
            on[index, sorted(tree)] = True
        carried = on[:, links.pair_of].astype(np.float64)  # a host's link has the pair −1, whose column stays False
        carried[:, self._access(job, links)] = 1.0
        rows: Floats = carried * (self._sizes[job] * self._of_byte)
        return rows

    def _access(self, job: int, links: Links) -> list[int]:
        hosts = self._jobs.problems[job].hosts
        return [int(link) for host in hosts for link in links.access[links.host[host]]]
