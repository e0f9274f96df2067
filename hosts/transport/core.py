"""The transport of one host in one job, as a state machine: packets and the time in, packets and a deadline out.

::

    calls ─▶ send, receive_message, request, pull ─▶ Pending          publish, reply
    receive(now, packets) ─check─▶ Connection of their source ─▶ messages ─▶ Pending
    poll(now) ─▶ packets of all connections, with checks             deadline_ns ─▶ when to poll again
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors.values import Checks, shown
from ...wire.frames import Datagrams
from ...wire.transport import HEADER_BYTES, VERSION, FrameCheck, PacketFlag, PacketType, extended, heads_of
from ..array_types import IntArray
from ..errors import InvalidMessage, NotPublished, PeerLost, Withdrawn
from .connection import Connection, parse_ack
from .messages import Head, MessageKind, Value, as_value, encode
from .options import TransportOptions, TransportPlan
from .pending import Pending

_IS_KIND: Final = np.isin(np.arange(256), [VERSION << 4 | kind for kind in PacketType])
"""(256,): whether a header's first byte is that of a packet."""
_WHICH: Final = ("version_type", "epoch", "peer_epoch")


@dataclass(slots=True)
class TransportCounters:
    """Packets of one core since it was made."""

    received: int = 0
    accepted: int = 0
    """Data that was new, and answers and openings that were in order."""
    sent: int = 0
    retransmitted: int = 0
    """Data sent again, in `sent` too."""
    malformed: int = 0
    unknown_job: int = 0
    foreign: int = 0
    """Packets from an address that is no host of the job."""
    bad_check: int = 0
    stale_epoch: int = 0
    """Packets of an earlier start of either end."""
    duplicate: int = 0
    out_of_window: int = 0

    @property
    def drops(self) -> dict[str, int]:
        """Packets dropped, by reason."""
        return {field.name: getattr(self, field.name) for field in fields(self)[4:]}


@dataclass(frozen=True, slots=True)
class Request:
    """A question of a peer's, which `TransportCore.reply` answers."""

    peer: int
    """The asker's rank."""
    name: str
    value: Any
    number: int
    life: int
    """Number of the connection that it came by."""


@dataclass(frozen=True, slots=True)
class Published:
    """A snapshot of the value that a peer has published under a name."""

    version: int
    """Number of times that it had been published, from 1 on."""
    value: Any


