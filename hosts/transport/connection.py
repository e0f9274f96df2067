"""One peer from a host's view: its epoch, packets under way, and expected packets.

::

    A                                   B
    OPEN(epoch a) ────────────────────▶
                  ◀──────────── OPENED(epoch b, peer_epoch a)
    ACK or DATA(epoch a, peer_epoch b) ▶ B takes the connection for open
    DATA ─────────────────────────────▶
         ◀───────────────────────────── ACK(first missing, largest order, limit, bitmap of packets beyond)

An OPEN alone changes nothing at B, so a recorded one does no harm: only a packet that names B's present epoch does, and
no packet of an earlier connection can. Epochs that a peer has left are remembered, and packets of theirs are dropped.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...wire.transport import SEQUENCES, PacketFlag, PacketType, packets
from ..array_types import BoolArray, IntArray
from ..congestion.round_trips import RoundTripTimeout
from ..errors import PeerLost, PeerRestarted
from .incoming import Incoming
from .messages import Value
from .options import TransportOptions, TransportPlan
from .outgoing import Outgoing
from .pending import Pending

_LIMIT: Final = struct.Struct(">I")
_ASKS: Final = 16
"""Number of probes to a silent peer within the patience."""
_LONGEST_OPENING_NS: Final = 500_000_000
"""Between two OPENs at most: a peer that starts late is found soon."""
_NO_ROWS: Final = np.empty(0, np.bool_)


@dataclass(slots=True)
class Sealable:
    """Packets of one size to the peer, without their checks."""

    rows: NDArray[np.uint8]
    sequences: IntArray
    """(n,): the 64-bit numbers of which the headers have the lower half."""


class Connection:
    """State of one host's connection to one peer."""

    def __init__(self, plan: TransportPlan, options: TransportOptions, peer: int) -> None:
        """`peer`: the other host's rank."""
        self.peer = peer
        self.epoch = plan.epoch
        self.peer_epoch = 0
        """0: the connection is not open."""
        self.left = set[int]()
        """Epochs that the peer has left."""
        self.inbox: deque[Value] = deque()
        self.inbox_bytes = 0
        """Bytes of messages that no call has taken, requests included."""
        self.receivers: deque[Pending[Value]] = deque()
        """Calls that wait for a message."""
        self.asked: dict[int, Pending[Any]] = {}
        """Calls that wait for an answer, by their numbers."""
        self.trouble: PeerLost | None = None
        """Error for the next call: the peer restarted while no call was under way."""
        self.before_trouble = 0
        """Number of messages in the inbox that came before `trouble`, and are received before it."""
        self.life = 0
        """Number of earlier connections; answers to requests of an earlier one are not sent."""
        self.owes_ack = self.owes_opened = self.owes_open = False
        self.is_closed_there = False
        """True if the peer has closed its end, and has not begun anew since."""
        self._job = plan.job
        self._options = options
        self._opened_epoch = 0  # epoch in the OPEN that still needs an OPENED
        self._opening = RoundTripTimeout(options.first_timeout_ns, max_ns=_LONGEST_OPENING_NS)
        self._wanted_ns: int | None = None  # since when something has been expected of the peer without a break
        self._heard_ns = self._asked_ns = 0
        self._reset()

    def _reset(self) -> None:
        self.outgoing, self.incoming = Outgoing(self._options), Incoming(self._options)
        self.newest = -1
        """The largest order that has come."""
        self._opening.doublings = 0

    # --- events ---

    def on_packet(self, now_ns: int) -> None:
        """Note an authentic packet of the peer's present epoch."""
        self._heard_ns = now_ns

    def owe_opened(self, epoch: int) -> None:
        """Answer the peer, which opens a connection from this epoch of its own."""
        self.owes_opened, self._opened_epoch = True, epoch

    def adopt(self, epoch: int, now_ns: int) -> None:
        """Accept the peer's epoch; packets under way to an earlier one fail with PeerRestarted."""
        if self.peer_epoch:
            self.left.add(self.peer_epoch)
            self._end(PeerRestarted(f"transport: peer {self.peer} has begun anew", self.peer))
        self.peer_epoch = epoch
        self.is_closed_there = False
        self._heard_ns = now_ns
        self.owes_ack = True  # confirms the OPENED, and carries the limit

    def abort(self, error: PeerLost) -> None:
        """End the connection from this side; the next call begins another one."""
        self._end(error)
        self.epoch = self.epoch % (SEQUENCES - 1) + 1
        self.left.clear()  # their packets name another epoch of this end
        self.owes_ack = False

    def _end(self, error: PeerLost) -> None:
        self.peer_epoch = 0
        self.life += 1
        error.connection = self.life
        told = [*self.outgoing.waiting, *self.receivers, *self.asked.values()]
        for waiting in told:
            waiting.fail(error)
        self.receivers.clear()
        self.asked.clear()
        if self.trouble is None:
            self.before_trouble = len(self.inbox)
        self.trouble = None if told else error
        self._wanted_ns = None
        self._reset()

    def take(self) -> Value | None:
        """Remove and return the oldest message; None if there is none, or if `trouble` came before it."""
        if not self.inbox or (self.trouble is not None and not self.before_trouble):
            return None
        if self.trouble is not None:
            self.before_trouble -= 1
        return self.inbox.popleft()

    def free_inbox(self, size: int) -> None:
        """Record that a call has taken a message of `size` bytes."""
        self.inbox_bytes -= size
        self.let_in()

    def let_in(self) -> None:
        """Let the peer send more, unless its unread messages exceed the limit. After a halt it is notified at once."""
        if self.inbox_bytes < self._options.inbox_bytes:
            halted = self.incoming.limit <= self.incoming.base
            self.incoming.open()
            self.owes_ack |= halted and self.peer_epoch != 0

    # --- expectations ---

    @property
    def is_expected(self) -> bool:
        """True if a packet of the peer is expected."""
        return self.outgoing.has_unacknowledged or bool(self.receivers) or bool(self.asked)

    @property
    def is_ready(self) -> bool:
        """True if `poll` has something to send now."""
        return self.owes_opened or self.owes_open or (self.peer_epoch != 0 and self._has_work)

    @property
    def _has_work(self) -> bool:
        return self.owes_ack or self.outgoing.is_sendable

    @property
    def deadline_ns(self) -> int | None:
        """When to poll again; 0: now."""
        if self.is_ready or (self._wanted_ns is None) == self.is_expected:
            return 0
        if self._wanted_ns is None:
            return None
        expires_ns = self.outgoing.expires_ns
        return min(self._asks_ns if expires_ns is None else expires_ns, self._gives_up_ns)

    @property
    def _asks_ns(self) -> int:
        """When to send an OPEN, or to ask for an ACK, while nothing is in flight."""
        if not self.peer_epoch:
            return self._asked_ns + self._opening.ns
        return max(self._heard_ns, self._asked_ns) + self._options.patience_ns // _ASKS

    @property
    def _gives_up_ns(self) -> int:
        return max(self._heard_ns, self._wanted_ns or 0) + self._options.patience_ns

    # --- packets to send ---

    def poll(self, now_ns: int, *, closed: bool = False) -> list[Sealable]:
        """Return packets to send now. Raises PeerLost when the peer has been silent for too long."""
        ask = False
        if not self.is_expected:
            self._wanted_ns = None
        elif self._wanted_ns is None:
            self._wanted_ns = now_ns
            self._asked_ns = now_ns
            self.owes_open |= not self.peer_epoch
        elif now_ns >= self._gives_up_ns:
            raise PeerLost(
                f"transport: peer {self.peer} has not answered for {self._options.patience_ns / 1e9:g} s", self.peer
            )
        elif self.outgoing.expires_ns is None and now_ns >= self._asks_ns:
            self._asked_ns = now_ns
            ask = self.peer_epoch != 0
            self.owes_open |= not ask
            self._opening.expire()
        out = []
        if self.owes_open:
            out.append(self._control(PacketType.OPEN, peer_epoch=0))
        if self.owes_opened:
            out.append(self._control(PacketType.OPENED, peer_epoch=self._opened_epoch))
        self.owes_open = self.owes_opened = False
        if self.peer_epoch:
            self.outgoing.expire(now_ns)
            if self.owes_ack or ask or closed:
                out.append(self._ack(ask=ask, closed=closed))
                self.owes_ack = False
            out += [self._data(*rows) for rows in self.outgoing.pop_due(now_ns)]
        return out

    def _data(
        self, payload: NDArray[np.uint8], flags: NDArray[np.uint8], sequences: IntArray, orders: IntArray
    ) -> Sealable:
        rows = packets(
            payload,
            kind=PacketType.DATA,
            job=self._job,
            epoch=self.epoch,
            peer_epoch=self.peer_epoch,
            flags=flags,
            sequence=sequences,
            order=orders,
        )
        return Sealable(rows, sequences)

    def _ack(self, *, ask: bool, closed: bool) -> Sealable:
        incoming = self.incoming
        bitmap = np.packbits(incoming.beyond)
        payload = np.frombuffer(_LIMIT.pack(incoming.limit % SEQUENCES) + bitmap.tobytes(), np.uint8)
        rows = packets(
            payload[None],
            kind=PacketType.ACK,
            job=self._job,
            epoch=self.epoch,
            peer_epoch=self.peer_epoch,
            flags=PacketFlag.ASK * ask | PacketFlag.CLOSED * closed,
            sequence=incoming.base,
            order=self.newest + 1,
        )
        return Sealable(rows, np.array([incoming.base], np.int64))

    def _control(self, kind: PacketType, peer_epoch: int) -> Sealable:
        nothing = np.empty((1, 0), np.uint8)
        rows = packets(nothing, kind=kind, job=self._job, epoch=self.epoch, peer_epoch=peer_epoch)
        return Sealable(rows, np.zeros(1, np.int64))


def parse_ack(payload: NDArray[np.uint8]) -> tuple[int, BoolArray] | None:
    """Decode an ACK's payload (size,): its limit (lower 32 bits) and the received packets beyond (n,); None if
    malformed.
    """
    if len(payload) < _LIMIT.size:
        return None
    [limit] = _LIMIT.unpack_from(payload.tobytes())
    if len(payload) == _LIMIT.size:
        return limit, _NO_ROWS
    return limit, np.unpackbits(payload[_LIMIT.size :]).astype(np.bool_)
