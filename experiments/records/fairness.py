"""Fairness among jobs: Jain's index of the rounds that each completes in a window of time. Rounds of exponents count as
others do: windows allow both alike, and a job in its exponents has no smaller share.

Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination", DEC-TR-301, 1984: (Σx)²/(n·Σx²), 1 where all
have the same, 1/n where one has all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from .record import FlowTrace, JobTrace

ROUND_TRIPS: Final = 20
"""Round trips after a job joins until all should have equal shares: round trips in empty queues, but none shorter than
a round of every stream on the shared link, as a full queue causes.
"""
MEASURED: Final = 10
"""Number of last round trips that the index covers."""


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index; 1 if all shares are 0."""
    squares = sum(share**2 for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


@dataclass(frozen=True, slots=True)
class Join:
    """Change of the others' shares after a job joined."""

    job: int
    joined_ns: int
    """The controller had taken it in."""
    held_ns: int
    """Time without sending, until all others applied smaller windows, in ns."""
    jobs: int
    """Number of jobs that summed, including it."""
    index: float
    """Jain's, over the second ten round trips after it began to send: of the job that is farthest away of all that sum
    then, for nothing can be told of its rate sooner; and each as long as all streams take turns at least.
    """


def rounds_between(trace: JobTrace, start_ns: float, end_ns: float) -> float:
    """Return the number of rounds of a job completed between two times."""
    before, after = np.interp([start_ns, end_ns], trace.time_ns, trace.rounds)
    return float(after - before)


def rate_bps(flow: FlowTrace, start_ns: float, end_ns: float) -> float:
    """Return the rate of a flow at its destination between two times, in bit/s."""
    before, after = np.interp([start_ns, end_ns], flow.time_ns, flow.packets)
    return float(8e9 * flow.packet_bytes * (after - before) / (end_ns - start_ns))


def all_send(flows: Sequence[FlowTrace]) -> tuple[int, int] | None:
    """Return the interval in which all of them send; None if there is none."""
    start_ns = max(flow.start_ns for flow in flows)
    end_ns = min(flow.time_ns[-1] if flow.stop_ns is None else min(flow.stop_ns, flow.time_ns[-1]) for flow in flows)
    return (start_ns, end_ns) if start_ns < end_ns else None


@dataclass(frozen=True, slots=True)
class Sharer:
    """One of those that share something: a job, or a flow that yields."""

    start_ns: int
    end_ns: int
    round_trip_ns: float
    had: Callable[[float, float], float]
    """Function that returns its share between two times."""


@dataclass(frozen=True, slots=True)
class Window:
    """Fairness among the flows or jobs present in all of a window."""

    start_ns: float
    end_ns: float
    index: float
    """Jain's."""


def jobs_that_share(traces: Iterable[JobTrace]) -> list[Sharer]:
    """Return jobs from when on they may send, by their rounds; a round trip is as long as all streams take turns at
    least.
    """
    return [
        Sharer(
            trace.sends_ns, trace.time_ns[-1], max(trace.round_trip_ns, trace.turn_ns), partial(rounds_between, trace)
        )
        for trace in traces
        if trace.rounds and trace.sends_ns < trace.time_ns[-1]
    ]


def flows_that_share(flows: Iterable[FlowTrace]) -> list[Sharer]:
    """Return flows that yield, by their rates. Of their round trips only the way there is known, with its queues."""
    ends = [(flow, all_send([flow])) for flow in flows if flow.kind == "yielding"]
    return [Sharer(*span, 1e3 * flow.mean_delay_us, partial(rate_bps, flow)) for flow, span in ends if span is not None]


def over_time(sharers: Sequence[Sharer]) -> list[Window]:
    """Return Jain's index over windows of ten of the longest round trips, restarted at each arrival or departure.
    The second window after that is the criterion for a join.
    """
    changes = sorted({instant for sharer in sharers for instant in (sharer.start_ns, sharer.end_ns)})
    windows = []
    for start_ns, end_ns in pairwise(changes):
        there = [sharer for sharer in sharers if sharer.start_ns <= start_ns and sharer.end_ns >= end_ns]
        lasts_ns = MEASURED * max((sharer.round_trip_ns for sharer in there), default=0.0)
        if len(there) < 2 or not lasts_ns:  # flows of which nothing has come have no round trip
            continue
        edges = [start_ns + number * lasts_ns for number in range(1 + int((end_ns - start_ns) // lasts_ns))]
        windows += [Window(*span, jain([sharer.had(*span) for sharer in there])) for span in pairwise(edges)]
    return windows


def joins(traces: Iterable[JobTrace]) -> list[Join]:
    """Return every job that joined others that were there for long enough, in the order in which they did."""
    traces, joined = [trace for trace in traces if trace.rounds], []
    for trace in sorted(traces, key=lambda flow: flow.sends_ns):
        begun = [
            other for other in traces if other.sends_ns <= trace.sends_ns and other.time_ns[-1:] > [trace.sends_ns]
        ]
        round_trip_ns = max([trace.turn_ns, *(other.round_trip_ns for other in (trace, *begun))])
        end_ns = trace.sends_ns + ROUND_TRIPS * round_trip_ns
        start_ns = end_ns - MEASURED * round_trip_ns
        there = [other for other in begun if other.time_ns[-1] >= end_ns]
        if trace in there and any(other.sends_ns < trace.sends_ns for other in there):
            index = jain([rounds_between(other, start_ns, end_ns) for other in there])
            held_ns = trace.sends_ns - trace.joined_ns
            joined.append(Join(trace.job, trace.joined_ns, held_ns, len(there), index))
    return joined
