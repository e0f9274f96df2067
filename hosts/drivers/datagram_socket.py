"""A UDP socket that takes and gives whole batches: one system call each, and no Python call per datagram."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address
from typing import Final

import numpy as np

from ...wire.aggregation import MESSAGE_BYTES
from ...wire.frames import DSCP_SHIFT, Datagrams
from ...wire.message_batch import PASSING, MessageBatch, enlarge_buffer
from .port_guard import bind_beside, hold_port

BATCH: Final = 512
"""Most datagrams in one system call."""
_BUFFER_BYTES: Final = 4 << 20
_SPARE_BYTES: Final = 4
"""Extra bytes per row beyond the longest datagram: they reveal longer ones, and a whole word keeps rows aligned."""
_SO_NO_CHECK: Final = 11
"""Send UDP with checksum 0, for switches rewrite what it would cover."""
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENETDOWN, errno.ENOMEM})
"""Errors that concern one datagram only: its destination may be a source address that a stranger forged."""


class DatagramSocket:
    """Bound to one address; it sends to the same port everywhere, and never blocks."""

    def __init__(
        self,
        address: int,
        port: int,
        bound: socket.socket | None = None,
        longest_bytes: int = MESSAGE_BYTES,
        guard: socket.socket | None = None,
    ) -> None:
        """Bind a UDP socket, or take over a bound one.

        Args:
            address: IPv4 address, as an integer.
            port: UDP port.
            bound: a socket that another process has bound there already.
            longest_bytes: longest datagram to expect. Longer ones are cut, but stay longer than this.
            guard: the guard of the port, if `bound` came with one.

        Raises:
            OSError: the address cannot be bound, another user has the port on some address, or the operating system is
                not supported.
        """
        self._in, self._out = MessageBatch(BATCH), MessageBatch(BATCH, port)
        self._buffer = np.zeros((BATCH, longest_bytes + _SPARE_BYTES), np.uint8)
        self._in.use(self._buffer)
        self.send_failures = 0
        self.last_send_failure: OSError | None = None
        self.foreign_ports = 0
        """Datagrams from another port than this, which no host of a job sends from: dropped."""
        self._port = port
        self.guard = hold_port(port) if bound is None else guard
        """Holds the port on all other addresses; None: another process of this user does."""
        try:
            self._socket = _bound(address, port) if bound is None else bound
        except OSError:
            self._close_guard()
            raise

    def fileno(self) -> int:
        """Return the file descriptor, for selectors."""
        return self._socket.fileno()

    def set_dscp(self, dscp: int) -> None:
        """Send with this code point, as do all processes that share the port."""
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << DSCP_SHIFT)

    def close(self) -> None:
        """May be repeated."""
        self._socket.close()
        self._close_guard()

    def _close_guard(self) -> None:
        if self.guard is not None:
            self.guard.close()

    def receive(self) -> list[Datagrams]:
        """Receive at most `BATCH` datagrams that were sent from this port elsewhere.

        Returns:
            Datagrams grouped by size; views, valid until the next call.
        """
        count = self._in.receive(self.fileno())
        sizes = self._in.lengths[:count]
        addresses = self._in.addresses[:count].astype(np.uint32)
        foreign = self._in.ports[:count] != self._port
        if count and not np.count_nonzero(foreign | (sizes != sizes[0])):
            return [Datagrams(addresses, self._buffer[:count, : sizes[0]])]
        self.foreign_ports += int(np.count_nonzero(foreign))
        distinct, first = np.unique(sizes[~foreign], return_index=True)
        batches = []
        for size in distinct[np.argsort(first)].tolist():
            rows = np.flatnonzero((sizes == size) & ~foreign)
            batches.append(Datagrams(addresses[rows], self._buffer[rows, :size]))
        return batches

    def send(self, datagrams: Datagrams, dscp: int | None = None) -> None:
        """Send a batch. Datagrams that cannot be sent are dropped and counted one by one; OSError if the socket itself
        fails. `dscp` is their code point; None: the socket's.
        """
        self._out.set_tos(None if dscp is None else dscp << DSCP_SHIFT)
        payload = np.ascontiguousarray(datagrams.payload)
        for start in range(0, len(payload), BATCH):
            rows = payload[start : start + BATCH]
            self._out.addresses[: len(rows)] = datagrams.addresses[start : start + BATCH]
            self._out.use(rows)
            self._send(len(rows))

    def _send(self, count: int) -> None:
        done = 0
        while done < count:
            try:
                done += self._out.send(self.fileno(), done, count)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno not in PASSING | _REFUSED:
                    raise
                self.send_failures += 1
                self.last_send_failure = error
                done += 1


def _bound(address: int, port: int) -> socket.socket:
    new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        new.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            enlarge_buffer(new, option, _BUFFER_BYTES)
        new.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        bind_beside(new, address, port)
    except OSError as error:
        new.close()
        raise OSError(error.errno, f"cannot bind {IPv4Address(address)}:{port}: {error.strerror}") from error
    return new
