"""Several jobs on one fabric, as `weir place --jobs` plans them.

The controller places the groups of a mesh the same way: one after another, each given the streams of those before it,
and then all of them together. A job of several stripes is as many jobs that share its chunks, as in a registration.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from ..controller.placement import Placement, PlacementCosts, PlacementError, Problem
from ..controller.placement.model.links import Floats
from ..controller.placement.model.pipes import place_by_pipes
from ..controller.placement.multi_job.joint import (
    JobTimes,
    RunningAggregation,
    bound_of_slowest,
    seconds_of,
)
from ..controller.placement.multi_job.multi_tree import PARTS, shares
from ..controller.placement.multi_job.new_jobs import place_jointly
from ..controller.placement.strategies import STRATEGIES, strategy
from ..topologies import Endpoint
from .place_files import PlacedJob

_SEARCHES: Final = 10
_VISITS: Final = 1e8
"""Limit of each joint search, in visits of links: ten times the controller's, as no running job waits here."""
_SAME: Final = 1e-6
"""Times that differ by this share or less are the same."""


@dataclass(frozen=True)
class Part:
    """A job, or one of the parts into which its chunks are divided."""

    job: str
    share: int
    """Number of the PARTS into which the job's chunks are divided."""
    weight: float
    priority: int
    problem: Problem
    """Placement problem without the other parts' streams; its slots are those for all jobs."""


@dataclass(frozen=True)
class Planned:
    """Placement of a part, given all others."""

    part: Part
    placement: Placement
    problem: Problem
    """Placement problem with the other parts' streams."""
    why: str


@dataclass(frozen=True)
class Plan:
    """All jobs' trees by one strategy."""

    strategy: str
    parts: tuple[Planned, ...]
    slowest_link: Endpoint
    slowest_link_seconds: float
    """Time in seconds of one step's streams on that link, all jobs together."""
    streams: Mapping[str, float]
    """Number of streams on that link, by job."""
    slowest_job_seconds: float
    """Time of the slowest job of the highest priority, times its weight."""
    bound_seconds: float | None
    """The least that this can be by any trees; None if some switch that must sum has no room."""
    note: str


def parts_of(jobs: Sequence[PlacedJob], problems: Sequence[Problem], stripes: int) -> list[Part]:
    """Divide each job among at most this many trees, as is best for it alone; `problems` are the jobs', in order."""
    parts = []
    for job, problem in zip(jobs, problems, strict=True):
        for share in shares(problem, stripes) if stripes > 1 else (PARTS,):
            size = max(round(problem.gradient_bytes * share / PARTS), 1)
            parts.append(Part(job.name, share, job.weight, job.priority, replace(problem, gradient_bytes=size)))
    return parts


def plan(parts: Sequence[Part], name: str, seed: int) -> Plan:
    """Place the parts with the strategy of this name.

    The joint search of many jobs depends on its start. It is therefore also started from each job's placement alone,
    and the better result is taken: the one in which the slowest job of the highest priority, times weight, is faster,
    and in a tie the next one.

    Raises:
        PlacementError: the strategy cannot place one of them.
    """
    place = _asking(name, seed)
    beside = _Around(parts)
    for index in range(len(parts)):
        beside.place(index, beside.problem(index), place)
    first = beside.running()
    if not STRATEGIES[name].jointly or len(parts) == 1:
        return beside.plan(name, beside.whys(first, alone=False), "")
    best, note = beside, beside.move_jointly(place)
    if beside.is_best():
        return beside.plan(name, beside.whys(first, alone=False), note)
    place = _asking(name, seed)  # anew, for it remembers trees
    alone = _Around(parts)
    for index, part in enumerate(parts):
        alone.place(index, part.problem, place)
    if not alone.is_too_full():
        start = alone.running()
        said = alone.move_jointly(place)
        if alone.slowest_first() < beside.slowest_first():
            best, first, note = alone, start, said
    return best.plan(name, best.whys(first, alone=best is alone), note)


def _asking(name: str, seed: int) -> Callable[[Problem], Placement]:
    place = partial(strategy(name).place, rng=random.Random(seed))
    return lambda problem: place_by_pipes(place, problem)


