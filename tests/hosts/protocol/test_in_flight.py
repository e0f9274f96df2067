"""A worker's rounds in flight alone: rounds in the network, detected losses, turns of repairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.hosts.protocol.in_flight import REORDERING, TURNS, InFlight
from weir.hosts.protocol.timers import MULTIPLE, RetransmissionTimeout
from weir.wire.aggregation import MessageType

SIZE, SPAN = 1024, 512
MS = 1_000_000


def in_flight(
    *,
    window: int = 16,
    span: int = SPAN,
    rank: int = 0,
    workers: int = 1,
    size: int = SIZE,
    timeout: RetransmissionTimeout | None = None,
) -> InFlight:
    timeout = timeout or RetransmissionTimeout(10 * MS, MS, 100 * MS)
    return InFlight(size, timeout, span=span, window=window, rank=rank, workers=workers)


def launch(which: InFlight, *rounds: int, now_ns: int = 0, answer: MessageType = MessageType.RESULT) -> None:
    which.answer[np.array(rounds) & SIZE - 1] = answer
    which.launch(np.array(rounds), now_ns)


def land(which: InFlight, *rounds: int, now_ns: int = 0) -> None:
    which.complete(np.array(rounds) & SIZE - 1, now_ns)


def repaired(which: InFlight, now_ns: int = 0) -> list[int]:
    """Rounds that are sent again now."""
    places = which.due_for_retransmit(now_ns)
    rounds: list[int] = which.round[places].tolist()
    which.mark_resent(places, now_ns)
    return rounds


def test_overtaken_rounds_leave_room_for_others() -> None:
    one = in_flight(window=4, rank=1, workers=2)
    launch(one, *range(4))
    assert one.room == 0
    land(one, 2)
    assert (repaired(one), one.room) == ([], 1)
    launch(one, 4)
    land(one, 3, 4)
    assert repaired(one) == [1]  # of round 0 it is the other worker's turn
    assert one.room == 3  # round 0 holds a slot, but no queue


@pytest.mark.parametrize("rank", range(8))
def test_workers_take_turns_a_round_trip_apart(rank: int) -> None:
    """Ten rounds are always on the way; round 0 is lost, and later one that another worker repairs."""
    one = in_flight(rank=rank, workers=8)
    launch(one, *range(11))
    times, others_lost = [], 199 - rank
    for newest in range(1, 400):
        if newest != others_lost:
            land(one, newest)
        if newest == others_lost + 50:
            land(one, others_lost)
        times += [newest] * len(repaired(one))
        launch(one, newest + 10)
    first, second, *others = times
    assert first == REORDERING + 1 + rank * 10
    assert second - first >= (TURNS - rank) * 10  # all others have had their turns by then
    assert len(others) > 10
    assert set(np.diff([second, *others])) == {10 + REORDERING}, "then it is sent again as soon as it is overtaken"


def rounds_in_the_network(*, window: int, trip: int, lose: int | None, rounds: int = 4000) -> int:
    """Most rounds in the network at once, in the last quarter: a link that takes a round each 1000 ns, and a round trip
    of `trip` rounds besides what waits for the link. Every `lose`-th round is lost once.
    """
    one = in_flight(window=window, workers=8)
    link_free_ns, now_ns, following, most = 0, 0, 0, 0
    coming: list[tuple[int, int, int]] = []  # when, round, sent
    while following < rounds:
        for number in repaired(one, now_ns):
            link_free_ns = max(link_free_ns, now_ns) + 1000
            coming.append((link_free_ns + trip * 1000, number, now_ns))
        room = min(one.room, rounds - following)
        if room:
            launch(one, *range(following, following + room), now_ns=now_ns)
        for number in range(following, following + room):
            link_free_ns = max(link_free_ns, now_ns) + 1000
            if not (lose and number % lose == 7):
                coming.append((link_free_ns + trip * 1000, number, now_ns))
        following += room
        if following > 3 * rounds // 4:
            most = max(most, len(coming))
        coming.sort()
        (now_ns, number, sent_ns), *coming = coming
        if one.once(np.array([number & SIZE - 1]))[0]:
            one._timeout.sample(now_ns - sent_ns)
        land(one, number, now_ns=now_ns)
    return most


def test_repairs_shorten_queues_and_never_idle_the_network() -> None:
    assert rounds_in_the_network(window=200, trip=10, lose=None) == 200
    assert rounds_in_the_network(window=200, trip=10, lose=10) <= SPAN // (2 * TURNS)
    assert (
        110 < rounds_in_the_network(window=400, trip=100, lose=10) <= 2 * 110
    )  # twice the rounds that fill a long network
    assert rounds_in_the_network(window=80, trip=100, lose=10) >= 72  # the window is the limit, apart from lost rounds


@pytest.mark.parametrize("measured_before", [0, 1])
@pytest.mark.parametrize(("landing", "passed_ns", "filling"), [(100, 2100, 48), (96, 2000, 48), (97, 2020, 49)])
def test_repairs_by_others_allow_twice_the_filling_rounds(
    landing: int, passed_ns: int, filling: int, measured_before: int
) -> None:
    """A hundred rounds in 2.1 µs, and round trips of 1 µs: 47.6 fill it (Little's law), so 48 do."""
    lost, now_ns = measured_before * landing, (measured_before + 1) * passed_ns
    one = in_flight(window=200, rank=-(lost + 1) % 8, workers=8)
    launch(one, *range(lost + landing + 21))
    one._timeout.sample(1000)
    if measured_before:
        land(one, *range(lost), now_ns=passed_ns)
    land(one, *range(lost + 1, lost + 1 + landing), now_ns=now_ns)
    assert repaired(one, now_ns) == [], "it is for others to repair first"
    assert one.in_network == 20
    assert one.room == 2 * filling - 20
    one.set_window(200, yields=False)
    assert one.room == 200 - 20
    one.set_window(200)
    assert one.room == 2 * filling - 20


@pytest.mark.parametrize(("span", "fewest"), [(32, 16), (512, 32)])
def test_repairs_by_others_allow_at_least_sixteen_rounds(span: int, fewest: int) -> None:
    """One round fills this network."""
    one = in_flight(window=span, span=span)
    launch(one, *range(25))
    one._timeout.sample(1000)
    land(one, *range(1, 21), now_ns=MS)
    assert repaired(one, MS) == [0]
    assert one.room == fewest - 5


def test_the_window_is_the_room_before_any_loss() -> None:
    one = in_flight(window=1)
    one.set_window(200)
    assert one.room == 200


def test_resends_of_many_workers_are_spread_evenly() -> None:
    """Over half of the time-out; with multiples of the golden ratio, however many workers there are, no gap is more
    than its square (2.618) times as long as another (Sós, On the distribution mod 1 of the sequence nα, 1958).
    """
    shares = []
    for rank in range(64):
        one = in_flight(rank=rank, workers=64)
        launch(one, 0)
        one.mark_resent(np.array([0]), 0)
        assert one.deadline_ns is not None
        shares.append((one.deadline_ns - 20 * MS) / (10 * MS))
    assert max(shares) < 1
    for workers in range(2, len(shares) + 1):
        gaps = np.diff([*sorted(shares[:workers]), 1])
        assert max(gaps) < 2.62 * min(gaps), f"{workers} workers"


def test_few_rounds_are_not_reduced_while_others_await_repair() -> None:
    """Else nothing comes that shows what is lost, and only time-outs repair. One round fills this network."""
    one = in_flight(window=8, span=32, rank=1, workers=8)
    launch(one, *range(8))
    one._timeout.sample(1000)
    land(one, 3, now_ns=1000)
    land(one, 4, 5, 6, 7, now_ns=1000)
    assert len(repaired(one, 1000)) + one.room == 8


def test_other_ways_are_measured_anew() -> None:
    timeout = RetransmissionTimeout(10 * MS, MS, 100 * MS)
    for trip_ns in (7, 5, 9):
        timeout.sample(trip_ns)
    timeout.sample(1, has_lanes=False)
    timeout.expired()
    assert timeout.shortest_ns == 5
    timeout.begin()
    assert (timeout.shortest_ns, timeout.doublings) == (0, 0)
    timeout.sample(9)
    assert timeout.shortest_ns == 9


def test_a_long_wait_causes_no_resend_once_rounds_come() -> None:
    """The window is one during the silence: the other rounds have waited for a slow worker, too."""
    one = in_flight()
    launch(one, *range(10))
    one.set_window(1)
    assert repaired(one, 20 * MS) == [0]
    land(one, 0, now_ns=21 * MS)
    assert one.deadline_ns is None
    one.set_window(16)
    assert one.deadline_ns is not None
    assert repaired(one, 21 * MS) == []
    assert (one.in_network, one.room) == (9, 7)
    land(one, *range(1, 8), now_ns=22 * MS)
    assert repaired(one, 22 * MS) == []
    late_ns = one.deadline_ns
    assert late_ns is not None
    assert repaired(one, late_ns) == [8, 9]


def test_rounds_overtaken_during_a_pause_are_repaired() -> None:
    one = in_flight(window=16)
    launch(one, *range(10))
    one.set_window(1)
    assert repaired(one, 20 * MS) == [0]
    land(one, 6, now_ns=21 * MS)
    one.set_window(16)
    assert repaired(one, 21 * MS) == [1, 2, 3]
    assert one.expirations == 10, "each once"


def test_without_room_for_turns_all_send_at_once() -> None:
    for rank in range(8):
        one = in_flight(window=16, span=16, rank=rank, workers=8)
        launch(one, *range(5))
        land(one, 1, 2, 3)
        assert repaired(one) == [0]


def test_turns_are_determined_on_arrivals() -> None:
    """And not because a larger window leaves less room for turns."""
    one = in_flight(window=16, rank=1, workers=8)
    launch(one, *range(18))
    land(one, 6)
    assert repaired(one) == []
    one.set_window(SPAN)
    assert repaired(one) == []
    land(one, 7)
    assert repaired(one) == [0, 1, 2, 3, 4]


def test_no_timer_expires_while_rounds_come_back() -> None:
    one = in_flight()
    launch(one, 0, 1, now_ns=0)
    assert one.deadline_ns == 10 * MS
    land(one, 0, now_ns=9 * MS)
    assert one.deadline_ns == 19 * MS
    assert repaired(one, 18 * MS) == []
    assert repaired(one, 19 * MS) == [1]
    assert one.deadline_ns == 39 * MS  # backed off


def test_expired_rounds_are_resent_oldest_first_as_room_allows() -> None:
    one = in_flight(window=8)
    launch(one, *range(8))
    one.set_window(3)
    assert repaired(one, 10 * MS) == [0, 1, 2]
    assert one.room == 0
    assert repaired(one, 11 * MS) == []
    land(one, 1, now_ns=12 * MS)
    one.set_window(3)
    assert repaired(one, 12 * MS) == [3]
    assert one.deadline_ns is not None
    assert repaired(one, one.deadline_ns) == [0, 2, 3]


def test_rounds_waiting_for_room_have_no_deadline() -> None:
    one = in_flight()
    launch(one, 0, 1)
    assert len(one.due_for_retransmit(10 * MS)) == 2
    assert one.deadline_ns is None


def test_rounds_that_arrive_while_waiting_are_not_resent() -> None:
    one = in_flight()
    launch(one, *range(4))
    one.set_window(1)
    assert repaired(one, 10 * MS) == [0]
    land(one, 0, 1, now_ns=11 * MS)
    assert repaired(one, 11 * MS) == [2]


def test_fetches_neither_overtake_nor_are_overtaken() -> None:
    one = in_flight()
    launch(one, 0, answer=MessageType.FETCHED)
    launch(one, 1)
    launch(one, *range(2, 8))
    land(one, *range(2, 8))
    assert repaired(one) == [1]
    other = in_flight()
    launch(other, 0)
    launch(other, *range(1, 8), answer=MessageType.FETCHED)
    land(other, *range(1, 8))
    assert repaired(other) == []


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 12), st.integers(1, 4))
def test_every_round_lands_whatever_is_lost(seed: int, window: int, span: int, workers: int) -> None:
    """Three of ten are lost and the window changes: nothing is forgotten, neither by turns nor by time."""
    rng = np.random.default_rng(seed)
    one = in_flight(window=window, span=span, rank=int(rng.integers(0, workers)), workers=workers)
    total, base, following, now = 60, 0, 0, 0
    complete: set[int] = set()
    network: list[int] = []  # in order of sending
    for _ in range(4000):
        if base == total:
            break
        again = repaired(one, now)
        room = one.room
        fresh = list(range(following, min(following + room, base + span, total)))
        if fresh:
            launch(one, *fresh, now_ns=now)
            following += len(fresh)
        network += [number for number in [*again, *fresh] if rng.random() > 0.3]
        landed = [number for number in network[: int(rng.integers(0, 4))] if number not in complete]
        if landed:
            distinct = list(dict.fromkeys(landed))
            network = network[network.index(distinct[-1]) + 1 :]
            complete.update(distinct)
            land(one, *distinct, now_ns=now)
            while base in complete:
                base += 1
            if rng.random() < 0.1:
                window = int(rng.integers(1, 9))
                one.set_window(window)
        elif not again and not fresh:
            network.clear()
            assert base == total or one.deadline_ns is not None, f"seed {seed}: forgotten"
            now = max(now + 1, one.deadline_ns or 0)
    assert base == total, f"seed {seed}: round {base} does not land"


