"""Others' traffic that nobody declared, as telemetry shows it: of a queue that it crosses nothing is promised. It reads
no clock.

What links carry beyond the fabric's own jobs is a figure that lags and jumps when jobs move, come and go, and a promise
is not to come and go with it: so more must be seen, by a tenth of the link's rate, at several looks in a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...topologies.model import Endpoint, Topology
from ..planning.plan import JobPlan
from ..telemetry.link_state import LinkState
from .queue_budget import LinkBudget

SLACK: Final = 0.1
"""Of a link's rate: so much more than was declared is taken for the error of a reading."""
LOOKS: Final = 3
"""In a row, until what they say is believed."""
LOOK_PERIODS: Final = 5
"""Telemetry periods from one look to the next: averages are over two."""


class Undeclared:
    """The links that carry more of others' traffic than was declared, by what was seen of late."""

    def __init__(self, topology: Topology, links: LinkState) -> None:
        self._links = links
        self._number = {link: at for at, link in enumerate(links.links)}
        self._rates_bps = np.array([topology.link_at(link).rate_bps for link in links.links], np.float64)
        self._budgets: Mapping[Endpoint, LinkBudget] = {}
        self._allowed_bps = np.zeros(len(links.links))
        self._streams: dict[int, _Streams] = {}
        self._crossed = np.zeros(len(links.links), np.bool_)
        self._against = np.zeros(len(links.links), np.int64)
        self._next_ns = 0
        self.links: frozenset[Endpoint] = frozenset()

    def look(self, now_ns: int, budgets: Mapping[Endpoint, LinkBudget], jobs: Iterable[tuple[JobPlan, float]]) -> None:
        """`budgets` say what is declared; of each of the fabric's jobs, its plan and what a stream of it brings onto a
        link, in bit/s.
        """
        if now_ns < self._next_ns or not budgets:
            return
        self._next_ns = now_ns + LOOK_PERIODS * self._links.period_ns
        if budgets is not self._budgets:
            # whose own windows let packets be under way may have what the link leaves
            most = [math.inf if budgets[link].others else budgets[link].share + SLACK for link in self._links.links]
            self._budgets, self._allowed_bps = budgets, np.array(most) * self._rates_bps
        expected_bps, streams = self._allowed_bps.copy(), self._streams
        self._streams = {}
        for plan, stream_bps in jobs:
            known = streams.get(plan.spec.job)
            if known is None or known.plan is not plan:
                known = _Streams.of(plan, self._number)
            self._streams[plan.spec.job] = known
            expected_bps[known.links] += stream_bps * known.count
        over = self._links.fresh_bps(now_ns) > expected_bps
        self._against = np.where(over == self._crossed, 0, self._against + 1)
        believed = self._against >= LOOKS
        if believed.any():
            self._crossed ^= believed
            self._against[believed] = 0
            self.links = frozenset(self._links.links[at] for at in np.flatnonzero(self._crossed))


@dataclass(frozen=True, slots=True)
class _Streams:
    """How many streams of a plan may take each link, by the links' numbers."""

    plan: JobPlan
    links: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, plan: JobPlan, number: Mapping[Endpoint, int]) -> _Streams:
        count = {number[link]: streams for link, streams in plan.most_streams.items() if link in number}
        return cls(plan, np.array(list(count), np.int64), np.array(list(count.values()), np.int64))


def without_undeclared(
    budgets: Mapping[Endpoint, LinkBudget], links: frozenset[Endpoint]
) -> Mapping[Endpoint, LinkBudget]:
    """The budgets, of which those of these links have no bound."""
    if not links:
        return budgets
    seen = "telemetry sees more of others' traffic there than is declared"
    refused = dict(budgets)
    for link in links & budgets.keys():
        refused[link] = replace(budgets[link], bound=math.inf, refusal=budgets[link].refusal or seen)
    return refused
