"""Joint evaluation of running jobs, one tree for each: whether some should move, and where to.

All jobs' streams are known. A link takes as long as all of its streams need, and a job as long as its slowest link:

    T_j  =  weight_j · max over links e with L_{j,e} > 0 of  Σ_i L_{i,e} · D_i · 8 / (c_e − b_e)

1. Each job in turn takes the best tree given the others', while that gains anything. The slowest job is also placed as
   if another one made room for it.
2. This search starts from the present trees, and again from those of the linear program of `multi_tree`, which divides
   each job among several trees. Rounding picks one of them for each job, the largest jobs first, by its links' times
   with the shares that are not rounded yet.
3. The first result is used, as fewer jobs move by it, unless the second one's times in descending order are less by
   more than the share `CLOSE`.
4. Jobs whose move gains nothing stay.

A change *pays* if the slowest of the moving jobs gets faster by the share `gain`, and no job is slowed down to more
than that. Of all times in descending order the first that changes falls, so jobs cannot move in cycles.

The times of jobs of the highest priority count first. A change that affects none of them, or makes staying ones
slightly faster, is judged by the times of the next priority. So a lower job moves off the links of a higher one at any
cost to itself, and never onto them at the higher one's cost. Two more placements are tried for that. One gives a higher
job its tree without the lower ones, which are then placed again. The other puts a lower job on as few links of the
higher ones as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....topologies.model import Endpoint
from ..model.cost import PlacementCosts
from ..model.links import Bools, Floats, Links
from ..model.problem import Placement, PlacementError, Problem
from ..model.search_limit import SearchLimit
from .multi_tree import CLOSE, PARTS, Jobs, stripe
from .neighbourhood import Neighbourhood

VISITS: Final = 1e7
"""Limit of a search, in visits of links: about a second on one core."""
_PLACED: Final = 8
"""Visits of each link that placing a job counts as, since it takes as long as so many in a search for cheap trees."""
_TURNS: Final = 3
"""Number of times that another job is made to give way to the slowest."""
_GAINS: Final = 1e-6
"""Times that differ by this share or less are the same."""
_ABOVE: Final = 1e3
"""Factor for the streams of higher jobs while a lower one looks for links without them."""


@dataclass(frozen=True, slots=True)
class RunningAggregation:
    """A job as it is summed now."""

    problem: Problem
    """Problem of this job; its loads are those of links without any of these jobs, and it contains no other job."""
    placement: Placement
    weight: float = 1.0
    """Weight of its time against other jobs'."""
    priority: int = 0
    """Its time counts before that of all jobs with a lower one."""
    movable: bool = True


Class = NDArray[np.intp]
"""The places of jobs of one priority."""


def classes_of(jobs: Sequence[RunningAggregation]) -> list[Class]:
    """Return the jobs of each priority as indices, the highest priority first."""
    priorities = np.array([job.priority for job in jobs])
    return [np.flatnonzero(priorities == priority) for priority in np.unique(priorities)[::-1]]


class JobTimes:
    """Times of all jobs when all run. Raises PlacementError without jobs, or if they share no fabric."""

    def __init__(self, jobs: Sequence[RunningAggregation]) -> None:
        if not jobs or any(job.problem.routes is not jobs[0].problem.routes for job in jobs):
            raise PlacementError("those placed together share one fabric and its routes; one at least", place="jobs")
        self._costs = [PlacementCosts(job.problem) for job in jobs]
        self.weights: Floats = np.array([job.weight for job in jobs])
        self.classes = classes_of(jobs)
        self._priorities = [job.priority for job in jobs]
        self.seconds_of_byte: Floats = self._costs[0].seconds / jobs[0].problem.gradient_bytes
        """(links,): seconds that a byte takes on each directed link."""
        self.least = self._least(jobs)
        """(jobs,): T by the best of all trees, at the least: each link of a job's hosts carries a stream of every job
        of the host.
        """

    def _least(self, jobs: Sequence[RunningAggregation]) -> Floats:
        links = Links.of(jobs[0].problem.routes)
        own = [links.access_of(job.problem.hosts).ravel() for job in jobs]
        total = np.zeros(len(links.number))
        for job, at in zip(jobs, own, strict=True):
            total[at] += job.problem.gradient_bytes
        seconds = total * self.seconds_of_byte
        least: Floats = np.array([seconds[at].max() for at in own])
        least *= self.weights
        return least

    def improvable(self, weighted: Floats) -> Bools:
        """Return a mask (jobs,) of those that other trees may make faster than these times, which are `weighted`."""
        may: Bools = weighted > self.least * (1 + _GAINS)
        return may

    def bytes_of(self, job: int, placement: Placement) -> Floats:
        """Return a job's bytes per step on each link, (links,)."""
        costs = self._costs[job]
        loads: Floats = costs.loads(placement)
        loads *= costs.problem.gradient_bytes
        return loads

    def weighted(self, bytes_of: Sequence[Floats]) -> Floats:
        """Return T, (jobs,)."""
        links = np.sum(bytes_of, axis=0) * self.seconds_of_byte
        longest: Floats = np.array([links[job_bytes > 0].max(initial=0.0) for job_bytes in bytes_of])
        longest *= self.weights
        return longest

    def slowest_link(self, bytes_of: Floats) -> float:
        """Return the time of the slowest link in seconds, from the bytes on each."""
        return float((bytes_of * self.seconds_of_byte).max())

    def others(self, bytes_of: Sequence[Floats], job: int, above: float = 1.0) -> Mapping[Endpoint, float]:
        """Return bytes of all jobs except one on the links; those of higher priority count `above` times."""
        rest = np.sum(bytes_of, axis=0) - bytes_of[job]
        if above != 1.0:
            for job_bytes, priority in zip(bytes_of, self._priorities, strict=True):
                rest += (above - 1.0) * job_bytes if priority > self._priorities[job] else 0.0
        links = self._costs[job].problem.topology.directed_links
        return {links[index]: float(rest[index]) for index in np.flatnonzero(rest > _GAINS)}


