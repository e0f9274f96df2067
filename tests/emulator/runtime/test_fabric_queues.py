"""A port's queues against an oracle: every frame's depths, times and fate, and the port's counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from weir.emulator.fabric import Fabric
from weir.tests.emulator.runtime.runtime_program import frame, headers, switch

RATE = 1_000_000_000
DELAY = 700


class Oracle:
    """A transmitter with eight strict-priority queues, limited in packets and bytes each."""

    def __init__(self, packets: int, size: int, rate: int) -> None:
        self.limits = packets, size
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
        priority = max(p for p in range(8) if self.queues[p])
        number, size, came, depth = self.queues[priority].popleft()
        since = self.busy_until if ceil(self.busy_until) == at else at
        self.busy_until = since + Fraction(size * 8 * 10**9, self.rate)
        left = len(self.queues[priority])
        self.sent[number] = (priority, depth, left, at // 1000 - came // 1000, ceil(self.busy_until) + DELAY)


@pytest.mark.parametrize(
    ("seed", "rate"), [*((seed, RATE) for seed in range(4)), (4, 1_300_000_007), (5, 1_700_000_000)]
)
def test_queues_do_what_the_oracle_does(seed: int, rate: int) -> None:
    rng = np.random.default_rng(seed)
    packets, size_limit = int(rng.integers(1, 20)), int(rng.integers(1500, 12_000))
    oracle = Oracle(packets, size_limit, rate)
    fabric = Fabric(seed=seed)
    s1 = switch()
    fabric.add_switch("s1", s1)
    fabric.add_host("h1")
    fabric.add_host("h2", poll_ns=1_000_000)
    fabric.add_link(("h1", 0), ("s1", 1))
    fabric.add_link(("s1", 2), ("h2", 0), rate_bps=rate, delay_ns=DELAY, queue_packets=packets, queue_bytes=size_limit)
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
        size, priority = int(rng.choice([100, 500, 1000, 1500])), int(rng.choice([0, 0, 0, 3, 7]))
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


def loaded(frames: Sequence[tuple[int, int]], **options: int) -> tuple[Fabric, list[int]]:
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
