"""Many datagrams in one system call, none of them a Python object: recvmmsg(2) and sendmmsg(2), on 64-bit Linux.

The kernel reads and writes arrays that are laid out once as its structures::

    mmsghdr[i] ─name─▶ sockaddr_in[i]
               ─iov──▶ iovec[i] ─base─▶ row i of the bytes that are received or sent

Or a message is a run of rows to one peer, which the kernel cuts into a datagram per row (UDP_SEGMENT, udp(7)): the
network stack is passed once for the whole run.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PASSING: Final = frozenset(
    {errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH}
)
"""Transient errors of a call: nothing to read, or a neighbour's ICMP error about an earlier datagram."""
_FORCED: Final = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}
"""Buffer sizes beyond the system's limit, for root: SO_RCVBUFFORCE and SO_SNDBUFFORCE."""

_SOCKADDR: Final = np.dtype([("family", "u2"), ("port", ">u2"), ("address", ">u4"), ("zero", "u8")])
_IOVEC: Final = np.dtype([("base", "u8"), ("length", "u8")])
_MMSGHDR: Final = np.dtype(
    {
        "names": ["name", "name_length", "vectors", "vector_count", "control", "control_length", "flags", "length"],
        "formats": ["u8", "u4", "u8", "u8", "u8", "u8", "i4", "u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
SOL_UDP: Final = socket.IPPROTO_UDP
UDP_SEGMENT: Final = 103
"""Socket option and control message: length in bytes of the datagrams into which the kernel cuts a message."""
MAX_SEGMENTS: Final = 64
"""Datagrams that one message may be cut into, on kernels since 4.18."""
MAX_SEGMENTED_BYTES: Final = 65_535 - 20 - 8
"""Bytes of a message that is cut: those of the largest IPv4 packet without the headers of IPv4 and UDP."""
_CONTROL: Final = np.dtype(
    {
        "names": ["length", "level", "kind", "value", "segment"],
        "formats": ["u8", "i4", "i4", "i4", "u2"],
        "offsets": [0, 8, 12, 16, 16],
        "itemsize": 24,
    }
)
"""A control message: cmsg_len, cmsg_level, cmsg_type, and data of one int, or of 16 bits for UDP_SEGMENT."""
_CONTROL_LENGTH: Final = 20
_SEGMENT_LENGTH: Final = 18


class MessageBatch:
    """The kernel's structures for a batch of datagrams. Entry i of each array belongs to the i-th datagram."""

    def __init__(self, size: int, port: int = 0) -> None:
        """`port` is every peer's until one is received. Raises OSError on another system than 64-bit Linux."""
        if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
            raise OSError(errno.ENOSYS, f"batches of datagrams need 64-bit Linux; this is {sys.platform}")
        self.size = size
        self._headers, self._peers, self._vectors = (np.zeros(size, dtype) for dtype in (_MMSGHDR, _SOCKADDR, _IOVEC))
        self._headers["name"] = _row_addresses(self._peers)
        self._headers["name_length"] = _SOCKADDR.itemsize
        self._headers["vectors"] = _row_addresses(self._vectors)
        self._headers["vector_count"] = 1
        self._peers["family"] = socket.AF_INET
        self._peers["port"] = port
        self._control = np.zeros(2, _CONTROL)
        self._control["length"] = _CONTROL_LENGTH, _SEGMENT_LENGTH
        self._control["level"] = socket.IPPROTO_IP, SOL_UDP
        self._control["kind"] = socket.IP_TOS, UDP_SEGMENT
        self._tos: int | None = None
        self._segment_bytes = 0
        self._headers_at = _address(self._headers)
        self._steps = np.arange(size, dtype=np.int64)
        self._bases, self._row_bytes = self._vectors["base"], self._vectors["length"]
        self.lengths: NDArray[np.uint32] = self._headers["length"]
        """Bytes of each datagram received, as the kernel counted them: at most a row."""
        self.addresses: NDArray[Any] = self._peers["address"]
        """The peers' IPv4 addresses, of type >u4."""
        self.ports: NDArray[Any] = self._peers["port"]
        """The peers' ports, of type >u2."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._recvmmsg, self._sendmmsg = libc.recvmmsg, libc.sendmmsg
        pointer, integer, count = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
        self._recvmmsg.argtypes = (integer, pointer, count, integer, pointer)
        self._sendmmsg.argtypes = (integer, pointer, count, integer)

    def use(self, rows: NDArray[np.uint8]) -> None:
        """Datagram i is row i of these, (n, bytes) with n ≤ `size`: received into it, or sent from it. The caller keeps
        the array alive.
        """
        count = len(rows)
        self._bases[:count] = self._steps[:count] * rows.strides[0] + _address(rows)
        self._row_bytes[:count] = rows.shape[1]
        self._set_control(self._tos, 0)

    def use_runs(self, rows: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        """Message i is the rows from starts[i] to before starts[i + 1], which the kernel cuts into a datagram per row.

        Args:
            rows: Rows (n, bytes), contiguous. The caller keeps the array alive.
            starts: First row of each message, and n at the end: (m + 1,) with m ≤ `size`. A message has at most
                `MAX_SEGMENTS` rows and `MAX_SEGMENTED_BYTES`.
        """
        count, row_bytes = len(starts) - 1, rows.shape[1]
        self._bases[:count] = starts[:-1] * row_bytes + _address(rows)
        self._row_bytes[:count] = (starts[1:] - starts[:-1]) * row_bytes
        self._set_control(self._tos, row_bytes)

    def set_tos(self, tos: int | None) -> None:
        """Send with this value of IPv4's TOS octet; None: the socket's."""
        self._set_control(tos, self._segment_bytes)

    def _set_control(self, tos: int | None, segment_bytes: int) -> None:
        """Write the control messages: one of TOS unless it is None, one of UDP_SEGMENT unless that is 0."""
        if tos == self._tos and segment_bytes == self._segment_bytes:
            return
        self._tos, self._segment_bytes = tos, segment_bytes
        first, behind = int(tos is None), 1 + int(segment_bytes > 0)
        if tos is not None:
            self._control["value"][0] = tos
        self._control["segment"][1] = segment_bytes
        self._headers["control"] = _address(self._control) + first * _CONTROL.itemsize if behind > first else 0
        self._headers["control_length"] = (behind - first) * _CONTROL.itemsize

    def receive(self, fileno: int) -> int:
        """Receive waiting datagrams into the first rows and return their number; a longer one is cut to a row.

        Never blocks.

        Raises:
            OSError: The socket failed.
        """
        count = int(self._recvmmsg(fileno, self._headers_at, self.size, socket.MSG_DONTWAIT, None))
        if count >= 0:
            return count
        number = ctypes.get_errno()
        if number in PASSING:
            return 0
        raise OSError(number, f"receiving failed: {os.strerror(number)}")

    def send(self, fileno: int, first: int, behind: int) -> int:
        """Send the messages from `first` to before `behind`; return the number sent, at least one.

        Raises:
            OSError: The first of them could not be sent.
        """
        at = self._headers_at + first * _MMSGHDR.itemsize
        sent = int(self._sendmmsg(fileno, at, behind - first, socket.MSG_DONTWAIT))
        if sent > 0:
            return sent
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enlarge_buffer(of: socket.socket, option: int, size: int) -> None:
    """Give the socket a buffer (SO_RCVBUF or SO_SNDBUF) of `size` bytes; without root, as much as the system allows."""
    of.setsockopt(socket.SOL_SOCKET, option, size)
    with contextlib.suppress(PermissionError):
        of.setsockopt(socket.SOL_SOCKET, _FORCED[option], size)


def _row_addresses(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Addresses of an array's rows."""
    return np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0]) + np.uint64(_address(array))


def _address(array: NDArray[Any]) -> int:
    """Address of an array's data. NumPy's `ctypes` attribute takes several times as long."""
    at: int = array.__array_interface__["data"][0]
    return at
