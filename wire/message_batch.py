"""Many datagrams in one system call, none of them a Python object: recvmmsg(2) and sendmmsg(2), on 64-bit Linux.

The kernel reads and writes arrays that are laid out once as its structures::

    mmsghdr[i] ─name─▶ sockaddr_in[i]
               ─iov──▶ iovec[i] ─base─▶ row i of the bytes that are received or sent
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
_CONTROL: Final = np.dtype([("length", "u8"), ("level", "i4"), ("kind", "i4"), ("value", "i4"), ("padding", "i4")])
"""A control message of one int: cmsg_len, cmsg_level, cmsg_type, data."""
_CONTROL_LENGTH: Final = 20


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
        self._control = np.array([(_CONTROL_LENGTH, socket.IPPROTO_IP, socket.IP_TOS, 0, 0)], _CONTROL)
        self._tos: int | None = None
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

    def set_tos(self, tos: int | None) -> None:
        """Send with this value of IPv4's TOS octet; None: the socket's."""
        if tos != self._tos:
            self._tos = tos
            self._control["value"] = 0 if tos is None else tos
            self._headers["control"] = 0 if tos is None else _address(self._control)
            self._headers["control_length"] = 0 if tos is None else _CONTROL.itemsize

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
        """Send the rows from `first` to before `behind`; return the number sent, at least one.

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
