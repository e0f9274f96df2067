"""Division of a queue's windows among jobs, in proportion to their round trips. Pure arithmetic.

Let T be a job's round trip in empty queues. A job that has W rounds in the network, each away for T + q/C, sums
W/(T + q/C) of them per second. So equal rates require windows in proportion to T + q/C. With such windows the link is
full and q/C = ΣW/C − T̄, as long as that is positive. T̄ is the streams' mean T.

If ΣW is less than T̄·C, windows in proportion to round trips leave the link idle at times, while more equal ones, which
favour near jobs, may fill it: W in proportion to T + x has Σ(W/T) = C for x = (T̄ − ΣW/C)/(ΣW·mean(1/T)/C − 1). If even
equal windows do not fill it, equal ones come closest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from ...topologies.model import Endpoint


class SharingStreams(Protocol):
    """Streams of one job."""

    @property
    def count(self) -> Mapping[Endpoint, int]:
        """Copies of its stream on each link."""
        ...

    @property
    def window(self) -> int:
        """Maximum window."""
        ...

    @property
    def round_trip_ns(self) -> int:
        """Round-trip time of the farthest worker in empty queues."""
        ...


def proportional_windows(level: int, frame_ns: float, streams: Sequence[tuple[int, int]]) -> list[int]:
    """Return a window for each job by (streams, round trip in ns), at least 1: together at most `level`, unless that
    is less than a round for each.
    """
    count = sum(number for number, _ in streams)
    trips_ns = [max(1, trip_ns) for _, trip_ns in streams]
    mean_ns = sum(number * trip_ns for (number, _), trip_ns in zip(streams, trips_ns, strict=True)) / count
    often = sum(number / trip_ns for (number, _), trip_ns in zip(streams, trips_ns, strict=True)) / count
    more_ns = level * frame_ns - mean_ns
    if more_ns < 0:
        filled = level * frame_ns * often - 1
        more_ns = -more_ns / filled if filled > 0 else math.inf
    if math.isinf(more_ns) or len(set(trips_ns)) == 1:
        return [max(1, level // count)] * len(streams)
    parts = [trip_ns + int(more_ns) for trip_ns in trips_ns]
    whole = sum(number * part for (number, _), part in zip(streams, parts, strict=True))
    return [max(1, level * part // whole) for part in parts]


def fair_windows(
    jobs: Sequence[SharingStreams],
    equal: Mapping[Endpoint, int],
    levels: Mapping[Endpoint, int],
    frames_ns: Mapping[Endpoint, float],
) -> list[int]:
    """Return the window of each job: the smallest that the queues on its path allow, and no more than its own.

    A switch has one window for a port, which is the largest of the jobs that cross it; smaller windows of the other
    jobs are enforced at a port that they have alone, such as their hosts'. Without such a port, all jobs of a queue get
    its `equal` window.

    Args:
        jobs: Streams of each job.
        equal: Window of each link that all its jobs get if they cannot have different ones, in rounds.
        levels: Sum of the windows that each link's queue allows, in packets.
        frames_ns: Time in which each link serves one of the jobs' packets, in ns.

    Returns:
        Window of each job in rounds, in the order of `jobs`.
    """
    equally = set[Endpoint]()
    while True:
        allowed: list[dict[Endpoint, int]] = [{} for _ in jobs]
        for link, level in levels.items():
            there = [number for number, job in enumerate(jobs) if link in job.count]
            if not there:
                continue
            windows = [equal[link]] * len(there)
            if link not in equally and level >= sum(jobs[number].count[link] for number in there):
                trips = [(jobs[number].count[link], jobs[number].round_trip_ns) for number in there]
                windows = proportional_windows(level, frames_ns[link], trips)
            for number, window in zip(there, windows, strict=True):
                allowed[number][link] = window
        own = [min([job.window, *ways.values()]) for job, ways in zip(jobs, allowed, strict=True)]
        largest: dict[Endpoint, int] = {}
        for job, window in zip(jobs, own, strict=True):
            for link in job.count:
                largest[link] = max(largest.get(link, 1), window)
        held = [min([job.window, *(largest[link] for link in job.count)]) for job in jobs]
        totals: dict[Endpoint, int] = {}
        for job, window in zip(jobs, held, strict=True):
            for link, number in job.count.items():
                totals[link] = totals.get(link, 0) + number * window
        over = {link for link, total in totals.items() if link in levels and total > levels[link]} - equally
        if not over:
            return held
        equally |= over
