"""A large message between two hosts by the transport on UDP sockets, over loopback.

::

    transport (core, thread, socket) ══packets══▶ transport of the receiver
                                     ◀═══acks════

Counted is the CPU time of the process, which has both ends, so that other load on the machine changes little. The peer
moves as many bytes in datagrams of the same size between two sockets by the same system calls, and does nothing else:
it has no checks, acknowledgements or repetition.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from weir.bench.measure import Figure
from weir.hosts import TransportOptions, connect
from weir.hosts.drivers.datagram_socket import DatagramSocket
from weir.wire.frames import Datagrams
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


def exchanged(port: int, size: int) -> float:
    """Send as many bytes from socket to socket: CPU seconds of this process."""
    sender, receiver = (DatagramSocket(address, port) for address in ADDRESSES)
    packets, batch = -(-size // PAYLOAD_BYTES), 64
    datagrams = Datagrams(
        np.full(batch, ADDRESSES[1], np.uint32), np.zeros((batch, HEADER_BYTES + PAYLOAD_BYTES), np.uint8)
    )
    cpu = time.process_time()
    for _ in range(-(-packets // batch)):
        sender.send(datagrams)
        left = batch
        while left > 0 and select.select([receiver], [], [], 0.1)[0]:
            left -= sum(len(chunk) for chunk in receiver.receive())
    spent = time.process_time() - cpu
    sender.close()
    receiver.close()
    return spent


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    port = 20_000 + os.getpid() % 10_000
    for window in WINDOWS:
        transferred(port, window, BYTES // 8)
        turns = [(transferred(port, window, BYTES), exchanged(port, BYTES)) for _ in range(RUNS)]
        yield Figure(
            f"a message's bytes per second of both ends' CPU, window {window}",
            "B/s",
            tuple(BYTES / mine for mine, _ in turns),
            "bare recvmmsg and sendmmsg",
            tuple(BYTES / theirs for _, theirs in turns),
        )
