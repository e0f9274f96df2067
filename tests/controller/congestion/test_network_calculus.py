"""The arithmetic against values that were published, or follow from the published formulas by hand."""

from __future__ import annotations

import math
import random

import pytest

from weir.controller.congestion import dctcp
from weir.controller.congestion.control_class import control_delay_ns, priority_delay_ns
from weir.controller.congestion.network_calculus import (
    RateLatency,
    TokenBucket,
    left_by_priority,
    marked_backlog,
    marked_windows,
    output_curve,
    peak_limited_backlog,
    windowed_backlog,
)
from weir.controller.congestion.queue_budget import pacing_gap_ns
from weir.topologies import Routes
from weir.topologies.generators import leaf_spine


@pytest.mark.parametrize(("threshold", "least"), [(10, 0.0), (12, 1.75), (8, -1.75)])
def test_dctcp_at_the_worst_number_of_flows(threshold: int, least: float) -> None:
    """B = 70: the queue's least depth is (7K − B)/8, at N = (B + K)/8 flows."""
    flows = (70 + threshold) / 8
    found = dctcp.dctcp_least_queue(70, threshold, flows)  # type: ignore[arg-type]
    assert found == pytest.approx(least) == pytest.approx((7 * threshold - 70) / 8)
    others = [dctcp.dctcp_least_queue(70, threshold, n) for n in range(1, 40)]
    assert min(others) >= found - 1e-9


def test_the_example_of_a_slow_switch() -> None:
    """1000 packets/s and 20 ms: B = 20, K above 2.9; K = 8 and 16 flows reach 24 packets."""
    assert dctcp.dctcp_least_threshold(20) == pytest.approx(2.857, abs=1e-3)
    assert dctcp.dctcp_largest_queue(8, 16) == 24
    assert dctcp.dctcp_thresholds(24, 20, 16) == range(3, 9)
    assert not dctcp.dctcp_thresholds(24, 20, 22), "22 flows are more than Q* − B/7"


def test_a_class_in_strict_priority() -> None:
    """64 bytes behind one frame of 1500 at 1 Gbit/s: 12.512 us; at 10 Mbit/s a hundred times that."""
    assert priority_delay_ns(64, 1500, 1_000_000_000) == 12_512
    assert priority_delay_ns(64, 1500, 10_000_000) == 1_251_200


LINK = RateLatency(1.0)
"""A packet per second, so that rates are shares."""


def test_others_traffic() -> None:
    assert windowed_backlog(8, TokenBucket(), LINK) == 8
    assert windowed_backlog(6, TokenBucket(3, 0.7), LINK) == pytest.approx(30)
    assert windowed_backlog(6, TokenBucket(0, 1.0), LINK) == math.inf
    assert output_curve(TokenBucket(1, 1000), 0.02) == TokenBucket(21, 1000)
    assert marked_backlog(4, 20, 2, TokenBucket(12), LINK) == 38
    assert marked_windows(4, 0.75, 12) == pytest.approx(4)
    assert pacing_gap_ns(100, RateLatency(1e9 / 8 / 1250)) == 1_000_000


@pytest.mark.parametrize("seed", range(20))
def test_priority_leaves_at_least_its_service_curve(seed: int) -> None:
    """Against a link that sends a greedy token bucket first, unit by unit, a frame of the others at a time."""
    rng = random.Random(seed)
    rate, frame = rng.uniform(0.1, 0.8), rng.randrange(1, 20)
    priority = TokenBucket(rng.randrange(1, 60), rate)
    service = left_by_priority(1.0, priority, frame)
    sent, ahead, under_way = 0, 0, 0
    brought = 0
    for now in range(2_000):
        come = int(priority.burst + rate * now)
        ahead, brought = ahead + come - brought, come
        if under_way or not ahead:
            under_way = (under_way or frame) - 1
            sent += 1
        else:
            ahead -= 1
        # a frame counts when it is whole
        assert sent - sent % frame >= service.rate * (now + 1 - service.latency_s) - frame - 1, f"seed {seed}"


