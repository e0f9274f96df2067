"""Others' traffic that nobody declared: what links certainly carry beyond what was declared and what jobs have sent.

::

    bytes that a link has sent, from report to report ─┐
    rounds that jobs' workers have complete ───────────┼─▶ look ─▶ shares: of which links, how much at least
    what others were declared to send ─────────────────┘

A job's rate says nothing certain of a moment, for jobs work in bursts, which reports and telemetry see at other times.
But all that a job sends between two moments are rounds that its slowest worker had not complete before the first, and
that its fastest may have begun by the second: no more than W beyond those that it has complete. So what is taken off is
never too little, whatever comes late, and what is left was sent by somebody else, or sent again. The longer the time
between, the less of others' traffic passes for a job's: several are looked at. It reads no clock.
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
from ..planning.plan import JobPlan, round_bytes
from ..telemetry.link_state import LinkState
from ..watching.items import report_links
from ..watching.settings import Watching
from .cross_traffic import cross_traffic, windows_on
from .options import CongestionOptions

SLACK: Final = 0.1
"""Of a link's rate: so much is left to probes, heartbeats, and what is sent again."""
STEPS: Final = 8
"""Shares are told in eighths, rounded up, lest windows change with each reading."""
LOOK_PERIODS: Final = 5
"""Telemetry periods from one look to the next."""
SPANS: Final = (4, 16)
"""Looks between the reports of a link that are compared."""
_PATIENCE: Final = 4
"""Looks' time until one goes on without workers that have not been heard of, where no lease says how long that is."""


@dataclass(frozen=True, slots=True)
class JobRounds:
    """How far a job is."""

    plan: JobPlan
    least: int
    """Rounds that its slowest worker had complete by what each told last."""
    most: int
    """The same of its fastest."""
    heard_ns: int
    """When all workers had been heard of last; −1: some never."""
    unsettled: bool
    """Whether that says little: it is on the way to another generation, or some of its hosts have nothing to tell."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What was known at one."""

    now_ns: int
    bytes_sent: NDArray[np.int64]
    """By link, when its switch's clock was `switch_ns`."""
    switch_ns: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    """By link, on this controller's clock: it was not measured before."""
    jobs: Mapping[int, JobRounds]


class Undeclared:
    """The links that carry more of others' traffic than was declared."""

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        links: LinkState,
        options: CongestionOptions,
        watching: Watching | None = None,
        lease_ns: int | None = None,
    ) -> None:
        """`watching`: what switches report by themselves, of which nobody knows how much it is. Whoever is silent for
        `lease_ns` is not waited for.
        """
        self._topology = topology
        self._links = links
        self._options = options
        self._watching = watching
        self._period_ns = LOOK_PERIODS * links.period_ns
        self._patience_ns = max(_PATIENCE * self._period_ns, lease_ns or 0)
        self._number = {link: at for at, link in enumerate(links.links)}
        self._capacity = np.array([topology.link_at(link).rate_bps for link in links.links], np.float64)
        self._looks: deque[_Look] = deque(maxlen=max(SPANS) + 3)
        self._count = 0
        self._next_ns = 0
        self._streams: dict[int, tuple[JobPlan, NDArray[np.int64], NDArray[np.int64]]] = {}
        """By job: its plan, the links that it crosses, and how many of its streams each may carry."""
        self._unsettled = np.zeros(len(links.links), np.int64)
        """By link: the look since which the same jobs cross it, all of them heard of and none on the move."""
        self._told = np.zeros(len(links.links))
        self.shares: Mapping[Endpoint, float] = {}
        """Of a link's rate: what is undeclared, as much as was ever seen since it was first; others are missing."""
        self._round_bytes = round_bytes(topology)
        self.follow(routes)

    def follow(self, routes: Routes) -> None:
        """From now on these are the routes: what was sent before went by others."""
        self._looks.clear()
        self._told[:] = 0.0
        self._declared_bps = np.zeros(len(self._number))
        self._burst_bytes = np.zeros(len(self._number))
        for link, crossing in cross_traffic(routes, self._options.uncontrolled).items():
            self._declared_bps[self._number[link]] = crossing.rate_bps
            burst_packets = sum(pair.burst_packets for pair in crossing.pairs)
            self._burst_bytes[self._number[link]] = burst_packets * crossing.largest_bytes
        for link in windows_on(routes, self._options.windowed):
            self._declared_bps[self._number[link]] = np.inf  # windows say nothing of rates
        if self._watching is not None:
            for link in report_links(self._topology, routes, self._watching):
                self._declared_bps[self._number[link]] = np.inf

    def look(self, now_ns: int, jobs: Iterable[JobRounds]) -> None:
        """To be told the time often, and how far all jobs are."""
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
        self._told = np.where(least <= SLACK, 0.0, told)  # what is not known now is as it was
        self.shares = {self._links.links[at]: float(self._told[at]) for at in np.flatnonzero(self._told)}

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
                count = {self._number[link]: n for link, n in job.plan.most_streams.items() if link in self._number}
                self._streams[number] = job.plan, np.array([*count], np.int64), np.array([*count.values()], np.int64)
            if not same or job.unsettled or number in silent:
                self._unsettled[self._streams[number][1]] = self._count

    def _beyond(self) -> NDArray[np.float64]:
        """By link, the most that the spans show to be neither jobs' nor declared, in shares of its rate; NaN: none of
        them shows anything.
        """
        found = np.full(len(self._links.links), np.nan)
        last = len(self._looks) - 1
        for span in SPANS:
            if (first := last - 1 - span) < 1:
                continue
            before, begin, end, after = (self._looks[at] for at in (first - 1, first, last - 1, last))
            elapsed_ns = end.switch_ns - begin.switch_ns
            known = (begin.switch_ns >= 0) & (elapsed_ns > 0) & (end.bytes_sent >= begin.bytes_sent)
            known &= (begin.at_ns > before.now_ns) & (self._unsettled < self._count - 2 - span)
            own = np.zeros(len(found))
            for number in before.jobs.keys() & after.jobs.keys():
                plan, links, streams = self._streams[number]
                rounds = after.jobs[number].most - before.jobs[number].least + plan.spec.window
                own[links] += streams * rounds * self._round_bytes
            passed_ns = np.where(known, elapsed_ns, 1)
            own += self._burst_bytes + self._declared_bps / 8e9 * passed_ns
            sent = end.bytes_sent - begin.bytes_sent - own
            found = np.fmax(found, np.where(known, 8e9 * sent / passed_ns / self._capacity, np.nan))
        return found
