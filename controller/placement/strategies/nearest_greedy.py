"""Each worker for itself, in turn."""

from __future__ import annotations

import random
from typing import Final

from ..problem import Placement, Problem
from ..strategy import Description
from ..wishes import nearest, within_reach


class NearestGreedy:
    """Every worker takes the nearest switch that still has a place; the sums go to the root."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        places: dict[str, int] = {}
        wanted: dict[str, str] = {}
        for worker in problem.workers:
            offers = [name for name in within_reach(problem, worker) if places.get(name, 0) < problem.fan_in]
            if offers:
                wanted[worker] = min(offers, key=lambda name: problem.routes.hops(worker, name))
                places[wanted[worker]] = places.get(wanted[worker], 0) + 1
        return nearest(problem, wanted)


DESCRIPTION: Final = Description(
    "nearest", "nearest greedy", "every worker sends to the nearest switch that has a place left", NearestGreedy
)
