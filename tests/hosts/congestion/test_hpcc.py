"""HPCC's law, fed by hand with reports of links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weir.hosts.congestion import Feedback, Hpcc
from weir.tests.wire.int_stacks import Said, int_headers
from weir.wire.control import Pacing

US = 1_000
TRIP_NS = 100 * US
RATE_BPS = 1e9
PRODUCT_BYTES = 12_500
"""C·T: bytes that fill the link for a round trip."""
FRAME_BYTES = 125
"""100 rounds fill it."""
ROUND_BYTES = FRAME_BYTES - 44
"""Bytes of a round without the INT of one switch."""
LINK = (1, 7)


def hpcc(links: int = 1, flows: int = 10) -> Hpcc:
    """Law with INT of this many switches in each result."""
    rates = {(LINK[0], LINK[1] + number): RATE_BPS for number in range(links)}
    return Hpcc(rates, round_bytes=FRAME_BYTES - 16 - 28 * links, flows=flows, hops=9)


def feedback(now_ns: int, *said: Said, rounds: int = 1, in_flight: int = 0) -> Feedback:
    """Results of one instant, each with this stack."""
    headers = int_headers([said] * rounds) if rounds else int_headers([said])[:0]
    return Feedback(now_ns, rounds, 0, in_flight, None, TRIP_NS, headers)


class Link:
    """One that the test drives."""

    def __init__(self, **pacing: int) -> None:
        self.now_ns = self.sent = 0
        self.law = hpcc()
        self.law.begin(Pacing(window=40, **pacing), 0)

    def hear(self, after_ns: int, sent: int, queue: int, rounds: int = 1, in_flight: int = 0) -> float:
        """Feed results and return the law's exact window.

        The results come `after_ns` later; the link has sent `sent` more bytes, and its queue holds `queue` bytes. With
        no rounds one result reports, without being counted.
        """
        self.now_ns += after_ns
        self.sent += sent
        said = Said(*LINK, queue // FRAME_BYTES, self.now_ns, self.sent)
        told = feedback(self.now_ns, said, rounds=max(rounds, 1), in_flight=in_flight)
        self.law.update(replace(told, rounds=rounds))
        return self.law._window


GROWTH = 0.05 * 100 / 10
"""W_AI = (1 − η)·C·T/N."""


def test_bytes_in_flight_follow_from_two_readings() -> None:
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
    """Many results of one round trip report the same excess. It is cut once from W_c, not repeatedly. W_c is set again
    when data sent since then begins to come back, however small the window has become meanwhile.
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
    """A tensor begins with rounds of exponents only, which give no round trip: earlier readings are forgotten."""
    link = Link()
    link.hear(TRIP_NS, 0, 0)
    before = link.hear(TRIP_NS, PRODUCT_BYTES, 0)
    for _ in range(3):
        link.now_ns += 10 * TRIP_NS
        link.law.update(Feedback(link.now_ns, 40, 0, 0, None, None))
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
    windows = [link.hear(TRIP_NS, PRODUCT_BYTES // 2, 0, rounds=100) for _ in range(12)]
    assert windows[:5] == pytest.approx([40 + (step + 1) * GROWTH for step in range(5)])
    assert windows[5] == pytest.approx(windows[4] * 0.95 / 0.5 + GROWTH), "maxStage: to η in one step"
    assert windows[6:11] == pytest.approx([windows[5] + (step + 1) * GROWTH for step in range(5)])
    assert windows[11] == pytest.approx(100), "never above C·T"


def test_a_link_that_carries_nothing_has_it_grow_by_steps_alone() -> None:
    link = Link()
    link.hear(TRIP_NS, 0, 0, rounds=0)
    windows = [link.hear(TRIP_NS, 0, 0, rounds=100) for _ in range(7)]
    assert windows == pytest.approx([40 + (step + 1) * GROWTH for step in range(7)])


def test_a_link_that_less_than_a_round_fills_has_one() -> None:
    law = Hpcc({LINK: RATE_BPS}, round_bytes=2 * PRODUCT_BYTES - 44, flows=1, hops=9)
    law.begin(Pacing(window=4), 0)
    for trip in (1, 2):
        law.update(feedback(trip * TRIP_NS, Said(*LINK, 0, trip * TRIP_NS, 0)))
    assert (law.window(0), law.gap_ns) == (1, TRIP_NS)


def test_a_round_trip_of_zero_counts_as_the_clocks_minimum() -> None:
    law = hpcc()
    law.begin(Pacing(window=1), 0)
    law.update(replace(feedback(0, Said(*LINK, 0, 0, 0)), round_trip_ns=0))
    assert law.gap_ns == 1


@pytest.mark.parametrize(("frames", "kept"), [(6, 0.95 - 1 / 6), (100, 0.94)])
def test_a_waiting_frame_counts_relative_to_the_links_capacity(frames: int, kept: float) -> None:
    """One waits at every reading: a link that 6 frames fill for a round trip is to carry 0.78 then, and not 0.95."""

    def window_after(carried: float) -> float:
        frame_bytes = PRODUCT_BYTES // frames
        law = Hpcc({LINK: RATE_BPS}, round_bytes=frame_bytes - 44, flows=10**6, hops=9)
        law.begin(Pacing(window=4), 0)
        for trip in (1, 2):
            law.update(feedback(trip * TRIP_NS, Said(*LINK, 1, trip * TRIP_NS, int(trip * carried * PRODUCT_BYTES))))
        return law._window

    assert window_after(kept - 0.005) == pytest.approx(4, abs=1e-4)
    assert window_after(kept + 0.005) == pytest.approx(4 * 0.95 / 0.955, abs=1e-3)


def test_the_fullest_link_counts_and_an_unknown_round_trip_waits() -> None:
    law = hpcc(links=2)
    law.begin(Pacing(window=40), 0)

    def both(now_ns: int, *sent: int) -> Feedback:
        return feedback(
            now_ns, *(Said(LINK[0], LINK[1] + index, 0, now_ns, bytes_) for index, bytes_ in enumerate(sent))
        )

    law.update(replace(both(1, 0, 0), round_trip_ns=None))
    law.update(both(TRIP_NS, 0, 0))
    law.update(both(3 * TRIP_NS, PRODUCT_BYTES // 5, 2 * PRODUCT_BYTES))
    assert law._window == pytest.approx(40 * 0.95 + GROWTH)
    law.update(both(3 * TRIP_NS, PRODUCT_BYTES // 5, 2 * PRODUCT_BYTES))  # the same packet's again: nothing new
    assert law._window == pytest.approx(40 * 0.95 + GROWTH)
    law.on_loss(3, 3 * TRIP_NS)
    assert law.window(0) == int(40 * 0.95 + GROWTH) + 1
    assert law.unread == 0


def test_each_link_is_read_once_per_instant_by_the_newest_result() -> None:
    """Rounds end by different ways: a link that only some of them crossed is compared with its own last report."""
    law = hpcc(links=2)
    law.begin(Pacing(window=40), 0)
    near, far = LINK, (LINK[0], LINK[1] + 1)
    law.update(feedback(TRIP_NS, Said(*near, 0, TRIP_NS, 0)))
    law.update(feedback(TRIP_NS, Said(*far, 0, TRIP_NS, 0)))
    stacks = [
        [Said(*far, 0, 3 * TRIP_NS, 2 * PRODUCT_BYTES)],
        [Said(*near, 0, 2 * TRIP_NS, PRODUCT_BYTES // 10)],
        [Said(*near, 0, 2 * TRIP_NS + 7, PRODUCT_BYTES // 5)],
        [Said(*near, 0, 2 * TRIP_NS + 3, PRODUCT_BYTES // 8)],
    ]
    law.update(replace(feedback(3 * TRIP_NS), rounds=4, int_headers=int_headers(stacks)))
    assert law._utilisation == pytest.approx(1.0)
    assert law._told[near].bytes_sent == PRODUCT_BYTES // 5
    law.update(feedback(4 * TRIP_NS, Said(*near, 0, 3 * TRIP_NS + 7, PRODUCT_BYTES)))
    assert law._utilisation == pytest.approx(0.8)


def test_a_link_that_is_heard_of_first_hides_no_other() -> None:
    law = hpcc(links=2)
    law.begin(Pacing(window=40), 0)
    near, far = LINK, (LINK[0], LINK[1] + 1)
    law.update(feedback(TRIP_NS, Said(*near, 0, TRIP_NS, 0)))
    law.update(feedback(2 * TRIP_NS, Said(*far, 0, 2 * TRIP_NS, 0), Said(*near, 0, 2 * TRIP_NS, PRODUCT_BYTES)))
    assert law._utilisation == pytest.approx(1.0)


def test_a_restarted_switch_and_an_excessive_rate_are_no_measure() -> None:
    link = Link()
    link.hear(TRIP_NS, 5 * PRODUCT_BYTES, 0)
    before = link.hear(TRIP_NS, PRODUCT_BYTES // 2, 0)
    link.sent = 0
    assert link.hear(TRIP_NS, 0, 0) == before, "fewer bytes than it had sent"
    assert link.hear(TRIP_NS, 9 * PRODUCT_BYTES, 0) == before, "nine times what a link can carry"
    assert link.hear(-US, 0, 0) == before, "earlier than the last"
    assert link.hear(TRIP_NS, PRODUCT_BYTES // 2, 0) > before


@pytest.mark.parametrize("byte_ns", [1, 2])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_full_link_may_be_a_frame_and_a_clock_tick_ahead(beyond: int, byte_ns: int) -> None:
    """The clock ticks every 1,000 ns: two readings are at different phases of a tick."""
    law = Hpcc({LINK: 8e9 / byte_ns}, round_bytes=ROUND_BYTES, flows=10, hops=9)
    law.begin(Pacing(window=40), 0)
    law.update(feedback(TRIP_NS, Said(*LINK, 0, TRIP_NS, 0)))
    most = (TRIP_NS + 1_000) // byte_ns + FRAME_BYTES
    law.update(feedback(2 * TRIP_NS, Said(*LINK, 0, 2 * TRIP_NS, most + beyond)))
    assert (law.gap_ns != TRIP_NS // 40) == (not beyond)


def test_missing_and_garbled_int_is_only_counted() -> None:
    link = Link()
    link.hear(TRIP_NS, 0, 0)
    before = link.hear(TRIP_NS, PRODUCT_BYTES, 0)
    told = feedback(3 * TRIP_NS, Said(*LINK, 0, 3 * TRIP_NS, 2 * PRODUCT_BYTES), rounds=2)
    assert told.int_headers is not None
    garbled = told.int_headers.copy()
    garbled[:, 4] |= 0x04
    rng = np.random.default_rng(1)
    for number, headers in enumerate(
        [
            None,
            garbled,
            int_headers([[Said(*LINK, 0, 3 * TRIP_NS, 0), Said(99, 1, 0, 3 * TRIP_NS, 0)]] * 2),
            int_headers([[]] * 2),
            *(rng.integers(0, 256, (2, size), np.uint8) for size in (0, 1, 15, 16, 44, 45, 300)),
        ]
    ):
        link.law.update(replace(told, int_headers=headers))
        assert link.law.unread == 2 * (number + 1)
    assert link.law._window == before
    half = np.concatenate([garbled[:1], told.int_headers[:1]])
    link.law.update(replace(told, int_headers=half))
    assert link.law.unread == 23, "one of the two is read"
    assert link.law._window == pytest.approx(before * 0.95 + GROWTH)


def test_flows_in_step_settle_without_a_queue() -> None:
    """N flows share one link, whose queue holds the excess over C·T: ΣW converges to η·C·T + N·W_AI, which just fills
    it.
    """
    flows, sent = 4, 0.0
    laws = [hpcc(flows=flows) for _ in range(flows)]
    for law in laws:
        law.begin(Pacing(window=80), 0)
    depths = []
    for trip in range(1, 200):
        total = sum(law._window for law in laws)
        queue = max(0.0, total - 100)
        sent += min(total, 100) * FRAME_BYTES
        depths.append(queue)
        said = Said(*LINK, round(queue), trip * TRIP_NS, int(sent))
        for law in laws:
            told = feedback(trip * TRIP_NS, said)
            law.update(replace(told, rounds=int(law._window) + 1))
    assert depths[0] == 220
    assert max(depths[50:]) < 1
    assert sum(law._window for law in laws) == pytest.approx(0.95 * 100 + flows * 0.05 * 100 / flows, abs=0.5)
