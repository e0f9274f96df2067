"""Jobs with learning curves on one fabric of flows, under one order: time to shares of their converged accuracy.

::

    a step is complete ─▶ progress report ─▶ ProgressCurve ─┐
    every period ─▶ demands with predicted gains ◀──────────┴─▶ order ─▶ classes ─▶ Simulator.classify
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from ...controller.placement.model.links import Links
from ...controller.scheduling.classes import CLASSES, leading_classes
from ...controller.scheduling.demand import Demand
from ...controller.scheduling.order import OrderDescription
from ...controller.scheduling.progress import CONVERGED, ProgressCurve
from ...topologies import Routes
from ..flows.simulator import FlowJob, Simulator
from .curves import MODELS, STEPS, LearningCurve, learning_curve
from .play import GUARD_SHARE, demand_of
from .searches import COMPUTE, MEDIAN_BYTES, SIGMA, SearchJob, drawn_job, median_step_seconds, placed

JOBS: Final = 8
PERIOD_STEPS: Final = 20
"""A scheduling period, as a number of a median job's steps alone."""
SPREAD_STEPS: Final = 600
"""Jobs arrive within the time of so many of a median job's steps."""
SHARES: Final = (0.9, 0.95)
"""Shares of the converged accuracy whose times are measured."""


@dataclass(frozen=True, slots=True)
class Learner:
    """One job, and the curve that it follows."""

    spec: SearchJob
    begun_seconds: float
    curve: LearningCurve


def period_seconds(routes: Routes) -> float:
    """Return the duration of a scheduling period on a fabric."""
    return PERIOD_STEPS * median_step_seconds(routes)


def drawn_learners(routes: Routes, seed: int, jobs: int = JOBS) -> list[Learner]:
    """Draw jobs: model, bytes, computation, hosts and arrival. Their curves are those of the models."""
    rng = random.Random(f"learners {seed}")
    step = median_step_seconds(routes)
    learners = []
    for number in range(jobs):
        size = int(MEDIAN_BYTES * rng.lognormvariate(0, SIGMA))
        compute = rng.uniform(*COMPUTE) * step * size / MEDIAN_BYTES
        spec = drawn_job(routes, f"j{number}", size, compute, STEPS, rng)
        learners.append(Learner(spec, rng.random() * SPREAD_STEPS * step, learning_curve(*rng.choice(MODELS), seed=1)))
    return learners


@dataclass(slots=True)
class _Running:
    learner: Learner
    demand: Demand
    flow: FlowJob
    progress: ProgressCurve = field(default_factory=ProgressCurve.empty)
    waited: int = 0
    steps_seen: int = 0


@dataclass(frozen=True, slots=True)
class LearningTimes:
    """Result of one run."""

    to_share: dict[float, float]
    """Mean seconds from arrival to each of SHARES."""
    last_end: float
    """End of the last job, in s."""


class Learning:
    """One run of all jobs to their end."""

    def __init__(
        self, routes: Routes, learners: Sequence[Learner], order: OrderDescription, *, oracle: bool = False
    ) -> None:
        """Start without jobs.

        Args:
            routes: The fabric.
            learners: The jobs.
            order: Order of jobs.
            oracle: True if gains come from the true curves, in place of predictions.
        """
        self._routes, self._learners, self._order, self._oracle = routes, learners, order.compute, oracle
        self._predicts = order.knows == "progress" and not oracle
        self._simulator = Simulator(Links.of(routes).rate_bps, guard_share=GUARD_SHARE)
        self._running: dict[str, _Running] = {}
        self._ended: list[tuple[Learner, list[float]]] = []
        self._times: dict[str, list[float]] = {}
        self._period = period_seconds(routes)

    def run(self) -> LearningTimes:
        """Run all jobs and return their times."""
        for learner in self._learners:
            self._simulator.at(learner.begun_seconds, partial(self._arrive, learner))
        self._simulator.at(self._period, self._tick)
        while len(self._ended) < len(self._learners):
            self._simulator.run(self._simulator.now + self._period)
        to_share = {
            share: float(
                np.mean([times[job.curve.steps_to(share) - 1] - job.begun_seconds for job, times in self._ended])
            )
            for share in SHARES
        }
        return LearningTimes(to_share, max(times[-1] for _, times in self._ended))

    def _arrive(self, learner: Learner) -> None:
        spec, placement = learner.spec, placed(self._routes, learner.spec)
        demand, coflow = demand_of(self._routes, spec.name, spec, placement, learner.begun_seconds)
        self._times[spec.name] = []
        flow = self._simulator.add(
            spec.name, spec.gradient_bytes, [(coflow, 1.0)], spec.steps, spec.compute_seconds, after_step=self._stepped
        )
        self._running[spec.name] = _Running(learner, demand, flow)
        self._reorder()

    def _stepped(self, flow: FlowJob) -> None:
        job = self._running[flow.name]
        steps = len(flow.durations)
        self._times[flow.name].append(self._simulator.now)
        job.progress.add(steps, accuracy=float(job.learner.curve.accuracy[steps - 1]))
        if flow.ended:
            self._ended.append((job.learner, self._times.pop(flow.name)))
            del self._running[flow.name]
            self._reorder()

    def _tick(self) -> None:
        for job in self._running.values():
            steps = len(job.flow.durations)
            job.waited = 0 if steps > job.steps_seen else job.waited + 1
            job.steps_seen = steps
        self._reorder()
        self._simulator.at(self._simulator.now + self._period, self._tick)

    def _reorder(self) -> None:
        demands = [self._demand(job) for job in self._running.values()]
        for name, traffic_class in leading_classes(self._order(demands), CLASSES).items():
            if self._running[name].flow.traffic_class != traffic_class:
                self._simulator.classify(self._running[name].flow, traffic_class)

    def _demand(self, job: _Running) -> Demand:
        steps = len(job.flow.durations)
        step_seconds = job.demand.alone_seconds / job.demand.steps_left
        ahead = max(self._period / step_seconds, 1.0)
        gain: float | None = None
        converged = False
        if self._oracle:
            gain, converged = self._true(job, ahead)
        elif self._predicts:
            gain, converged = job.progress.predicted(ahead)
        return replace(
            job.demand,
            steps_left=float(job.learner.spec.steps - steps),
            gain_per_step=gain,
            converged=converged,
            periods_waited=job.waited,
        )

    def _true(self, job: _Running, ahead: float) -> tuple[float, bool]:
        best = np.maximum.accumulate(job.learner.curve.accuracy)
        now = len(job.flow.durations)
        reached = float(best[now - 1]) if now else 0.0
        later = float(best[min(now + int(ahead), STEPS) - 1])
        return (later - reached) / ahead, reached >= CONVERGED * job.learner.curve.converged
