"""Window laws and pacing, fed by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from weir.hosts.congestion import (
    LAWS,
    Dctcp,
    DelayTarget,
    ExplicitWindow,
    Feedback,
    FixedWindow,
    LossDriven,
    Pacer,
    Setting,
    WindowLaw,
)
from weir.hosts.protocol.worker import WorkerCore
from weir.wire.aggregation import AGGREGATION_PORT
from weir.wire.control import Pacing, WorkerPlan
from weir.wire.int_messages import link_request

MS = 1_000_000


SETTING = Setting(Pacing().window, round_bytes=1_094, streams=1, hops=9, rates_bps={})
MADE = {name: partial(LAWS[name].make, SETTING) for name in LAWS}


@pytest.mark.parametrize("name", MADE)
def test_the_window_before_a_plan_is_that_of_a_silent_one(name: str) -> None:
    law = MADE[name]()
    assert (law.window(0), law.gap_ns) == (Pacing().window, 0)
    law.update(heard(1, None))
    law.on_loss(1, 1)
    assert law.window(1) >= 1


def test_all_windows_but_the_fixed_one_yield_during_repairs() -> None:
    assert {name for name, law in MADE.items() if not law().yields} == {"fixed"}


def test_only_hpcc_has_contributions_ask_links() -> None:
    asked = {name: law().int_header for name, law in MADE.items()}
    assert asked.pop("hpcc") == link_request(AGGREGATION_PORT, 9)
    assert set(asked.values()) == {b""}


def heard(now_ns: int, window: int | None, *, rounds: int = 1, marked: int = 0, in_flight: int = 0) -> Feedback:
    return Feedback(now_ns, rounds, marked, in_flight, window, None)


def test_the_explicit_window_is_obeyed_and_lent() -> None:
    law = ExplicitWindow()
    law.begin(Pacing(window=6, lease_ns=10 * MS), 0)
    assert law.window(0) == 6
    law.update(heard(5 * MS, 9))
    assert law.window(5 * MS) == 9
    law.update(heard(6 * MS, None))
    assert law.window(6 * MS) == 9, "a fetched result says nothing of the queues"
    assert law.window(15 * MS - 1) == 9
    assert law.window(15 * MS) == 1, "the lease is over"
    law.update(heard(16 * MS, 4))
    assert law.window(16 * MS) == 4
    law.update(heard(17 * MS, 0))
    assert law.window(17 * MS) == 1, "a stream without window would stand still"
    law.begin(Pacing(window=3), 20 * MS)
    assert law.window(10**18) == 3, "without a lease windows last"


def test_a_fixed_window_learns_nothing() -> None:
    law = FixedWindow(7)
    law.begin(Pacing(window=1), 0)
    law.update(heard(1, 2, marked=1))
    law.on_loss(3, 1)
    assert law.window(1) == 7


def test_the_pacer_holds_back_and_spaces_out() -> None:
    pacer = Pacer(Pacing(hold_ns=20, gap_ns=7))
    assert (pacer.room(100), pacer.next_ns(100)) == (0, None), "it has not begun"
    assert pacer.begin(100)
    assert not pacer.begin(101)
    assert (pacer.room(119), pacer.next_ns(119)) == (0, 120)
    assert (pacer.room(120), pacer.next_ns(120)) == (1, None)
    pacer.sent(1, 122)
    assert (pacer.room(128), pacer.next_ns(128)) == (0, 129)
    assert (pacer.room(129), pacer.next_ns(129)) == (1, None)
    assert (pacer.room(130), pacer.next_ns(130)) == (1, None)
    free = Pacer(Pacing())
    free.begin(0)
    assert free.room(0) is None


def test_workers_have_their_own_times_in_a_gap_without_a_bound() -> None:
    """A worker that misses its time waits for the next gap, or all would send when a result reaches them."""
    third = Pacer(Pacing(gap_ns=80), rank=2, workers=8)
    assert third.begin(1_000)
    assert [third.room(at_ns) for at_ns in (1_019, 1_020, 1_030)] == [0, 1, 1]
    third.sent(1, 1_025)
    assert third.next_ns(1_025) == 1_100
    assert third.room(1_300) == 0
    assert third.next_ns(1_300) == 1_340
    bounded = Pacer(Pacing(gap_ns=80, round_trip_ns=5), rank=2, workers=8)
    assert bounded.begin(1_000)
    assert bounded.room(1_000) == 1, "its packets all fit"


@pytest.mark.parametrize(
    ("pacing", "waits"), [(Pacing(hold_ns=9), True), (Pacing(lease_ns=9), True), (Pacing(), False)]
)
def test_a_hold_or_a_lease_is_to_begin_with_the_plan(pacing: Pacing, waits: bool) -> None:
    pacer = Pacer(pacing)
    assert pacer.waits == waits
    pacer.begin(0)
    assert not pacer.waits


def test_a_laws_pace_is_kept_on_mean() -> None:
    """Each 10 ns a round: a host that looks seldom sends what has come due meanwhile, but nothing for idle time."""
    pacer = Pacer(Pacing())
    pacer.begin(0)
    pacer.set_gap(10)
    sent = []
    for now_ns in range(0, 1_000, 25):
        rounds = pacer.room(now_ns) or 0
        pacer.sent(rounds, now_ns)
        pacer.wait(waiting=True)
        sent.append(rounds)
    assert sent[0] == 1
    assert set(sent[1:]) == {2, 3}
    assert sum(sent) == 1 + 975 // 10
    assert pacer.next_ns(976) == 980
    pacer.wait(waiting=False)
    assert pacer.room(100_000) == 1, "nothing waited"
    pacer.sent(1, 100_000)
    assert (pacer.room(100_009), pacer.room(100_010)) == (0, 1)
    pacer.set_gap(0)
    assert pacer.room(100_010) is None


def test_a_plans_gap_is_kept_under_a_laws_pace() -> None:
    pacer = Pacer(Pacing(gap_ns=50))
    pacer.begin(0)
    pacer.set_gap(10)
    assert pacer.room(1_000) == 1
    pacer.sent(1, 1_000)
    assert (pacer.room(1_049), pacer.room(1_050)) == (0, 1)
    pacer.set_gap(80)
    pacer.sent(1, 1_050)
    assert (pacer.room(1_129), pacer.room(1_130)) == (0, 1), "the slower one counts"


def test_a_laws_pace_begins_with_what_is_first_sent() -> None:
    pacer = Pacer(Pacing())
    pacer.begin(0)
    pacer.set_gap(10)
    assert pacer.room(1_000) == 1, "nothing has waited yet"


def test_dctcp_cuts_by_the_share_of_marks() -> None:
    """Every mark at once halves like TCP; α forgets by 1/16 a window; the window grows by one without marks."""
    law = Dctcp()
    law.begin(Pacing(window=8), 0)
    law.update(heard(0, None, rounds=8, marked=8))
    assert (law.alpha, law.window(0)) == (1.0, 4)
    for grown in (5, 6, 7):
        law.update(heard(0, None, rounds=law.window(0)))
        assert law.window(0) == grown
    assert law.alpha == (15 / 16) ** 3
    law.update(heard(0, None, rounds=7, marked=1))
    alpha = (15 / 16) ** 4 + 1 / 16 / 7
    assert abs(law.alpha - alpha) < 1e-12
    assert law.window(0) == int(7 * (1 - alpha / 2))
    law.on_loss(1, 0)
    assert law.window(0) == 2


def test_dctcp_cuts_once_for_a_window_of_data() -> None:
    """Eight rounds were in flight at the first mark: the other marks describe the window before the cut."""
    law = Dctcp()
    law.begin(Pacing(window=9), 0)
    law.update(heard(0, None, marked=1, in_flight=8))
    assert law.window(0) == 4
    for left in range(7, -1, -1):
        law.update(heard(0, None, marked=1, in_flight=left))
    assert law.window(0) == 4
    law.on_loss(1, 0)
    law.update(heard(0, None, marked=1, in_flight=3))
    assert law.window(0) == 2, "by the loss alone"


def test_dctcp_learns_the_share_of_marks_once_a_window_of_data() -> None:
    law = Dctcp()
    law.begin(Pacing(window=8), 0)
    law.update(heard(0, None, in_flight=7))
    alpha = law.alpha
    assert alpha == 15 / 16
    for left in range(6, -1, -1):
        law.update(heard(0, None, marked=left == 3, in_flight=left))
        assert law.alpha == alpha, "of what was under way already"
    law.update(heard(0, None, in_flight=5))
    assert law.alpha == alpha + (1 / 8 - alpha) / 16


def test_dctcp_doubles_until_the_first_mark() -> None:
    law = Dctcp()
    law.begin(Pacing(window=2), 0)
    for doubled in (4, 8, 16):
        law.update(heard(0, None, rounds=law.window(0)))
        assert law.window(0) == doubled


def test_loss_halves_once_for_a_window_of_data() -> None:
    law = LossDriven()
    law.begin(Pacing(window=4), 0)
    for doubled in (8, 16, 32):
        law.update(heard(0, None, rounds=law.window(0)))
        assert law.window(0) == doubled
    law.on_loss(1, 0)
    law.on_loss(2, 0)
    assert law.window(0) == 16, "both were sent before the window was smaller"
    for grown in (17, 18):
        law.update(heard(0, None, rounds=law.window(0), marked=3))
        assert law.window(0) == grown, "marks are not for it"
    law.on_loss(1, 0)
    assert law.window(0) == 9
    for _ in range(9):
        law.on_loss(1, 0)
        law.update(heard(0, None, rounds=40))
    assert law.window(0) >= 1
    law.begin(Pacing(window=1), 0)
    law.on_loss(1, 0)
    assert law.window(0) == 1, "of one there is no half"


def test_a_loss_counts_once_the_last_cuts_packets_are_back() -> None:
    law = LossDriven()
    law.begin(Pacing(window=6), 0)
    law.on_loss(1, 0)
    assert law.window(0) == 3, "also before the first result"
    law.update(heard(0, None, rounds=5))
    law.on_loss(1, 0)
    assert law.window(0) == 4, "of six one is not back"
    law.update(heard(0, None))
    for _ in range(2):
        law.on_loss(1, 0)
        assert law.window(0) == 2
    law.begin(Pacing(window=5), 0)
    law.on_loss(1, 0)
    for rounds, grown in ((10, 6), (11, 8)):  # 2.5 + 10 / 2.5 = 6.5, + 11 / 6.5 = 8.2
        law.update(heard(0, None, rounds=rounds))
        assert law.window(0) == grown


def flows_in_step(laws: list[WindowLaw], product: int, threshold: int, trips: int) -> list[int]:
    """Depths of the one queue that all share, a round trip after the other; beyond the threshold it marks."""
    depths = []
    for trip in range(trips):
        windows = [law.window(trip) for law in laws]
        depth = max(0, sum(windows) - product)
        depths.append(depth)
        for law, window in zip(laws, windows, strict=True):
            marked = window if depth > threshold else 0
            law.update(Feedback(trip, window, marked, 0, None, 1000 + 1000 * depth // product))
    return depths


def test_dctcp_keeps_the_published_swing() -> None:
    """B = 70, K = 20, N = 8: the queue's top is near K + N, and it never runs empty as K > B/7."""
    laws: list[WindowLaw] = [Dctcp() for _ in range(8)]
    for law in laws:
        law.begin(Pacing(window=2), 0)
    depths = flows_in_step(laws, product=70, threshold=20, trips=600)[300:]
    assert 20 < max(depths) <= 20 + 8
    assert min(depths) > 0


