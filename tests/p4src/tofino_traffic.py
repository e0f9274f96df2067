"""Random traffic for the programs for Tofino and bmv2: a protocol that runs, much that is wrong, and queues."""

from __future__ import annotations

import numpy as np

from weir.controller.planning.admission import OF_WORKERS
from weir.tests.p4src.emulated_node import PORTS
from weir.tests.p4src.node_model import CPU_PORT, Bound, Policer, Tables
from weir.tests.p4src.queued_node import EMPTY, Queue
from weir.tests.p4src.small_fabric import (
    GENERATION,
    INNER,
    OTHER_SWITCH,
    PARENT,
    PARENT_PORT,
    ROOT,
    STRANGER,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    hosts,
    message,
    packet,
    tables,
)
from weir.wire import frames
from weir.wire.aggregation import MessageType
from weir.wire.fields import REDUCED

DSCP_BYTE = 15
"""Of a frame. It may say that there is INT, which only the program for bmv2 looks for."""

NEAR_THE_WRAP = 2**24 - 4
BEFORE_THE_CLOCK_WRAPS_US = 2**32 // 1000 - 2_000
"""32 bits of nanoseconds end in a sequence."""
TICKS_PER_US = 1 << 16


def busy_tables(rng: np.random.Generator) -> Tables:
    """Two jobs, hosts that are policed, and bounds for the queues of most ports."""
    result = tables()
    result.hosts = hosts(OF_WORKERS & ~(1 << MessageType.SCALE))  # the workers sum lanes alone elsewhere
    for port in (*range(len(WORKERS)), PARENT_PORT, STRANGER_PORT):
        if rng.random() < 0.8:
            cost = TICKS_PER_US // 2
            virtual = (cost, int(rng.integers(500, 3000)) * cost) if rng.random() < 0.6 else (0, 1)
            window = int(rng.integers(1, 2**16))
            limits = (int(rng.integers(4, 9)), int(rng.integers(15, 24)))
            result.marking[port] = Bound(*limits, *virtual, window, int(rng.integers(1, window + 1)))
        for priority, is_message, bytes_per_us in ((0, 1, 5), (0, 0, 1), (7, 0, 1), (7, 1, 1)):
            burst = int(rng.choice([0, 400, 3000], p=[0.1, 0.3, 0.6]))
            cost = TICKS_PER_US // bytes_per_us
            result.policers[port, priority, is_message] = Policer(len(result.policers), cost, burst * cost)
    return result


class Traffic:
    """Frames and the ports they arrive at, their times and the queues that they find: a running protocol of two jobs,
    with much that can be wrong mixed in.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.round = NEAR_THE_WRAP
        self.generation = GENERATION
        self.now_us = BEFORE_THE_CLOCK_WRAPS_US
        """When the frame arrives"""
        self.queue = EMPTY

    def next(self) -> tuple[bytes, int]:
        rng = self.rng
        self.now_us += self.queue.wait_us + int(rng.integers(0, 20))
        self.queue = Queue(int(rng.integers(0, 10)), int(rng.integers(0, 25)))
        kind = rng.choice(["contribution", "result", "plain", "packet-out"], p=[0.8, 0.07, 0.08, 0.05])
        frame, port = {"contribution": self._contribution, "result": self._result}.get(kind, self._plain)()
        frame = _with(frame, int(rng.integers(0, 4)), rng.bytes(2))
        if rng.random() < 0.03:
            frame = frame[: int(rng.integers(14, len(frame)))]
        elif rng.random() < 0.02:
            at = int(rng.choice([at for at in range(min(len(frame), 70)) if at != DSCP_BYTE]))
            frame = frame[:at] + rng.bytes(1) + frame[at + 1 :]
        if kind == "packet-out":
            return (int(rng.integers(0, PORTS)) << 7).to_bytes(2) + frame, CPU_PORT
        return frame, port if rng.random() < 0.97 else int(rng.integers(0, PORTS))

    def _message(self, kind: MessageType, job: int, contributors: int) -> bytes:
        rng = self.rng
        self.round += int(rng.random() < 0.15)
        self.generation = min(self.generation + int(rng.random() < 0.01), GENERATION + 3)
        fields = {field.name: int(rng.integers(0, 1 << field.bits)) for field in REDUCED}
        fields |= {"flags": int(rng.integers(0, 4)), "contributors": contributors}
        if rng.random() < 0.03:
            fields["version_type"] = int(rng.integers(0, 256))
        if rng.random() < 0.03:
            fields["slot"] = int(rng.choice([0, 3, 4, 0xFFFF]))
        return message(
            kind,
            round_number=self.round if rng.random() < 0.85 else int(self.round + rng.integers(-6, 2)),
            lanes=rng.integers(-(2**31), 2**31, 64),
            width=64,
            job=job if rng.random() < 0.98 else 1,
            generation=self.generation - int(rng.random() < 0.03),
            bad_checksum=rng.random() < 0.02,
            **fields,
        )

    def _contribution(self) -> tuple[bytes, int]:
        rng = self.rng
        worker = int(rng.integers(0, 3))
        kind = MessageType.CONTRIBUTION if self.round % 3 else MessageType.SCALE
        kind = kind if rng.random() < 0.97 else MessageType(int(rng.integers(5, 8)))
        child = 1 << worker if rng.random() < 0.97 else int(rng.integers(0, 8))
        payload = self._message(kind, int(rng.choice([INNER, ROOT])), child)
        destination = SWITCH if rng.random() < 0.96 else OTHER_SWITCH
        source_port = 22341 if rng.random() < 0.97 else 22342
        dscp = 10 if self.round % 5 == 0 else 0
        return packet(payload, WORKERS[worker], destination, source_port=source_port, dscp=dscp), worker

    def _result(self) -> tuple[bytes, int]:
        kind = MessageType.RESULT if self.rng.random() < 0.5 else MessageType.SCALE_RESULT
        return packet(self._message(kind, INNER, 0), PARENT, dscp=int(self.rng.choice([0, 10, 48, 56]))), PARENT_PORT

    def _plain(self) -> tuple[bytes, int]:
        rng = self.rng
        destination = int(rng.choice([SWITCH, WORKERS[0], STRANGER, PARENT, OTHER_SWITCH, 0x01020304]))
        ttl = int(rng.choice([0, 1, 2, 64]))
        # too short for INT, which the program for bmv2 alone looks for: it drops a datagram cut short of its marker
        source = STRANGER if rng.random() < 0.8 else PARENT
        return packet(rng.bytes(15), source, destination, destination_port=9, ttl=ttl), STRANGER_PORT


def _with(frame: bytes, ecn: int, checksum: bytes) -> bytes:
    """The frame with these ECN bits and this UDP checksum, which nobody verifies."""
    changed = bytearray(frame)
    changed[DSCP_BYTE] |= ecn
    changed[40:42] = checksum
    headers = frames.frame_headers(np.frombuffer(bytes(changed), np.uint8)[None])
    changed[24:26] = int(frames.ipv4_checksum(headers["ipv4"])[0]).to_bytes(2, "big")
    return bytes(changed)
