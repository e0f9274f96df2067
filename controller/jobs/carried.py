"""Links that running jobs have used recently, as proved by rounds that their workers completed. Pure.

A worker that completes a round has received the result of a sum of all the job's workers: so numbers went up every hop
of the job's tree, and a result came down from the root to that worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from ..placement import way_up
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
        hops, above = set(placement.edges), dict(placement.edges)
        for worker in going_on:
            hops.update((parent, child) for child, parent in way_up(worker, above))
        for start, end in hops:
            if routes.reaches(start, end):
                carried.update(link for link, share in routes.shares(start, end).items() if share == 1)
    return frozenset(carried)
