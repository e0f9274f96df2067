"""How long a step of a job takes, round by round, as the protocol goes about it: what the packet fabric is held to.

A step has P scale rounds without lanes and C rounds with them (docs/design.md §3.3). Round r is sent as soon as round
r − w is complete, with w rounds in the network (two until the first result has come), and its chunk's exponent is
agreed, P rounds before. It goes up to the root and comes down again, one round after the other on the slowest link:

    up_r    =  max(sent_r + u,  up_{r−1} + g)       g  =  max over links of (L_e · B + O_e · B / D) · 8 / (c_e − b_e)
    done_r  =  max(up_r + d,  done_{r−1} + g)

with u and d the ways up and down in empty queues but for the L_e − 1 frames of the same round that meet there. Hosts
that look at their frames at multiples of a time see results, and the server contributions, at the next of these. This
is a recursion in maxima and sums; after the start-up it is periodic, so its last stretch is carried on in a line.

Nothing is lost and nothing repeated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...topologies.model import Topology
from ..placement import Costs, Placement, Problem, way_up
from .plan import SCALE_ROUND_BYTES, JobSpec, most_streams_of, round_bytes, rounds_of_step

_INITIAL_WINDOW: Final = 2
"""Rounds in the network until the first result has come."""
_WINDOWS: Final = 8
"""After so many windows the recursion is periodic."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step of a job is made of."""

    chunks: int
    """C."""
    scales: int
    """P = min(W, C)."""
    window: int
    """W."""
    round_bytes: int
    """B: a frame with lanes."""
    poll_seconds: float = 0.0
    """Hosts look at what has come at multiples of this; 0: at once."""

    @classmethod
    def of(cls, spec: JobSpec, topology: Topology, poll_seconds: float = 0.0) -> Step:
        """That of one tensor with the job's bytes."""
        scales, chunks = rounds_of_step(spec, topology)
        return cls(chunks, scales, spec.window, round_bytes(topology), poll_seconds)


@dataclass(frozen=True, slots=True)
class Expected:
    """How long a step takes, and why."""

    seconds: float
    link_seconds: float
    """What the slowest link needs for the step's bytes."""
    window: int
    """Rounds in the network: W, or what the bound of the queues allows."""
    round_trip_seconds: float
    """Of a round with lanes, in queues without other rounds."""

    @property
    def refill_seconds(self) -> float:
        """What is in the network takes so long to be summed again."""
        return max(self.round_trip_seconds, self.window * self.link_seconds)

    @property
    def is_bound_by_window(self) -> bool:
        """Whether the slowest link waits for the window."""
        return self.window * self.link_seconds < self.round_trip_seconds


@dataclass(frozen=True, slots=True)
class _Way:
    """Of rounds of one size: up, down, and one after the other, in seconds."""

    up: float
    down: float
    apart: float


def expected_step(problem: Problem, placement: Placement, step: Step, bound: int | None = None) -> Expected:
    """How long a step takes under a placement. `bound`: packets that no queue is to exceed."""
    costs = Costs(problem)
    window = step.window if bound is None else min(step.window, _allowed(problem, placement, bound))
    with_lanes, without = (_way(costs, placement, size) for size in (step.round_bytes, SCALE_ROUND_BYTES))
    at_host = problem.topology.is_host(placement.root)
    rounds = step.scales + step.chunks
    played = min(rounds, step.scales + _WINDOWS * max(window, step.scales))
    done = _done(step, window, with_lanes, without, at_host, played)
    seconds = done[-1]
    if played < rounds:
        stretch = min(played - step.scales, 4 * window)
        seconds += (rounds - played) * (done[-1] - done[-1 - stretch]) / stretch
    return Expected(seconds, with_lanes.apart, window, with_lanes.up + with_lanes.down)


def _done(step: Step, window: int, with_lanes: _Way, without: _Way, at_host: bool, played: int) -> list[float]:
    """When each round's result is seen by the workers."""
    poll = step.poll_seconds

    def seen(time: float) -> float:
        return math.ceil(time / poll - 1e-9) * poll if poll else time

    done: list[float] = []
    up_before = down_before = -math.inf
    for round_ in range(played):
        way = without if round_ < step.scales else with_lanes
        sent = 0.0
        if round_ >= _INITIAL_WINDOW:
            sent = done[0]
        if round_ >= window:
            sent = max(sent, done[round_ - window])
        if round_ >= step.scales:
            sent = max(sent, done[round_ - step.scales])
        up_before = max(sent + way.up, up_before + way.apart)
        at_root = seen(up_before) if at_host else up_before
        down_before = max(at_root + way.down, down_before + way.apart)
        done.append(seen(down_before))
    return done


def _way(costs: Costs, placement: Placement, frame_bytes: int) -> _Way:
    """Of rounds with frames of this size."""
    problem, number = costs.problem, costs.links.number
    load = costs.streams(placement.edges).loads()
    share = frame_bytes / problem.gradient_bytes
    apart = np.where(load > 0, load * costs.seconds + costs.others, 0.0) * share
    frame_seconds = 8 * frame_bytes / costs.links.rate_bps
    alone = frame_seconds + costs.links.delay_seconds + costs.wait
    meeting = np.maximum(load - 1, 0) * frame_seconds
    above = dict(placement.edges)
    hops: dict[tuple[str, str], tuple[float, float]] = {}
    for child, parent in placement.edges:
        for edge in ((child, parent), (parent, child)):
            shares = problem.routes.shares(*edge)
            at, of_flow = [number[link] for link in shares], np.array(list(shares.values()))
            hops[edge] = float((alone[at] * of_flow).sum()), float(meeting[at].max())
    longest = [0.0, 0.0]
    for worker in placement.aggregators:
        way, most = [0.0, 0.0], [0.0, 0.0]
        for child, parent in way_up(worker, above):
            for side, edge in enumerate(((child, parent), (parent, child))):
                way[side] += hops[edge][0]
                most[side] = max(most[side], hops[edge][1])
        longest = [max(longest[side], way[side] + most[side]) for side in (0, 1)]
    return _Way(longest[0], longest[1], float(apart.max()))


def _allowed(problem: Problem, placement: Placement, bound: int) -> int:
    """Rounds that the queues on the way let a job have in the network, beside no other job."""
    return min(
        max(bound // count, 1)
        for link, count in most_streams_of(problem.routes, placement.edges).items()
        if problem.topology.is_switch(link.node)
    )
