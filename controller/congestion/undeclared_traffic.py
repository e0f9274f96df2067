"""Undeclared traffic: a lower bound of the bytes on links beyond declared traffic and jobs' traffic.

::

    bytes that a link has sent, from report to report ─┐
    rounds that jobs' workers have completed ──────────┼─▶ look ─▶ shares: lower bound of undeclared traffic by link
    declared traffic ──────────────────────────────────┘

A job's rate is uncertain at any moment, since jobs work in bursts, which reports and telemetry see at different times.
But all rounds that a job sends between two moments were incomplete at its slowest worker before the first, and may have
been begun by its fastest by the second: at most W beyond its completed ones. So the amount subtracted is never too
small, whatever comes late, and the rest was sent by others, or sent again. The longer the time between, the less of
others' traffic is taken for a job's: several spans are evaluated. It reads no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ..int_config.settings import IntConfig
from ..int_config.table_entries import report_links
from ..planning.plan import JobPlan, round_bytes
from ..telemetry.link_state import LinkState
from .budget import DETECTED_FROM
from .cross_traffic import cross_traffic, windows_on
from .options import CongestionOptions

STEPS: Final = 8
"""Number of quantisation steps: shares are rounded up to eighths, so that windows do not change with each reading."""
LOOK_PERIODS: Final = 5
"""Telemetry periods from one look to the next."""
SPANS: Final = (4, 16)
"""Looks between the reports of a link that are compared."""
_PATIENCE: Final = 4
"""Looks' time until one goes on without workers that have not been heard of, where no lease says how long that is."""


@dataclass(frozen=True, slots=True)
class JobRounds:
    """Progress of a job."""

    plan: JobPlan
    least: int
    """Rounds completed by its slowest worker, from the workers' last messages."""
    most: int
    """The same of its fastest."""
    heard_ns: int
    """When all workers had been heard of last; −1: some never."""
    unsettled: bool
    """True if the progress is unreliable: the job is changing its generation, or some of its hosts have not
    reported.
    """


@dataclass(frozen=True, slots=True)
class _Look:
    """Readings of one evaluation."""

    now_ns: int
    bytes_sent: NDArray[np.int64]
    """Bytes sent by each link when its switch's clock was `switch_ns`."""
    switch_ns: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    """Earliest time of each link's measurement on this controller's clock."""
    jobs: Mapping[int, JobRounds]