def winners(before: Floats, after: Floats, moved: Sequence[int], gain: float, classes: Sequence[Class]) -> Class | None:
    """Return the highest class of jobs for which a move pays; None if it does not pay.

    It pays if the slowest of the class's affected jobs, moving or not, gets faster by the share `gain`, and no job of a
    higher class gets slower. A higher class may get a little faster if none of its jobs moves.

    Args:
        before: Weighted time of each job before the move, float64 (jobs,).
        after: Weighted time of each job after the move, float64 (jobs,).
        moved: Numbers of the jobs that move.
        gain: Share of the time that must be saved, 0…1.
        classes: Numbers of the jobs of each class, the highest class first.
    """
    changed = np.abs(after - before) > _GAINS * before
    for members in classes:
        affected = members[changed[members]]
        if not len(affected):
            continue
        if after[affected].max() < (1 - gain) * before[affected].max():
            return members
        if np.isin(members, moved).any() or (after[affected] > before[affected]).any():
            return None
    return None


def pays(before: Floats, after: Floats, moved: Sequence[int], gain: float, classes: Sequence[Class]) -> bool:
    """Return True if a move pays for some class, as `winners` decides.

    Args:
        before: Weighted time of each job before the move, float64 (jobs,).
        after: Weighted time of each job after the move, float64 (jobs,).
        moved: Numbers of the jobs that move.
        gain: Share of the time that must be saved, 0…1.
        classes: Numbers of the jobs of each class, the highest class first.
    """
    return winners(before, after, moved, gain, classes) is not None


def bears(before: Floats, after: Floats, moved: Sequence[int], gain: float, classes: Sequence[Class]) -> bool:
    """Return True if no staying job is slowed down to more than the moving jobs' slowest, and none of higher priority
    at all.

    Args:
        before: Weighted time of each job before the move, float64 (jobs,).
        after: Weighted time of each job after the move, float64 (jobs,).
        moved: Numbers of the jobs that move, which have one priority.
        gain: Share of the time that the moving jobs should save, 0…1.
        classes: Numbers of the jobs of each class, the highest class first.
    """
    slower = after > before * (1 + _GAINS)
    slower[list(moved)] = False
    for members in classes:
        if np.isin(members, moved).any():
            return float(after[members[slower[members]]].max(initial=0.0)) < (1 - gain) * float(
                before[list(moved)].max()
            )
        if slower[members].any():
            return False
    return True


def seconds_of(jobs: Sequence[RunningAggregation], moved: Mapping[int, Placement]) -> list[float]:
    """Return every job's time, with these of them elsewhere; unweighted."""
    times = JobTimes(jobs)
    bytes_of = [times.bytes_of(index, moved.get(index, job.placement)) for index, job in enumerate(jobs)]
    return [float(job_seconds) for job_seconds in times.weighted(bytes_of) / times.weights]


def before_and_after(jobs: Sequence[RunningAggregation], moved: Mapping[int, Placement]) -> tuple[Floats, Floats]:
    """Return weighted times, (jobs,) each: as they are, and with these of them elsewhere."""
    times = JobTimes(jobs)
    now = [times.bytes_of(index, job.placement) for index, job in enumerate(jobs)]
    then = [times.bytes_of(index, moved[index]) if index in moved else mine for index, mine in enumerate(now)]
    return times.weighted(now), times.weighted(then)


