"""Background traffic of the links: measured traffic minus the known traffic of the fabric's own jobs.

A job's traffic is its streams by its plan times its rounds per second, which its hosts report. The sum over all jobs is
subtracted from telemetry's values; the rest is traffic from outside, and the other jobs' part is kept separately. After
a job has started, ended or moved, averages still include its earlier traffic: those links are unsettled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from ...topologies.model import Endpoint
from ..planning.plan import JobPlan, mean_round_bytes, streams_of
from ..planning.planner import LinkConditions, Planner
from ..telemetry.link_state import LinkState, own_traffic
from ..telemetry.snapshot import Snapshot
from .job import RunningJob
from .registry import JobRegistry

_AVERAGE_PERIODS: Final = 2
"""T of telemetry's averages."""
_SETTLING_PERIODS: Final = 5
"""Probe periods until less than a sixteenth of the earlier traffic is in an average, and a report has come."""


class BackgroundTrafficEstimator:
    """Link conditions of all jobs."""

    def __init__(self, jobs: JobRegistry, planner: Planner, links: LinkState) -> None:
        self._jobs = jobs
        self._planner = planner
        self._links = links
        self._plans: dict[int, JobPlan] = {}
        """Plan of each job at the last evaluation."""
        self._settled_ns: dict[Endpoint, int] = {}
        """When the readings of links will be settled."""

    @property
    def period_ns(self) -> int:
        """Period of the links' measurements."""
        return self._links.period_ns

    @property
    def average_ns(self) -> int:
        """T of telemetry's averages."""
        return _AVERAGE_PERIODS * self.period_ns

    def update(self, now_ns: int) -> None:
        """See which plans have changed."""
        plans = {number: job.plan for number, job in self._jobs.items()}
        for number in plans.keys() | self._plans.keys():
            before, after = self._plans.get(number), plans.get(number)
            if before is not after and (before is None or after is None or before.streams != after.streams):
                until_ns = now_ns + _SETTLING_PERIODS * self.period_ns
                for plan in (before, after):
                    self._settled_ns.update(dict.fromkeys(plan.streams if plan is not None else (), until_ns))
        self._plans = plans

    def unsettled(self, now_ns: int) -> Collection[Endpoint]:
        """Return links whose readings still hold what jobs sent elsewhere a moment ago."""
        self._settled_ns = {link: until_ns for link, until_ns in self._settled_ns.items() if until_ns > now_ns}
        return self._settled_ns.keys()

    def background(self, now_ns: int) -> Snapshot:
        """Link readings without the traffic of the fabric's own jobs."""
        known: Counter[Endpoint] = Counter()
        for job in self._jobs.values():
            round_bytes = mean_round_bytes(job.spec, self._planner.topology)
            known.update(own_traffic(job.plan.streams, job.rounds_per_second, round_bytes))
        return self._links.snapshot(now_ns, known)

    def others(self, number: int) -> Mapping[Endpoint, float]:
        """Return bytes that all jobs but this one bring onto each link in a step, where they are or are moving to."""
        others: Counter[Endpoint] = Counter()
        for job in self._jobs.values():
            if job.number != number:
                for link, streams in self._streams(job).items():
                    others[link] += streams * job.spec.gradient_bytes  # type: ignore[assignment]
        return others

    def conditions_for(self, number: int, now_ns: int) -> LinkConditions:
        """Link conditions for the placement of a job of this number, new or running."""
        return LinkConditions.of(self.background(now_ns), self.others(number))

    def _streams(self, job: RunningJob) -> Mapping[Endpoint, float]:
        if job.target is None or job.target == job.plan.placement:
            return job.plan.streams
        routes = self._planner.routes
        edges = [(a, b) for a, b in job.target.edges if routes.reaches(a, b)]
        return streams_of(routes, job.spec.workers, edges)
