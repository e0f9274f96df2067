"""Joint placement of new jobs, whose trees were chosen one after the other, each beside those before it.

Jobs without packets cost nothing to move. So any gain above noise pays, in contrast to running jobs (`joint`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..model.problem import Placement, PlacementError, Problem
from .joint import VISITS, RunningAggregation, better_together

_GAIN: Final = 0.01
"""Minimum gain of a move, as a share; smaller gains are ignored."""


@dataclass(frozen=True, slots=True)
class JointMoves:
    """Result of a joint search."""

    placements: Mapping[int, Placement]
    """New placement of each job that moves, by its index."""
    note: str = ""
    """Reason for which the search ended early; empty if no further move pays."""


def place_jointly(
    jobs: Sequence[RunningAggregation],
    place: Callable[[Problem], Placement],
    *,
    searches: int = 1,
    visits: float = VISITS,
) -> JointMoves:
    """Move jobs as long as a move pays and the switches have room for it.

    Args:
        jobs: All jobs, each with the tree that it has by now. `room` of their problems counts jobs with this one's
            slots, in switches without this one. Those that run already are not movable.
        place: Finds the best tree of one job beside others.
        searches: Maximum number of joint searches, each from the trees that the one before it found.
        visits: Limit of each search, in visits of links.
    """
    now = list(jobs)
    note = ""
    for _ in range(searches):
        try:
            moved = better_together(now, place, _GAIN, visits)
        except PlacementError as error:
            note = f"not placed jointly: {error}"
            break
        if not moved:
            break
        then = _after(now, moved)
        if full := _full(now, then, moved):
            note = f"placed jointly, jobs would need more slots than {', '.join(full)} has; they stay"
            break
        now = then
    return JointMoves(
        {
            index: after.placement
            for index, (before, after) in enumerate(zip(jobs, now, strict=True))
            if after.placement != before.placement
        },
        note,
    )


def _after(jobs: Sequence[RunningAggregation], moved: Mapping[int, Placement]) -> list[RunningAggregation]:
    """Return the jobs after the moves, with the room that these leave to each job."""
    change: dict[int, Counter[str]] = {}
    for index, placement in moved.items():
        change[index] = Counter(_sums_in(placement))
        change[index].subtract(_sums_in(jobs[index].placement))
    after = []
    for index, job in enumerate(jobs):
        placement, room = moved.get(index, job.placement), job.problem.room
        if room is not None:
            of_others = [taken for other, taken in change.items() if other != index]
            room = {name: count - sum(taken[name] for taken in of_others) for name, count in room.items()}
        after.append(replace(job, placement=placement, problem=replace(job.problem, room=room)))
    return after


def _full(
    before: Sequence[RunningAggregation], after: Sequence[RunningAggregation], moved: Mapping[int, Placement]
) -> list[str]:
    """Return the switches without room for a job that moves there."""
    full: set[str] = set()
    for index, placement in moved.items():
        room = after[index].problem.room or {}
        full.update(name for name in _sums_in(placement) - _sums_in(before[index].placement) if room.get(name, 1) < 1)
    return sorted(full)


def _sums_in(placement: Placement) -> set[str]:
    return {*placement.parents, placement.root}
