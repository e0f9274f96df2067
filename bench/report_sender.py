"""Sends telemetry reports to a port of loopback, many a system call: `PORT COUNT PER_SECOND NODE` (0: at full speed).

It says a line when it is ready and begins with the first line that it reads. A report's egress time is when it is sent.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Final

import numpy as np

from weir.wire import int_report
from weir.wire.int_report import InnerType, Report, ReportFlag, ReportGroup
from weir.wire.message_batch import MessageBatch

BATCH: Final = 100
_EGRESS_NS_AT: Final = 8 + 4 + 8 + 12
_BYTES_SENT_AT: Final = _EGRESS_NS_AT + 8


def main() -> None:
    """Send what the command line asks for."""
    port, count, per_second, node = map(int, sys.argv[1:])
    inner = bytes.fromhex("4500001c000000003c1100000a0001010a00020110000009") + bytes(4)
    metadata = {
        "ingress_port": 1,
        "egress_port": 1,
        "latency_us": 20,
        "queue_id": 0,
        "queue_packets": 3,
        "egress_ns": 0,
        "bytes_sent": 0,
    }
    datagram = int_report.encode(
        ReportGroup(node, 0, (Report(ReportFlag.TRACKED_FLOW, metadata, InnerType.IPV4, inner),))
    )
    data = np.tile(np.frombuffer(datagram, np.uint8), (BATCH, 1))
    batch = MessageBatch(BATCH, port)
    batch.addresses[:] = int(IPv4Address("127.0.0.1"))
    batch.use(data)
    head = np.frombuffer(datagram[:4], ">u4")[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        print(flush=True)
        sys.stdin.readline()
        started = time.monotonic()
        for index in range(0, count, BATCH):
            if per_second:
                time.sleep(max(started + index / per_second - time.monotonic(), 0))
            now_ns = time.monotonic_ns()
            numbers = np.arange(index, index + BATCH)
            data[:, :4] = (head | numbers & 0x3FFFFF).astype(">u4").view(np.uint8).reshape(BATCH, 4)
            data[:, _EGRESS_NS_AT:_BYTES_SENT_AT] = np.full(BATCH, now_ns, ">u8").view(np.uint8).reshape(BATCH, 8)
            data[:, _BYTES_SENT_AT : _BYTES_SENT_AT + 8] = (numbers * 50).astype(">u8").view(np.uint8).reshape(BATCH, 8)
            done = 0
            while done < BATCH:
                with suppress(BlockingIOError):
                    done += batch.send(out.fileno(), done, BATCH)


if __name__ == "__main__":
    main()
