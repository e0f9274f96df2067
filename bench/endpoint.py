"""A worker process on a UDP socket: tensor bytes that one core sums, over loopback.

::

    worker (core, thread, socket) ══contributions══▶ echo process: as if a switch summed them with nobody else's
                                  ◀═════results═════

Counted is the worker process's CPU time, so that the echo costs it nothing. The peers move as many datagrams of the
same size between two processes and do nothing else: one by one (recvmmsg, sendmmsg), or merged into messages of many
(UDP_SEGMENT, UDP_GRO). A worker cannot receive the second way: results of a switch have no UDP checksum, and the kernel
merges no such datagrams.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

import numpy as np

from weir.bench.bare_sockets import MERGED, SINGLE, BareSocket, echo_bare, in_process
from weir.bench.measure import Aim, Figure
from weir.hosts.drivers.datagram_socket import DatagramSocket
from weir.hosts.drivers.udp import UdpWorker
from weir.hosts.protocol.worker import WorkerCore
from weir.wire.aggregation import LANES, MESSAGE_BYTES
from weir.wire.control import WorkerPlan
from weir.wire.fields import BY_NAME

CHUNKS: Final = 32_768
"""Chunks of the tensor: 32 MiB."""
SLOTS: Final = 1024
RUNS: Final = 3
AIM: Final = 500e6
"""Bytes of tensor data per second."""
AIM_OF_MERGED: Final = 0.8
WORKER_ADDRESS: Final = 0x7F00_0B01
ECHO_ADDRESS: Final = 0x7F00_0B02
BARE_ADDRESSES: Final = {False: (0x7F00_0B03, 0x7F00_0B04), True: (0x7F00_0B05, 0x7F00_0B06)}
"""Addresses of a bare socket and its echo, for datagrams one by one and for merged ones."""
_TIMEOUT_S: Final = 120.0
_CHECKSUM: Final = BY_NAME["checksum"].offset


def echo(address: int, port: int, ready: Any) -> None:
    """Send every contribution back as the result that it is in a job of one worker, until the process is ended."""
    socket = DatagramSocket(address, port)
    ready.set()
    while True:
        select.select([socket], [], [])
        for datagrams in socket.receive():
            payload = datagrams.payload
            payload[:, 0] += 1  # CONTRIBUTION to RESULT, SCALE to SCALE_RESULT
            checksum = payload[:, _CHECKSUM : _CHECKSUM + 2].view(">u2")
            checksum[...] = (checksum.astype(np.int64) - 0x0100) % 0xFFFF
            socket.send(datagrams)


def echoing(port: int) -> AbstractContextManager[None]:
    """An echo process."""
    return in_process(echo, ECHO_ADDRESS, port)


def summed(port: int, chunks: int) -> tuple[float, float]:
    """Sum one tensor: (CPU seconds of this process, seconds on the wall)."""
    tensor = np.random.default_rng(1).standard_normal(chunks * LANES, np.float32)
    plan = WorkerPlan(1, 1, 0, 1, ECHO_ADDRESS, 1, SLOTS, SLOTS // 2)
    with UdpWorker(WorkerCore(plan), WORKER_ADDRESS, port) as worker:
        worker.wait(worker.submit(tensor[: 4 * LANES]), _TIMEOUT_S)
        cpu, wall = time.process_time(), time.perf_counter()
        reduced = worker.wait(worker.submit(tensor), _TIMEOUT_S)
        spent = time.process_time() - cpu, time.perf_counter() - wall
    if np.abs(reduced.array - tensor).max() > 1e-6:
        raise RuntimeError("the sum is wrong")
    return spent


def exchanged(port: int, chunks: int, *, merged: bool, window: int = SLOTS // 2) -> float:
    """Send as many datagrams and receive the echoes, and nothing else: CPU seconds of this process."""
    here, there = BARE_ADDRESSES[merged]
    bare = BareSocket(here, port, MESSAGE_BYTES, merged=merged)
    cpu = time.process_time()
    sent = received = 0
    while received < chunks:
        left, room = chunks - sent, window - max(0, sent - received)
        if left and room >= min(left, window // 8):
            sending = min(left, room)
            bare.send(there, sending)
            sent += sending
        if not select.select([bare], [], [], 0.1)[0]:
            received = sent  # missing packets were lost
        received += bare.receive()
    bare.close()
    return time.process_time() - cpu


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    port = 20_000 + os.getpid() % 10_000
    size = 4 * LANES * CHUNKS
    with ExitStack() as stack:  # the port of a host is held on all addresses, so the bare sockets have the next one
        stack.enter_context(echoing(port))
        for merged, (here, there) in BARE_ADDRESSES.items():
            stack.enter_context(in_process(echo_bare, there, here, port + 1, MESSAGE_BYTES, merged))
        summed(port, CHUNKS // 8)
        turns = [
            (*summed(port, CHUNKS), *(exchanged(port + 1, CHUNKS, merged=merged) for merged in BARE_ADDRESSES))
            for _ in range(RUNS)
        ]
    cpu, wall, single, together = (tuple(size / turn[column] for turn in turns) for column in range(4))
    name = "a worker's tensor bytes per second of its CPU"
    yield Figure(name, "B/s", cpu, SINGLE, single, aim=Aim(AIM))
    yield Figure(name, "B/s", cpu, MERGED, together, aim=Aim(AIM_OF_MERGED, of_ratio=True))
    yield Figure("a worker's tensor bytes per second", "B/s", wall)