class Undeclared:
    """The links that carry more of others' traffic than was declared."""

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        links: LinkState,
        options: CongestionOptions,
        watching: IntConfig | None = None,
        lease_ns: int | None = None,
    ) -> None:
        """Create the estimator.

        Args:
            topology: The fabric.
            routes: Its routes.
            links: State of the links by telemetry.
            options: Options of congestion control, with the declared traffic.
            watching: Configuration of switches' own reports, whose amount is unknown; None: there are none.
            lease_ns: Time of silence after which a host is not waited for, in ns; None: hosts have no leases.
        """
        self._topology = topology
        self._links = links
        self._options = options
        self._watching = watching
        self._period_ns = LOOK_PERIODS * links.period_ns
        self._patience_ns = max(_PATIENCE * self._period_ns, lease_ns or 0)
        self._number = {link: index for index, link in enumerate(links.links)}
        self._capacity = np.array([topology.link_at(link).rate_bps for link in links.links], np.float64)
        self._looks: deque[_Look] = deque(maxlen=max(SPANS) + 3)
        self._count = 0
        self._next_ns = 0
        self._streams: dict[int, tuple[JobPlan, NDArray[np.int64], NDArray[np.int64]]] = {}
        """Plan of each job, the links that it crosses, and the maximum number of its streams on each."""
        self._unsettled = np.zeros(len(links.links), np.int64)
        """First evaluation of each link since which the same jobs cross it, all of them reporting and none
        migrating.
        """
        self._told = np.zeros(len(links.links))
        self.shares: Mapping[Endpoint, float] = {}
        """Undeclared share of each link's rate, the maximum since it was first detected; other links are missing."""
        self._round_bytes = round_bytes(topology)
        self.update_routes(routes)

    def update_routes(self, routes: Routes) -> None:
        """Switch to new routes: earlier packets used the old ones."""
        self._looks.clear()
        self._told[:] = 0.0
        self._declared_bps = np.zeros(len(self._number))
        self._burst_bytes = np.zeros(len(self._number))
        for link, crossing in cross_traffic(routes, self._options.uncontrolled).items():
            self._declared_bps[self._number[link]] = crossing.rate_bps
            self._burst_bytes[self._number[link]] = crossing.curve.burst * crossing.largest_bytes
        for link in windows_on(routes, self._options.windowed):
            self._declared_bps[self._number[link]] = np.inf  # windows say nothing of rates
        if self._watching is not None and self._watching.report_limit is None:
            for link in report_links(self._topology, routes, self._watching):
                self._declared_bps[self._number[link]] = np.inf

    def update(self, now_ns: int, jobs: Iterable[JobRounds]) -> None:
        """Evaluate the links; call often, with the progress of all jobs."""
        if now_ns < self._next_ns or not self._options.windows_obeyed:  # else nothing is promised anyway
            return
        last_ns = self._looks[-1].now_ns if self._looks else -1
        known = {job.plan.spec.job: job for job in jobs}
        silent = {number for number, job in known.items() if not job.unsettled and job.heard_ns <= last_ns}
        if silent and now_ns < last_ns + self._patience_ns:
            return
        self._next_ns = now_ns + self._period_ns
        self._settle(known, silent)
        state = self._links.state
        switch_ns = np.where(state["based"], state["base_ns"], -1)
        self._looks.append(_Look(now_ns, state["bytes_sent"], switch_ns, state["at_ns"], known))
        self._count += 1
        least = self._beyond()
        told = np.fmax(self._told, np.minimum(np.ceil(STEPS * least), STEPS) / STEPS)
        self._told = np.where(least <= DETECTED_FROM, 0.0, told)  # unknown values stay as they were
        self.shares = {self._links.links[index]: float(self._told[index]) for index in np.flatnonzero(self._told)}

    def _settle(self, jobs: Mapping[int, JobRounds], silent: Collection[int]) -> None:
        """See which links are crossed by other jobs than at the last look, or by jobs of which it is not known how far
        they are.
        """
        for number in self._streams.keys() | jobs.keys():
            before, job = self._streams.get(number), jobs.get(number)
            same = before is not None and job is not None and before[0].generation == job.plan.generation
            if before is not None and not same:
                self._unsettled[before[1]] = self._count
            if job is None:
                del self._streams[number]
                continue
            if before is None or before[0] is not job.plan:
                count = {self._number[link]: n for link, n in job.plan.max_streams.items() if link in self._number}
                self._streams[number] = job.plan, np.array([*count], np.int64), np.array([*count.values()], np.int64)
            if not same or job.unsettled or number in silent:
                self._unsettled[self._streams[number][1]] = self._count

    def _beyond(self) -> NDArray[np.float64]:
        """Largest share of each link's rate that the spans show to be neither jobs' nor declared; NaN: no span shows
        any.
        """
        excess_bps = np.full(len(self._links.links), np.nan)
        last = len(self._looks) - 1
        for span in SPANS:
            if (first := last - 1 - span) < 1:
                continue
            before, begin, end, after = (self._looks[at] for at in (first - 1, first, last - 1, last))
            elapsed_ns = end.switch_ns - begin.switch_ns
            known = (begin.switch_ns >= 0) & (elapsed_ns > 0) & (end.bytes_sent >= begin.bytes_sent)
            known &= (begin.at_ns > before.now_ns) & (self._unsettled < self._count - 2 - span)
            own = np.zeros(len(excess_bps))
            for number in before.jobs.keys() & after.jobs.keys():
                plan, links, streams = self._streams[number]
                rounds = after.jobs[number].most - before.jobs[number].least + plan.spec.window
                own[links] += streams * float(rounds * self._round_bytes)
            passed_ns = np.where(known, elapsed_ns, 1)
            own += self._burst_bytes + self._declared_bps / 8e9 * passed_ns
            sent = end.bytes_sent - begin.bytes_sent - own
            excess_bps = np.fmax(excess_bps, np.where(known, 8e9 * sent / passed_ns / self._capacity, np.nan))
        return excess_bps