class TransportCore:
    """All of a host's connections in one job. Calls name peers by rank; all but `reply` and `publish` return at once
    with a Pending, which is done after a later `receive` or `poll`.
    """

    batching_delay_ns = 0
    """Maximum wait of received packets for more, as in the aggregation cores."""

    def __init__(self, plan: TransportPlan, options: TransportOptions | None = None) -> None:
        self.plan = plan
        self.options = options or TransportOptions()
        self.counters = TransportCounters()
        self.dscp: int | None = None
        """Code point of its datagrams: the socket's."""
        self.settled = 0
        """Number of calls with an outcome."""
        self._is_closing = self._has_told = False
        self._check = FrameCheck(plan.key)
        self._connections = {
            address: Connection(plan, self.options, rank)
            for rank, address in enumerate(plan.peers)
            if address != plan.address
        }
        self._published: dict[str, Published] = {}
        self._withdrawn = set[str]()
        self._requests: deque[Request] = deque()
        self._takers: deque[Pending[Request]] = deque()
        self._asks = 0

    # --- calls ---

    def send(self, peer: int, value: object) -> Pending[None]:
        """Send a value, after those before it to the same peer; done when the peer's transport has all of it.

        Raises InvalidMessage.
        """
        pending: Pending[None] = self._pending()
        self._post(self._connection(peer), MessageKind.VALUE, as_value(value), pending=pending)
        return pending

    def receive_message(self, peer: int) -> Pending[Value]:
        """Start to receive the peer's next value; calls receive values in the order of the calls."""
        connection, pending = self._connection(peer), self._pending()
        value = None if connection.receivers else connection.take()
        if value is not None:
            connection.free_inbox(_bytes_of(value))
            pending.finish(value)
        elif not self._fail_if_troubled(connection, pending):
            connection.receivers.append(pending)
        return pending

    def request(self, peer: int, name: str, value: object) -> Pending[Value]:
        """Send a request to the peer; done with its program's reply. Raises InvalidMessage."""
        return self._request(peer, MessageKind.REQUEST, name, as_value(value))

    def receive_request(self) -> Pending[Request]:
        """Return the next request of any peer."""
        pending: Pending[Request] = self._pending()
        if self._requests and not self._takers:
            self._hand_over(pending, self._requests.popleft())
        else:
            self._takers.append(pending)
        return pending

    def reply(self, request: Request, value: object) -> None:
        """Answer a request; the answer is dropped if the asker has been lost or has restarted. Raises
        InvalidMessage.
        """
        Checks(InvalidMessage, "transport: reply").instance("request", request, Request)
        connection = self._connection(request.peer)
        if connection.life == request.life:
            self._post(connection, MessageKind.REPLY, as_value(value), number=request.number)

    def publish(self, name: str, value: object) -> int:
        """Let peers pull a copy of the present value; return its version.

        Raises:
            InvalidMessage: The value cannot be sent.
        """
        kept = as_value(value)
        encode(MessageKind.PULL, b"", self.options.payload_bytes, name=name)
        version = self._published[name].version + 1 if name in self._published else 1
        self._published[name] = Published(version, kept.copy() if isinstance(kept, np.ndarray) else kept)
        self._withdrawn.discard(name)
        return version

    @property
    def publishes(self) -> bool:
        """True if a published value is not withdrawn."""
        return bool(self._published)

    def withdraw(self, name: str) -> None:
        """Stop answering pulls of a name with a value: from now on they fail with Withdrawn."""
        Checks(InvalidMessage, "transport: withdraw").text("name", name)
        self._published.pop(name, None)
        self._withdrawn.add(name)

    def pull(self, peer: int, name: str) -> Pending[Published]:
        """Read the peer's latest published value, without its program's part; fails with NotPublished. Raises
        InvalidMessage.
        """
        return self._request(peer, MessageKind.PULL, name, b"")

    def connection_number(self, peer: int) -> int:
        """Return the number of the open connection to a peer, from 1; 0: none is open. Raises InvalidMessage."""
        connection = self._connection(peer)
        return connection.life + 1 if connection.peer_epoch else 0

    def cancel(self, pending: Pending[Any]) -> None:
        """Cancel a call: its result goes to the next one."""
        self._takers = deque(taker for taker in self._takers if taker is not pending)
        for connection in self._connections.values():
            connection.receivers = deque(other for other in connection.receivers if other is not pending)
            connection.asked = {number: other for number, other in connection.asked.items() if other is not pending}

    # --- driven ---

    @property
    def is_delivered(self) -> bool:
        """True if peers have acknowledged every message and reply, or were lost."""
        return not any(connection.outgoing.has_unacknowledged for connection in self._connections.values())

    def close(self) -> None:
        """Close this end: the next poll notifies the peers. Those without a connection are asked for one by it, because
        CLOSED is believed only in a packet that names their epoch.
        """
        self._is_closing = True
        for connection in self._connections.values():
            connection.owes_open |= not connection.peer_epoch and not connection.is_closed_there

    @property
    def all_notified(self) -> bool:
        """True if `close` has reached all peers that have not closed their ends, as far as they have answered."""
        return all(each.peer_epoch or each.is_closed_there for each in self._connections.values())

    @property
    def deadline_ns(self) -> int | None:
        """When to poll at the latest; 0: now. None: not before something comes."""
        if self._is_closing:
            return None if self._has_told else 0
        deadlines_ns = [due for connection in self._connections.values() if (due := connection.deadline_ns) is not None]
        return min(deadlines_ns, default=None)

    def receive(self, now_ns: int, datagrams: Datagrams) -> None:
        """Take UDP payloads of one size. Bad ones are counted and dropped."""
        counters, count = self.counters, len(datagrams)
        counters.received += count
        size = datagrams.payload.shape[1]
        if not HEADER_BYTES <= size <= HEADER_BYTES + self.options.payload_bytes:
            counters.malformed += count
            return
        heads = heads_of(datagrams.payload)
        good = _IS_KIND[heads["version_type"]]
        counters.malformed += count - int(np.count_nonzero(good))
        here = good & (heads["job"] == self.plan.job)
        counters.unknown_job += int(np.count_nonzero(good & ~here))
        for address in np.unique(datagrams.addresses[here]).tolist():
            rows = np.flatnonzero(here & (datagrams.addresses == address))
            if (connection := self._connections.get(address)) is None:
                counters.foreign += len(rows)
                continue
            for group in _alike(heads[rows]):
                self._receive_group(now_ns, connection, address, datagrams.payload[rows[group]], heads[rows[group]])

    def poll(self, now_ns: int) -> list[Datagrams]:
        """Return the packets to send now."""
        out = []
        self._has_told = self._is_closing
        for address, connection in self._connections.items():
            try:
                parts = connection.poll(now_ns, closed=self._is_closing)
            except PeerLost as error:
                connection.abort(error)
                continue
            for part in parts:
                rows = self._check.seal(
                    part.rows, source=self.plan.address, destination=address, sequences=part.sequences
                )
                self.counters.sent += len(rows)
                out.append(Datagrams(np.full(len(rows), address, np.uint32), rows))
        return out

    # --- packets ---

    def _receive_group(
        self, now_ns: int, connection: Connection, address: int, payload: NDArray[np.uint8], heads: NDArray[np.void]
    ) -> None:
        """Packets of one peer, type and pair of epochs."""
        kind = PacketType(int(heads["version_type"][0]) & 0xF)
        epoch, peer_epoch = int(heads["epoch"][0]), int(heads["peer_epoch"][0])
        is_current = epoch == connection.peer_epoch and peer_epoch == connection.epoch
        sequences = self._places(connection if is_current else None, kind, heads)
        checks = self._check.of(payload, source=address, destination=self.plan.address, sequences=sequences)
        good = checks == heads["check"]
        self.counters.bad_check += len(good) - int(np.count_nonzero(good))
        if not good.any():
            return
        payload, heads, sequences = payload[good], heads[good], sequences[good]
        if epoch in connection.left or not epoch:
            self.counters.stale_epoch += len(heads)
        elif kind is PacketType.OPEN:
            connection.owe_opened(epoch)
            self.counters.accepted += len(heads)
        elif peer_epoch != connection.epoch:
            self.counters.stale_epoch += len(heads)
            connection.owes_open |= not connection.is_closed_there  # the peer learns by it that this end has begun anew
        else:
            if epoch != connection.peer_epoch:
                connection.adopt(epoch, now_ns)
            connection.on_packet(now_ns)
            if kind is PacketType.DATA:
                self._receive_data(connection, payload, heads, sequences)
            elif kind is PacketType.ACK:
                self._receive_acks(now_ns, connection, payload, heads, sequences)
            else:
                connection.owes_ack = True  # an earlier one may have been lost, and with it the news of this end
                self.counters.accepted += len(heads)

    def _places(self, connection: Connection | None, kind: PacketType, heads: NDArray[np.void]) -> IntArray:
        """The 64-bit numbers of the packets' sequences."""
        if connection is None or kind not in (PacketType.DATA, PacketType.ACK):
            return heads["sequence"].astype(np.int64)
        near = connection.incoming.base if kind is PacketType.DATA else connection.outgoing.base
        return extended(heads["sequence"], near)

    def _receive_data(
        self, connection: Connection, payload: NDArray[np.uint8], heads: NDArray[np.void], sequences: IntArray
    ) -> None:
        taken = connection.incoming.receive(sequences, payload[:, HEADER_BYTES:], heads["flags"])
        counters = self.counters
        counters.accepted += taken.accepted
        counters.duplicate += taken.duplicate
        counters.out_of_window += taken.out_of_window
        counters.malformed += taken.malformed
        connection.newest = max(connection.newest, int(extended(heads["order"], max(connection.newest, 0)).max()))
        connection.owes_ack = True
        for head, value in taken.messages:
            self._deliver(connection, head, value)
        connection.let_in()

    def _receive_acks(
        self,
        now_ns: int,
        connection: Connection,
        payload: NDArray[np.uint8],
        heads: NDArray[np.void],
        sequences: IntArray,
    ) -> None:
        outgoing = connection.outgoing
        newest = extended(heads["order"], outgoing.orders) - 1
        for row, (cumulative, order) in enumerate(zip(sequences.tolist(), newest.tolist(), strict=True)):
            if (parsed := parse_ack(payload[row, HEADER_BYTES:])) is None:
                self.counters.malformed += 1
                continue
            low, beyond = parsed
            limit = int(extended(np.array([low]), cumulative)[0])
            outgoing.acknowledge(now_ns, cumulative, order, beyond, limit)
            self.counters.accepted += 1
        connection.owes_ack |= bool((heads["flags"] & PacketFlag.ASK).any())
        if (heads["flags"] & PacketFlag.CLOSED).any():
            connection.abort(PeerLost(f"transport: peer {connection.peer} has closed its end", connection.peer))
            connection.is_closed_there = True

    # --- messages ---

    def _deliver(self, connection: Connection, head: Head, value: Value) -> None:
        if head.kind is MessageKind.VALUE:
            if connection.receivers:
                connection.receivers.popleft().finish(value)
            else:
                connection.inbox.append(value)
                connection.inbox_bytes += _bytes_of(value)
        elif head.kind is MessageKind.REQUEST:
            request = Request(connection.peer, head.name, value, head.number, connection.life)
            connection.inbox_bytes += _bytes_of(value)
            if self._takers:
                self._hand_over(self._takers.popleft(), request)
            else:
                self._requests.append(request)
        elif head.kind is MessageKind.PULL:
            self._answer_pull(connection, head)
        elif (asked := connection.asked.pop(head.number, None)) is not None:
            if head.kind is MessageKind.UNKNOWN_NAME:
                asked.fail(
                    NotPublished(
                        f"transport: peer {connection.peer} has published nothing as {head.name!r}", connection.peer
                    )
                )
            elif head.kind is MessageKind.WITHDRAWN:
                asked.fail(
                    Withdrawn(
                        f"transport: peer {connection.peer} has withdrawn {head.name!r}",
                        connection.peer,
                        connection.life + 1,
                    )
                )
            else:
                asked.finish(Published(head.version, value) if head.kind is MessageKind.PULLED else value)

    def _answer_pull(self, connection: Connection, head: Head) -> None:
        published = self._published.get(head.name)
        if published is not None:
            self._post(connection, MessageKind.PULLED, published.value, number=head.number, version=published.version)
        else:
            kind = MessageKind.WITHDRAWN if head.name in self._withdrawn else MessageKind.UNKNOWN_NAME
            self._post(connection, kind, b"", name=head.name, number=head.number)

    def _hand_over(self, pending: Pending[Request], request: Request) -> None:
        self._connection(request.peer).free_inbox(_bytes_of(request.value))
        pending.finish(request)

    def _request(self, peer: int, kind: MessageKind, name: str, value: Value) -> Pending[Any]:
        connection, pending = self._connection(peer), self._pending()
        if not self._fail_if_troubled(connection, pending):
            self._asks += 1
            self._post(connection, kind, value, name=name, number=self._asks)
            connection.asked[self._asks] = pending
        return pending

    def _post(
        self,
        connection: Connection,
        kind: MessageKind,
        value: Value,
        *,
        pending: Pending[Any] | None = None,
        **head: Any,
    ) -> None:
        stream = encode(kind, value, self.options.payload_bytes, **head)
        if pending is None or not self._fail_if_troubled(connection, pending):
            connection.outgoing.queue(stream, pending)

    def _fail_if_troubled(self, connection: Connection, pending: Pending[Any]) -> bool:
        """Fail the call, once, with an error that occurred while no call was under way."""
        error, connection.trouble = connection.trouble, None
        if error is None:
            return False
        pending.fail(error)
        return True

    def _connection(self, peer: int) -> Connection:
        peers = self.plan.peers
        try:
            rank = operator.index(peer)
        except TypeError:
            rank = -1
        if not 0 <= rank < len(peers) or peers[rank] == self.plan.address:
            raise InvalidMessage(
                f"peer {shown(peer)} is not in 0…{len(peers) - 1} without this host itself",
                rank,
                place=f"transport of job {self.plan.job}",
                value=peer,
            )
        return self._connections[peers[rank]]

    def _pending(self) -> Pending[Any]:
        return Pending(self._note_settled)

    def _note_settled(self) -> None:
        self.settled += 1


def _bytes_of(value: Value) -> int:
    return len(value) if isinstance(value, bytes) else value.nbytes


def _alike(heads: NDArray[np.void]) -> Iterator[IntArray]:
    """Indexes of headers that have type and epochs in common, by the first of them."""
    keys = np.stack([heads[name].astype(np.int64) for name in _WHICH])
    if (keys == keys[:, :1]).all():
        yield np.arange(len(heads))
        return
    left = np.arange(len(heads))
    while len(left):
        same = (keys[:, left] == keys[:, left[:1]]).all(axis=0)
        yield left[same]
        left = left[~same]
