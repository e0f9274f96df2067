"""A UDP socket that takes and gives whole batches: one system call each, and no Python call per datagram.

The kernel reads and writes arrays that are laid out once as its structures (recvmmsg(2), sendmmsg(2), on 64-bit Linux):

    mmsghdr[i] ─name─▶ sockaddr_in[i]
               ─iov──▶ iovec[i] ─base─▶ row i of the buffer, or of the payload to be sent
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import sys
from ipaddress import IPv4Address
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import MESSAGE_BYTES
from ...wire.frames import Datagrams

BATCH: Final = 512
"""Most datagrams in one system call."""
_BUFFER_BYTES: Final = 4 << 20
_ROW_BYTES: Final = MESSAGE_BYTES + 4
"""More than a message, so that what is too long shows; whole words, so that rows are aligned."""
_SO_NO_CHECK: Final = 11
"""Send UDP with checksum 0, for switches rewrite what it would cover."""
_FORCED: Final = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}
"""Buffer sizes beyond the system's limit, for root: SO_RCVBUFFORCE and SO_SNDBUFFORCE."""
_PASSING: Final = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""What sending a datagram may fail with in passing, or receiving the next one: as good as lost on the way."""
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENETDOWN, errno.ENOMEM})
"""What this datagram alone cannot be sent for. Its destination may be what a stranger gave for a source."""

_SOCKADDR: Final = np.dtype([("family", "u2"), ("port", ">u2"), ("address", ">u4"), ("zero", "u8")])
_IOVEC: Final = np.dtype([("base", "u8"), ("length", "u8")])
_MMSGHDR: Final = np.dtype(
    {
        "names": ["name", "name_length", "vectors", "vector_count", "flags", "length"],
        "formats": ["u8", "u4", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 48, 56],
        "itemsize": 64,
    }
)


class DatagramSocket:
    """Bound to one address; it sends to the same port everywhere, and never blocks."""

    def __init__(self, address: int, port: int, bound: socket.socket | None = None) -> None:
        """Bind `address` (IPv4, as an integer), or take over a socket that is `bound` there by another process. Raises
        OSError when it cannot be bound, or on another system.
        """
        if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
            raise OSError(errno.ENOSYS, f"batches of datagrams need 64-bit Linux; this is {sys.platform}")
        self.send_failures = 0
        self.last_send_failure: OSError | None = None
        self.foreign_ports = 0
        """Datagrams from another port than this, which no host of a job sends from: dropped."""
        self._port = port
        self._socket = _bound(address, port) if bound is None else bound
        libc = ctypes.CDLL(None, use_errno=True)
        self._recvmmsg, self._sendmmsg = libc.recvmmsg, libc.sendmmsg
        pointer, integer, count = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
        self._recvmmsg.argtypes = (integer, pointer, count, integer, pointer)
        self._sendmmsg.argtypes = (integer, pointer, count, integer)
        self._buffer = np.zeros((BATCH, _ROW_BYTES), np.uint8)
        self._in, self._sources, self._in_vectors = _messages(port)
        self._in_vectors["base"] = _rows(self._buffer)
        self._in_vectors["length"] = _ROW_BYTES
        self._out, self._destinations, self._out_vectors = _messages(port)
        self._in_at, self._out_at = self._in.ctypes.data, self._out.ctypes.data

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def close(self) -> None:
        """May be repeated."""
        self._socket.close()

    def receive(self) -> list[Datagrams]:
        """What has arrived from this port elsewhere, at most `BATCH` datagrams, by size: views, until the next call."""
        count = self._recvmmsg(self.fileno(), self._in_at, BATCH, socket.MSG_DONTWAIT, None)
        if count < 0:
            number = ctypes.get_errno()
            if number == errno.EINTR or number in _PASSING:  # a neighbour's ICMP complaint comes this way too
                return []
            raise OSError(number, f"receiving failed: {os.strerror(number)}")
        sizes = self._in["length"][:count]
        addresses = self._sources["address"][:count].astype(np.uint32)
        foreign = self._sources["port"][:count] != self._port
        if count and not np.count_nonzero(foreign | (sizes != sizes[0])):
            return [Datagrams(addresses, self._buffer[:count, : sizes[0]])]
        self.foreign_ports += int(np.count_nonzero(foreign))
        distinct, first = np.unique(sizes[~foreign], return_index=True)
        batches = []
        for size in distinct[np.argsort(first)].tolist():
            rows = np.flatnonzero((sizes == size) & ~foreign)
            batches.append(Datagrams(addresses[rows], self._buffer[rows, :size]))
        return batches

    def send(self, datagrams: Datagrams) -> None:
        """Send a batch. What cannot be sent is lost and counted, each by itself; raises OSError if the socket is at
        fault.
        """
        payload = np.ascontiguousarray(datagrams.payload)
        total, size = payload.shape
        for start in range(0, total, BATCH):
            count = min(BATCH, total - start)
            self._destinations["address"][:count] = datagrams.addresses[start : start + count]
            self._out_vectors["base"][:count] = _rows(payload[start : start + count])
            self._out_vectors["length"][:count] = size
            self._send(count)

    def _send(self, count: int) -> None:
        done = 0
        while done < count:
            sent = self._sendmmsg(
                self.fileno(), self._out_at + done * _MMSGHDR.itemsize, count - done, socket.MSG_DONTWAIT
            )
            if sent > 0:
                done += sent
                continue
            number = ctypes.get_errno()
            if number == errno.EINTR:
                continue
            error = OSError(number, os.strerror(number))
            if number not in _PASSING | _REFUSED:
                raise error
            self.send_failures += 1
            self.last_send_failure = error
            done += 1


def _bound(address: int, port: int) -> socket.socket:
    new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        new.setblocking(False)
        for option, forced in _FORCED.items():
            new.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            with contextlib.suppress(PermissionError):
                new.setsockopt(socket.SOL_SOCKET, forced, _BUFFER_BYTES)
        new.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
        new.bind((str(IPv4Address(address)), port))
    except OSError as error:
        new.close()
        raise OSError(error.errno, f"cannot bind {IPv4Address(address)}:{port}: {error.strerror}") from error
    return new


def _messages(port: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """`BATCH` message headers with the addresses and vectors that they point to."""
    headers, addresses, vectors = (np.zeros(BATCH, dtype) for dtype in (_MMSGHDR, _SOCKADDR, _IOVEC))
    headers["name"] = _rows(addresses)
    headers["name_length"] = _SOCKADDR.itemsize
    headers["vectors"] = _rows(vectors)
    headers["vector_count"] = 1
    addresses["family"] = socket.AF_INET
    addresses["port"] = port
    return headers, addresses, vectors


def _rows(array: NDArray[Any]) -> NDArray[np.uint64]:
    """The addresses of an array's rows in memory."""
    return np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0]) + np.uint64(array.ctypes.data)
