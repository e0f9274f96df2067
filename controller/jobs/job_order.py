"""Order of running jobs by one of `scheduling.orders`, and the traffic class that each should have.

::

    reports (stage, steps left, times, accuracy) ─┐
    trees, rates that telemetry finds free ───────┴─▶ demands ─▶ order ─▶ classes ─▶ Ranking of each job

The order is renewed when a job starts or ends, when a stage does, when a tree moves, and when a free rate has changed
by more than a tenth. A job's search is the part of its stage's name before a slash: `ann/stage 2` is of the search
`ann`. A job without reports counts as one step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..errors import described
from ..placement import Problem
from ..planning.planner import LinkConditions, Planner
from ..scheduling.classes import CLASSES, leading_classes
from ..scheduling.demand import Demand, Floats, tree_seconds
from ..scheduling.order import OrderDescription
from ..scheduling.orders import ORDERS
from ..scheduling.pairs import Phases, groups, period_seconds, speed_up
from ..scheduling.progress import ProgressCurve
from .job import RunningJob
from .registry import JobRegistry

_log = logging.getLogger(__name__)

LOOK_NS: Final = 1_000_000_000
"""Default time between two looks."""
_CHANGE: Final = 0.1
"""Relative change of a link's seconds that renews the order."""
_AHEAD: Final = 20.0
"""Steps for which progress is predicted."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Place of one job in the order."""

    place: int
    """Place of its tier, from 1."""
    tiers: int
    traffic_class: int
    """Class that its traffic should have, 0 the lowest."""
    why: str
    """Its search, stage and rest, for people."""


@dataclass(frozen=True, slots=True)
class Partners:
    """Jobs that should take turns on the same devices."""

    jobs: tuple[int, ...]
    period_seconds: float
    """Predicted time of one step of each."""
    speed_up: float
    """Time of their steps one after the other, divided by the period."""


