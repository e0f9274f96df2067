"""HPCC's law, fed by hand with what links say."""

from __future__ import annotations

import pytest

from weir.hosts.congestion import Feedback, Hop, Hpcc
from weir.wire.control import Pacing

US = 1_000
TRIP_NS = 100 * US
RATE_BPS = 1e9
PRODUCT_BYTES = 12_500
"""C·T: what fills the link for a round trip."""
ROUND_BYTES = 125
"""100 rounds fill it."""


class Link:
    """One that the test drives."""

    def __init__(self, **pacing: int) -> None:
        self.hop = Hop(RATE_BPS, 0, 0)
        self.now_ns = 0
        self.law = Hpcc(lambda: {"s1-p1": self.hop}, round_bytes=ROUND_BYTES, flows=10)
        self.law.begin(Pacing(window=40, **pacing), 0)

    def hear(self, after_ns: int, sent: int, queue: int, rounds: int = 1, in_flight: int = 0) -> float:
        """Results that come so much later, when the link has sent so many bytes more; the law's window, exactly."""
        self.now_ns += after_ns
        self.hop = Hop(RATE_BPS, self.hop.bytes_sent + sent, queue)
        self.law.take(Feedback(self.now_ns, rounds, 0, in_flight, None, TRIP_NS))
        return self.law._window


GROWTH = 0.05 * 100 / 10
"""W_AI = (1 − η)·C·T/N."""


