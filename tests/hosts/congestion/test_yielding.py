"""A yielding flow: its window compared with RFC 8257's formulas, and its sender's packets in the network."""

from __future__ import annotations

import heapq
import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.hosts.congestion.round_trips import MIN_TIMEOUT_NS
from weir.hosts.congestion.yielding import (
    GAIN,
    INITIAL_WINDOW,
    DataCentreWindow,
    YieldingSender,
)

US = 1_000
MS = 1_000_000


class Rfc8257:
    """The steps of RFC 8257, section 3.3, in their order, on bytes; growth as in RFC 5681, section 3.1, in which marked
    acknowledgements have no part (RFC 3168, section 6.1.2), and one reduction for a window of data.
    """

    SEGMENT = 1000

    def __init__(self) -> None:
        self.cwnd = INITIAL_WINDOW * self.SEGMENT * 1.0
        self.ssthresh = float("inf")
        self.alpha = 1.0
        self.window_end = 0
        self.bytes_acked = self.bytes_marked = 0
        self.recover = 0

    def acknowledge(self, una: int, nxt: int, *, ece: bool) -> None:
        """SND.UNA after it, and SND.NXT, in bytes."""
        self.bytes_acked += self.SEGMENT
        if ece:
            self.bytes_marked += self.SEGMENT
        if una > self.window_end:
            fraction = self.bytes_marked / self.bytes_acked
            self.alpha = self.alpha * (1 - 1 / 16) + 1 / 16 * fraction
            self.window_end = nxt
            self.bytes_acked = self.bytes_marked = 0
        if ece:
            if una > self.recover:
                self.cwnd = self.ssthresh = max(self.SEGMENT, self.cwnd * (1 - self.alpha / 2))
                self.recover = nxt
        elif self.cwnd < self.ssthresh:
            self.cwnd += self.SEGMENT
        else:
            self.cwnd += self.SEGMENT * self.SEGMENT / self.cwnd


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 100)), max_size=60), st.randoms(use_true_random=False))
def test_the_window_is_what_the_rfc_says(batches: list[tuple[int, int]], rng: random.Random) -> None:
    """Acknowledgements in batches of any sizes, with any shares of marks; as much is sent as the window allows."""
    law, rfc = DataCentreWindow(), Rfc8257()
    acknowledged = following = 0
    for size, percent in batches:
        following = max(following, acknowledged + int(law.packets))
        for number in range(acknowledged, min(acknowledged + size, following)):
            marked = rng.randrange(100) < percent
            law.acknowledge(number, marked=marked, following=following)
            rfc.acknowledge(rfc.SEGMENT * (number + 1), rfc.SEGMENT * following, ece=marked)
            assert law.packets == pytest.approx(rfc.cwnd / rfc.SEGMENT)
            assert law.alpha == pytest.approx(rfc.alpha)
            acknowledged = number + 1


