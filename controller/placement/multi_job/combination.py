"""The best combination of trees, one for each job, from candidates: exact, by branch and bound.

A link takes as long as all streams on it, and a job as long as the slowest link that it uses. Jobs are decided one
after another, the highest priority and the largest weight first. More jobs make no link faster, so with some decided

    T_j  ≥  max over links of its tree of their streams so far                     for decided jobs
    T_j  ≥  min over its candidates of max over links of (streams so far + its own)   for the others

and a branch is left out if these bounds, sorted, are not below the best times so far.

`every_tree` lists all trees that join a job's racks and root without a branch that leads to none of them. Any tree
contains one of these, so with them as candidates the combination is the best of all trees of adjacent hops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..model.links import Bools, Floats, Links

MAX_TREES: Final = 200
"""Trees of a job, above which they are not enumerated."""
_MAX_STEPS: Final = 20_000
"""Steps of the search for them."""
MAX_NODES: Final = 2_000
"""Branches of a search."""
_SAME: Final = 1e-6
"""Times that differ by this share or less are the same."""


@dataclass(frozen=True, slots=True)
class Combination:
    """Result of a search."""

    chosen: tuple[int, ...]
    """Number of each job's candidate."""
    proven: bool
    """True if no combination of the candidates is better; False if the search was ended by its limit."""


def every_tree(links: Links, usable: Bools, ends: Sequence[int]) -> list[frozenset[int]] | None:
    """Return all trees of usable pairs that join these switches and have no other leaves.

    Args:
        links: The fabric.
        usable: (pairs,): pairs that a tree may use.
        ends: Numbers of the switches.

    Returns:
        Each tree's pairs; None if there are more than `MAX_TREES`, or too many paths to try.
    """
    near: dict[int, list[tuple[int, int]]] = {}
    for pair in np.flatnonzero(usable).tolist():
        a, b = links.pairs[pair].tolist()
        near.setdefault(a, []).append((b, pair))
        near.setdefault(b, []).append((a, pair))
    trees: list[frozenset[int]] = []
    try:
        for tree in _grown(near, frozenset(ends[:1]), frozenset(), list(ends[1:]), _Budget(_MAX_STEPS)):
            trees.append(tree)
            if len(trees) > MAX_TREES:
                return None
    except _Spent:
        return None
    return trees


class _Spent(Exception):
    """No steps are left."""