@pytest.mark.parametrize("seed", range(50))
def test_a_burst_that_comes_by_few_links_queues_less(seed: int) -> None:
    """Against a queue that is filled packet by packet as fast as bucket and links allow, from every head start."""
    rng = random.Random(seed)
    links, share, burst = rng.randrange(1, 5), rng.uniform(0.05, 0.95), rng.uniform(2, 120)
    bound = peak_limited_backlog(TokenBucket(burst, share), TokenBucket(links, links), LINK)
    assert bound <= burst
    per_link = [rng.uniform(0, 1) for _ in range(links)]  # when each link has its first packet across
    arrivals = sorted(start + number for start in per_link for number in range(2_000))
    sent, done, most = 0, 0.0, 0
    waiting: list[float] = []
    for now in arrivals:
        if sent + 1 > burst + share * now:
            continue
        sent += 1
        waiting = [end for end in waiting if end > now]
        done = max(done, now) + 1
        waiting.append(done)
        most = max(most, len(waiting))
    assert most <= bound + 1e-9, f"seed {seed}: {most} packets of {bound}"
    example = peak_limited_backlog(TokenBucket(94.5, 0.73), TokenBucket(2, 2), LINK)
    assert example == pytest.approx(94.5 - 0.27 * 92.5 / 1.27 + 1)


@pytest.mark.parametrize("seed", range(20))
def test_unleased_windows_fit_together_with_marked_ones(seed: int) -> None:
    """A queue in the time of its services: streams that have W packets under way, or w while their newest result is
    marked, M packets that come again whenever they were served, and a leaky bucket; all of them wait at times to come
    together.
    """
    rng = random.Random(seed)
    threshold, streams, share = rng.randrange(8, 60), rng.randrange(1, 4), rng.choice([0.0, 0.2, 0.5])
    others = rng.randrange(0, int((1 - share) * threshold) - streams) if (1 - share) * threshold > streams + 1 else 0
    congested = max(1, int(marked_windows(threshold, share) - others) // streams)
    window, burst = congested + rng.randrange(60), rng.uniform(1, 30)
    bound = marked_backlog(threshold, streams * window, streams * congested, TokenBucket(burst + others), LINK)
    queue: list[tuple[int, bool]] = []
    allowed, under_way, held = [window] * streams, [0] * streams, others
    credit, most, waits_until = burst, 0, 0
    for now in range(4_000):
        credit = min(burst, credit + share)
        if queue:
            source, marked = queue.pop(0)
            if source >= 0:
                under_way[source] -= 1
                allowed[source] = congested if marked else window
            elif source == -1:
                held += 1
        if rng.random() < 0.005:
            waits_until = now + rng.randrange(4 * threshold)  # nothing comes, and then all at once
        if now < waits_until:
            continue
        coming = [-1] * held + [-2] * int(credit)
        held, credit = 0, credit - int(credit)
        for stream in range(streams):
            more = max(0, allowed[stream] - under_way[stream])
            under_way[stream] += more
            coming += [stream] * more
        rng.shuffle(coming)
        for source in coming:
            queue.append((source, len(queue) >= threshold))
        most = max(most, len(queue))
    assert most <= bound, f"seed {seed}: {most} packets of {bound}"


def test_heartbeats_wait_for_one_frame_and_for_each_other() -> None:
    """Five hosts a rack at 1 Gbit/s and 2 us, bulk frames of 1500 bytes: 82 bytes from the NIC, then four of them."""
    fabric = leaf_spine(leaves=2, spines=1, hosts_per_leaf=5, rate_bps=1_000_000_000, delay_ns=2_000)
    told = {"frame_bytes": 82, "period_ns": 10**15, "largest_bytes": 1_500}
    own, together = 8 * (82 + 1_500), 8 * (4 * 82 + 1_500)
    found = control_delay_ns(Routes(fabric), ["h1", "h2", "h3", "h4", "h5"], "h5", **told)
    assert found == own + 2_000 + together + 2_000
    found = control_delay_ns(Routes(fabric), ["h1", "h2", "h3", "h4"], "h10", **told)
    assert found == own + 2_000 + 3 * (together + 2_000)
    busy = control_delay_ns(Routes(fabric), ["h1", "h2", "h3", "h4"], "h10", **{**told, "period_ns": 100_000})
    assert found < busy < 1.05 * found, "what waits comes closer together"