def test_delay_finds_its_target() -> None:
    laws: list[WindowLaw] = [DelayTarget() for _ in range(4)]
    for law in laws:
        law.begin(Pacing(window=2), 0)
    depths = flows_in_step(laws, product=40, threshold=0, trips=400)[200:]
    assert 0 < sum(depths) / len(depths) <= 24, "half a round trip's worth, and what one step adds"
    law = DelayTarget()
    law.begin(Pacing(window=10), 0)
    law.update(Feedback(0, 1, 0, 0, None, 1000))
    law.update(Feedback(1000, 1, 0, 0, None, 100_000))
    assert law.window(1000) == 5, "never below half at once"
    law.update(Feedback(1500, 1, 0, 0, None, 100_000))
    assert law.window(1500) == 5, "once a round trip"


def test_delay_grows_up_to_its_target_and_cuts_by_the_excess() -> None:
    """The target is 1.5 minimum round trips; a cut takes 0.8 of the excess, as a share of the round trip."""
    law = DelayTarget()
    law.begin(Pacing(window=100), 0)
    for now_ns, round_trip_ns, window in (
        (0, 1_000, 101),  # 100 + 190 / 100
        (1_000, 1_500, 103),  # 101.9 + 190 / 101.9
        (3_000, 2_000, 83),  # 103.8 · (1 − 0.8 · 500 / 2,000)
        (5_000, 1_501, 82),  # 83.0 · (1 − 0.8 · 1 / 1,501)
        (7_000, 800, 85),  # 82.97 + 190 / 82.97: it is the least now
        (9_000, 1_500, 71),  # 85.3 · (1 − 0.8 · 300 / 1,500)
    ):
        law.update(Feedback(now_ns, 190, 0, 0, None, round_trip_ns))
        assert law.window(now_ns) == window


