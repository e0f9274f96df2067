"""Memory that a worker allocates for a window of packets: little, for the kernel clears every new page."""

from __future__ import annotations

import tracemalloc

import numpy as np

from weir.hosts import WorkerCore
from weir.wire.aggregation import LANES, MESSAGE_BYTES
from weir.wire.control import WorkerPlan
from weir.wire.fields import BY_NAME
from weir.wire.frames import Datagrams

AGGREGATOR, WINDOW, MS = 0x0AFF_0001, 512, 1_000_000
CHECKSUM = BY_NAME["checksum"].offset


def results(sent: list[Datagrams]) -> list[Datagrams]:
    """Answers to the messages of a job's only worker: its contributions are the sums."""
    answers = []
    for datagrams in sent:
        payload = datagrams.payload.copy()
        payload[:, 0] += 1  # CONTRIBUTION to RESULT, SCALE to SCALE_RESULT
        checksum = payload[:, CHECKSUM : CHECKSUM + 2].view(">u2")
        checksum[...] = (checksum.astype(np.int64) - 0x0100) % 0xFFFF
        answers.append(Datagrams(datagrams.addresses, payload))
    return answers


def received(worker: WorkerCore, now_ns: int, answers: list[Datagrams]) -> int:
    """Receive answers; return the most bytes that were allocated at a time."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for datagrams in answers:
        worker.receive(now_ns, datagrams)
    return tracemalloc.get_traced_memory()[1] - before


def polled(worker: WorkerCore, now_ns: int) -> tuple[list[Datagrams], int]:
    """Poll a worker; return the datagrams, and the most bytes that were allocated at a time."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    sent = worker.poll(now_ns)
    return sent, tracemalloc.get_traced_memory()[1] - before


def test_a_window_allocates_its_packets_and_little_else() -> None:
    worker = WorkerCore(WorkerPlan(1, 1, 0, 1, AGGREGATOR, 1, 2 * WINDOW, WINDOW))
    tensor = np.random.default_rng(1).standard_normal(8 * WINDOW * LANES).astype(np.float32)
    handle = worker.submit(tensor)
    received_bytes, polled_bytes = [], []
    now, answers = 0, results(worker.poll(0))
    tracemalloc.start()
    try:
        while answers:
            now += MS
            received_bytes.append(received(worker, now, answers))
            sent, allocated = polled(worker, now)
            polled_bytes.append(allocated)
            answers = results(sent)
    finally:
        tracemalloc.stop()
    reduced = worker.pop_result(handle)
    assert reduced is not None
    assert np.abs(reduced.array - tensor).max() < 1e-6
    window_bytes = WINDOW * MESSAGE_BYTES
    # the first window has no lanes, and with the second come the arrays that are kept
    assert len(received_bytes) == 9 + 1
    assert max(received_bytes[3:]) < window_bytes / 2
    assert window_bytes <= max(polled_bytes[3:]) < 1.5 * window_bytes