def better_together(
    jobs: Sequence[RunningAggregation], place: Callable[[Problem], Placement], gain: float, visits: float = VISITS
) -> dict[int, Placement]:
    """Return the jobs that should move, by index in `jobs`, with their new placements; empty if no move pays.

    Args:
        jobs: The running jobs.
        place: Finds the best tree of one job next to others.
        gain: Minimum gain as a share.
        visits: Number of links that the search may visit; then the best result so far is judged.

    Raises:
        PlacementError: A job cannot be striped: a required switch has no room, or too many children.
    """
    limit, times = SearchLimit(visits), JobTimes(jobs)
    now = [job.placement for job in jobs]
    now_bytes = [times.bytes_of(index, placement) for index, placement in enumerate(now)]
    before = times.weighted(now_bytes)
    if not times.improvable(before).any():
        return {}
    better, found_bytes = _searched(jobs, times, now, now_bytes, place, limit)
    if times.improvable(times.weighted(found_bytes)).any():
        anew, anew_bytes = _searched(jobs, times, *_rounded(jobs, times, now, now_bytes, limit), place, limit)
        if _is_less(times.weighted(anew_bytes), times.weighted(found_bytes), times.classes, CLOSE):
            better, found_bytes = anew, anew_bytes
        better, found_bytes = _decided_together(jobs, times, better, found_bytes, limit)
    for index in sorted(range(len(jobs)), key=lambda job: before[job]):  # jobs whose move gains nothing stay
        if better[index] != now[index]:
            back = [*found_bytes[:index], now_bytes[index], *found_bytes[index + 1 :]]
            if not _is_less(times.weighted(found_bytes), times.weighted(back), times.classes):
                better[index], found_bytes = now[index], back
    moved = [index for index in range(len(jobs)) if better[index] != now[index]]
    if not pays(before, times.weighted(found_bytes), moved, gain, times.classes):
        return {}
    return {at: better[at] for at in moved}


def bound_of_slowest(jobs: Sequence[RunningAggregation]) -> float:
    """Return the least seconds that the slowest job of the highest priority takes, times its weight.

    If all jobs can be decided together over all their trees, it is what the best combination takes; otherwise the
    largest time that one of the highest jobs would take alone, or on its hosts' links with all jobs of these hosts.

    Raises:
        PlacementError: A switch that must sum has no room.
    """
    times = JobTimes(jobs)
    highest = times.classes[0]
    together = Jobs([job.problem for job in jobs])
    search = Neighbourhood(
        together, [True] * len(jobs), times.weights, times.classes, times.seconds_of_byte, SearchLimit(0)
    )
    bytes_of = [times.bytes_of(index, job.placement) for index, job in enumerate(jobs)]
    improved, proven = search.improved([job.placement for job in jobs], bytes_of)
    if proven:
        best = times.weighted([times.bytes_of(index, placement) for index, placement in enumerate(improved)])
        return float(best[highest].max())
    shared = together.access_bytes() * times.seconds_of_byte
    least = [
        jobs[at].weight * max(together.alone_seconds(at), float(shared[together.access(at)].max()))
        for at in highest.tolist()
    ]
    return float(max(least))


def _is_less(times: Floats, others: Floats, classes: Sequence[Class], share: float = _GAINS) -> bool:
    """Compare two vectors of all jobs' times (jobs,), class by class from the highest, each in descending order.

    Returns True if the first elements that differ by more than the share are smaller in `times`.
    """
    mine, theirs = (np.concatenate([np.sort(job_times[of])[::-1] for of in classes]) for job_times in (times, others))
    differ = np.flatnonzero(np.abs(mine - theirs) > share * theirs)
    return bool(len(differ)) and bool(mine[differ[0]] < theirs[differ[0]])


def _searched(
    jobs: Sequence[RunningAggregation],
    times: JobTimes,
    start: Sequence[Placement],
    start_bytes: Sequence[Floats],
    place: Callable[[Problem], Placement],
    limit: SearchLimit,
) -> tuple[list[Placement], list[Floats]]:
    """Result of the search from these trees."""
    search = _Search(jobs, times, list(start), list(start_bytes), place, limit)
    if any(job.movable for job in jobs):
        search.run()
    return search.found, search.bytes_of


