"""Jobs and others' traffic on one fabric, as flows, from event to event.

::

    timers (a job comes, computes, moves; telemetry is read) ─▶ Simulator ─▶ events.advance ─▶ a job's flow is done
                                                                    ▲                               │
                                                                    └──── next phase of its step ◀──┘

A step of a job: its workers compute; then each part of it (one tree, or several that share its chunks) waits for its
lead, flows, and waits for its trail. The step is done when all parts are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from ..errors import ExperimentError
from .coflows import Coflow
from .events import NONE, FlowPool, advance
from .fair_shares import Floats, Ints

MIN_SHARE: Final = 0.05
"""Minimum share of a link's rate that traffic at a fixed rate leaves to flows: queues are fair to some extent."""

_AHEAD_SECONDS: Final = 1.0
"""Simulated seconds per advance if no timer is set."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Others' flows, each of one path, in order of their times."""

    seconds: Floats
    """(flows,): when each begins, in seconds."""
    bytes: Floats
    """(flows,): the bytes that each brings."""
    starts: Ints
    """(flows + 1,): flow i uses `links[starts[i]:starts[i + 1]]`."""
    links: Ints

    @classmethod
    def none(cls) -> Arrivals:
        """Return no flows."""
        return cls(np.zeros(0), np.zeros(0), np.zeros(1, np.int64), np.zeros(0, np.int64))


@dataclass
class _Part:
    """Some of a job's chunks, along one tree."""

    coflow: Coflow
    share: float
    flow: int
    """Its place in the pool."""
    done: bool = True
    """True if all of the step's data has arrived."""


@dataclass
class FlowJob:
    """One job, made by `Simulator.add`; public attributes may be read at any time."""

    name: str
    number: int
    """Number of the job, from 1; 0 is background traffic."""
    bytes: float
    """Bytes of each worker's stream in a step, headers included."""
    compute_seconds: float
    steps: int
    """Number of steps until it leaves."""
    parts: list[_Part] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    """Seconds of each step's aggregation phase so far."""
    ended: bool = False
    began: float = 0.0
    """When the last aggregation phase began."""
    epoch: int = 0
    """Number of placements, which invalidates timers of earlier ones."""
    computing: bool = True
    traffic_class: int = 0
    """Class of its flows; set by `Simulator.classify`."""
    compute: Compute | None = None
    after_step: Callable[[FlowJob], None] | None = None


Compute = Callable[[FlowJob, Callable[[], None]], None]
"""Computation of a job's step: it calls its second argument when the step's gradients are there."""


