"""The arithmetic against values that were published, or follow from the published formulas by hand."""

from __future__ import annotations

import math
import random

import pytest

from weir.controller.congestion import formulas
from weir.controller.congestion.control_class import control_delay_ns
from weir.topologies import Routes
from weir.topologies.generators import leaf_spine


@pytest.mark.parametrize(("threshold", "least"), [(10, 0.0), (12, 1.75), (8, -1.75)])
def test_dctcp_at_the_worst_number_of_flows(threshold: int, least: float) -> None:
    """B = 70: the queue's least depth is (7K − B)/8, at N = (B + K)/8 flows."""
    flows = (70 + threshold) / 8
    found = formulas.dctcp_least_queue(70, threshold, flows)  # type: ignore[arg-type]
    assert found == pytest.approx(least) == pytest.approx((7 * threshold - 70) / 8)
    others = [formulas.dctcp_least_queue(70, threshold, n) for n in range(1, 40)]
    assert min(others) >= found - 1e-9


def test_the_example_of_a_slow_switch() -> None:
    """1000 packets/s and 20 ms: B = 20, K above 2.9; K = 8 and 16 flows reach 24 packets."""
    assert formulas.dctcp_least_threshold(20) == pytest.approx(2.857, abs=1e-3)
    assert formulas.dctcp_largest_queue(8, 16) == 24
    assert formulas.dctcp_thresholds(24, 20, 16) == range(3, 9)
    assert not formulas.dctcp_thresholds(24, 20, 22), "22 flows are more than Q* − B/7"


def test_a_class_in_strict_priority() -> None:
    """64 bytes behind one frame of 1500 at 1 Gbit/s: 12.512 us; at 10 Mbit/s a hundred times that."""
    assert formulas.priority_delay_ns(64, 1500, 1_000_000_000) == 12_512
    assert formulas.priority_delay_ns(64, 1500, 10_000_000) == 1_251_200


def test_others_traffic() -> None:
    assert formulas.population_queue(8) == 8
    assert formulas.population_queue(6, 0.7, 3) == pytest.approx(30)
    assert formulas.population_queue(6, 1.0) == math.inf
    assert formulas.burst_behind(1, 1000, 0.02) == 21
    assert formulas.marked_window_queue(4, 20, 2, 12) == 38
    assert formulas.marked_windows(4, 0.75, 12) == pytest.approx(4)
    assert formulas.pacing_gap_ns(100, 1250, 1_000_000_000) == 1_000_000


@pytest.mark.parametrize("seed", range(50))
def test_a_burst_that_comes_by_few_links_queues_less(seed: int) -> None:
    """Against a queue that is filled packet by packet as fast as bucket and links allow, from every head start."""
    rng = random.Random(seed)
    links, share, burst = rng.randrange(1, 5), rng.uniform(0.05, 0.95), rng.uniform(2, 120)
    bound = formulas.inlet_queue(burst, share, links, links)
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
    assert formulas.inlet_queue(94.5, 0.73, 2, 2) == pytest.approx(94.5 - 0.27 * 92.5 / 1.27 + 1)


@pytest.mark.parametrize("seed", range(20))
def test_unleased_windows_fit_together_with_marked_ones(seed: int) -> None:
    """A queue in the time of its services: streams that have W packets under way, or w while their newest result is
    marked, M packets that come again whenever they were served, and a leaky bucket; all of them wait at times to come
    together.
    """
    rng = random.Random(seed)
    threshold, streams, share = rng.randrange(8, 60), rng.randrange(1, 4), rng.choice([0.0, 0.2, 0.5])
    others = rng.randrange(0, int((1 - share) * threshold) - streams) if (1 - share) * threshold > streams + 1 else 0
    congested = max(1, int(formulas.marked_windows(threshold, share) - others) // streams)
    window, burst = congested + rng.randrange(60), rng.uniform(1, 30)
    bound = formulas.marked_window_queue(threshold, streams * window, streams * congested, burst + others)
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
