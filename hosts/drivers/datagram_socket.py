"""A UDP socket that takes and gives whole batches: one system call each, and no Python call per datagram.

Where the kernel may cut long messages into datagrams (`segmentation`), consecutive datagrams to one peer are sent as
such messages, with UDP checksums. Elsewhere they are sent one by one, with checksum 0. Received ones are not merged
(UDP_GRO): the kernel merges only datagrams with a checksum, and switches send results without.
"""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import MESSAGE_BYTES
from ...wire.frames import DSCP_SHIFT, Datagrams
from ...wire.message_batch import (
    MAX_SEGMENTED_BYTES,
    MAX_SEGMENTS,
    PASSING,
    SOL_UDP,
    UDP_SEGMENT,
    MessageBatch,
    enlarge_buffer,
)
from .port_guard import bind_beside, hold_port
from .segmentation import are_switches, is_loopback, may_segment

BATCH: Final = 512
"""Most datagrams in one system call."""
_BUFFER_BYTES: Final = 4 << 20
_SPARE_BYTES: Final = 4
"""Extra bytes per row beyond the longest datagram: they reveal longer ones, and a whole word keeps rows aligned."""
_SO_NO_CHECK: Final = 11
"""Send UDP with checksum 0, as switches do, which rewrite what it would cover. The kernel cuts no message then."""
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENETDOWN, errno.ENOMEM})
"""Errors that concern one datagram only: its destination may be a source address that a stranger forged."""
_FULL: Final = frozenset({errno.EAGAIN, errno.ENOBUFS})
"""Errors of a full queue, which has no room for the next message either."""


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
        self.segments = may_segment(address) and _knows_segments(self._socket)
        """True if the kernel may cut messages into datagrams, which then have checksums."""
        self._on_loopback = is_loopback(address)
        self._set_checksums(self.segments and self._on_loopback)

    def _set_checksums(self, wanted: bool) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, int(not wanted))

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
        cuts = self._may_cut(datagrams)
        payload = np.ascontiguousarray(datagrams.payload)
        for start in range(0, len(payload), BATCH):
            rows, addresses = payload[start : start + BATCH], datagrams.addresses[start : start + BATCH]
            sent = self._send_runs(rows, addresses) if cuts and len(rows) > 1 else 0
            if sent < len(rows):
                self._send_rows(rows[sent:], addresses[sent:])

    def _may_cut(self, datagrams: Datagrams) -> bool:
        """Return whether the kernel may cut messages to these peers, and have it send checksums or none accordingly."""
        if not self.segments or self._on_loopback:
            return self.segments
        cuts = are_switches(datagrams.addresses)
        self._set_checksums(cuts)
        return cuts

    def _send_rows(self, rows: NDArray[np.uint8], addresses: NDArray[np.uint32]) -> None:
        """Send a datagram per row."""
        self._out.addresses[: len(rows)] = addresses
        self._out.use(rows)
        done = 0
        while done < len(rows):
            try:
                done += self._out.send(self.fileno(), done, len(rows))
            except InterruptedError:
                continue
            except OSError as error:
                self._drop(error, 1)
                done += 1

    def _send_runs(self, rows: NDArray[np.uint8], addresses: NDArray[np.uint32]) -> int:
        """Send rows as messages that the kernel cuts; return the number of rows, or 0 if they are too few per peer.

        What the kernel refuses, and all behind it, is sent one by one.
        """
        starts = _runs(addresses, rows.shape[1])
        count = len(starts) - 1
        if 2 * count > len(rows):
            return 0
        self._out.addresses[:count] = addresses[starts[:-1]]
        self._out.use_runs(rows, starts)
        done = 0
        while done < count:
            try:
                done += self._out.send(self.fileno(), done, count)
            except InterruptedError:
                continue
            except OSError as error:
                first, behind = int(starts[done]), int(starts[done + 1])
                if error.errno not in _FULL:  # it cannot be cut, or its destination is at fault
                    self._send_rows(rows[first:], addresses[first:])
                    break
                self._drop(error, behind - first)
                done += 1
        return len(rows)

    def _drop(self, error: OSError, count: int) -> None:
        """Count datagrams that could not be sent. Raises the error if the socket itself has failed."""
        if error.errno not in PASSING | _REFUSED:
            raise error
        self.send_failures += count
        self.last_send_failure = error


def _runs(addresses: NDArray[np.uint32], size: int) -> NDArray[np.int64]:
    """Return the first row of each message in which rows of `size` bytes go to one peer, and the number of rows."""
    most = min(MAX_SEGMENTS, MAX_SEGMENTED_BYTES // max(size, 1))
    count = len(addresses)
    edges = np.flatnonzero(addresses[1:] != addresses[:-1]) + 1
    if not size or 2 * (len(edges) + 1) > count:
        return np.arange(count + 1)
    if not len(edges):
        return np.append(np.arange(0, count, most), count)
    ends = np.array([0, *edges, count])
    pieces = -(-(ends[1:] - ends[:-1]) // most)  # of each run
    firsts = np.repeat(ends[:-1] - most * (np.cumsum(pieces) - pieces), pieces) + most * np.arange(pieces.sum())
    return np.append(firsts, count)


def _knows_segments(bound: socket.socket) -> bool:
    try:
        bound.getsockopt(SOL_UDP, UDP_SEGMENT)
    except OSError:  # a kernel before 4.18
        return False
    return True


def _bound(address: int, port: int) -> socket.socket:
    new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        new.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            enlarge_buffer(new, option, _BUFFER_BYTES)
        bind_beside(new, address, port)
    except OSError as error:
        new.close()
        raise OSError(error.errno, f"cannot bind {IPv4Address(address)}:{port}: {error.strerror}") from error
    return new