def test_alpha_is_the_share_of_marks_and_one_window_is_cut_once() -> None:
    law = DataCentreWindow()
    law.acknowledge(0, marked=True, following=10)
    assert (law.alpha, law.packets) == (1.0, 5.0), "what is known first is that all are marked: a half, as any TCP's"
    for number in range(1, 10):
        law.acknowledge(number, marked=number % 2 == 0, following=10 + number // 3)
    grown = law.packets
    assert 5 < grown < 6.1, "of one window of data, four more marks cut nothing"
    law.acknowledge(10, marked=True, following=16)
    assert law.alpha == 15 / 16 + GAIN * 5 / 10, "of packets 1 to 10 five were marked"
    assert law.packets == grown * (1 - law.alpha / 2)


def test_losses_halve_and_a_time_out_begins_anew() -> None:
    law = DataCentreWindow()
    law.on_loss(3, following=10)
    law.on_loss(4, following=10)
    assert law.packets == 5, "two losses of one window of data are one"
    law.on_loss(10, following=15)
    assert law.packets == 2.5
    law.expire(in_flight=7, following=20)
    assert law.packets == 1
    law.on_loss(19, following=20)  # sent before the time-out, which has told of it
    for number in range(20, 25):
        law.acknowledge(number, marked=False, following=30)
    assert law.packets == 4 + 1 / 4 + 1 / 4.25, "by one each up to half of what was in flight, and then by one a window"
    law.on_loss(29, following=30)
    law.on_loss(30, following=31)
    assert law.packets == pytest.approx((4 + 1 / 4 + 1 / 4.25) / 4), "those after the time-out are judged again"
    law.expire(in_flight=1, following=40)
    for number in range(40, 43):
        law.acknowledge(number, marked=False, following=50)
    assert law.packets == 2 + 1 / 2 + 1 / 2.5, "by one each up to two, however few were in flight"


def test_a_sender_begins_and_ends_when_it_is_to() -> None:
    sender = YieldingSender(64, start_ns=500, stop_ns=900)
    assert (sender.poll(0), sender.deadline_ns(0)) == (range(0), 500)
    assert sender.poll(500) == range(INITIAL_WINDOW)
    assert (sender.poll(501), sender.deadline_ns(500)) == (range(10, 10), 500 + 100 * MS)
    sender.receive(600, [(77, False), (0, False), (0, False)])
    assert sender.poll(600) == range(10, 12), "it doubles; what was never sent, or is known, says nothing"
    sender.receive(900, [(number, number > 8) for number in range(1, 12)])
    assert (sender.poll(900), sender.in_flight, sender.deadline_ns(900)) == (range(12, 12), 0, None)
    assert sender.poll(10**9) == range(12, 12)
    assert (sender.acknowledged, sender.marked, sender.lost) == (12, 3, 0)


def test_a_packet_is_lost_when_three_later_ones_have_come() -> None:
    sender = YieldingSender(64)
    sender.poll(0)
    sender.receive(100 * US, [(1, False), (2, False)])
    assert sender.lost == 0
    sender.receive(101 * US, [(3, True)])
    assert (sender.lost, sender.in_flight) == (1, 6)
    assert sender.congestion.packets == 12 * (1 - 15 / 16 / 2), "of the mark; the loss is of the same window of data"
    sender.receive(102 * US, [(0, False)])
    assert sender.acknowledged == 3, "it came late, and is lost all the same"
    sender.receive(103 * US, [(9, False)])
    assert (sender.lost, sender.in_flight) == (4, 2), "4, 5 and 6 at once; 7 and 8 may still come"


def test_the_time_out_is_what_rfc_6298_says() -> None:
    """Section 2, of three samples."""
    sender, smoothed_ns, variation_ns = YieldingSender(1), 0.0, 0.0
    for number, sample_ns in enumerate((40_000_001, 56_000_004, 24_000_002)):
        sent_ns = (1 + number) * 1_000 * MS
        assert sender.poll(sent_ns) == range(number, number + 1)
        sender.receive(sent_ns + sample_ns, [(number, False)])
        if number:
            variation_ns = 3 / 4 * variation_ns + 1 / 4 * abs(smoothed_ns - sample_ns)
            smoothed_ns = 7 / 8 * smoothed_ns + 1 / 8 * sample_ns
        else:
            smoothed_ns, variation_ns = sample_ns, sample_ns / 2
        assert sender.timeout_ns == int(smoothed_ns + 4 * variation_ns)


def test_without_any_answer_the_time_out_doubles_up_to_a_minute() -> None:
    sender, now_ns, waits = YieldingSender(1), 0, []
    for number in range(13):
        assert sender.poll(now_ns) == range(number, number + 1)
        due_ns = sender.deadline_ns(now_ns)
        assert due_ns is not None
        waits.append(due_ns - now_ns)
        now_ns = due_ns + 5  # a late look finds it over as well
    assert waits == [min(100 * MS << doubling, 60_000 * MS) for doubling in range(13)]
    sender.poll(now_ns)
    sender.receive(now_ns + 1 * MS, [(13, False)])
    assert sender.timeout_ns == 10 * MS, "the least, and no longer doubled"


def test_without_an_answer_the_time_out_doubles() -> None:
    sender = YieldingSender(64)
    sender.poll(0)
    sender.receive(100 * US, [(number, False) for number in range(INITIAL_WINDOW)])
    now_ns = 100 * US
    assert len(sender.poll(now_ns)) == 20
    for doubling in range(3):
        due_ns = sender.deadline_ns(now_ns)
        assert due_ns == now_ns + (MIN_TIMEOUT_NS << doubling)
        assert not sender.poll(due_ns - 1)
        now_ns = due_ns
        assert len(sender.poll(now_ns)) == 1
    assert sender.lost == 22
    sender.receive(now_ns + 50 * US, [(32, False)])
    assert sender.deadline_ns(now_ns + 50 * US) is None
    assert sender.poll(now_ns + 50 * US) == range(33, 35), "in slow start again"


@given(window=st.integers(1, 12), seed=st.integers(0, 1 << 16))
def test_timed_out_packets_count_in_the_window_for_their_life(window: int, seed: int) -> None:
    """Round trips are longer than time-outs, and a fifth of the packets is lost: at any time at most a window of them
    is in the network, and the flow continues.
    """
    rng = random.Random(seed)
    life_ns = 900 * MS
    sender, now_ns = YieldingSender(window, life_ns=life_ns), 0
    back: deque[tuple[int, int]] = deque()
    """Acknowledgements under way: when they come, and number."""
    for _ in range(200):
        for number in sender.poll(now_ns):
            after_ns = now_ns + rng.choice([1, 30, 300, 800]) * MS
            if rng.randrange(5):
                back.append((max([after_ns, *(come_ns for come_ns, _ in back)]), number))
        assert all(come_ns - now_ns <= life_ns for come_ns, _ in back)
        assert len(back) <= window
        due_ns = sender.deadline_ns(now_ns)
        now_ns = min([each for each in (due_ns, back[0][0] if back else None) if each is not None])
        come = []
        while back and back[0][0] <= now_ns:
            come.append((back.popleft()[1], False))
        sender.receive(now_ns, come)
    assert sender.acknowledged > 20


@given(
    window=st.integers(1, 40),
    threshold=st.integers(1, 30),
    lossy=st.sampled_from([0, 0, 3, 20]),
    seed=st.integers(0, 1 << 16),
)
def test_no_more_is_in_the_network_than_the_receiver_lets_be(
    window: int, threshold: int, lossy: int, seed: int
) -> None:
    """One queue marks packets and loses some. At any time, at most a window of packets and acknowledgements is in
    flight, and every sent packet is acknowledged, lost, or in flight.
    """
    rng = random.Random(seed)
    sender, now_ns, sent = YieldingSender(window), 0, 0
    queue: deque[tuple[int, bool]] = deque()
    back: list[tuple[int, int, bool]] = []
    """Acknowledgements under way: when they come, number, mark."""
    for _ in range(400):
        for number in sender.poll(now_ns):
            assert number == sent, "no number is used twice"
            sent += 1
            if rng.randrange(100) >= lossy:
                queue.append((number, len(queue) >= threshold))
        assert len(queue) + len(back) <= window
        assert sent == sender.acknowledged + sender.lost + sender.in_flight
        if not queue and not back:
            now_ns = sender.deadline_ns(now_ns) or now_ns
            continue
        now_ns += 8 * US
        if queue:
            heapq.heappush(back, (now_ns + 40 * US, *queue.popleft()))
        come = []
        while back and back[0][0] <= now_ns:
            come.append(heapq.heappop(back)[1:])
        sender.receive(now_ns, come)
    assert sender.acknowledged > 0
    if not lossy:
        assert sender.lost == 0


@pytest.mark.parametrize(("flows", "threshold"), [(1, 20), (2, 20), (4, 16), (8, 20)])
def test_flows_keep_the_queue_at_the_threshold_and_the_link_busy(flows: int, threshold: int) -> None:
    """B = 30 packets and K > B/7; after slow start the queue's top is near K + N (Alizadeh et al., SIGMETRICS 2011),
    whatever the receivers would take.
    """
    senders = [YieldingSender(4096) for _ in range(flows)]
    queue: deque[tuple[int, int, bool]] = deque()
    back: deque[tuple[int, int, int, bool]] = deque()
    depths, busy, step_ns = [], 0, 8 * US
    for step in range(6000):
        now_ns = step * step_ns
        while back and back[0][0] <= now_ns:
            _, index, number, marked = back.popleft()
            senders[index].receive(now_ns, [(number, marked)])
        for index, sender in enumerate(senders):
            queue.extend((index, number, len(queue) >= threshold) for number in sender.poll(now_ns))
        if step >= 3000:
            depths.append(len(queue))
            busy += bool(queue)
        if queue:
            back.append((now_ns + 30 * step_ns, *queue.popleft()))
    assert max(depths) <= threshold + 2 * flows
    assert busy == 3000
    shares = [sender.acknowledged for sender in senders]
    assert sum(shares) ** 2 > 0.9 * flows * sum(share**2 for share in shares), "Jain's index, slow start included"
