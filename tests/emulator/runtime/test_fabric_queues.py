"""A port's queues against an oracle: every frame's depths, times and fate, and the port's counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest

from weir.emulator.fabric import Fabric
from weir.emulator.port import MinimumShare, SwitchValueError
from weir.tests.emulator.runtime.runtime_program import frame, headers, switch

RATE = 1_000_000_000
DELAY = 700
MINIMUM_SHARES = [(6, 0, 5, 0.1), (7, 1, 5, 1 / 17), (8, 1, 3, 0.5), (9, 0, 7, 0.3)]
"""Seeds, priorities and shares of the draws."""


class Oracle:
    """A transmitter with eight strict-priority queues, limited in packets and bytes each, and their minimum shares."""

    def __init__(self, packets: int, size: int, rate: int, minimum: MinimumShare | None = None) -> None:
        self.limits = packets, size
        self.minimum = minimum
        self.owed = [Fraction(0)] * 8
        self.rate = rate
        self.queues: list[deque[tuple[int, int, int, int]]] = [deque() for _ in range(8)]
        self.busy_until = Fraction(0)
        """When the last frame has left, exactly; the clock shows the next nanosecond."""
        self.drops = [0] * 8
        self.sent: dict[int, tuple[int, ...]] = {}
        self.max_depth = 0

    def advance(self, now: int) -> None:
        while any(self.queues) and ceil(self.busy_until) <= now:
            self._start(ceil(self.busy_until))

    def arrive(self, now: int, number: int, size: int, priority: int) -> None:
        self.advance(now)
        queue = self.queues[priority]
        if len(queue) >= self.limits[0] or sum(entry[1] for entry in queue) + size > self.limits[1]:
            self.drops[priority] += 1
            return
        queue.append((number, size, now, len(queue)))
        self.max_depth = max(self.max_depth, sum(map(len, self.queues)))
        if ceil(self.busy_until) <= now:
            self._start(now)

    def _start(self, at: int) -> None:
        priority = self._next()
        number, size, came, depth = self.queues[priority].popleft()
        self._charge(priority, size)
        since = self.busy_until if ceil(self.busy_until) == at else at
        self.busy_until = since + Fraction(size * 8 * 10**9, self.rate)
        left = len(self.queues[priority])
        self.sent[number] = (priority, depth, left, at // 1000 - came // 1000, ceil(self.busy_until) + DELAY)

    def _next(self) -> int:
        waiting = [p for p in range(8) if self.queues[p]]
        top = max(waiting)
        if self.minimum is not None and top <= self.minimum.last:
            for p in waiting:
                if self.minimum.first <= p < top and self.owed[p] >= self.queues[p][0][1]:
                    return p
        return top

    def _charge(self, priority: int, size: int) -> None:
        if self.minimum is None or not self.minimum.first <= priority <= self.minimum.last:
            return
        weight = Fraction(round(self.minimum.share / (1 - self.minimum.share) * 2**16), 2**16)
        for lower in range(self.minimum.first, priority):
            if self.queues[lower]:
                self.owed[lower] += size * weight
        if not self.queues[priority]:
            self.owed[priority] = Fraction(0)
        elif any(self.queues[priority + 1 :]):
            self.owed[priority] -= size


STRICT = [*((seed, RATE, None) for seed in range(4)), (4, 1_300_000_007, None), (5, 1_700_000_000, None)]
SHARED = [(seed, RATE, MinimumShare(first, last, share)) for seed, first, last, share in MINIMUM_SHARES]


@pytest.mark.parametrize(("seed", "rate", "minimum"), [*STRICT, *SHARED])
def test_queues_do_what_the_oracle_does(seed: int, rate: int, minimum: MinimumShare | None) -> None:
    rng = np.random.default_rng(seed)
    packets, size_limit = int(rng.integers(1, 20)), int(rng.integers(1500, 12_000))
    priorities = [0, 0, 0, 3, 7] if minimum is None else [0, 1, 2, 3, 5, 5, 7]
    oracle = Oracle(packets, size_limit, rate, minimum)
    fabric = Fabric(seed=seed)
    s1 = switch()
    fabric.add_switch("s1", s1)
    fabric.add_host("h1")
    fabric.add_host("h2", poll_ns=1_000_000)
    fabric.add_link(("h1", 0), ("s1", 1))
    limits = {"queue_packets": packets, "queue_bytes": size_limit}
    fabric.add_link(("s1", 2), ("h2", 0), rate_bps=rate, delay_ns=DELAY, minimum_share=minimum, **limits)
    now = 0
    got: dict[int, tuple[int, ...]] = {}

    def take(until: int) -> None:
        for wake in iter(lambda: fabric.run(until), []):
            for group, times in zip(wake[0].frames, wake[0].times_ns, strict=True):
                for head, at in zip(headers(group), times.tolist(), strict=True):
                    names = ("qid", "enq_qdepth", "deq_qdepth", "deq_timedelta")
                    got[int(head["number"])] = (*(int(head[name]) for name in names), at)

    for number in range(1500):
        # Often on a grid, so that arrivals and departures fall on the same instant.
        now += int(rng.choice([0, 0, 4000, 8000, int(rng.integers(1, 15_000))]))
        size, priority = int(rng.choice([100, 500, 1000, 1500])), int(rng.choice(priorities))
        take(now)
        fabric.send("h1", frame(2, size=size, priority=priority, number=number))
        take(now)
        oracle.arrive(now, number, size, priority)
    take(now + 10**8)
    oracle.advance(now + 10**8)
    assert got == oracle.sent
    counters = s1.port_counters(2)
    assert list(counters.drops) == oracle.drops
    assert sum(oracle.drops) > 0
    assert counters.max_depth_packets == oracle.max_depth
    assert (counters.depth_packets, counters.depth_bytes) == (0, 0)
    assert (counters.tx_packets, counters.rx_packets) == (len(oracle.sent), 0)


def loaded(frames: Sequence[tuple[int, int]], **options: Any) -> tuple[Fabric, list[int]]:
    """Send (number, priority) at once into a 1 Gbit/s port; the fabric, and the numbers in order of arrival."""
    fabric = Fabric()
    fabric.add_switch("s1", switch())
    fabric.add_host("h1")
    fabric.add_host("h2", poll_ns=10**9)
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("h2", 0), rate_bps=RATE, **options)
    for number, priority in frames:
        fabric.send("h1", frame(2, size=1000, priority=priority, number=number))
    [wake] = fabric.run(10**9)
    return fabric, headers(wake.frames[0])["number"].tolist()


def test_a_higher_priority_overtakes_all_but_the_current_frame() -> None:
    _, order = loaded([(0, 0), (1, 0), (2, 1), (3, 7), (4, 7), (5, 1)])
    assert order == [0, 3, 4, 2, 5, 1]


@pytest.mark.parametrize("waiting", [(1, 5), (1, 2, 3, 4, 5), (3, 4), (1, 5, 7)])
def test_each_waiting_queue_gets_its_minimum_share(waiting: tuple[int, ...]) -> None:
    """600 equal frames wait in each queue: a lower one sends the share (1 − s)^k · s of all, less two frames.

    s is the minimum share, k the number of lower queues that wait.
    """
    share = 1 / 17
    _, order = loaded(
        [(600 * index + n, priority) for index, priority in enumerate(waiting) for n in range(600)],
        queue_packets=600,
        minimum_share=MinimumShare(1, 5, share),
    )
    jobs = [number // 600 for number in order if waiting[number // 600] <= 5]  # queues above 5 go first
    top = max(index for index, priority in enumerate(waiting) if priority <= 5)
    first = jobs[: len(jobs) - jobs[::-1].index(top)]  # while the highest one waits
    for index, priority in enumerate(waiting):
        if priority < waiting[top]:
            lower = sum(1 for other in waiting if other < priority)
            assert first.count(index) >= share * (1 - share) ** lower * len(first) - 2
    above = [number for number in order if waiting[number // 600] > 5]
    assert order[1 : 1 + len(above)] == above  # behind the frame that came first


@pytest.mark.parametrize(("first", "last", "share"), [(5, 1, 0.1), (1, 8, 0.1), (-1, 2, 0.1), (1, 5, 0.0), (1, 5, 0.6)])
def test_an_impossible_minimum_share_is_refused(first: int, last: int, share: float) -> None:
    with pytest.raises(SwitchValueError) as raised:
        switch().set_port(1, minimum_share=MinimumShare(first, last, share))
    assert raised.value.value in ((first, last), share)


def test_each_priority_has_its_own_depth() -> None:
    fabric, order = loaded([(n, n % 2) for n in range(20)], queue_packets=3)
    assert fabric.port_counters()["s1", 2].drops == (6, 7, 0, 0, 0, 0, 0, 0)
    assert order == [0, 1, 3, 5, 2, 4, 6]


def test_depths_and_rates_change_at_run_time() -> None:
    fabric = Fabric()
    s1 = switch()
    fabric.add_switch("s1", s1)
    fabric.add_host("h1")
    fabric.add_host("h2", sink=True)
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("h2", 0), rate_bps=RATE)
    s1.set_port(2, queue_packets=1, priority=5)
    for priority in (5, 5, 5, 5, 0, 0, 0, 0):
        fabric.send("h1", frame(2, size=1000, priority=priority))
    fabric.run(8_000)
    assert s1.port_counters(2).drops == (0, 0, 0, 0, 0, 2, 0, 0)
    assert s1.port_counters(2).tx_packets == 2  # at 0 and at 8 µs, both of priority 5
    fabric.set_link(("s1", 2), rate_bps=2e9)
    fabric.run(16_000 + 3 * 4_000)
    assert s1.port_config(2).rate_bps == 2e9
    assert s1.port_counters(2).tx_packets == 6
    assert fabric.packets_in_flight == 1


def test_maxima_restart_and_counters_stay() -> None:
    fabric, _ = loaded([(n, 0) for n in range(10)])
    before = fabric.port_counters()["s1", 2]
    assert (before.max_depth_packets, before.max_depth_bytes) == (9, 9000)
    fabric.reset_maxima()
    after = fabric.port_counters()["s1", 2]
    assert (after.max_depth_packets, after.max_depth_bytes, after.tx_packets) == (0, 0, 10)


def test_a_queue_s_trace_shows_its_depth_over_time() -> None:
    fabric = Fabric()
    fabric.add_switch("s1", switch())
    fabric.add_host("h1")
    fabric.add_host("h2", sink=True)
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("h2", 0), rate_bps=RATE)
    fabric.record_queue(("s1", 2), 4000)
    fabric.record_queue(("s1", 2), 4000, priority=7)
    fabric.run(10_000)
    for priority in (0, 0, 7, 7):
        fabric.send("h1", frame(2, size=1000, priority=priority))
    fabric.run(45_000)
    times, depths = fabric.queue_trace(("s1", 2))
    assert times.tolist() == list(range(0, 45_000, 4000))
    # On the wire: priority 0 at 10 µs, then 7, 7, 0 at 18, 26 and 34 µs.
    assert depths.tolist() == [0, 0, 0, 3, 3, 2, 2, 1, 1, 0, 0, 0]
    assert fabric.queue_trace(("s1", 2), 7)[1].tolist() == [0, 0, 0, 2, 2, 1, 1, 0, 0, 0, 0, 0]


def test_a_long_trace_keeps_every_sample() -> None:
    fabric = Fabric()
    fabric.add_switch("s1", switch())
    fabric.record_queue(("s1", 2), 10)
    fabric.run(50_000)
    times, depths = fabric.queue_trace(("s1", 2))
    assert times.tolist() == list(range(0, 50_001, 10))
    assert not depths.any()
