"""The sending half of a connection: a fixed window with selective acknowledgement.

::

    messages ─queue─▶ packets by place in the stream ─take─▶ rows to send
                          ▲ lost: an ACK tells of a packet that was sent three transmissions later,
                          │       or none has told anything new for a time-out (RFC 6298)
    ACKs ─acknowledge─────┘

Each transmission has a number of its own (`order`), which its acknowledgement returns. So round trips and losses are
told exactly, also of packets that were sent more than once. No more than `window` packets are in the network as long as
paths keep their order and no packet is there for longer than the time-out and the options' `life_ns`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...wire.transport import PacketFlag
from ..array_types import BoolArray, IntArray
from ..congestion.round_trips import RoundTripTimeout
from .messages import MessageStream
from .options import TransportOptions
from .pending import Pending

REORDERING: Final = 3
"""A transmission is lost when one sent this many later is acknowledged (RFC 9002, section 6.1.1)."""


class Rows(NamedTuple):
    """Packets of one size, ready for their headers."""

    payload: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    sequences: IntArray
    orders: IntArray


@dataclass(slots=True)
class _Part:
    """A message's share of the stream."""

    first: int
    stop: int
    stream: MessageStream
    pending: Pending[Any] | None


class Outgoing:
    """Messages to one peer, as packets numbered from 0."""

    def __init__(self, options: TransportOptions) -> None:
        self.timeout = RoundTripTimeout(options.first_timeout_ns, options.min_timeout_ns, options.patience_ns)
        self.retransmitted = 0
        self.base = 0
        """The first packet that is not acknowledged."""
        self.limit = 0
        """The peer takes no packet from here on."""
        self._window = options.window
        self._life_ns = options.life_ns
        self._payload_bytes = options.payload_bytes
        self._parts: deque[_Part] = deque()
        self._next = self._end = 0  # the first packet that was never sent, and the first that there is none of
        self._size = 1 << (options.window - 1).bit_length()
        self._acknowledged, self._lost = np.zeros((2, self._size), np.bool_)  # by place modulo the size
        self._order, self._sent_ns = np.zeros((2, self._size), np.int64)
        self.orders = 0
        """Transmissions so far."""
        self._in_flight = self._lost_count = 0
        self._timed_out: deque[tuple[int, int]] = deque()
        """Order and time of transmissions that have timed out and may be in the network still, oldest first."""
        self._timer_ns = 0  # when the time-out began, while packets are in flight

    def queue(self, stream: MessageStream, pending: Pending[Any] | None) -> None:
        """Send a message after those before it; `pending` is completed when all of it is acknowledged."""
        stop = self._end + len(stream.rows)
        self._parts.append(_Part(self._end, stop, stream, pending))
        self._end = stop

    @property
    def has_unacknowledged(self) -> bool:
        """True if a packet that was sent has not been acknowledged."""
        return self.base < self._end

    @property
    def in_flight(self) -> int:
        """Packets whose fate is unknown."""
        return self._in_flight

    @property
    def is_sendable(self) -> bool:
        """True if `pop_due` has something to send now."""
        return self._in_flight < self._most and (self._lost_count > 0 or self._next < self._bound)

    @property
    def expires_ns(self) -> int | None:
        """When `expire` is due; None while nothing is in the network."""
        if self._in_flight:
            return self._timer_ns + self.timeout.ns
        return self._timed_out[0][1] + self._life_ns if self._timed_out else None

    def expire(self, now_ns: int) -> None:
        """Take all that is in flight for lost, if nothing new has been acknowledged for a time-out.

        What was taken for lost before counts in the window no longer once its life is over.
        """
        while self._timed_out and now_ns >= self._timed_out[0][1] + self._life_ns:
            self._timed_out.popleft()
        if not self._in_flight or now_ns < self._timer_ns + self.timeout.ns:
            return
        slots = np.arange(self.base, self._next) % self._size
        if self._life_ns:
            late = slots[~self._acknowledged[slots] & ~self._lost[slots]]
            late = late[np.argsort(self._order[late])]
            self._timed_out += zip(self._order[late].tolist(), self._sent_ns[late].tolist(), strict=True)
        self._lost[slots] = ~self._acknowledged[slots]
        self._lost_count += self._in_flight
        self._in_flight = 0
        self.timeout.expire()

    def acknowledge(self, now_ns: int, cumulative: int, newest: int, beyond: BoolArray, limit: int) -> bool:
        """Handle an ACK; return True if it reports a packet that was not known to have arrived.

        Args:
            now_ns: Present time.
            cumulative: First packet that the peer lacks.
            newest: Largest order that has reached it.
            beyond: Mask of the packets from `cumulative` on that have reached it, (n,).
            limit: First packet that it does not take.
        """
        if not self.base <= cumulative <= self._next or newest >= self.orders:
            return False
        self.limit = max(self.limit, limit)
        while self._timed_out and self._timed_out[0][0] <= newest:
            self._timed_out.popleft()
        places = np.arange(self.base, self._next)
        slots = places % self._size
        arrived = places < cumulative
        told = places[cumulative - self.base :][: len(beyond)] - cumulative
        arrived[cumulative - self.base : cumulative - self.base + len(told)] = beyond[told]
        fresh = slots[arrived & ~self._acknowledged[slots]]
        if len(fresh):
            if len(timed := fresh[self._order[fresh] == newest]):
                self.timeout.sample(now_ns - int(self._sent_ns[timed[0]]))
            self.timeout.doublings = 0
            self._timer_ns = now_ns
            self._acknowledged[fresh] = True
            recovered = int(np.count_nonzero(self._lost[fresh]))
            self._lost[fresh] = False
            self._lost_count -= recovered
            self._in_flight -= len(fresh) - recovered
        overtaken = ~self._acknowledged[slots] & ~self._lost[slots] & (self._order[slots] <= newest - REORDERING)
        count = int(np.count_nonzero(overtaken))
        self._lost[slots[overtaken]] = True
        self._lost_count += count
        self._in_flight -= count
        self.base = cumulative
        while self._parts and self._parts[0].stop <= cumulative:
            if (pending := self._parts.popleft().pending) is not None:
                pending.finish(None)
        return bool(len(fresh))

    def pop_due(self, now_ns: int) -> list[Rows]:
        """Return the packets to send now, by size: those that were lost before new ones."""
        if not self.is_sendable:
            return []
        room = self._most - self._in_flight
        places = np.arange(self.base, self._next)
        again = places[self._lost[places % self._size]][:room] if self._lost_count else places[:0]
        stop = max(self._next, min(self._next + room - len(again), self._bound))
        sent = np.concatenate([again, np.arange(self._next, stop)])
        slots = sent % self._size
        orders = np.arange(self.orders, self.orders + len(sent))
        self._acknowledged[slots] = self._lost[slots] = False
        self._order[slots], self._sent_ns[slots] = orders, now_ns
        if not self._in_flight:
            self._timer_ns = now_ns
        self.orders += len(sent)
        self._in_flight += len(sent)
        self._lost_count -= len(again)
        self.retransmitted += len(again)
        self._next = stop
        return list(self._rows(sent, orders))

    @property
    def waiting(self) -> list[Pending[Any]]:
        """Calls whose messages are under way."""
        return [part.pending for part in self._parts if part.pending is not None]

    @property
    def _most(self) -> int:
        """Packets in flight at most: after a time-out one asks whether the peer is there."""
        return min(1 if self.timeout.doublings else self._window, self._window - len(self._timed_out))

    @property
    def _bound(self) -> int:
        """The first new packet that may not be sent."""
        return min(self._end, self.limit, self.base + self._size)

    def _rows(self, places: IntArray, orders: IntArray) -> Iterator[Rows]:
        """The packets at these places, which may be in any order, by size."""
        by_size: dict[int, list[Rows]] = {}
        last = int(places.max())
        for part in self._parts:
            if part.first > last:
                break
            mine = (places >= part.first) & (places < part.stop)
            at_end = places == part.stop - 1
            short = mine & at_end if part.stream.last_bytes < self._payload_bytes else np.zeros_like(mine)
            for chosen, size in ((mine & ~short, self._payload_bytes), (short, part.stream.last_bytes)):
                if chosen.any():
                    flags = (places[chosen] == part.first) * PacketFlag.FIRST + at_end[chosen] * PacketFlag.LAST
                    payload = part.stream.rows[places[chosen] - part.first, :size]
                    rows = Rows(payload, flags.astype(np.uint8), places[chosen], orders[chosen])
                    by_size.setdefault(size, []).append(rows)
        for found in by_size.values():
            yield (
                found[0] if len(found) == 1 else Rows(*(np.concatenate(column) for column in zip(*found, strict=True)))
            )
