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
    """Let time pass until `until`, or until a job's flow is done: its number, or NONE.

    `clock`, `count` (of `active`), `arriving` (the next of `arrivals`; flow i of the pool comes at `arrivals[i]`) and
    `events` have one element each, which is changed. `carried` (1 + jobs, links) adds up bytes, others' first;
    capacities and rates are in bytes/s. `guard` is the share of a link that higher classes leave to the lowest one.
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