class Simulator:
    """One fabric's links, whose rates are in bit/s, with flows of others that come by themselves."""

    def __init__(self, rate_bps: Floats, arrivals: Arrivals | None = None, guard_share: float = 0.0) -> None:
        """Start at 0 s without jobs.

        Args:
            rate_bps: (links,): rate of each directed link.
            arrivals: Others' flows, of class 0.
            guard_share: Share of each link that higher traffic classes together leave to the lowest one there.

        Raises:
            ExperimentError: Arrivals are not in order, or the guard is not a share in [0, 1).
        """
        if not 0 <= guard_share < 1:
            raise ExperimentError("must be a share in [0, 1)", place="guard_share", value=guard_share)
        self._guard = guard_share
        self._rate = np.asarray(rate_bps, np.float64)
        others_flows = Arrivals.none() if arrivals is None else arrivals
        others = len(others_flows.seconds)
        if (np.diff(others_flows.seconds) < 0).any():
            raise ExperimentError("arrivals are not in order of their times; sort them")
        self._arrivals = others_flows.seconds
        self._pool = FlowPool.of(others + 16)
        self._pool.begin[:others], self._pool.end[:others] = others_flows.starts[:-1], others_flows.starts[1:]
        self._pool.left[:others] = others_flows.bytes
        self._size = others
        self._links = others_flows.links.astype(np.int64)
        self._weights = np.ones(len(self._links))
        self._active = np.zeros(len(self._pool.begin), np.int64)
        self._count, self._arriving, self._events = (np.zeros(1, np.int64) for _ in range(3))
        self._clock = np.zeros(1)
        self._paced = np.zeros(len(self._rate))
        self._paced_since = 0.0
        self._carried = np.zeros((1, len(self._rate)))
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._owner: dict[int, tuple[FlowJob, _Part]] = {}
        self.jobs: list[FlowJob] = []

    # --- traffic ---

    @property
    def now(self) -> float:
        """Seconds."""
        return float(self._clock[0])

    @property
    def events(self) -> int:
        """Number of recomputations of the rates."""
        return int(self._events[0])

    def pace(self, bps: Floats) -> None:
        """Set background traffic at fixed rates on the links from now on; it does not yield to flows."""
        self._add_paced()
        self._paced = np.asarray(bps, np.float64).copy()

    @property
    def rates_bps(self) -> tuple[Ints, Floats]:
        """The flows that are under way, as places in the pool, and their rates since the last event."""
        active = self._active[: self._count[0]].copy()
        return active, 8 * self._pool.rates[active]

    def finished_seconds(self) -> Floats:
        """Return the time in seconds at which each of the others' flows ended, (flows,); NaN: not yet."""
        return self._pool.finished[: len(self._arrivals)].copy()

    def carried_bytes(self) -> Floats:
        """Return the bytes carried so far, (1 + jobs, links): others' on each link, then every job's."""
        self._add_paced()
        return self._carried.copy()

    def _add_paced(self) -> None:
        passed = self.now - self._paced_since
        self._carried[0] += np.minimum(self._paced, (1 - MIN_SHARE) * self._rate) * passed / 8
        self._paced_since = self.now

    # --- jobs ---

    def add(
        self,
        name: str,
        gradient_bytes: float,
        parts: Sequence[tuple[Coflow, float]],
        steps: int,
        compute_seconds: float = 0.0,
        *,
        compute: Compute | None = None,
        after_step: Callable[[FlowJob], None] | None = None,
    ) -> FlowJob:
        """Add a job that begins to compute now.

        Args:
            name: Its name in errors.
            gradient_bytes: Bytes of each worker's stream in a step.
            parts: Its trees, each with its share of the chunks.
            steps: Number of steps.
            compute_seconds: Duration of a step's computation.
            compute: Computation in place of that duration, such as one that waits for a turn.
            after_step: Called when a step is complete, before the next one begins.
        """
        job = FlowJob(name, len(self.jobs) + 1, gradient_bytes, compute_seconds, steps)
        job.compute, job.after_step = compute, after_step
        self._carried = np.vstack([self._carried, np.zeros(len(self._rate))])
        job.parts = self._parts(job, parts)
        self.jobs.append(job)
        self._compute(job)
        return job

    def classify(self, job: FlowJob, traffic_class: int) -> None:
        """Set the traffic class of a job's flows from now on; a class has strict priority over all lower ones."""
        job.traffic_class = traffic_class
        for part in job.parts:
            self._pool.of_class[part.flow] = traffic_class

    def end(self, job: FlowJob) -> None:
        """End a job now, in whatever phase it is."""
        for part in job.parts:
            self._stop(part)
        job.epoch += 1
        job.ended = True

    def move(self, job: FlowJob, parts: Sequence[tuple[Coflow, float]], pause_seconds: float) -> None:
        """Sum a running job's chunks along other trees from now on; the rest of a step waits for the pause."""
        if job.ended:
            raise ExperimentError("it has ended and cannot be moved", place=f"job {job.name}")
        left = 0.0
        for part in job.parts:
            left += float(self._pool.left[part.flow]) / part.coflow.bytes_factor
            self._stop(part)
            self._owner.pop(part.flow)
        job.parts = self._parts(job, parts)
        job.epoch += 1
        if not job.computing:
            self._share_out(job, left)
            self.at(self.now + pause_seconds, self._if_current(job, lambda: self._send(job)))

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action for a time in seconds."""
        self._sequence += 1
        heapq.heappush(self._timers, (max(seconds, self.now), self._sequence, action))

    def run(self, until: float) -> None:
        """Advance virtual time to `until`, in seconds."""
        while True:
            target = min(until, self._timers[0][0]) if self._timers else until
            done = self._advance(target)
            if done != NONE:
                job, part = self._owner[done]
                end = self._if_current(job, partial(self._end_part, job, part))
                self.at(self.now + part.coflow.trail_seconds, end)
                continue
            while self._timers and self._timers[0][0] <= self.now:
                heapq.heappop(self._timers)[2]()
            if self.now >= until:
                return

    def run_until_done(self, limit: float = np.inf) -> None:
        """Let time pass until all jobs have ended; ones that come later count once they are there."""
        while not all(job.ended for job in self.jobs):
            if not self._timers and not self._count[0]:
                raise ExperimentError(f"at {self.now:g} s nothing is under way and a job has not ended")
            if self.now >= limit:
                raise ExperimentError(f"jobs have not ended after {limit:g} s of simulated time")
            self.run(min(limit, self._timers[0][0] if self._timers else self.now + _AHEAD_SECONDS))

    # --- phases of a step ---

    def _compute(self, job: FlowJob) -> None:
        job.computing = True
        if job.compute is not None:
            job.compute(job, lambda: self._begin_step(job))
        else:
            self.at(self.now + job.compute_seconds, lambda: self._begin_step(job))

    def _begin_step(self, job: FlowJob) -> None:
        if job.ended:
            return
        job.computing = False
        job.began = self.now
        self._share_out(job, job.bytes)
        self._send(job)

    def _share_out(self, job: FlowJob, total: float) -> None:
        """Divide this many bytes among the parts."""
        for part in job.parts:
            part.done = False
            self._pool.left[part.flow] = total * part.share * part.coflow.bytes_factor

    def _send(self, job: FlowJob) -> None:
        for part in job.parts:
            self.at(self.now + part.coflow.lead_seconds, self._if_current(job, partial(self._start, part)))

    def _start(self, part: _Part) -> None:
        self._active[self._count[0]] = part.flow
        self._count[0] += 1

    def _stop(self, part: _Part) -> None:
        """Take a flow out, where it is in."""
        active = self._active[: self._count[0]]
        kept = active[active != part.flow]
        self._active[: len(kept)] = kept
        self._count[0] = len(kept)

    def _end_part(self, job: FlowJob, part: _Part) -> None:
        part.done = True
        if not all(other.done for other in job.parts):
            return
        job.durations.append(self.now - job.began)
        if len(job.durations) == job.steps:
            job.ended = True
        if job.after_step is not None:
            job.after_step(job)
        if not job.ended:
            self._compute(job)

    def _if_current(self, job: FlowJob, action: Callable[[], None]) -> Callable[[], None]:
        epoch = job.epoch
        return lambda: action() if job.epoch == epoch else None

    # --- the pool ---

    def _parts(self, job: FlowJob, parts: Sequence[tuple[Coflow, float]]) -> list[_Part]:
        if abs(sum(share for _, share in parts) - 1) > 1e-9:
            whole = sum(share for _, share in parts)
            raise ExperimentError(
                f"the shares of its trees make {whole:g}, not 1", place=f"job {job.name}", value=whole
            )
        made = [_Part(coflow, share, self._add_flow(coflow, job)) for coflow, share in parts]
        self._owner.update({part.flow: (job, part) for part in made})
        return made

    def _add_flow(self, coflow: Coflow, job: FlowJob) -> int:
        flow = self._size
        if flow == len(self._pool.begin):
            self._pool = self._pool.doubled()
            self._active = np.concatenate([self._active, np.zeros_like(self._active)])
        self._pool.begin[flow] = len(self._links)
        self._links = np.concatenate([self._links, coflow.links])
        self._weights = np.concatenate([self._weights, coflow.streams])
        self._pool.end[flow] = len(self._links)
        self._pool.limits[flow] = coflow.limit_bps / 8
        self._pool.of_job[flow] = job.number
        self._pool.of_class[flow] = job.traffic_class
        self._size += 1
        return flow

    def _advance(self, until: float) -> int:
        capacity = np.maximum(self._rate - self._paced, MIN_SHARE * self._rate) / 8
        return int(
            advance(
                self._clock,
                until,
                self._active,
                self._count,
                self._pool,
                self._links,
                self._weights,
                self._arrivals,
                self._arriving,
                capacity,
                self._guard,
                self._carried,
                self._events,
            )
        )
