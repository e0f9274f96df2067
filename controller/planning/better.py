"""Whether a running job, or several together, would be better off elsewhere: what is asked of every reading alike.

The controller and the flow-level simulator both decide by this; what a move is worth is `controller.jobs.worth`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..placement import Placement, Problem
from ..placement.together import Running, bears, before_and_after, better_together, pays
from .completion import Expected


@dataclass(frozen=True, slots=True)
class Better:
    """A placement that a job should move to, or that it keeps while others move."""

    placement: Placement
    now_seconds: float
    """Of a step before that, by the last reading."""
    saved: tuple[float, ...]
    """By reading, from the last one back, as long as each says that it pays: seconds that a step saves; below 0 for a
    job that others' moves slow down.
    """
    refill_seconds: float = 0.0
    """What was in the network has to be summed again, and that takes so long."""


def better_alone(
    place: Callable[[Problem], Placement],
    current: Placement,
    problems: Sequence[Problem],
    gain: float,
    expected: Callable[[Problem, Placement], Expected],
    scene: Callable[[], Sequence[Running]] | None = None,
) -> Better | None:
    """Whether the placement that `place` finds is faster by more than the share `gain`, by the last of these readings
    and by how many of those before it, and is borne by the jobs of the `scene`, of which this one is the first: they
    are asked for where it is faster. Raises what `place` raises.
    """
    proposed = place(problems[-1])
    if proposed == current:
        return None
    pairs = []
    for problem in reversed(problems):
        now, then = (expected(problem, each) for each in (current, proposed))
        if not then.seconds < (1 - gain) * now.seconds:
            break
        pairs.append((now, then))
    if not pairs or (scene is not None and not bears(*before_and_after(scene(), {0: proposed}), [0], gain)):
        return None
    saved = tuple(now.seconds - then.seconds for now, then in pairs)
    return Better(proposed, pairs[0][0].seconds, saved, pairs[0][1].refill_seconds)


def better_jointly(
    place: Callable[[Problem], Placement], scenes: Sequence[Sequence[Running]], gain: float
) -> dict[int, Better]:
    """The same for all jobs together, by their places in each reading's scene: of those that should move, and of those
    that stay, too, as their steps get longer or shorter by that; nothing where none moves. Raises PlacementError where
    some cannot be looked at together.
    """
    found = better_together(scenes[-1], place, gain)
    if not found:
        return {}
    pairs = []
    for scene in reversed(scenes):
        weights = [job.weight for job in scene]
        now, then = before_and_after(scene, found)
        if not pays(now, then, list(found), gain):
            break
        pairs.append(((now / weights).tolist(), (then / weights).tolist()))
    return {
        at: Better(found.get(at, job.placement), pairs[0][0][at], tuple(now[at] - then[at] for now, then in pairs))
        for at, job in enumerate(scenes[-1])
        if pairs
    }


def saved_together(jobs: Sequence[Better], paces: Sequence[float]) -> list[float]:
    """What all jobs would have saved in each second, by reading from the last one back; `paces` are their steps in a
    second.
    """
    return [
        sum(pace * seconds for pace, seconds in zip(paces, of_reading, strict=True))
        for of_reading in zip(*(each.saved for each in jobs), strict=True)
    ]
