"""A host's link into an emulated fabric that another process runs; it takes the place of a network card.

The fabric's process listens at a path for each host (Unix domain, sequenced packets), so the machine needs neither the
fabric's addresses nor root. Each message is a batch of datagrams of one size, in native byte order:

    count u32 │ size u32 │ count × peer's address u32 │ count × size bytes

The peer is the destination on the way into the fabric, and the source on the way out, as in `Datagrams`.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.frames import Datagrams

_MESSAGE_BYTES: Final = 64 << 10
"""A message's payload at most, some of which fit into a socket's buffer."""
_BUFFER_BYTES: Final = 1 << 20
"""Asked for; the system gives what it allows."""
_HEAD_BYTES: Final = 8
_LONGEST_BYTES: Final = _MESSAGE_BYTES + _HEAD_BYTES


class BatchSocket:
    """One end of the link; it never blocks. Datagrams beyond the socket's buffer are lost, as in a full queue."""

    def __init__(self, connected: socket.socket) -> None:
        """Takes over a connected socket of sequenced packets."""
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self.send_failures = 0
        self.last_send_failure: OSError | None = None
        self._socket = connected
        self._buffer = np.zeros(8 * _LONGEST_BYTES, np.uint8)

    @classmethod
    def connect(cls, path: str) -> BatchSocket:
        """Connect to a fabric's socket.

        Raises:
            OSError: No fabric listens there.
        """
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connected.connect(path)
        except OSError as error:
            connected.close()
            raise OSError(error.errno, f"no emulated fabric at {path}: {error.strerror}") from None
        return cls(connected)

    def fileno(self) -> int:
        """Return the file descriptor, for selectors."""
        return self._socket.fileno()

    def close(self) -> None:
        """May be repeated."""
        self._socket.close()

    def receive(self) -> list[Datagrams]:
        """Receive the batches that have arrived, up to the size of the buffer.

        Returns:
            Views, valid until the next call.

        Raises:
            OSError: the other end has closed the link.
        """
        batches: list[Datagrams] = []
        start = 0
        while start + _LONGEST_BYTES <= len(self._buffer):
            try:
                length = self._socket.recv_into(self._buffer[start:].data)
            except (BlockingIOError, InterruptedError):
                break
            if length < _HEAD_BYTES:
                if batches:  # batches before the end of the stream count; the next call finds the end again
                    break
                raise OSError(errno.EPIPE, "the emulated fabric has ended")
            batches.append(_parsed(self._buffer[start : start + length]))
            start += -(-length // _HEAD_BYTES) * _HEAD_BYTES
        return batches

    def send(self, datagrams: Datagrams) -> None:
        """Send a batch. Raises OSError when the other end is gone."""
        total, size = datagrams.payload.shape
        step = max(1, _MESSAGE_BYTES // (size + 4))
        for start in range(0, total, step):
            addresses = np.ascontiguousarray(datagrams.addresses[start : start + step], np.uint32)
            payload = np.ascontiguousarray(datagrams.payload[start : start + step])
            head = np.array([len(addresses), size], np.uint32)
            try:
                self._socket.sendmsg([head.data, addresses.data, payload.data])
            except (BlockingIOError, InterruptedError):
                self.send_failures += len(addresses)
                self.last_send_failure = OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))


def _parsed(message: NDArray[np.uint8]) -> Datagrams:
    """Parse one message. Raises OSError if it is not a batch."""
    count, size = message[:_HEAD_BYTES].view(np.uint32).tolist()
    payload_at = _HEAD_BYTES + 4 * count
    if len(message) != payload_at + count * size:
        raise OSError(errno.EPROTO, f"{len(message)} bytes are no batch of {count} datagrams of {size}")
    return Datagrams(message[_HEAD_BYTES:payload_at].view(np.uint32), message[payload_at:].reshape(count, size))
