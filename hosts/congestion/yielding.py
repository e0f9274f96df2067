"""The sending side of a transfer that yields, as a data centre's TCP does: a state machine over packets' numbers.

acknowledgements ─▶ YieldingSender ─▶ numbers of packets to send, and when to look again
                        └─ DataCentreWindow: cwnd by marks (RFC 8257) and losses (RFC 5681)

Every packet has its own acknowledgement, which says whether it was marked (RFC 8257, section 3.2, without delayed
acknowledgements). Numbers are never used twice (RFC 9000, section 12.3). The window laws count a job's rounds and
results; here windows of data begin and end with packets' numbers, as in the RFCs. All counts are of packets, which have
one size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .round_trips import RoundTripTimeout

GAIN: Final = 1 / 16
"""g: weight of one window's share of marks in α, the average of all (RFC 8257, section 4.2)."""
INITIAL_WINDOW: Final = 10
"""Packets in flight at first (RFC 6928)."""
REORDERING: Final = 3
"""A packet is lost when one sent this many later is acknowledged (RFC 9002, section 6.1.1)."""


class DataCentreWindow:
    """cwnd, in packets. `number` is the acknowledged packet's, `following` that of the next one to be sent: without
    losses, SND.UNA − 1 and SND.NXT.
    """

    def __init__(self) -> None:
        self.packets = float(INITIAL_WINDOW)
        self.alpha = 1.0
        """Estimated share of marked packets."""
        self._threshold = float("inf")  # ssthresh
        self._window_end = 0  # of the observation window
        self._acknowledged = 0  # in it
        self._marked = 0
        self._reduced_until = 0  # the first number of the window of data that was sent after a reduction

    def acknowledge(self, number: int, *, marked: bool, following: int) -> None:
        """Update the window for one acknowledged packet (RFC 8257, section 3.3)."""
        self._acknowledged += 1
        self._marked += marked
        if number >= self._window_end:
            self.alpha += GAIN * (self._marked / self._acknowledged - self.alpha)
            self._window_end, self._acknowledged, self._marked = following, 0, 0
        if marked:
            self._reduce(self.packets * (1 - self.alpha / 2), number, following)
        elif self.packets < self._threshold:
            self.packets += 1
        else:
            self.packets += 1 / self.packets

    def on_loss(self, number: int, *, following: int) -> None:
        """Halve the window after a lost packet, as any TCP does (RFC 8257, section 3.5)."""
        self._reduce(self.packets / 2, number, following)

    def expire(self, *, in_flight: int, following: int) -> None:
        """Reduce the window after a time-out without acknowledgements (RFC 5681, section 3.1)."""
        self._threshold = max(in_flight / 2, 2.0)
        self.packets = 1.0
        self._reduced_until = following

    def _reduce(self, packets: float, number: int, following: int) -> None:
        """Reduce at most once per window of data: packets under way say nothing about the smaller window."""
        if number >= self._reduced_until:
            self.packets = self._threshold = max(1.0, packets)
            self._reduced_until = following


class YieldingSender:
    """Sends as fast as its windows allow, between two instants."""

    def __init__(self, window: int, *, start_ns: int = 0, stop_ns: int | None = None, life_ns: int = 0) -> None:
        """Create a sender.

        Args:
            window: The receiver's (RFC 9293, section 3.8.6): the maximum number of packets and acknowledgements in the
                network, as long as none is there for longer than the time-out and `life_ns`.
            start_ns: When it begins to send.
            stop_ns: When it ends; None: never.
            life_ns: Longest time that a packet and its acknowledgement can be in the network. A packet that has timed
                out counts as in the network for that long.
        """
        self.congestion = DataCentreWindow()
        self.acknowledged = 0
        self.marked = 0
        """Number of acknowledged packets with a mark."""
        self.lost = 0
        self._most = window
        self._start_ns = start_ns
        self._stop_ns = stop_ns
        self._life_ns = life_ns
        self._next = 0
        self._in_flight: dict[int, int] = {}  # number: when it was sent; the oldest first
        self._timed_out: dict[int, int] = {}  # as `_in_flight`: perhaps in the network still
        self._newest = -1  # highest acknowledged number
        self._timeout = RoundTripTimeout()

    @property
    def in_flight(self) -> int:
        """Packets whose fate is unknown."""
        return len(self._in_flight)

    def receive(self, now_ns: int, answers: Iterable[tuple[int, bool]]) -> None:
        """Handle acknowledgements: numbers of packets, and whether these were marked. Known ones are skipped."""
        for number, marked in answers:
            sent_ns = self._in_flight.pop(number, None)
            if sent_ns is None:
                if (sent_ns := self._timed_out.pop(number, None)) is not None:
                    self._newest = max(self._newest, number)
                    self._timeout.sample(now_ns - sent_ns)  # or the next one would time out too early as well
                continue
            self.acknowledged += 1
            self.marked += marked
            self._newest = max(self._newest, number)
            self._timeout.sample(now_ns - sent_ns)  # no number is used twice, so each is valid
            self.congestion.acknowledge(number, marked=marked, following=self._next)
        self._find_lost()

    def poll(self, now_ns: int) -> range:
        """Return numbers of the packets to send now."""
        deadline_ns = self._expires_ns
        if deadline_ns is not None and now_ns >= deadline_ns:
            self.lost += self.in_flight
            self.congestion.expire(in_flight=self.in_flight, following=self._next)
            self._timed_out |= self._in_flight
            self._in_flight.clear()
            self._timeout.expire()
        while self._timed_out and now_ns >= next(iter(self._timed_out.values())) + self._life_ns:
            del self._timed_out[next(iter(self._timed_out))]
        begun = now_ns >= self._start_ns and (self._stop_ns is None or now_ns < self._stop_ns)
        room = min(int(self.congestion.packets), self._most - len(self._timed_out)) - self.in_flight if begun else 0
        numbers = range(self._next, self._next + max(0, room))
        self._in_flight |= dict.fromkeys(numbers, now_ns)
        self._next = numbers.stop
        return numbers

    def deadline_ns(self, now_ns: int) -> int | None:
        """When to poll again though nothing has come; None: not before something does."""
        if now_ns < self._start_ns:
            return self._start_ns
        return min((due_ns for due_ns in (self._expires_ns, self._released_ns) if due_ns is not None), default=None)

    @property
    def _released_ns(self) -> int | None:
        """When the oldest packet that has timed out counts no more."""
        return next(iter(self._timed_out.values())) + self._life_ns if self._timed_out else None

    @property
    def _expires_ns(self) -> int | None:
        if not self._in_flight:
            return None
        return next(iter(self._in_flight.values())) + self.timeout_ns

    @property
    def timeout_ns(self) -> int:
        """RTO (RFC 6298)."""
        return self._timeout.ns

    def _find_lost(self) -> None:
        while self._in_flight and (number := next(iter(self._in_flight))) <= self._newest - REORDERING:
            del self._in_flight[number]
            self.lost += 1
            self.congestion.on_loss(number, following=self._next)
        while self._timed_out and (number := next(iter(self._timed_out))) < self._newest:
            del self._timed_out[number]  # paths keep their order
