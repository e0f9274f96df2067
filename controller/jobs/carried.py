"""Links that running jobs have used recently, as proved by rounds that their workers completed. Pure.

A worker that completes a round has received the result of a sum of all the job's workers: so numbers went up every hop
of the job's tree, and a result came down from the root to that worker.

Reports are claims of the job's hosts, and jobs of several tenants share links. So a worker's report counts only if
another worker of its job has completed rounds as well. No claim counts for a link of a job that waits for a round at
the same time; probes decide about such a link.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from ..placement import way_up
from .job import RunningJob


def links_carried(jobs: Iterable[RunningJob], routes: Routes, since_ns: int) -> frozenset[Endpoint]:
    """Return the links that surely carried a round which was completed since then. Where equal-cost paths leave open
    which one it took, none of them did.
    """
    carried: set[Endpoint] = set()
    waited_for: set[Endpoint] = set()
    for job in jobs:
        if job.move is not None:
            continue
        if _waits(job, since_ns):
            waited_for |= _links(job, job.active, routes)
            continue
        placement = job.plan.placement
        going_on = [
            worker
            for worker, progress in job.progress.items()
            if progress.completed_ns >= since_ns and worker in placement.aggregators
        ]
        if len(going_on) > 1:
            carried |= _links(job, going_on, routes)
    return frozenset(carried - waited_for)


def _waits(job: RunningJob, since_ns: int) -> bool:
    """Return True if a worker reports that it has waited since then without completing a round."""
    told = (job.progress[worker] for worker in job.active if worker in job.progress and worker not in job.left)
    return any(
        report.waiting and max(report.grown_ns, job.moved_ns) < since_ns <= report.reported_ns for report in told
    )


def _links(job: RunningJob, workers: Iterable[str], routes: Routes) -> set[Endpoint]:
    """Return the certain links of the job's tree, and of the ways from its root down to these workers."""
    placement = job.plan.placement
    hops, above = set(placement.edges), dict(placement.edges)
    for worker in workers:
        if worker in placement.aggregators:
            hops.update((parent, child) for child, parent in way_up(worker, above))
    links: set[Endpoint] = set()
    for start, end in hops:
        if routes.reaches(start, end):
            links.update(link for link, share in routes.shares(start, end).items() if share == 1)
    return links
