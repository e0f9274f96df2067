"""Comparison of a running job's placement, or several jobs' together, with better ones, over all readings alike.

The controller and the flow-level simulator both use it; `controller.jobs.migration_cost` weighs a move's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..placement import Placement, Problem
from ..placement.model.links import Floats
from ..placement.multi_job.joint import (
    VISITS,
    RunningAggregation,
    bears,
    before_and_after,
    better_together,
    classes_of,
    pays,
    winners,
)
from .completion import Expected


@dataclass(frozen=True, slots=True)
class Improvement:
    """A placement that a job should move to, or that it keeps while others move."""

    placement: Placement
    now_seconds: float
    """Time of a step before the move, by the last reading."""
    saved: tuple[float, ...]
    """Seconds that a step saves, by reading from the last one back, as long as each favours the move; below 0 for a job
    that others' moves slow down.
    """
    refill_seconds: float = 0.0
    """Time to sum again the rounds that were in the network."""
    counts: bool = True
    """True if its saving counts; False for a job of lower priority than those for whose sake it moves."""
    weight: float = 1.0
    """Factor of its time and of its pause against other jobs'."""


def better_alone(
    place: Callable[[Problem], Placement],
    current: Placement,
    problems: Sequence[Problem],
    gain: float,
    expected: Callable[[Problem, Placement], Expected],
    scene: Callable[[], Sequence[RunningAggregation]] | None = None,
) -> Improvement | None:
    """Return the improvement by the placement that `place` finds, or None.

    It must be faster by more than the share `gain`, by the last reading, and be acceptable for the jobs of the scene.
    The result says how many earlier readings agree.

    Args:
        place: Strategy that finds a placement; its exceptions pass through.
        current: Present placement of the job.
        problems: Placement problem of the job by each reading, oldest first.
        gain: Share of the predicted time of a step that the move must save, 0…1.
        expected: Predicts the time of a step of a placement.
        scene: Returns all running jobs, this one first; called only for a faster placement. None: there are no others.
    """
    proposed = place(problems[-1])
    if proposed == current:
        return None
    pairs = []
    for problem in reversed(problems):
        now, then = (expected(problem, placement) for placement in (current, proposed))
        if not then.seconds < (1 - gain) * now.seconds:
            break
        pairs.append((now, then))
    if not pairs or (scene is not None and not _is_borne(scene(), proposed, gain)):
        return None
    saved = tuple(now.seconds - then.seconds for now, then in pairs)
    return Improvement(proposed, pairs[0][0].seconds, saved, pairs[0][1].refill_seconds)


def _is_borne(jobs: Sequence[RunningAggregation], placement: Placement, gain: float) -> bool:
    """Return True if the first job may move there for its own good."""
    return bears(*before_and_after(jobs, {0: placement}), [0], gain, classes_of(jobs))


def better_jointly(
    place: Callable[[Problem], Placement],
    scenes: Sequence[Sequence[RunningAggregation]],
    gain: float,
    visits: float = VISITS,
) -> dict[int, Improvement]:
    """Return the improvements of all jobs together.

    Jobs that stay are included, since their steps get longer or shorter by the moves of others.

    Args:
        place: Strategy that finds a placement.
        scenes: All running jobs by each reading, oldest first.
        gain: Share of the predicted time that a move must save, 0…1.
        visits: Number of visits of links after which the search ends.

    Returns:
        Improvement of each job, by its place in the scenes; empty if none should move.

    Raises:
        PlacementError: Some jobs cannot be evaluated together.
    """
    placements = better_together(scenes[-1], place, gain, visits)
    if not placements:
        return {}
    weights, classes = [job.weight for job in scenes[-1]], classes_of(scenes[-1])
    pairs = list[tuple[Floats, Floats]]()
    for scene in reversed(scenes):
        now, then = before_and_after(scene, placements)
        if not pays(now, then, list(placements), gain, classes):
            break
        pairs.append((now, then))
    if not pairs:
        return {}
    won = winners(*pairs[0], list(placements), gain, classes)
    assert won is not None
    least = scenes[-1][won[0]].priority
    times_s = [((now / weights).tolist(), (then / weights).tolist()) for now, then in pairs]
    return {
        index: Improvement(
            placements.get(index, job.placement),
            times_s[0][0][index],
            tuple(now[index] - then[index] for now, then in times_s),
            counts=job.priority >= least,
            weight=job.weight,
        )
        for index, job in enumerate(scenes[-1])
    }


def saved_together(jobs: Sequence[Improvement], paces: Sequence[float]) -> list[float]:
    """Return seconds per second saved by all jobs that count, times their weights, by reading from the last one
    back.

    `paces` are steps per second.
    """
    counting = [(job.saved, pace * job.weight) for job, pace in zip(jobs, paces, strict=True) if job.counts]
    return [
        sum(pace * seconds for (_, pace), seconds in zip(counting, of_reading, strict=True))
        for of_reading in zip(*(saved for saved, _ in counting), strict=True)
    ]
