"""Which links running jobs have sent over of late, as the rounds that their workers complete show. Pure.

A worker that completes a round has had the result of a sum that all the job's workers are in: so numbers went up every
hop of the job's tree, and a result came down from the root to that worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from ..placement import Placement
from .job import RunningJob


def links_carried(jobs: Iterable[RunningJob], routes: Routes, since_ns: int) -> frozenset[Endpoint]:
    """The links that surely carried a round which was completed since then. Where equal-cost paths leave open which
    one it took, none of them did.
    """
    carried: set[Endpoint] = set()
    for job in jobs:
        placement = job.plan.placement
        going_on = [
            worker
            for worker, progress in job.progress.items()
            if progress.completed_ns >= since_ns and worker in placement.aggregators
        ]
        if job.move is not None or not going_on:
            continue
        hops = set(placement.edges)
        for worker in going_on:
            hops.update((above, below) for below, above in _way_up(placement, worker))
        for start, end in hops:
            if routes.reaches(start, end):
                carried.update(link for link, share in routes.shares(start, end).items() if share == 1)
    return frozenset(carried)


def _way_up(placement: Placement, worker: str) -> list[tuple[str, str]]:
    """The hops from a worker to the root."""
    above = dict(placement.edges)
    hops, node = [], worker
    while node in above:
        hops.append((node, above[node]))
        node = above[node]
    return hops
