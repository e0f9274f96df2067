"""One strategy at one point, in the flow-level simulator, with a controller that observes, decides and moves jobs.

An observation has the mean traffic of every link since the previous one, without the jobs' own, like probes; the
point's `telemetry` determines the delay and loss of observations. Jobs arrive one after another within the first steps,
each placed given the streams of running ones. A strategy that re-solves is called at every observation, and jobs move
if the controller would move them: by its model of a step, if the gain is worth a move
(`controller.planning.improvement`, `controller.jobs.migration_cost`). An observation's mean covers several periods of
telemetry, so one is as steady as two of the controller's readings.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from ...controller.jobs.migration_cost import MigrationBudget, seconds_to_break_even
from ...controller.placement import Placement, PlacementError, Problem
from ...controller.placement.model.links import Links
from ...controller.placement.model.loads import LinkLoad
from ...controller.placement.model.search_limit import SearchLimit
from ...controller.placement.multi_job.joint import RunningAggregation
from ...controller.placement.multi_job.multi_tree import PARTS, stripe
from ...controller.placement.reference_schemes import (
    BLIND_TOGETHER,
    HALVING_DOUBLING,
    OF_HOSTS,
    REFERENCE_SCHEMES,
    RING,
    STRIPED,
    TWO_LEVEL_RING,
)
from ...controller.placement.strategies import STRATEGIES, strategy
from ...controller.planning.completion import Expected, Step, expected_step
from ...controller.planning.improvement import better_alone, better_jointly, saved_together
from ...controller.planning.persistence import LoadHistory
from ...controller.planning.plan import JobSpec
from ...topologies import Endpoint
from ...wire.aggregation import FAN_IN
from ..flows import background
from ..flows.coflows import (
    Coflow,
    Pace,
    halving_doubling_coflow,
    ring_coflow,
    tree_coflow,
    two_level_ring_coflow,
)
from ..flows.fair_shares import Floats
from ..flows.simulator import MIN_SHARE, Arrivals, FlowJob, Simulator
from ..flows.sizes import FLOW_SIZES, is_file
from .records import StrategyFigures
from .scenario import JobHosts, Scenario, rng_of

OLD_LOOKS: Final = 10
"""Age of old telemetry, in observations."""
KEPT: Final = 12
"""Looks that speak for a move, at most, as the controller keeps readings."""
LOST_SHARE: Final = 0.3
"""Lossy telemetry lacks each reading with this probability; the last one stands."""
_HORIZON: Final = 5.0
"""Duration of other traffic, as a multiple of the jobs' time on idle links."""
_PATIENCE: Final = 200.0
"""Time limit of a run, as a multiple of the same."""

_OF_HOSTS: Final = {
    RING: ring_coflow,
    TWO_LEVEL_RING: two_level_ring_coflow,
    HALVING_DOUBLING: halving_doubling_coflow,
}

Parts = list[tuple[Coflow, float]]


@dataclass
class _Job:
    """A job in the run."""

    hosts: JobHosts
    flow: FlowJob | None = None
    placement: Placement | None = None
    parts: Parts = field(default_factory=list)
    moved_at: float = -np.inf
    account: MigrationBudget | None = None
    """Gains of its moves; None before the first observation."""


def run(scenario: Scenario, name: str) -> StrategyFigures:
    """Return every job's steps under one strategy."""
    try:
        return _Run(scenario, name).figures()
    except PlacementError as error:
        return StrategyFigures.of_failure(name, scenario.point.load, error)