def test_delay_halves_for_every_loss_until_it_knows_a_round_trip() -> None:
    law = DelayTarget()
    for _ in range(2):  # as much in a second generation
        law.begin(Pacing(window=32), 0)
        law.on_loss(1, 7)
        law.on_loss(1, 7)
        assert law.window(7) == 8
        law.update(Feedback(7, 1, 0, 0, None, 1_000))
        law.on_loss(1, 8)
        assert law.window(8) == 8, "once a round trip from then on"


def test_delay_halves_once_a_round_trip_for_losses() -> None:
    """Like in Swift: a dropping queue is found full several times, by packets sent before the cut."""
    law = DelayTarget()
    law.begin(Pacing(window=32), 0)
    law.update(Feedback(1_000, 1, 0, 0, None, 1_000))
    for now_ns in range(1_000, 2_000, 100):
        law.on_loss(1, now_ns)
        assert law.window(now_ns) == 16
    law.on_loss(1, 2_000)
    assert law.window(2_000) == 8
    law.update(Feedback(2_500, 1, 0, 0, None, 3_000))
    assert law.window(2_500) == 8, "the delay and the losses tell of the same queue"
    law.on_loss(2, 4_999)
    assert law.window(4_999) == 8, "round trips take 3 µs by now"
    law.on_loss(2, 5_000)
    assert law.window(5_000) == 4
    law.begin(Pacing(window=6), 5_100)
    law.on_loss(1, 5_200)
    assert law.window(5_200) == 3, "a generation begins with nothing in the network"
    for now_ns in range(10_000, 100_000, 10_000):
        law.on_loss(1, now_ns)
    assert law.window(100_000) == 1
    law.update(Feedback(100_000, 1, 0, 0, None, 1_000))
    assert law.window(100_000) == 2, "it has not sunk below one, from which it grows by one"


def test_windows_are_lent_from_when_the_plan_is_here() -> None:
    """A worker that does not sum yet receives no smaller window, and may not use the plan's after its lease."""
    pacing = Pacing(window=32, lease_ns=1_000)
    core = WorkerCore(WorkerPlan(1, 1, 0, 1, 1, 1, 64, 32, members=(1,), pacing=pacing))
    assert core.deadline_ns == 0
    assert core.poll(5) == []
    assert core.deadline_ns is None
    core.submit(np.ones(256 * 40, np.float32))
    assert sum(len(sent) for sent in core.poll(2_000)) == 1
    unpaced = WorkerCore(WorkerPlan(1, 1, 0, 1, 1, 1, 64, 32, members=(1,)))
    assert unpaced.deadline_ns is None


def test_only_laws_that_queue_bounds_rely_on_limit_copies() -> None:
    assert {name for name, law in LAWS.items() if law.make(SETTING).bounded} == {"explicit"}
    assert {name for name, law in LAWS.items() if law.bounded} == {"explicit"}
