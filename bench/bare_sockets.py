"""Sockets that only move datagrams, by the system calls with which hosts' sockets are compared."""

from __future__ import annotations

import multiprocessing
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from typing import Any, Final

import numpy as np

from weir.wire.message_batch import MAX_SEGMENTED_BYTES, MAX_SEGMENTS, SOL_UDP, MessageBatch, enlarge_buffer

SINGLE: Final = "bare recvmmsg and sendmmsg"
MERGED: Final = "bare UDP_SEGMENT and UDP_GRO"
_BATCH: Final = 512
_MERGED_BATCH: Final = 16
_MERGED_BYTES: Final = 1 << 16
_BUFFER_BYTES: Final = 4 << 20
_SO_NO_CHECK: Final = 11
_UDP_GRO: Final = 104
_START_S: Final = 120.0


class BareSocket:
    """Datagrams of one size, with nothing in them: one by one, or merged into messages of many (`merged`)."""

    def __init__(self, address: int, port: int, size: int, *, merged: bool) -> None:
        self._size, self._merged = size, merged
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            enlarge_buffer(self._socket, option, _BUFFER_BYTES)
        level, option = (SOL_UDP, _UDP_GRO) if merged else (socket.SOL_SOCKET, _SO_NO_CHECK)
        self._socket.setsockopt(level, option, 1)
        self._socket.bind((str(IPv4Address(address)), port))
        shape = (_MERGED_BATCH, _MERGED_BYTES) if merged else (_BATCH, size)
        self._in, self._buffer = MessageBatch(shape[0]), np.zeros(shape, np.uint8)
        self._in.use(self._buffer)
        self._out, self._rows = MessageBatch(_BATCH, port), np.zeros((_BATCH, size), np.uint8)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._socket.fileno()

    def send(self, address: int, count: int) -> None:
        """Send `count` ≤ 512 datagrams. Raises OSError if the kernel refuses one."""
        rows = self._rows[:count]
        messages = count
        if self._merged:
            most = min(MAX_SEGMENTS, MAX_SEGMENTED_BYTES // self._size)
            starts = np.append(np.arange(0, count, most), count)
            messages = len(starts) - 1
            self._out.use_runs(rows, starts)
        else:
            self._out.use(rows)
        self._out.addresses[:messages] = address
        done = 0
        while done < messages:
            done += self._out.send(self.fileno(), done, messages)

    def receive(self) -> int:
        """Return the number of datagrams received, without a wait."""
        count = self._in.receive(self.fileno())
        return int(self._in.lengths[:count].sum()) // self._size if self._merged else count

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def echo_bare(address: int, peer: int, port: int, size: int, merged: bool, ready: Any) -> None:
    """Send a peer as many datagrams as come, until the process is ended."""
    bare = BareSocket(address, port, size, merged=merged)
    ready.set()
    while True:
        select.select([bare], [], [])
        left = bare.receive()
        while left > 0:
            bare.send(peer, min(left, _BATCH))
            left -= _BATCH


@contextmanager
def in_process(target: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Run a function in a process of its own, which sets the event that is its last argument when it is ready."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=target, args=(*arguments, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(_START_S):
            raise RuntimeError(f"the echo process did not start in {_START_S:g} s")
        yield
    finally:
        process.kill()
        process.join()
