"""INT in front of messages, put together word by word as switches push it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Said(NamedTuple):
    """Entry that one switch pushes."""

    node: int
    port: int
    queue_packets: int
    egress_ns: int
    bytes_sent: int
    ingress_port: int = 0
    queue_id: int = 0


def int_header(hops: Iterable[Said], remaining: int = 9, port: int = 22341) -> bytes:
    """Shim, header and stack; the hops are the newest first."""
    stack = b"".join(
        struct.pack(
            "!IHHIQQ",
            hop.node,
            hop.ingress_port,
            hop.port,
            hop.queue_id << 24 | hop.queue_packets,
            hop.egress_ns,
            hop.bytes_sent,
        )
        for hop in hops
    )
    shim = struct.pack("!BBH", 0x14, 3 + len(stack) // 4, port)
    return shim + struct.pack("!BBBBHHHH", 0x20, 0, 7, remaining, 0xD400, 0x5745, 0x8000, 0) + stack


def int_headers(stacks: Iterable[Iterable[Said]]) -> NDArray[np.uint8]:
    """INT headers of messages whose ways are equally long, (n, size)."""
    return np.array([list(int_header(hops)) for hops in stacks], np.uint8)
