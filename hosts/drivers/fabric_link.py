"""A host's link into an emulated fabric that another process runs; it takes the place of a network card.

The fabric's process listens at a path for each host, so the machine needs neither the fabric's addresses nor root.
Frames are in memory that both processes share (`wire/frame_rings.py`): sending and receiving need no system call for
them, only one that wakes the other side.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.frame_rings import (
    FRAME_AT,
    HELLO,
    IN_HEAD,
    IN_TAIL,
    LONGEST,
    OUT_HEAD,
    OUT_TAIL,
    ROWS,
    FrameRings,
    lengths_of,
)
from ...wire.frames import FRAME_HEADER_BYTES, Datagrams, FrameWriter, decapsulate

_DESCRIPTORS: Final = 3
_PATIENCE_S: Final = 30.0
"""Longest time to wait for the fabric's answer: a busy machine may delay it."""


class FabricLink:
    """The process's end; it never blocks once it is connected. Datagrams beyond the ring are lost, as in a full
    queue.
    """

    def __init__(self, connected: socket.socket, hello: bytes, descriptors: list[int]) -> None:
        """Take over a connected socket, with what the fabric has sent by it."""
        self.address, port, dscp, mac, gateway = HELLO.unpack(hello)
        self._port = port
        self._socket = connected
        memory, self._fabric_bell, self._bell = descriptors
        self._rings = FrameRings(memory)
        os.close(memory)
        self._writer_of = partial(FrameWriter, source=self.address, source_mac=mac, destination_mac=gateway, port=port)
        self._writers = {dscp: self._writer_of(dscp=dscp)}
        """Writers by code point."""
        self._dscp = dscp
        self._head = self._taken = 0
        self.send_failures = 0
        self.last_send_failure: OSError | None = None
        self._poll = select.epoll()
        for descriptor in (self._bell, self._socket):
            self._poll.register(descriptor, select.EPOLLIN)
        self._closed = False

    def set_dscp(self, dscp: int) -> None:
        """Send with another code point than the fabric's for this link."""
        self._dscp = dscp

    @classmethod
    def connect(cls, path: str) -> FabricLink:
        """Connect to a fabric's socket.

        Raises:
            OSError: No fabric listens there.
        """
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connected.settimeout(_PATIENCE_S)
        descriptors: list[int] = []
        try:
            connected.connect(path)
            hello, descriptors, *_ = socket.recv_fds(connected, HELLO.size, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            if len(hello) != HELLO.size or len(descriptors) != _DESCRIPTORS:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            connected.setblocking(False)
            return cls(connected, hello, descriptors)
        except OSError as error:
            for descriptor in (connected.detach(), *descriptors):
                os.close(descriptor)
            raise OSError(error.errno, f"no emulated fabric at {path}: {error.strerror or error}") from None

    def fileno(self) -> int:
        """Return the file descriptor, for selectors."""
        return self._poll.fileno()

    def close(self) -> None:
        """May be repeated."""
        if not self._closed:
            self._closed = True
            self._poll.close()
            self._socket.close()
            os.close(self._bell)
            os.close(self._fabric_bell)

    def receive(self) -> list[Datagrams]:
        """Receive the datagrams that have arrived at the link's port.

        Returns:
            Batches of one size each; views, valid until the next call.

        Raises:
            OSError: the fabric has ended.
        """
        words = self._rings.words
        words[OUT_TAIL] = self._taken
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            self._check_end()
        head = int(words[OUT_HEAD])
        batches: list[Datagrams] = []
        while self._taken < head:
            start = self._taken & ROWS - 1
            count = min(head - self._taken, ROWS - start)
            self._taken += count
            rows = self._rings.outbound[start : start + count]
            lengths = lengths_of(rows)
            if count == 1 or not np.count_nonzero(lengths != lengths[0]):
                batches.append(self._opened(rows, int(lengths[0])))
                continue
            sizes, first = np.unique(lengths, return_index=True)
            batches += [self._opened(rows[lengths == size], size) for size in sizes[np.argsort(first)].tolist()]
        return [batch for batch in batches if len(batch)]

    def send(self, datagrams: Datagrams, dscp: int | None = None) -> None:
        """Send a batch. `dscp` is its code point; None: the link's."""
        code_point = self._dscp if dscp is None else dscp
        if (writer := self._writers.get(code_point)) is None:
            writer = self._writers[code_point] = self._writer_of(dscp=code_point)
        total, size = datagrams.payload.shape
        length = FRAME_HEADER_BYTES + size
        room = ROWS - (self._head - int(self._rings.words[IN_TAIL]))
        fitting = min(total, max(0, room)) if length <= LONGEST else 0
        sent = 0
        while sent < fitting:
            start = self._head & ROWS - 1
            count = min(fitting - sent, ROWS - start)
            rows = self._rings.inbound[start : start + count]
            part = Datagrams(datagrams.addresses[sent : sent + count], datagrams.payload[sent : sent + count])
            writer.encapsulate(part, rows[:, FRAME_AT : FRAME_AT + length])
            lengths_of(rows)[:] = length
            self._head += count
            sent += count
        if sent:
            self._rings.words[IN_HEAD] = self._head
            os.eventfd_write(self._fabric_bell, 1)
        if sent < total:
            why = errno.ENOBUFS if length <= LONGEST else errno.EMSGSIZE
            self.send_failures += total - sent
            self.last_send_failure = OSError(why, os.strerror(why))

    def _opened(self, rows: NDArray[np.uint8], length: int) -> Datagrams:
        datagrams, _ = decapsulate(rows[:, FRAME_AT : FRAME_AT + length], self.address, self._port)
        return datagrams

    def _check_end(self) -> None:
        """Raise OSError if the fabric has closed the link."""
        try:
            self._socket.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        raise OSError(errno.EPIPE, "the emulated fabric has ended")