class _Run:
    def __init__(self, scenario: Scenario, name: str) -> None:
        self.scenario, self.name = scenario, name
        self.point, self.timing = scenario.point, scenario.point.timing
        self.links = Links.of(scenario.routes)
        self.ends = scenario.routes.topology.directed_links
        self.described = (REFERENCE_SCHEMES if name in REFERENCE_SCHEMES else STRATEGIES)[name]
        self.is_blind = name == BLIND_TOGETHER or self.point.telemetry == "absent"
        self.strategy = None if name in {*OF_HOSTS, STRIPED} else strategy("widest" if name == BLIND_TOGETHER else name)
        self.lots = rng_of(self.point, "strategy")
        self.ways = rng_of(self.point, "hashing")
        self.lost = rng_of(self.point, "lost readings")
        self.jobs = [_Job(hosts) for hosts in scenario.jobs]
        self.decisions: list[float] = []
        self.moves = 0
        self.looks: list[Floats] = []
        """(1 + jobs, links) bit/s, by look: others', then each started job's."""
        self.seen: Floats | None = None
        self.readings: deque[tuple[float, Mapping[Endpoint, LinkLoad]]] = deque(maxlen=KEPT)
        """Others' traffic as telemetry has it, by look, oldest first, with its time."""
        self.loads_before = LoadHistory(KEPT)
        self.idle_step = 8 * self.point.gradient_bytes / scenario.rate_bps + self.timing.compute * 1e-9
        self.simulator = self._with_background()

    # --- the run ---

    def figures(self) -> StrategyFigures:
        interval = self.timing.interval * 1e-9
        self.last, self.last_at = self.simulator.carried_bytes(), 0.0
        before = OLD_LOOKS + 1 if self.point.telemetry == "old" else 1
        for look in range(before):
            self.simulator.run((look + 1) * interval)
            self._observe()
        begun = before * interval
        comings = rng_of(self.point, "comings")
        spread = self.idle_step * self.timing.steps / 2
        starts = [begun, *sorted(begun + comings.random() * spread for _ in self.jobs[1:])]
        waiting = list(zip(starts, self.jobs, strict=True))
        limit = begun + _PATIENCE * self.idle_step * self.timing.steps * self.point.workers
        next_look = begun + interval
        while waiting or not all(job.flow is None or job.flow.ended for job in self.jobs):
            coming = waiting[0][0] if waiting else np.inf
            if not waiting and not self.described.resolves:
                next_look = limit + interval  # nobody asks any more
            self.simulator.run(min(coming, next_look, self.simulator.now + self.idle_step))
            if coming <= self.simulator.now:
                self._come(waiting.pop(0)[1])
            if next_look <= self.simulator.now:
                self._observe()
                self._reconsider()
                next_look += interval
            if self.simulator.now > limit:
                raise PlacementError(f"{self.name}: jobs have not ended after {limit:g} s of simulated time")
        return self._figures()

    def _figures(self) -> StrategyFigures:
        counting = [job for job in self.jobs if job.hosts.priority == max(each.hosts.priority for each in self.jobs)]
        pairs = [(seconds, job.hosts.weight) for job in counting if job.flow for seconds in job.flow.durations]
        durations, weights = zip(*pairs, strict=True)
        carried = self.simulator.carried_bytes()
        load = 8 * carried.sum(axis=0) / (self.links.rate_bps * self.simulator.now)
        inside = background.between_switches(self.scenario.routes) > 0
        others = 8 * carried[0][inside].sum() / (self.links.rate_bps[inside].sum() * self.simulator.now)
        return StrategyFigures(
            strategy=self.name,
            mean_s=float(np.average(durations, weights=weights)),
            p95_s=float(np.percentile(durations, 95)),
            max_link_load=float(load.max()),
            decision_ms=1e3 * float(np.median(self.decisions)) if self.decisions else None,
            moves=self.moves,
            background=float(others),
        )

    def _with_background(self) -> Simulator:
        point, routes = self.point, self.scenario.routes
        lots = rng_of(point, "background")
        if point.background in FLOW_SIZES or is_file(point.background):
            seconds = _HORIZON * self.idle_step * self.timing.steps
            arrivals = background.flows(routes, point.background, point.load, seconds, lots)
            return Simulator(self.links.rate_bps, arrivals)
        simulator = Simulator(self.links.rate_bps, Arrivals.none())
        simulator.pace(background.paced(routes, point.load, lots))
        if point.background == "shifting":
            every = self.timing.shift * 1e-9

            def shift() -> None:
                simulator.pace(background.paced(routes, point.load, lots))
                simulator.at(simulator.now + every, shift)

            simulator.at(every * (0.5 + lots.random()), shift)
        return simulator

    # --- telemetry ---

    def _observe(self) -> None:
        """Record the mean traffic since the last observation, and the part of it that is known."""
        carried = self.simulator.carried_bytes()
        before = np.zeros_like(carried)
        before[: len(self.last)] = self.last
        passed = self.simulator.now - self.last_at
        self.looks.append(8 * (carried - before) / max(passed, 1e-12))
        self.looks = self.looks[-OLD_LOOKS - 1 :]
        self.last, self.last_at = carried, self.simulator.now
        if self.point.telemetry == "lossy":
            known = np.array([self.lost.random() >= LOST_SHARE for _ in self.ends])
            if self.seen is None:
                self.seen = np.full(len(self.ends), np.nan)
            self.seen = np.where(known, 1.0, self.seen)  # 1: read once at least
            stale = self.looks[-2] if len(self.looks) > 1 else np.zeros_like(carried)
            padded = np.zeros_like(carried)
            padded[: len(stale)] = stale
            self.looks[-1] = np.where(known, self.looks[-1], padded)
        self.readings.append((self.simulator.now, self._loads()))
        self.loads_before.add(self.links, *self.readings[-1])

    def _loads(self) -> Mapping[Endpoint, LinkLoad]:
        """Known traffic of others; that of the jobs is known without telemetry."""
        if self.is_blind:
            return {}
        look = self.looks[0] if self.point.telemetry == "old" else self.looks[-1]
        bps = np.maximum(look[0], 0.0)
        if self.seen is not None and np.isnan(self.seen).any():
            never = np.isnan(self.seen)
            share = float(np.mean(bps[~never] / self.links.rate_bps[~never])) if not never.all() else 0.0
            bps = np.where(never, share * self.links.rate_bps, bps)
        return {self.ends[index]: LinkLoad(float(bps[index])) for index in np.flatnonzero(bps > 1.0)}

    # --- decisions ---

    def _problem(self, job: _Job, loads: Mapping[Endpoint, LinkLoad], *, beside: bool = True) -> Problem:
        """Placement problem of a job; `beside`: with the other jobs' streams, which are known."""
        return Problem(
            self.scenario.routes,
            job.hosts.workers,
            job.hosts.server,
            self.point.gradient_bytes,
            loads,
            self.scenario.room,
            persistence=self._persistence(job),
            others=self._others(job) if beside else {},
        )

    def _persistence(self, job: _Job) -> float:
        """Share of loads that is expected to last for a step, by the readings so far."""
        step = job.flow.durations[-1] if job.flow is not None and job.flow.durations else self.idle_step
        return self.loads_before.persistence(max(step, self.timing.interval * 1e-9))

    def _others(self, job: _Job) -> Mapping[Endpoint, float]:
        """Bytes that the other jobs bring onto each link in a step."""
        routes, bytes_of = self.scenario.routes, Counter[Endpoint]()
        for other in self._running():
            if other is not job and other.placement is not None:
                for child, parent in other.placement.edges:
                    for way in ((child, parent), (parent, child)):
                        for link, share in routes.shares(*way).items():
                            bytes_of[link] += share * self.point.gradient_bytes  # type: ignore[assignment]
        return bytes_of

    def _running(self) -> list[_Job]:
        return [job for job in self.jobs if job.flow is not None and not job.flow.ended]

    def _come(self, job: _Job) -> None:
        if self.name == STRIPED:
            self._stripe([*self._running(), job], coming=job)
            return
        if self.name in _OF_HOSTS:
            coflow = _OF_HOSTS[self.name](self.scenario.routes, job.hosts.workers, Pace(), self.ways)
            parts: Parts = [(coflow, 1.0)]
        else:
            job.placement = self._decided(self._problem(job, self._loads()))
            parts = self._tree(job.placement)
        self._begin(job, parts)

    def _begin(self, job: _Job, parts: Parts) -> None:
        job.parts = parts
        number = self.jobs.index(job)
        compute = self.timing.compute * 1e-9
        job.flow = self.simulator.add(f"job {number}", self.point.gradient_bytes, parts, self.timing.steps, compute)

    def _decided(self, problem: Problem) -> Placement:
        if self.name == "ps" and len(problem.workers) > FAN_IN:
            # a server of another system takes as many streams as there are; ours takes as many as a header has bits
            return Placement(dict.fromkeys(problem.workers, str(problem.server)), {}, str(problem.server))
        assert self.strategy is not None
        return self._timed(lambda: self.strategy.place(problem, self.lots))  # type: ignore[union-attr]

    def _timed(self, decide: Callable[[], Placement]) -> Placement:
        started = time.thread_time()
        placement = decide()
        self.decisions.append(time.thread_time() - started)
        return placement

    def _tree(self, placement: Placement) -> Parts:
        return [(tree_coflow(self.scenario.routes, placement, Pace(), self.ways), 1.0)]

    def _reconsider(self) -> None:
        """Running jobs move where that is worth it, and have not just moved."""
        if not self.described.resolves or self.point.telemetry == "absent":
            return
        running = self._running()
        if self.name == STRIPED:
            if running:
                self._stripe(running)
            return
        for job in running:
            if self._rests(job):
                self._alone(job)
        if len(running) > 1 and self.described.jointly and any(self._rests(job) for job in running):
            self._together(running)

    def _rests(self, job: _Job) -> bool:
        return self.simulator.now - job.moved_at >= 2 * self.timing.interval * 1e-9

    def _since(self, moved_at: float) -> list[tuple[float, Mapping[Endpoint, LinkLoad]]]:
        return [reading for reading in self.readings if reading[0] > moved_at]

    def _alone(self, job: _Job) -> None:
        """Decide on one job given the others, like the controller's improver."""
        assert self.strategy is not None
        assert job.placement is not None
        now, readings = self.simulator.now, self._since(job.moved_at)
        problems = [self._problem(job, loads) for _, loads in readings]
        account = job.account = job.account or MigrationBudget.opened(job.placement, now)
        place, current = partial(self.strategy.place, rng=self.lots), job.placement
        together = [job, *(other for other in self._running() if other is not job)]
        scene = partial(self._running_jobs, together, readings[-1][1]) if len(together) > 1 else None
        started = time.thread_time()
        better = better_alone(place, current, problems, self.timing.gain, self._expected, scene)
        self.decisions.append(time.thread_time() - started)
        here, home = (self._expected(problems[-1], placement) for placement in (current, account.baseline))
        pace = self._steps_per_second(job, here.seconds)
        account.update(now, pace * (home.seconds - here.seconds))
        price = self.timing.pause * 1e-9 + (here if better is None else better).refill_seconds
        if better is not None and account.allows_a_move(now):
            if self._is_earned([pace * saved_seconds for saved_seconds in better.saved], price, readings):
                self._move_tree(job, better.placement, price)
        elif account.should_revert(now, price):
            self._move_tree(job, account.baseline, price)

    def _together(self, jobs: Sequence[_Job]) -> None:
        """Decide on all of them, a tree each, like the controller's improver."""
        assert self.strategy is not None
        readings = self._since(max(job.moved_at for job in jobs))
        if not readings:
            return
        scenes = [self._running_jobs(jobs, loads) for _, loads in readings]
        started = time.thread_time()
        try:
            better = better_jointly(
                partial(self.strategy.place, rng=self.lots), scenes, self.timing.gain, visits=np.inf
            )
        except PlacementError:  # some rack has no room, so they cannot be looked at together
            return
        finally:
            self.decisions.append(time.thread_time() - started)
        moves = [
            (jobs[index], proposal) for index, proposal in better.items() if proposal.placement != jobs[index].placement
        ]
        now, price = self.simulator.now, self.timing.pause * 1e-9
        if not moves or not all(job.account is None or job.account.allows_a_move(now) for job, _ in moves):
            return
        paces = [self._steps_per_second(jobs[index], proposal.now_seconds) for index, proposal in better.items()]
        saved = saved_together([*better.values()], paces)
        if self._is_earned(saved, price * sum(proposal.weight for _, proposal in moves), readings):
            for job, proposal in moves:
                self._move_tree(job, proposal.placement, price)

    def _running_jobs(self, jobs: Sequence[_Job], loads: Mapping[Endpoint, LinkLoad]) -> Sequence[RunningAggregation]:
        return [
            RunningAggregation(
                self._problem(job, loads, beside=False),
                job.placement,
                job.hosts.weight,
                job.hosts.priority,
                movable=self._rests(job),
            )
            for job in jobs
            if job.placement is not None
        ]

    def _expected(self, problem: Problem, placement: Placement) -> Expected:
        spec = JobSpec(1, problem.workers, problem.server, gradient_bytes=round(problem.gradient_bytes))
        step = Step.of(spec, problem.topology)
        return expected_step(problem, placement, step, ways_known=False)  # they are drawn here

    def _steps_per_second(self, job: _Job, step_seconds: float) -> float:
        assert job.flow is not None
        last = job.flow.durations[-1] if job.flow.durations else step_seconds
        return 1 / (last + self.timing.compute * 1e-9)

    def _is_earned(
        self, saved: list[float], price: float, readings: Sequence[tuple[float, Mapping[Endpoint, LinkLoad]]]
    ) -> bool:
        ages = [self.simulator.now - at for at, _ in reversed(readings)]
        return seconds_to_break_even(price, saved, ages, self.timing.interval * 1e-9) == 0

    def _move_tree(self, job: _Job, placement: Placement, price: float) -> None:
        account = job.account
        if account is None or account.current != job.placement:
            assert job.placement is not None
            account = job.account = MigrationBudget.opened(job.placement, self.simulator.now)
        account.move(placement, price)
        job.placement = placement
        self._move(job, self._tree(placement))

    def _move(self, job: _Job, parts: Parts) -> None:
        assert job.flow is not None
        self.simulator.move(job.flow, parts, self.timing.pause * 1e-9)
        job.parts, job.moved_at = parts, self.simulator.now
        self.moves += 1

    def _stripe(self, jobs: Sequence[_Job], coming: _Job | None = None) -> None:
        """Place all striped jobs together, with others' traffic from telemetry; running jobs move all together or not
        at all.
        """
        loads = self._loads()
        problems = [self._problem(job, loads, beside=False) for job in jobs]
        started = time.thread_time()
        striping = stripe(problems, limit=SearchLimit())
        self.decisions.append(time.thread_time() - started)
        wanted: list[Parts] = [
            [
                (tree_coflow(self.scenario.routes, part.placement, Pace(), self.ways), part.parts / PARTS)
                for part in mine
            ]
            for mine in striping.stripes
        ]
        free = self._free(loads)
        staying = [job.parts if job is not coming else parts for job, parts in zip(jobs, wanted, strict=True)]
        better = _slowest(wanted, free) < (1 - self.timing.gain) * _slowest(staying, free)
        for job, parts in zip(jobs, wanted, strict=True):
            if job is coming:
                self._begin(job, parts)
            elif better and not _same(parts, job.parts):
                self._move(job, parts)

    def _free(self, loads: Mapping[Endpoint, LinkLoad]) -> Floats:
        free = self.links.rate_bps.copy()
        for end, load in loads.items():
            free[self.links.number[end]] -= load.background_bps
        least: Floats = np.maximum(free, MIN_SHARE * self.links.rate_bps)
        return least


def _slowest(jobs: Sequence[Parts], free: Floats) -> float:
    """Seconds that a byte of each job takes on the slowest link, all together."""
    load = np.zeros(len(free))
    for parts in jobs:
        for coflow, share in parts:
            np.add.at(load, coflow.links, share * coflow.streams)
    return float((8 * load / free).max())


def _same(parts: Parts, others: Parts) -> bool:
    """Return whether the trees and their shares are the same, regardless of hashing."""
    told = [sorted((share, sorted(coflow.links.tolist())) for coflow, share in mine) for mine in (parts, others)]
    return told[0] == told[1]
