"""Max-min fair rates of flows that each load several links (native code, by Numba).

A flow of rate r puts `weight · r` on each link that it uses: a plain flow has weight 1 everywhere; a job, whose streams
progress together, is one flow, and its weight on a link is the number of its streams there. Rates grow together from
zero (progressive filling: Bertsekas & Gallager, Data Networks, §6.5.2); on a full link the flows stop growing, as does
a flow at its own limit. So each flow is at its limit or has a full link on which no other flow is faster.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

native = njit(cache=True, nogil=True, error_model="numpy")

_SAME: Final = 1e-12


@native
def _users_of_links(active: Ints, begin: Ints, end: Ints, links: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the flows that use each link: link l has `users[first[l]:first[l + 1]]`, in the order (first, users)."""
    first = np.zeros(count + 1, np.int64)
    for flow in active:
        for index in range(begin[flow], end[flow]):
            first[links[index] + 1] += 1
    for link in range(count):
        first[link + 1] += first[link]
    users = np.empty(first[count], np.int64)
    place = first[:-1].copy()
    for flow in active:
        for index in range(begin[flow], end[flow]):
            users[place[links[index]]] = flow
            place[links[index]] += 1
    return first, users


@native
def _stops(
    active: Ints,
    begin: Ints,
    end: Ints,
    links: Ints,
    weights: Floats,
    limits: Floats,
    capacity: Floats,
    slope: Floats,
    growing: Ints,
) -> list[tuple[float, int]]:
    """Return the heap of levels at which links fill and flows reach their limits.

    A pair is a level with a link, or with the number of links plus a flow. A flow that has links for itself, as most
    of a large job's are, is limited by the slowest of them; such links are not in the heap.
    """
    count = len(capacity)
    own = limits[active]
    for number in range(len(active)):
        flow = active[number]
        for index in range(begin[flow], end[flow]):
            if growing[links[index]] == 1:
                own[number] = min(own[number], capacity[links[index]] / weights[index])
    stops = [(0.0, 0)]
    stops.pop()  # the list's type is known from its first item
    for link in range(count):
        if growing[link] > 1:
            stops.append((capacity[link] / slope[link], link))
    for number in range(len(active)):
        if own[number] < np.inf:
            stops.append((own[number], count + active[number]))
    heapq.heapify(stops)
    return stops


@native
def fill(
    active: Ints,
    begin: Ints,
    end: Ints,
    links: Ints,
    weights: Floats,
    limits: Floats,
    capacity: Floats,
    rates: Floats,
) -> None:
    """Write max-min fair rates.

    Args:
        active: (a,) flows that have a rate.
        begin: (flows,) flow f uses `links[begin[f]:end[f]]`, with the weights of these places.
        end: (flows,) see `begin`.
        links: Links used, flow after flow.
        weights: Load that a flow of rate 1 puts on the link of this place.
        limits: (flows,) maximum rate of each flow.
        capacity: (links,) capacity of each link; its unit is that of all rates.
        rates: (flows,) receives the rates of the active flows.
    """
    count = len(capacity)
    first, users = _users_of_links(active, begin, end, links, count)
    slope = np.zeros(count)
    for flow in active:
        rates[flow] = -1.0
        for index in range(begin[flow], end[flow]):
            slope[links[index]] += weights[index]
    left = capacity.copy()
    growing = first[1:] - first[:-1]
    stops = _stops(active, begin, end, links, weights, limits, capacity, slope, growing)
    stopped = np.empty(len(active), np.int64)
    while len(stops):
        level, which = heapq.heappop(stops)
        stopping = 0
        if which >= count:
            if rates[which - count] < 0.0:
                stopped[0] = which - count
                stopping = 1
        elif growing[which]:
            now = max(left[which] / slope[which], 0.0)
            if now > level * (1.0 + _SAME):
                heapq.heappush(stops, (now, which))  # flows that have stopped elsewhere since left more to the others
                continue
            for index in range(first[which], first[which + 1]):
                if rates[users[index]] < 0.0:
                    rates[users[index]] = level  # a flow may name a link twice
                    stopped[stopping] = users[index]
                    stopping += 1
        for number in range(stopping):
            flow = stopped[number]
            rates[flow] = level
            for index in range(begin[flow], end[flow]):
                left[links[index]] -= weights[index] * level
                slope[links[index]] -= weights[index]
                growing[links[index]] -= 1


@native
def fill_by_class(
    active: Ints,
    of_class: Ints,
    guard: float,
    begin: Ints,
    end: Ints,
    links: Ints,
    weights: Floats,
    limits: Floats,
    capacity: Floats,
    rates: Floats,
) -> None:
    """Write the rates of flows in traffic classes: each class shares what higher ones leave of every link.

    On links of the lowest present class the others together leave it the share `guard`.

    Args:
        active: Numbers of the flows, int64.
        of_class: Class of each flow, int64; a larger one goes first.
        guard: Share of a link's rate that higher classes leave to the lowest one, 0…1.
        begin: First place of each flow's path in `links`, int64.
        end: Place behind each flow's path in `links`, int64.
        links: Numbers of the links of all paths, int64.
        weights: Load that a flow of rate 1 puts on the link of this place.
        limits: Maximum rate of each flow.
        capacity: Rate of each link.
        rates: Receives the rate of each flow, in the unit of `capacity`.
    """
    lowest, highest = 1 << 30, -1
    for flow in active:
        lowest, highest = min(lowest, of_class[flow]), max(highest, of_class[flow])
    if lowest >= highest:
        fill(active, begin, end, links, weights, limits, capacity, rates)
        return
    kept = np.zeros(len(capacity))
    for flow in active:
        if of_class[flow] == lowest:
            for index in range(begin[flow], end[flow]):
                kept[links[index]] = guard * capacity[links[index]]
    left = capacity - kept
    members = np.empty(len(active), np.int64)
    for level in range(highest, lowest - 1, -1):
        count = 0
        for flow in active:
            if of_class[flow] == level:
                members[count] = flow
                count += 1
        if count == 0:
            continue
        if level == lowest:
            left += kept
        fill(members[:count], begin, end, links, weights, limits, left, rates)
        for flow in members[:count]:
            for index in range(begin[flow], end[flow]):
                rest = left[links[index]] - weights[index] * rates[flow]
                left[links[index]] = rest if rest > _SAME * capacity[links[index]] else 0.0


def fair_rates(paths: list[dict[int, float]], capacity: Floats, limits: Floats | None = None) -> Floats:
    """Return the rates (flows,) of flows from the load that each puts on every link at rate 1. For small problems
    and tests.

    Raises ValueError for a flow that uses no link and has no limit: nothing bounds its rate.
    """
    most = np.full(len(paths), np.inf) if limits is None else np.asarray(limits, np.float64)
    for flow, path in enumerate(paths):
        if not path and most[flow] == np.inf:
            raise ValueError(f"flow {flow} uses no link and has no limit, so it has no rate")
    sizes = np.array([len(path) for path in paths], np.int64)
    end = np.cumsum(sizes)
    rates = np.zeros(len(paths))
    fill(
        np.arange(len(paths)),
        end - sizes,
        end,
        np.array([link for path in paths for link in path], np.int64),
        np.array([weight for path in paths for weight in path.values()], np.float64),
        most,
        np.asarray(capacity, np.float64),
        rates,
    )
    return rates
