"""Demand of jobs and of cojobs' stages: seconds of each directed link, and the time that no order shortens.

A job in step alternates computing and aggregation, in which it keeps link e busy for 8 B m(e) / c_e seconds: B bytes
of one stream, m(e) streams on the link, c_e the rate that telemetry finds free. A stage is the sum of its jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..placement.model.cost import PlacementCosts
from ..placement.model.problem import Placement, Problem
from .errors import SchedulingError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Rest of a stage of one job.

    Raises:
        SchedulingError: A value is negative or not a number.
    """

    job: str
    cojob: str
    """Jobs with the same name end their stage together; a job outside any search has a name of its own."""
    link_seconds: Floats
    """(links,): seconds of each directed link in one step."""
    steps_left: float
    compute_seconds: float = 0.0
    """Computation between two aggregation phases."""
    latency_seconds: float = 0.0
    """Round trips of a step in empty queues."""
    begun_seconds: float = 0.0
    """Start of the stage, on the scheduler's clock."""
    workers: int = 1
    weight: float = 1.0
    """Weight of the stage's completion time in the mean."""
    gain_per_step: float | None = None
    """Predicted gain of accuracy in each of the next steps; None: too few reports to predict."""
    converged: bool = False
    """True beyond 95 % of the predicted final gain of accuracy."""
    periods_waited: int = 0
    """Number of scheduling periods since the job completed a step."""

    def __post_init__(self) -> None:
        scalars = (self.steps_left, self.compute_seconds, self.latency_seconds, self.weight)
        if not all(value >= 0 and np.isfinite(value) for value in scalars):
            raise SchedulingError(
                "steps, seconds and weight must be finite and >= 0", place=f"job {self.job}", value=scalars
            )
        if self.link_seconds.ndim != 1 or not (np.isfinite(self.link_seconds) & (self.link_seconds >= 0)).all():
            raise SchedulingError(
                "seconds of links must be finite and >= 0", place=f"job {self.job}", value=self.link_seconds
            )

    @property
    def bottleneck_seconds(self) -> float:
        """Seconds of the busiest link in one step."""
        return float(self.link_seconds.max(initial=0.0))

    @property
    def alone_seconds(self) -> float:
        """Rest of the stage without any other job."""
        return self.steps_left * (self.compute_seconds + self.latency_seconds + self.bottleneck_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Rest of a stage of one cojob."""

    cojob: str
    jobs: tuple[str, ...]
    seconds: Floats
    """(links,): seconds of each directed link until the stage ends."""
    floor_seconds: float
    """Time of its slowest job without any other one."""
    begun_seconds: float
    weight: float

    @property
    def alone_seconds(self) -> float:
        """Time of the stage without other cojobs: its busiest link, or its slowest job."""
        return max(float(self.seconds.max(initial=0.0)), self.floor_seconds)


def stages(demands: Sequence[Demand]) -> list[Stage]:
    """Combine jobs into stages, in the order in which the cojobs first appear.

    Raises:
        SchedulingError: The jobs know different numbers of links.
    """
    if len({demand.link_seconds.shape for demand in demands}) > 1:
        raise SchedulingError("jobs of one fabric have demands on the same number of links")
    groups: dict[str, list[Demand]] = {}
    for demand in demands:
        groups.setdefault(demand.cojob, []).append(demand)
    return [
        Stage(
            cojob,
            tuple(demand.job for demand in group),
            np.sum([demand.steps_left * demand.link_seconds for demand in group], axis=0),
            max(demand.alone_seconds for demand in group),
            min(demand.begun_seconds for demand in group),
            max(demand.weight for demand in group),
        )
        for cojob, group in groups.items()
    ]


def used_links(demands: Sequence[Demand]) -> Floats:
    """Return the seconds of one step of each job on each link that any of them uses, (jobs, used links).

    Most links of a large fabric are used by no job, and an order that leaves them out is an order of magnitude faster.

    Raises:
        SchedulingError: The jobs know different numbers of links.
    """
    if len({demand.link_seconds.shape for demand in demands}) != 1:
        raise SchedulingError("jobs of one fabric have demands on the same number of links")
    used = np.zeros(demands[0].link_seconds.shape, np.bool_)
    for demand in demands:
        used |= demand.link_seconds > 0
    places = np.flatnonzero(used)
    return np.stack([demand.link_seconds[places] for demand in demands])


def tree_seconds(problem: Problem, placement: Placement) -> Floats:
    """Return the seconds of each directed link in one step of a job, (links,).

    Args:
        problem: The job's placement problem; its `loads` give the free rates.
        placement: Tree in which the job is summed.
    """
    costs = PlacementCosts(problem)
    seconds: Floats = costs.loads(placement) * costs.seconds
    return seconds
