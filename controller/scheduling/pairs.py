"""Partners for shared devices: jobs of which one computes while the other communicates.

A job computes for c and then communicates for m seconds that computation does not hide. With k jobs in turns on the
same devices, one iteration of all takes

    P = max(Σ c_i, max_i (c_i + m_i), Σ m_i over a link that they share)

and one after the other they take Σ (c_i + m_i). Pairs are a matching of maximum weight, with the seconds that a pair
saves as weight (after the grouping of Muri, Zhao et al., SIGCOMM 2022, for two resources). Groups of four are pairs of
pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from .demand import Floats
from .errors import SchedulingError

_MIN_SAVING: Final = 1e-9
"""Share of the time that a pair must save; less is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Phases:
    """Measured phases of a job's iteration."""

    compute_seconds: float
    exposed_seconds: float
    """Communication that computation does not hide."""
    link_seconds: Floats
    """(links,): busy seconds of each directed link in one iteration."""


def period_seconds(jobs: Sequence[Phases]) -> float:
    """Return the duration of one iteration of all jobs in turns on the same devices."""
    shared = np.sum([job.link_seconds for job in jobs], axis=0)
    return max(
        sum(job.compute_seconds for job in jobs),
        max(job.compute_seconds + job.exposed_seconds for job in jobs),
        float(shared.max(initial=0.0)),
    )


def speed_up(jobs: Sequence[Phases]) -> float:
    """Return the time of the jobs one after the other, divided by that in turns."""
    period = period_seconds(jobs)
    return sum(job.compute_seconds + job.exposed_seconds for job in jobs) / period if period else 1.0


def groups(jobs: Mapping[str, Phases], size: int = 2) -> list[tuple[str, ...]]:
    """Group jobs that are to share devices. A job that gains by no partner stays alone.

    Args:
        jobs: Phases by job.
        size: Maximum number of jobs of a group, a power of 2.

    Raises:
        SchedulingError: The size is not a power of 2.
    """
    if size < 1 or size & (size - 1):
        raise SchedulingError("must be a power of 2", place="size", value=size)
    found: list[tuple[str, ...]] = [(name,) for name in jobs]
    for _ in range(size.bit_length() - 1):
        found = _matched(found, jobs)
    return found


def _matched(groups: Sequence[tuple[str, ...]], jobs: Mapping[str, Phases]) -> list[tuple[str, ...]]:
    """Join groups in pairs so that the sum of their periods is smallest."""
    import networkx as nx  # which most runs do without

    alone = [period_seconds([jobs[name] for name in group]) for group in groups]
    graph = nx.Graph()
    for a, b in combinations(range(len(groups)), 2):
        saved = alone[a] + alone[b] - period_seconds([jobs[name] for name in (*groups[a], *groups[b])])
        if saved > _MIN_SAVING * (alone[a] + alone[b]):
            graph.add_edge(a, b, weight=saved)
    partner = {}
    for a, b in nx.max_weight_matching(graph):
        partner[min(a, b)] = max(a, b)
    taken = set(partner.values())
    return [
        (*group, *groups[partner[index]]) if index in partner else group
        for index, group in enumerate(groups)
        if index not in taken
    ]