def _rounded(
    jobs: Sequence[RunningAggregation],
    times: JobTimes,
    now: Sequence[Placement],
    now_bytes: Sequence[Floats],
    limit: SearchLimit,
) -> tuple[list[Placement], list[Floats]]:
    """One tree for each job that may move, of those that the linear program shares it out among."""
    striping = stripe([job.problem for job in jobs], [job.weight for job in jobs], limit=limit)
    rounded, bytes_of = list(now), list(now_bytes)
    shared = {
        index: [(one.placement, times.bytes_of(index, one.placement), one.parts) for one in striping.stripes[index]]
        for index, job in enumerate(jobs)
        if job.movable
    }
    for at, trees in shared.items():
        bytes_of[at] = sum(
            (tree_bytes * parts / PARTS for _, tree_bytes, parts in trees), start=np.zeros_like(bytes_of[at])
        )
    for at in sorted(shared, key=lambda job: -jobs[job].weight * jobs[job].problem.gradient_bytes):
        rest = np.sum(bytes_of, axis=0) - bytes_of[at]
        rounded[at], bytes_of[at], _ = min(shared[at], key=lambda tree: (times.slowest_link(rest + tree[1]), -tree[2]))
    return rounded, bytes_of


def _decided_together(
    jobs: Sequence[RunningAggregation],
    times: JobTimes,
    found: list[Placement],
    found_bytes: list[Floats],
    limit: SearchLimit,
) -> tuple[list[Placement], list[Floats]]:
    """Result of deciding several jobs at the same time, from these trees."""
    search = Neighbourhood(
        Jobs([job.problem for job in jobs]),
        [job.movable for job in jobs],
        times.weights,
        times.classes,
        times.seconds_of_byte,
        limit,
        times.least,
    )
    better, _ = search.improved(found, found_bytes)
    return better, [times.bytes_of(index, placement) for index, placement in enumerate(better)]


@dataclass
class _Search:
    """Search from given trees to better ones, job by job."""

    jobs: Sequence[RunningAggregation]
    times: JobTimes
    found: list[Placement]
    bytes_of: list[Floats]
    place: Callable[[Problem], Placement]
    limit: SearchLimit
    weighted: Floats = field(init=False)
    """(jobs,): all jobs' times by these trees."""

    def __post_init__(self) -> None:
        self.weighted = self.times.weighted(self.bytes_of)

    def run(self) -> None:
        """Run the search.

        Each job takes the best tree next to the others', the heaviest first, while that gains anything. Then the
        slowest takes the best one as if another were absent, and that one gives way, if that gains anything.
        """
        order = sorted(
            (index for index, job in enumerate(self.jobs) if job.movable), key=lambda at: -self.jobs[at].weight
        )
        for _ in range(_TURNS):
            while sum(self._gain(index) for index in order):
                pass
            if not any(self._gain(*each) for each in self._in_turn(order)):
                return

    def _in_turn(self, order: Sequence[int]) -> Iterator[list[int]]:
        """Slowest job of each priority that can be faster, with the jobs that may give way: each other job, or all of
        lower priority.
        """
        improvable = self.times.improvable(self.weighted)
        for members in self.times.classes:
            may = [index for index in order if index in members and improvable[index]]
            if not may:
                continue
            slowest = max(may, key=lambda at: float(self.weighted[at]))
            yield from ([slowest, other] for other in order if other != slowest)
            lower = [index for index in order if self.jobs[index].priority < self.jobs[slowest].priority]
            if len(lower) > 1:
                yield [slowest, *lower]

    def _gain(self, *in_turn: int) -> bool:
        """Place these jobs again, one after another, as if those after them were absent; return True if that gains
        anything.

        If it does not, those below the highest priority are tried on as few links of higher ones as possible. Nothing
        is tried that can make no job faster.
        """
        improvable = self.times.improvable(self.weighted)
        if improvable[list(in_turn)].any() and self._gains(in_turn):
            return True
        lowest = min(self.jobs[index].priority for index in in_turn)
        higher = [index for index, job in enumerate(self.jobs) if job.priority > lowest]
        return bool(improvable[higher].any()) and self._gains(in_turn, _ABOVE)

    def _gains(self, in_turn: Sequence[int], above: float = 1.0) -> bool:
        """Let these be placed, with streams of higher priority `above` times what they are; whether all jobs' times,
        the highest jobs' first and in descending order, are less by that.
        """
        placements, bytes_of = list(self.found), list(self.bytes_of)
        for index in in_turn:
            bytes_of[index] = np.zeros_like(bytes_of[index])
        for index in in_turn:
            if self.limit.is_reached:
                return False
            self.limit.spend(_PLACED * len(self.times.seconds_of_byte))
            around = replace(self.jobs[index].problem, others=self.times.others(bytes_of, index, above))
            placements[index] = self.place(around)
            bytes_of[index] = self.times.bytes_of(index, placements[index])
        weighted = self.times.weighted(bytes_of)
        if not _is_less(weighted, self.weighted, self.times.classes):
            return False
        self.found, self.bytes_of, self.weighted = placements, bytes_of, weighted
        return True