def test_an_expired_timeout_stays_long_enough_for_round_trips() -> None:
    timeout = RetransmissionTimeout(10 * MS, MS, 1000 * MS)
    timeout.sample(2 * MS)
    assert timeout.first_ns == 6 * MS
    for doubled in (12, 24, 48):
        timeout.expired()
        assert timeout.first_ns == doubled * MS
    timeout.sample(9 * MS)
    assert timeout.first_ns == 24 * MS  # twice 9 ms fit, twice 9 ms would not fit half of it
    timeout.sample(2 * MS)
    assert timeout.first_ns == 6 * MS
    for _ in range(20):
        timeout.expired()
    assert timeout.first_ns == 384 * MS, "six times doubled, and no more"
    assert timeout.unscaled_ns == 6 * MS


def test_a_timeout_is_halved_if_half_is_just_long_enough() -> None:
    timeout = RetransmissionTimeout(10 * MS, MS, 1000 * MS)
    timeout.sample(2 * MS)
    timeout.expired()
    timeout.sample(3 * MS)
    assert timeout.first_ns == 2 * 3 * MS


def test_a_rounds_own_time_out_doubles_sixteen_times() -> None:
    one = InFlight(SIZE, RetransmissionTimeout(10, 10, 1 << 60), span=SPAN, window=16, rank=0, workers=1)
    launch(one, 0)
    waits, now_ns = [], 0
    for _ in range(20):
        due_ns = one.deadline_ns
        assert due_ns is not None
        waits.append(due_ns - now_ns)
        now_ns = due_ns
        assert repaired(one, now_ns) == [0]
    assert waits == [10 << min(resends, 16) for resends in range(20)]