def test_what_is_in_flight_on_a_link_by_two_readings() -> None:
    link = Link()
    assert link.hear(TRIP_NS, 0, 5_000) == 40, "one reading is no rate"
    # τ = T/2 at the full rate, min(5000, 2500) in the queue: u' = 2500/12500 + 1 = 1.2, and U begins with that
    cut = link.hear(TRIP_NS // 2, PRODUCT_BYTES // 2, 2_500)
    assert cut == pytest.approx(40 / (1.2 / 0.95) + GROWTH)
    # then half a trip at half the rate, nothing in the queue: u' = 0.5, U = 1.2/2 + 0.5/2 = 0.85 < η
    assert link.hear(TRIP_NS // 2, PRODUCT_BYTES // 4, 0) == pytest.approx(cut + GROWTH)
    # more than T: U is u' alone
    link.hear(3 * TRIP_NS, 3 * PRODUCT_BYTES, 0, rounds=0)
    assert link.law._utilisation == pytest.approx(1.0)


def test_within_a_round_trip_it_goes_by_the_window_before_it() -> None:
    """Many results of one round trip say the same of one excess: it is cut from W_c, and not again and again. W_c is
    set anew when what was sent since then begins to come back, however small the window has become meanwhile.
    """
    link = Link()
    link.hear(TRIP_NS, 0, PRODUCT_BYTES, rounds=0)
    cut = link.hear(TRIP_NS, PRODUCT_BYTES, PRODUCT_BYTES, in_flight=39)
    assert cut == pytest.approx(40 / (2 / 0.95) + GROWTH)
    again = cut / (2 / 0.95) + GROWTH
    windows = [link.hear(TRIP_NS, PRODUCT_BYTES, PRODUCT_BYTES, rounds=3) for _ in range(13)]
    assert windows == pytest.approx([again] * 13)
    assert link.hear(TRIP_NS, PRODUCT_BYTES, PRODUCT_BYTES) == pytest.approx(again)
    assert link.hear(TRIP_NS, PRODUCT_BYTES, PRODUCT_BYTES) == pytest.approx(again / (2 / 0.95) + GROWTH)


def test_an_idle_link_between_two_tensors_is_no_reason_to_grow() -> None:
    """A tensor begins with rounds of exponents only, which tell of no round trip: what was read before is forgotten."""
    link = Link()
    link.hear(TRIP_NS, 0, 0)
    before = link.hear(TRIP_NS, PRODUCT_BYTES, 0)
    for _ in range(3):
        link.now_ns += 10 * TRIP_NS
        link.law.take(Feedback(link.now_ns, 40, 0, 0, None, None))
        assert link.hear(TRIP_NS, PRODUCT_BYTES // 100, 0, rounds=40) == before
    assert link.hear(TRIP_NS, PRODUCT_BYTES // 100, 0, rounds=40) > before


def test_rounds_leave_at_the_pace_of_a_window_each_round_trip() -> None:
    link = Link()
    assert (link.law.gap_ns, link.law.window(0)) == (0, 40), "no round trip is known yet"
    link.hear(TRIP_NS, 0, 0)
    assert link.law.gap_ns == TRIP_NS // 40
    window = link.hear(TRIP_NS, PRODUCT_BYTES, PRODUCT_BYTES // 5)
    assert window != int(window)
    assert link.law.window(0) == int(window) + 1
    assert link.law.gap_ns == int(TRIP_NS / window)


def test_growth_is_by_steps_and_then_by_measure() -> None:
    link = Link()
    link.hear(TRIP_NS, 0, 0, rounds=0)
    windows = [link.hear(TRIP_NS, PRODUCT_BYTES // 2, 0, rounds=100) for _ in range(6)]
    assert windows[:5] == pytest.approx([40 + (step + 1) * GROWTH for step in range(5)])
    assert windows[5] == pytest.approx(min(100, windows[4] * 0.95 / 0.5 + GROWTH)), "maxStage: to η in one step"
    assert link.hear(TRIP_NS, 0, 0, rounds=0) <= 100, "never above C·T"


def test_the_fullest_link_counts_and_who_knows_no_round_trip_waits() -> None:
    hops = [Hop(RATE_BPS, 0, 0), Hop(RATE_BPS, 0, 0)]
    law = Hpcc(lambda: {f"s1-p{port}": hop for port, hop in enumerate(hops)}, round_bytes=ROUND_BYTES, flows=10)
    law.begin(Pacing(window=40), 0)
    law.take(Feedback(1, 1, 0, 0, None, None))
    law.take(Feedback(TRIP_NS, 1, 0, 0, None, TRIP_NS))
    hops[:] = [Hop(RATE_BPS, PRODUCT_BYTES // 10, 0), Hop(RATE_BPS, 2 * PRODUCT_BYTES, 0)]
    law.take(Feedback(2 * TRIP_NS, 1, 0, 0, None, TRIP_NS))
    assert law._window == pytest.approx(40 * 0.95 / 2 + GROWTH)
    law.take(Feedback(2 * TRIP_NS, 1, 0, 0, None, TRIP_NS))  # at the same instant: nothing new
    assert law._window == pytest.approx(40 * 0.95 / 2 + GROWTH)
    law.lose(3, 2 * TRIP_NS)
    assert law.window(0) == int(40 * 0.95 / 2 + GROWTH) + 1


def test_flows_in_step_settle_without_a_queue() -> None:
    """N flows on one link, whose queue is what exceeds C·T: ΣW comes to η·C·T + N·W_AI, which fills it and no more."""
    flows, sent = 4, 0
    hop = Hop(RATE_BPS, 0, 0)
    laws = [Hpcc(lambda: {"s1-p1": hop}, round_bytes=ROUND_BYTES, flows=flows) for _ in range(flows)]
    for law in laws:
        law.begin(Pacing(window=80), 0)
    depths = []
    for trip in range(1, 200):
        total = sum(law._window for law in laws)
        queue = max(0.0, total - 100)
        sent += int(min(total, 100) * ROUND_BYTES)
        hop = Hop(RATE_BPS, sent, int(queue * ROUND_BYTES))
        depths.append(queue)
        for law in laws:
            law.take(Feedback(trip * TRIP_NS, int(law._window) + 1, 0, 0, None, TRIP_NS))
    assert depths[0] == 220
    assert max(depths[50:]) < 0.01
    assert sum(law._window for law in laws) == pytest.approx(0.95 * 100 + flows * 0.05 * 100 / flows, abs=0.01)