@dataclass(slots=True)
class _Budget:
    steps: int

    def spend(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise _Spent


def _grown(
    near: dict[int, list[tuple[int, int]]],
    nodes: frozenset[int],
    tree: frozenset[int],
    ends: list[int],
    budget: _Budget,
) -> Iterator[frozenset[int]]:
    """Join the ends to a tree, one after another, by every path: each tree has one path to its next end, so none comes
    twice.
    """
    left = [end for end in ends if end not in nodes]
    if not left:
        yield tree
        return
    for inside, pairs in _paths(near, nodes, (left[0],), (), budget):
        yield from _grown(near, nodes | {*inside}, tree | {*pairs}, left[1:], budget)


def _paths(
    near: dict[int, list[tuple[int, int]]],
    nodes: frozenset[int],
    way: tuple[int, ...],
    pairs: tuple[int, ...],
    budget: _Budget,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Paths from the end of `way` to any of the nodes: the switches outside, and the pairs."""
    budget.spend()
    for other, pair in near.get(way[-1], ()):
        if other in nodes:
            yield way, (*pairs, pair)
        elif other not in way:
            yield from _paths(near, nodes, (*way, other), (*pairs, pair), budget)


def best_combination(
    rows: Sequence[Floats],
    weights: Floats,
    classes: Sequence[NDArray[np.intp]],
    start: Sequence[int],
    nodes: int = MAX_NODES,
) -> Combination:
    """Find the combination whose times, class by class and in descending order, are lexicographically minimal.

    Args:
        rows: (candidates, links) of each job: seconds of each candidate's streams on each link.
        weights: (jobs,): factors of their times.
        classes: Places of the jobs of each priority, the highest first.
        start: A combination to be better than.
        nodes: Limit of the search, in branches.
    """
    search = _Search(rows, weights, classes, nodes)
    search.set_best(list(start))
    proven = search.descend(0, search.fixed.copy(), list(start))
    return Combination(tuple(search.best), proven)


class _Search:
    """State of one search; links on which no candidates differ are set apart."""

    def __init__(
        self, rows: Sequence[Floats], weights: Floats, classes: Sequence[NDArray[np.intp]], nodes: int
    ) -> None:
        differ = np.any([np.any(row != row[0], axis=0) for row in rows], axis=0)
        alike = sum(row[0][~differ] for row in rows)
        self.least: Floats = np.array([alike[row[0][~differ] > 0].max(initial=0.0) for row in rows])
        """(jobs,): time of the links that each uses in any case, and on which nothing changes."""
        self.rows = [row[:, differ] for row in rows]
        self.masks = [row > 0 for row in self.rows]
        self.weights, self.classes, self.left = weights, classes, nodes
        size = [float(row.sum(axis=1).mean()) for row in self.rows]
        free = [job for of in classes for job in of.tolist() if len(rows[job]) > 1]
        self.order = sorted(free, key=lambda job: (self._rank(job), -weights[job], -size[job]))
        self.fixed: Floats = np.sum([row[0] for row in self.rows if len(row) == 1], axis=0) + np.zeros(differ.sum())
        """(links,): streams of the jobs with one candidate."""
        self.best: list[int] = []
        self.best_key: tuple[float, ...] = ()

    def _rank(self, job: int) -> int:
        return next(index for index, members in enumerate(self.classes) if job in members)

    def set_best(self, chosen: list[int]) -> None:
        load = np.sum([rows[at] for rows, at in zip(self.rows, chosen, strict=True)], axis=0)
        times = [load[masks[at]].max(initial=0.0) for masks, at in zip(self.masks, chosen, strict=True)]
        self.best, self.best_key = chosen, self._keys(np.array([times]))[0]

    def _keys(self, times: Floats) -> list[tuple[float, ...]]:
        """Times (combinations, jobs) as they are compared."""
        weighted = np.maximum(times, self.least) * self.weights
        ordered = np.concatenate([-np.sort(-weighted[:, of], axis=1) for of in self.classes], axis=1)
        return [tuple(key) for key in np.round(np.log(np.maximum(ordered, 1e-300)) / _SAME).tolist()]

    def descend(self, depth: int, load: Floats, chosen: list[int]) -> bool:
        """Decide the jobs from this depth on; return False if the limit ended it."""
        if depth == len(self.order):
            return True
        if self.left <= 0:
            return False
        self.left -= 1
        job, whole = self.order[depth], True
        loads = load + self.rows[job]
        for key, at in sorted((key, index) for index, key in enumerate(self._keys(self._bounds(depth, loads, chosen)))):
            if key >= self.best_key:
                break
            more = [*chosen]
            more[job] = at
            if depth + 1 == len(self.order):
                self.best, self.best_key = more, key
                break
            whole &= self.descend(depth + 1, loads[at], more)
        return whole

    def _bounds(self, depth: int, loads: Floats, chosen: list[int]) -> Floats:
        """(candidates, jobs): least times of all jobs with each candidate of the job at this depth."""
        times = np.zeros((len(loads), len(self.rows)))
        waiting = {*self.order[depth + 1 :]}
        for job, (rows, masks) in enumerate(zip(self.rows, self.masks, strict=True)):
            if job == self.order[depth]:
                times[:, job] = np.where(masks, loads, 0.0).max(axis=1, initial=0.0)
            elif job in waiting:
                together = np.where(masks[None], loads[:, None] + rows[None], 0.0)
                times[:, job] = together.max(axis=2, initial=0.0).min(axis=1)
            else:
                times[:, job] = np.where(masks[chosen[job]], loads, 0.0).max(axis=1, initial=0.0)
        return times
