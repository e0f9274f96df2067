"""Time in a fabric of flows: from one change of the rates to the next (native code, by Numba).

Between two changes (a flow comes, ends, or is stopped from outside) all rates stand, so time leaps. All flows of a run
stand in one pool: those of others, whose times of coming are known, and jobs', which come and stop as jobs have it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from .fair_shares import Floats, Ints, fill_by_class, native

NONE: Final = -1
_DONE: Final = 1e-9
"""A flow is done when less than this share of a byte is left."""


class FlowPool(NamedTuple):
    """Flows by number, each an element of every array."""

    begin: Ints
    """Flow f uses `links[begin[f]:end[f]]`, with as many weights."""
    end: Ints
    limits: Floats
    """Bytes/s that it never exceeds."""
    left: Floats
    """Bytes that it has still to bring."""
    rates: Floats
    """Bytes/s, since the last change."""
    of_job: Ints
    """0: it is others' and comes by itself; else the job's number."""
    finished: Floats
    """When it ended, in seconds; NaN: it has not."""
    of_class: Ints
    """Traffic class: strict priority of higher ones."""

    @classmethod
    def of(cls, size: int) -> FlowPool:
        """Return `size` flows without links, of unlimited rate and size 0, that have not finished."""
        whole = [np.zeros(size, np.int64) for _ in range(4)]
        return cls(
            begin=whole[0],
            end=whole[1],
            limits=np.full(size, np.inf),
            left=np.zeros(size),
            rates=np.zeros(size),
            of_job=whole[2],
            finished=np.full(size, np.nan),
            of_class=whole[3],
        )

    def doubled(self) -> FlowPool:
        """Return a pool of twice the capacity."""
        both = zip(self, FlowPool.of(len(self.begin)), strict=True)
        return FlowPool(*(np.concatenate(arrays) for arrays in both))


@native
def advance(
    clock: Floats,
    until: float,
    active: Ints,
    count: Ints,
    pool: FlowPool,
    links: Ints,
    weights: Floats,
    arrivals: Floats,
    arriving: Ints,
    capacity: Floats,
    guard: float,
    carried: Floats,
    events: Ints,
) -> int:
    """Let time pass until an instant, or until a job's flow is done.

    Args:
        clock: Present time in s, (1,); changed.
        until: Instant to stop at, in s.
        active: Numbers of the active flows, int64; changed.
        count: Number of active flows, int64 (1,); changed.
        pool: All flows; changed.
        links: Numbers of the links of all paths, int64.
        weights: Load that a flow of rate 1 puts on the link of this place.
        arrivals: Instants in s at which flows of the pool arrive: flow i at `arrivals[i]`.
        arriving: Number of the next arrival, int64 (1,); changed.
        capacity: Rate of each link, in bytes/s.
        guard: Share of a link that higher classes leave to the lowest one, 0…1.
        carried: Bytes that links have carried, (1 + jobs, links), others' first; added to.
        events: Number of computations of rates, int64 (1,); added to.

    Returns:
        Number of the flow that is done, or NONE.
    """
    while True:
        fill_by_class(
            active[: count[0]],
            pool.of_class,
            guard,
            pool.begin,
            pool.end,
            links,
            weights,
            pool.limits,
            capacity,
            pool.rates,
        )
        events[0] += 1
        now = clock[0]
        target = until
        if arriving[0] < len(arrivals) and arrivals[arriving[0]] < target:
            target = arrivals[arriving[0]]
        step = max(target - now, 0.0)
        for number in range(count[0]):
            flow = active[number]
            if pool.left[flow] < step * pool.rates[flow]:
                step = pool.left[flow] / pool.rates[flow]
        ended = now + step < target
        clock[0] = now + step if ended else target
        done = -1
        kept = 0
        for number in range(count[0]):
            flow = active[number]
            sent = step * pool.rates[flow]
            for index in range(pool.begin[flow], pool.end[flow]):
                carried[pool.of_job[flow], links[index]] += weights[index] * sent
            pool.left[flow] -= sent
            if pool.left[flow] <= _DONE + 1e-12 * sent and (pool.of_job[flow] == 0 or done < 0):
                pool.left[flow] = 0.0
                pool.finished[flow] = clock[0]
                if pool.of_job[flow]:
                    done = flow
            else:
                active[kept] = flow
                kept += 1
        count[0] = kept
        if done >= 0:
            return done
        if clock[0] >= until:
            return -1
        while arriving[0] < len(arrivals) and arrivals[arriving[0]] <= clock[0]:
            active[count[0]] = arriving[0]
            count[0] += 1
            arriving[0] += 1