class JobOrder:
    """Order of all running jobs; computed when it is asked for, at most once per `LOOK_NS`."""

    def __init__(
        self,
        jobs: JobRegistry,
        planner: Planner,
        conditions: Callable[[int, int], LinkConditions],
        order: str = "fair",
        look_ns: int = LOOK_NS,
    ) -> None:
        """Prepare the order.

        Args:
            jobs: The running jobs.
            planner: Their places in the fabric.
            conditions: Returns the link conditions for a job of this number, at a time in ns.
            order: Name of an order, or the path of a user's file.
            look_ns: Time between two looks at whether the order is to be renewed.

        Raises:
            SchedulingError: The order is unknown.
        """
        self.order: OrderDescription = ORDERS.describe(order)
        self._jobs, self._planner, self._conditions = jobs, planner, conditions
        self._rankings: Mapping[int, Ranking] = {}
        self._basis: dict[int, tuple[object, Floats]] = {}
        """State of each job that the order was computed from: what begins or ends stages, and seconds of links."""
        self._look_ns = look_ns
        self._next_ns = 0
        self.renewals = 0
        """Number of times that the order was computed."""

    @property
    def deadline_ns(self) -> int:
        """Time of the next look."""
        return self._next_ns

    def rankings(self, now_ns: int) -> Mapping[int, Ranking]:
        """Return the place of each running job, by number."""
        if now_ns >= self._next_ns or self._basis.keys() != set(self._jobs):
            self._next_ns = now_ns + self._look_ns
            demands = {number: self._demand(job, now_ns) for number, job in self._jobs.items()}
            if self._has_changed(demands):
                self._renew(demands)
        return self._rankings

    def partners(self, now_ns: int) -> list[Partners]:
        """Return the jobs that should share devices in turns, by what they report of computation and communication.

        Jobs whose reports lack either are left out, and jobs that are best alone.
        """
        phases = {}
        for number, job in self._jobs.items():
            newest = job.reports.newest
            if newest is not None and newest.compute_ns and newest.exposed_ns:
                problem = self._planner.problem(job.spec, tuple(job.plan.workers), self._conditions(number, now_ns))
                compute, exposed = (
                    total_ns / newest.steps / 1e9 for total_ns in (newest.compute_ns, newest.exposed_ns)
                )
                phases[str(number)] = Phases(compute, exposed, self._seconds(problem, job))
        partners = []
        for group in groups(phases):
            if len(group) > 1:
                members = [phases[name] for name in group]
                partners.append(Partners(tuple(map(int, group)), period_seconds(members), speed_up(members)))
        return partners

    def _has_changed(self, demands: Mapping[int, Demand]) -> bool:
        if self.order.knows == "progress" or demands.keys() != self._basis.keys():
            return True
        for number, demand in demands.items():
            state, seconds = self._basis[number]
            if state != self._state(number) or not np.allclose(demand.link_seconds, seconds, rtol=_CHANGE, atol=0):
                return True
        return False

    def _state(self, number: int) -> object:
        job = self._jobs[number]
        newest = job.reports.newest
        return job.plan.placement, None if newest is None else newest.stage

    def _renew(self, demands: Mapping[int, Demand]) -> None:
        self.renewals += 1
        self._basis = {number: (self._state(number), demand.link_seconds) for number, demand in demands.items()}
        try:
            order = self.order.compute(list(demands.values()))
            classes = leading_classes(order, CLASSES)
        except Exception as error:  # a user's file, perhaps
            if not self._jobs.contains_failures:
                raise
            _log.error("jobs keep their places, for order %s failed: %s", self.order.name, described(error))
            _log.debug("order %s", self.order.name, exc_info=error)
            self._rankings = {number: ranking for number, ranking in self._rankings.items() if number in demands}
            return
        places = {job: place for place, tier in enumerate(order, 1) for job in tier}
        self._rankings = {
            number: Ranking(places[demand.job], len(order), classes[demand.job], _why(demand, self._jobs[number]))
            for number, demand in demands.items()
        }

    def _demand(self, job: RunningJob, now_ns: int) -> Demand:
        newest = job.reports.newest
        problem = self._planner.problem(job.spec, tuple(job.plan.workers), self._conditions(job.number, now_ns))
        gain, converged = self._predicted(job)
        return Demand(
            job=str(job.number),
            cojob=search_of(newest.stage if newest is not None else "") or str(job.number),
            link_seconds=self._seconds(problem, job),
            steps_left=1.0 if newest is None or newest.steps_left is None else float(newest.steps_left),
            compute_seconds=0.0 if newest is None else newest.compute_ns / newest.steps / 1e9,
            begun_seconds=job.reports.stage_since_ns / 1e9,
            workers=len(job.plan.workers),
            weight=job.spec.weight,
            gain_per_step=gain,
            converged=converged,
        )

    def _seconds(self, problem: Problem, job: RunningJob) -> Floats:
        """Return the seconds of each link in one step; 0 where the job's tree is cut, until it moves."""
        routes = problem.routes
        if all(routes.reaches(a, b) for a, b in job.plan.placement.edges):
            return tree_seconds(problem, job.plan.placement)
        return np.zeros(len(routes.topology.directed_links))

    def _predicted(self, job: RunningJob) -> tuple[float | None, bool]:
        if self.order.knows != "progress":
            return None, False
        progress = ProgressCurve.empty()
        last = -1
        for _, report in job.reports.curve:
            value = report.loss if report.accuracy is None else report.accuracy
            if report.step > last and value is not None and np.isfinite(value):
                last = report.step
                progress.add(report.step, loss=report.loss, accuracy=report.accuracy)
        return progress.predicted(_AHEAD)


def search_of(stage: str) -> str:
    """Return the search that a stage's name has before a slash; empty if there is none."""
    return stage.partition("/")[0].strip() if "/" in stage else ""


def _why(demand: Demand, job: RunningJob) -> str:
    newest = job.reports.newest
    if newest is None:
        return "no report yet; counts as one step"
    parts = [f"search {demand.cojob}" if search_of(newest.stage) else "", newest.stage]
    if newest.steps_left is not None:
        parts.append(f"{newest.steps_left} steps left, {demand.alone_seconds:.3g} s without other jobs")
    if demand.converged:
        parts.append("converged")
    elif demand.gain_per_step is not None:
        parts.append(f"gains {demand.gain_per_step:.2g} a step")
    return ", ".join(part for part in parts if part)
