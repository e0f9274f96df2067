"""A worker process on a UDP socket: tensor bytes that one core sums, over loopback.

::

    worker (core, thread, socket) ══contributions══▶ echo process: as if a switch summed them with nobody else's
                                  ◀═════results═════

Counted is the worker process's CPU time, so that the echo costs it nothing. The peer moves the same datagrams by the
same system calls and does nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from weir.bench.measure import Aim, Figure
from weir.hosts.drivers.datagram_socket import DatagramSocket
from weir.hosts.drivers.udp import UdpWorker
from weir.hosts.protocol.worker import WorkerCore
from weir.wire.aggregation import LANES, MESSAGE_BYTES
from weir.wire.control import WorkerPlan
from weir.wire.fields import BY_NAME
from weir.wire.frames import Datagrams

CHUNKS: Final = 32_768
"""Chunks of the tensor: 32 MiB."""
SLOTS: Final = 1024
RUNS: Final = 3
AIM: Final = 100e6
"""Bytes of tensor data per second."""
WORKER_ADDRESS: Final = 0x7F00_0B01
ECHO_ADDRESS: Final = 0x7F00_0B02
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


@contextmanager
def echoing(port: int) -> Iterator[None]:
    """An echo process."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=echo, args=(ECHO_ADDRESS, port, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(_TIMEOUT_S):
            raise RuntimeError(f"the echo process did not start in {_TIMEOUT_S:g} s")
        yield
    finally:
        process.kill()
        process.join()


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


def exchanged(port: int, chunks: int, window: int = SLOTS // 2) -> float:
    """Send as many datagrams and take the echoes, and nothing else: CPU seconds of this process."""
    socket = DatagramSocket(WORKER_ADDRESS, port)
    batch = 64
    datagrams = Datagrams(np.full(batch, ECHO_ADDRESS, np.uint32), np.zeros((batch, MESSAGE_BYTES), np.uint8))
    cpu = time.process_time()
    sent = received = 0
    while received < chunks:
        while sent < chunks and sent - received <= window - batch:
            socket.send(datagrams)
            sent += batch
        if not select.select([socket], [], [], 0.1)[0]:
            received = sent  # missing packets were lost
        received += sum(len(echoes) for echoes in socket.receive())
    socket.close()
    return time.process_time() - cpu


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    port = 20_000 + os.getpid() % 10_000
    size = 4 * LANES * CHUNKS
    with echoing(port):
        summed(port, CHUNKS // 8)
        turns = [(summed(port, CHUNKS), exchanged(port, CHUNKS)) for _ in range(RUNS)]
    cpu = tuple(size / mine[0] for mine, _ in turns)
    wall = tuple(size / mine[1] for mine, _ in turns)
    bare = tuple(size / theirs for _, theirs in turns)
    yield Figure(
        "a worker's tensor bytes per second of its CPU", "B/s", cpu, "bare recvmmsg and sendmmsg", bare, aim=Aim(AIM)
    )
    yield Figure("a worker's tensor bytes per second", "B/s", wall)
