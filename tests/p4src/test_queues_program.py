"""Marking and telemetry where queues fill: the compiled program between a fast and a slow link in virtual time."""

from __future__ import annotations

import numpy as np

from weir.emulator.fabric import Fabric
from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.node_model import Bound
from weir.tests.p4src.small_fabric import STRANGER, STRANGER_PORT, WORKERS, message, packet, tables
from weir.wire import int_md
from weir.wire.aggregation import MESSAGE

THRESHOLD = 3
BURST = 8


def through_the_bottleneck(*frames: bytes) -> list[bytes]:
    """What reaches STRANGER when a worker sends these at once over a link 100 times as fast."""
    bounded = tables()
    bounded.marking[STRANGER_PORT] = Bound(THRESHOLD, window=1000, congested_window=7)
    fabric = Fabric()
    fabric.add_switch("s1", EmulatedNode(bounded).switch)
    fabric.add_host("worker")
    fabric.add_host("stranger")
    fabric.add_link(("worker", 0), ("s1", 0), rate_bps=1e9)
    fabric.add_link(("s1", STRANGER_PORT), ("stranger", 0), rate_bps=1e7)
    for frame in frames:
        fabric.send("worker", frame)
    received: list[bytes] = []
    while len(received) < len(frames):
        wakes = fabric.run(fabric.now_ns + 10**9)
        assert wakes, "frames are missing"
        received += [row.tobytes() for wake in wakes for batch in wake.frames for row in batch]
    return received


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