def test_rounds_without_lanes_are_no_sample_for_those_with_lanes() -> None:
    timeout = RetransmissionTimeout(10 * MS, MS, 1000 * MS)
    assert timeout.round_trip_ns == 0
    timeout.sample(MS // 10, has_lanes=False)
    assert (timeout.first_ns, timeout.round_trip_ns) == (10 * MS, MS // 10)
    timeout.expired()
    timeout.sample(MS // 10, has_lanes=False)
    assert timeout.first_ns == 10 * MS  # rounds come through again
    timeout.sample(5 * MS)
    assert timeout.first_ns == 15 * MS
    timeout.expired()
    timeout.sample(MS // 10, has_lanes=False)
    assert timeout.first_ns == 30 * MS  # those with lanes may be late as before


def test_the_time_out_follows_the_minimum_of_sixteen_round_trips() -> None:
    timeout = RetransmissionTimeout(10 * MS, MS, 100 * MS)
    timeout.sample(2 * MS)
    for _ in range(15):
        timeout.sample(4 * MS)
        assert timeout.first_ns == MULTIPLE * 2 * MS
    timeout.sample(4 * MS)
    assert timeout.first_ns == MULTIPLE * 4 * MS


@given(seed=st.integers(0, 1 << 20), workers=st.integers(1, 6))
def test_one_copy_is_in_the_network_while_nothing_is_lost(seed: int, workers: int) -> None:
    """Workers send at any times and wait for a slow one; results reach each after any time up to a longest round trip,
    and so does the answer to a copy.
    """
    rng = np.random.default_rng(seed)
    longest_ns, window, rounds = MS, 4, 24
    everyone = []
    for rank in range(workers):
        timeout = RetransmissionTimeout(10 * MS, longest_ns, 100 * MS)
        every = InFlight(
            SIZE, timeout, span=SPAN, window=window, rank=rank, workers=workers, longest_round_trip_ns=longest_ns
        )
        every.begin(int(rng.integers(longest_ns)))
        everyone.append(every)
    sent = np.zeros((workers, rounds), np.int64)
    lands = np.full((workers, rounds), 1 << 60)
    following, copies, now_ns = [0] * workers, list[int](), 0
    while following[0] < rounds or everyone[0].in_network:
        # some workers are slow now and then, for many round trips
        wakes_ns = now_ns + rng.choice([20_000, 300_000, 40 * MS], workers, p=[0.8, 0.19, 0.01])
        for rank, one in enumerate(everyone):
            if copied := repaired(one, now_ns):
                assert len(copied) == 1
                copies.append(now_ns)
            if wakes_ns[rank] < now_ns + MS and one.room and following[rank] < rounds:
                launch(one, following[rank], now_ns=now_ns)
                sent[rank, following[rank]] = now_ns
                following[rank] += 1
        for number in range(max(0, min(following) - window), min(following)):
            if lands[0, number] == 1 << 60:
                lands[:, number] = now_ns + rng.integers(1, longest_ns, workers)
                if number:
                    lands[:, number] = np.maximum(lands[:, number], lands[:, number - 1])
        for rank, one in enumerate(everyone):
            for number in np.flatnonzero((lands[rank] <= now_ns) & (one.round[:rounds] == np.arange(rounds))).tolist():
                land(one, number, now_ns=now_ns)
        now_ns += int(rng.integers(1, 50_000))
    assert all(after - before >= longest_ns for before, after in itertools.pairwise(copies)), f"seed {seed}"


def test_copies_go_on_after_a_loss() -> None:
    """A lost round at the end of all has no later one that would show it: its worker's turns come again and again."""
    one = InFlight(
        SIZE,
        RetransmissionTimeout(10 * MS, MS, 100 * MS),
        span=SPAN,
        window=4,
        rank=1,
        workers=3,
        longest_round_trip_ns=MS,
    )
    one.begin(0)
    launch(one, 0, 1)
    times_ns = []
    for _ in range(4):
        assert one.deadline_ns is not None
        times_ns.append(one.deadline_ns)
        assert repaired(one, one.deadline_ns) == [0, 1, 0, 1][len(times_ns) - 1 : len(times_ns)]
    assert one.in_network == 2, "both count as there, as they may be"
    assert np.all(np.diff(times_ns) % (3 * 3 * MS) == 0)
    assert (times_ns[0] - MS) % (3 * 3 * MS) == 3 * MS


def test_a_lost_window_comes_back_within_a_few_time_outs() -> None:
    """All that was under way is lost, so nothing overtakes it. A copy is answered after 1 ms. The time-out has backed
    off to 160 ms; without results for a lease of 100 ms the window is one.
    """
    lost, lease_ns = 12, 100 * MS
    one = in_flight(timeout=RetransmissionTimeout(10 * MS, MS, 1000 * MS, doublings=4))
    launch(one, *range(lost))
    landed = heard_ns = now_ns = 0
    answers: list[int] = []
    while landed < lost:
        now_ns += MS
        if answers:
            land(one, *answers, now_ns=now_ns)
            landed, heard_ns = landed + len(answers), now_ns
        one.set_window(1 if now_ns - heard_ns > lease_ns else 16)
        answers = repaired(one, now_ns)
        assert now_ns < 1000 * MS, f"{lost - landed} rounds are still away after a second"
