"""Sums at every level of a fixed tree whose spine a hash of the job's hosts chooses: jobs spread over spines."""

from __future__ import annotations

import random
import zlib
from itertools import takewhile
from typing import Final

from ..baseline_trees import closest_feasible_tree, rack_sums, spine_trees, spines, worker_hops
from ..model.problem import Placement, Problem
from ..model.strategy import StrategyDescription


class HashedHierarchy:
    """The fixed hierarchy over the spine, of the nearest ones, that the CRC-32 of the job's hosts gives."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        hubs = spines(problem)
        nearest = list(takewhile(lambda hub: worker_hops(problem, hub) == worker_hops(problem, hubs[0]), hubs))
        first = zlib.crc32(" ".join(problem.hosts).encode()) % max(len(nearest), 1)
        order = (*nearest[first:], *nearest[:first], *hubs[len(nearest) :])
        tree = next(spine_trees(problem, order), None)
        return closest_feasible_tree(problem, rack_sums(problem)) if tree is None else tree


DESCRIPTION: Final = StrategyDescription(
    "hashed-hierarchy",
    "hashed-hierarchy",
    "the fixed hierarchy over a spine that a hash of the job's hosts chooses",
    HashedHierarchy,
    advice="a baseline: fixed trees of several jobs",
)