@dataclass
class _Around:
    """Placements of all parts, with the load that each finds on links and in switches."""

    parts: Sequence[Part]
    costs: list[PlacementCosts] = field(init=False)
    placements: dict[int, Placement] = field(default_factory=dict)
    bytes_of: dict[int, Floats] = field(default_factory=dict)
    """Bytes that each placed part brings onto the links in a step, (links,)."""
    taken: Counter[str] = field(default_factory=Counter)
    """Slots of each switch that the placed parts take."""

    def __post_init__(self) -> None:
        self.costs = [PlacementCosts(part.problem) for part in self.parts]

    def place(self, index: int, problem: Problem, place: Callable[[Problem], Placement]) -> None:
        placement = place(problem)
        placement.check(problem)
        self._put(index, placement)

    def _put(self, index: int, placement: Placement) -> None:
        if index in self.placements:
            self.taken.subtract(_sums_in(self.placements[index]))
        self.taken.update(_sums_in(placement))
        self.placements[index] = placement
        self.bytes_of[index] = self.costs[index].loads(placement) * self.parts[index].problem.gradient_bytes

    def problem(self, index: int) -> Problem:
        """Return the problem of a part, given all others that are placed."""
        problem = self.parts[index].problem
        links = problem.topology.directed_links
        rest = sum(
            (other_bytes for other, other_bytes in self.bytes_of.items() if other != index), start=np.zeros(len(links))
        )
        others = {links[link]: float(rest[link]) for link in np.flatnonzero(rest)}
        return replace(problem, others=others, room=self._room(index))

    def running(self) -> list[RunningAggregation]:
        return [
            RunningAggregation(
                replace(part.problem, room=self._room(index)), self.placements[index], part.weight, part.priority
            )
            for index, part in enumerate(self.parts)
        ]

    def move_jointly(self, place: Callable[[Problem], Placement]) -> str:
        """Move parts as long as a move pays; return the reason if that ended early."""
        joint = place_jointly(self.running(), place, searches=_SEARCHES, visits=_VISITS)
        for index, placement in joint.placements.items():
            self._put(index, placement)
        return joint.note

    def _room(self, index: int) -> dict[str, int]:
        """Slots per switch without those of the other parts."""
        room = dict(self.parts[index].problem.room or {})
        own = _sums_in(self.placements[index]) if index in self.placements else ()
        for name, count in self.taken.items():
            room[name] = room.get(name, 0) - count
        for name in own:
            room[name] += 1
        return room

    def is_too_full(self) -> bool:
        """Return True if a switch has too few slots for the placed parts."""
        room = self.parts[0].problem.room or {}
        return any(count > room.get(name, count) for name, count in self.taken.items())

    def is_best(self) -> bool:
        """Return True if no part can be faster by any trees, since its hosts' own links are its slowest."""
        times = JobTimes(self.running())
        return not times.improvable(times.weighted([self.bytes_of[index] for index in range(len(self.parts))])).any()

    def slowest_first(self) -> list[tuple[int, float]]:
        """Return all parts' priorities, and times by their weights; those that differ by rounding are the same."""
        running = self.running()
        seconds = zip(running, seconds_of(running, {}), strict=True)
        return sorted(
            ((job.priority, float(f"{job.weight * job_seconds:.6g}")) for job, job_seconds in seconds), reverse=True
        )

    def whys(self, first: Sequence[RunningAggregation], *, alone: bool) -> list[str]:
        """Explain the place of each part, given its first place; `alone`: the first place is that of the part alone."""
        now = self.running()
        moved = any(now[index].placement != job.placement for index, job in enumerate(first))
        before, after = (seconds_of(first, {}), seconds_of(now, {})) if moved else ([], [])
        whys = []
        for index, part in enumerate(self.parts):
            if now[index].placement != first[index].placement:
                higher = any(other.priority > part.priority for other in self.parts)
                gave_way = "gave way to a higher job" if higher else "gave way to others"
                faster = after[index] < before[index] * (1 - _SAME)
                whys.append(
                    f"{'moved' if faster else gave_way} when all were placed jointly: "
                    f"{1e3 * before[index]:.3g} ms on its slowest link became {1e3 * after[index]:.3g} ms"
                )
            elif alone:
                whys.append("placed as if it were alone; others gave way")
            elif others := dict.fromkeys(other.job for other in self.parts[:index] if other.job != part.job):
                whys.append(f"placed beside {', '.join(others)}")
            else:
                whys.append("placed first")
        return whys

    def plan(self, name: str, whys: Sequence[str], note: str) -> Plan:
        costs, links = self.costs[0], self.parts[0].problem.topology.directed_links
        of_byte = costs.seconds / costs.problem.gradient_bytes
        seconds = np.sum(list(self.bytes_of.values()), axis=0) * of_byte
        slowest = int(seconds.argmax())
        streams: Counter[str] = Counter()
        for at, job_bytes in self.bytes_of.items():
            part = self.parts[at]
            streams[part.job] += float(job_bytes[slowest]) / part.problem.gradient_bytes  # type: ignore[assignment]
        on_it = {job: count for job, count in streams.items() if count}
        planned = tuple(
            Planned(part, self.placements[index], self.problem(index), why)
            for index, (part, why) in enumerate(zip(self.parts, whys, strict=True))
        )
        longest = self.slowest_first()[0][1]
        try:
            bound = min(bound_of_slowest(self.running()), longest)
        except PlacementError:
            bound = None
        return Plan(name, planned, links[slowest], float(seconds[slowest]), on_it, longest, bound, note)


def _sums_in(placement: Placement) -> set[str]:
    return {*placement.parents, placement.root}
