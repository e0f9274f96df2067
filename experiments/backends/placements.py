"""Placement decisions of a run: duration of each, and the trained job's roots over time."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...controller.jobs.job import RunningJob
from ...controller.placement import Placement, Problem
from ...controller.placement.strategies import strategy
from ...controller.planning.plan import JobPlan


@dataclass(frozen=True, slots=True)
class Moved:
    """A shard of the job began to be summed elsewhere."""

    time_ns: int
    switches: tuple[str, ...]
    shard: int


class TimedStrategy:
    """A strategy that notes how long each decision takes."""

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.decisions_ms: list[float] = []
        """Wall-clock time of each decision."""
        self._strategy = strategy(name, options)

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`; the wall time in ms is appended to `decisions_ms`."""
        started = time.perf_counter()
        placement = self._strategy.place(problem, rng)
        self.decisions_ms.append(1e3 * (time.perf_counter() - started))
        return placement


class Moves:
    """Moves of the trained job's shards."""

    def __init__(self) -> None:
        self._generations: dict[int, int] = {}
        """Last seen generation of each shard's plan, by the number of its job."""
        self._moves: list[Moved] = []

    def begin(self, plan: JobPlan) -> None:
        """Begin the next shard with this plan."""
        self._generations[plan.spec.job] = plan.generation

    def update(self, jobs: Mapping[int, RunningJob], now_ns: int) -> None:
        """See whether the shards have new plans among the running jobs."""
        for shard, job in enumerate(self._generations):
            plan = jobs[job].plan
            if plan.generation != self._generations[job]:
                self._generations[job] = plan.generation
                root = {plan.placement.root} - {plan.spec.server}
                self._moves.append(Moved(now_ns, tuple(sorted(plan.placement.switches | root)), shard))

    def pop(self) -> list[Moved]:
        """Return those since the last call."""
        moves, self._moves = self._moves, []
        return moves
