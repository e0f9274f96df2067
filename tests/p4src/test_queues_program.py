"""Marking and telemetry where queues fill: the compiled program between a fast and a slow link in virtual time."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from weir.tests.p4src.node_model import Bound, NodeModel, Tables
from weir.tests.p4src.slow_link import FAST_BPS, SLOW_BPS, through_slow_link
from weir.tests.p4src.small_fabric import STRANGER, STRANGER_PORT, WORKERS, message, packet, tables
from weir.wire import int_md
from weir.wire.aggregation import MESSAGE

THRESHOLD = 3
BURST = 8
NEVER = 1 << 18
DEPTH = Bound(THRESHOLD, window=1000, congested_window=7)
SOJOURN = Bound(NEVER, sojourn=2_000, window=1000, congested_window=7)
VIRTUAL = Bound(NEVER, byte_cost=1 << 16, backlog=3_000 << 16, window=1000, congested_window=7)
"""Drained at 8 Mbit/s: a byte is a microsecond."""


def bounded_by(bound: Bound) -> Tables:
    bounded = tables()
    bounded.marking[STRANGER_PORT] = bound
    return bounded


def through_the_bottleneck(*frames: bytes, bound: Bound = DEPTH) -> list[bytes]:
    """Frames that reach STRANGER when a worker sends these at once over a link 100 times as fast."""
    return through_slow_link(bounded_by(bound), frames)


def test_messages_are_marked_from_the_threshold_on() -> None:
    # one frame is being sent, so the k-th behind it finds k - 1 in the queue
    burst = [packet(message(lanes=number), WORKERS[0], STRANGER) for number in range(BURST)]
    received = np.frombuffer(b"".join(frame[42:] for frame in through_the_bottleneck(*burst)), MESSAGE)
    assert received["lanes"][:, 0].tolist() == list(range(BURST))
    assert received["header"]["flags"].tolist() == [0] + [int(found >= THRESHOLD) for found in range(BURST - 1)]


def test_a_probe_sees_the_queue_and_the_wait() -> None:
    burst = [packet(message(), WORKERS[0], STRANGER) for _ in range(3)]
    probe = int_md.probe_frame(source=WORKERS[0], destination=STRANGER, source_mac=1, destination_mac=2)
    received = through_the_bottleneck(*burst, probe, *burst)
    probes = int_md.parse_frames(frame for frame in received if len(frame) < len(burst[0]))
    assert len(probes) == 1
    (hop,) = probes.path(0)
    assert hop.queue_packets == 3, "the packets behind it, at dequeue"
    assert hop.bytes_sent == 3 * len(burst[0])
    flight_us = 8 * len(burst[0]) / 10  # at 10 Mbit/s
    assert hop.latency_us is not None
    assert 2.9 * flight_us < hop.latency_us < 3 * flight_us


def times(frames: list[bytes]) -> list[tuple[int, int]]:
    """Times in ns at which each of these simultaneous frames reaches the slow link's queue, and its head."""
    came = np.cumsum([8 * 10**9 // FAST_BPS * len(frame) for frame in frames]).tolist()
    begun, free_ns = [], 0
    for frame, came_ns in zip(frames, came, strict=True):
        begun.append(max(came_ns, free_ns))
        free_ns = begun[-1] + 8 * 10**9 // SLOW_BPS * len(frame)
    return list(zip(came, begun, strict=True))


def as_modelled(frames: list[bytes], bound: Bound) -> list[bytes]:
    """Frames after NodeModel, as each finds the queue."""
    model, sent = NodeModel(bounded_by(bound)), []
    known = times(frames)
    for index, (frame, (came_ns, begun_ns)) in enumerate(zip(frames, known, strict=True)):
        model.depth = sum(begun > came_ns for _, begun in known[:index])
        model.wait_us = begun_ns // 1_000 - came_ns // 1_000
        ((_, out),) = model.forward(frame, 0, came_ns // 1_000)
        sent.append(out)
    return sent


@pytest.mark.parametrize("bound", [DEPTH, SOJOURN, VIRTUAL], ids=["depth", "sojourn", "virtual"])
@pytest.mark.parametrize("seed", range(3))
def test_each_kind_of_mark_is_the_models_in_a_queue_that_fills(bound: Bound, seed: int) -> None:
    """Messages, and datagrams of every ECN codepoint: only what is ECN-capable gets CE."""
    rng = random.Random(seed)

    def drawn() -> bytes:
        if rng.random() < 0.4:
            return packet(message(lanes=rng.randrange(100)), WORKERS[0], STRANGER, ecn=rng.randrange(4))
        size, ecn = rng.randrange(20, 1_400), rng.randrange(4)
        return packet(rng.randbytes(size), WORKERS[0], STRANGER, destination_port=9, ecn=ecn)

    frames = [drawn() for _ in range(24)]
    received = through_the_bottleneck(*frames, bound=bound)
    assert received == as_modelled(frames, bound)
    marks = [(before[15] & 3, after[15] & 3) for before, after in zip(frames, received, strict=True)]
    assert {(0, 0), (1, 3), (2, 3)} <= set(marks)
    assert (0, 3) not in marks
    first = next(index for index, (before, after) in enumerate(marks) if before in (1, 2) and after == 3)
    assert first > 1, "the queue has to fill first"


def test_ordinary_datagrams_are_marked_from_the_threshold_on() -> None:
    burst = [packet(bytes(1_000), WORKERS[0], STRANGER, destination_port=9, ecn=2) for _ in range(BURST)]
    assert all(came < begun for came, begun in times(burst)[1:])
    marked = [frame[15] & 3 == 3 for frame in through_the_bottleneck(*burst)]
    assert marked == [False] + [found >= THRESHOLD for found in range(BURST - 1)]
    assert all(before <= after for before, after in pairwise(marked))
