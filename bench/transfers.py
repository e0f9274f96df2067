"""A large message between two hosts by the transport on UDP sockets, over loopback.

::

    transport (core, thread, socket) ══packets══▶ transport of the receiver
                                     ◀═══acks════

Counted is the CPU time of the process, which has both ends, so that other load on the machine changes little. The peers
move as many bytes in datagrams of the same size between two sockets, one by one or merged, and do nothing else: they
have no checks, acknowledgements or repetition.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from weir.bench.bare_sockets import MERGED, SINGLE, BareSocket
from weir.bench.measure import Figure
from weir.hosts import TransportOptions, connect
from weir.wire.transport import HEADER_BYTES, PAYLOAD_BYTES

BYTES: Final = 32 << 20
RUNS: Final = 3
WINDOWS: Final = (64, 512)
"""The transport's windows, in packets: the default, and one for hosts whose queues have the room."""
ADDRESSES: Final = (0x7F00_0B11, 0x7F00_0B12)
_KEY: Final = "5a" * 32


def transferred(port: int, window: int, size: int) -> float:
    """Send one message: CPU seconds of this process."""
    value = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    options = TransportOptions(window=window)
    ends = [connect(1, ADDRESSES, rank, key=_KEY, options=options, port=port) for rank in range(2)]
    try:
        ends[0].send_async(1, b"opens the connection")
        ends[1].recv(0)
        cpu = time.process_time()
        received, sent = ends[1].recv_async(0), ends[0].send_async(1, value)
        result = received.wait()
        sent.wait()
        spent = time.process_time() - cpu
    finally:
        for end in ends:
            end.close()
    if not np.array_equal(result, value):
        raise RuntimeError("the message is wrong")
    return spent


def exchanged(port: int, size: int, *, merged: bool) -> float:
    """Send as many bytes from socket to socket: CPU seconds of this process."""
    sender, receiver = (BareSocket(address, port, HEADER_BYTES + PAYLOAD_BYTES, merged=merged) for address in ADDRESSES)
    packets, batch = -(-size // PAYLOAD_BYTES), 64
    cpu = time.process_time()
    for _ in range(-(-packets // batch)):
        sender.send(ADDRESSES[1], batch)
        left = batch
        while left > 0 and select.select([receiver], [], [], 0.1)[0]:
            left -= receiver.receive()
    spent = time.process_time() - cpu
    sender.close()
    receiver.close()
    return spent


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    port = 20_000 + os.getpid() % 10_000
    for window in WINDOWS:
        transferred(port, window, BYTES // 8)
        turns = [
            (transferred(port, window, BYTES), *(exchanged(port, BYTES, merged=merged) for merged in (False, True)))
            for _ in range(RUNS)
        ]
        mine, single, together = (tuple(BYTES / turn[column] for turn in turns) for column in range(3))
        name = f"a message's bytes per second of both ends' CPU, window {window}"
        yield Figure(name, "B/s", mine, SINGLE, single)
        yield Figure(name, "B/s", mine, MERGED, together)
