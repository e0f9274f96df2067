"""Capture files in pcap's format: one for what an interface received, one for what it sent.

Every frame is one write to the file, from native code; so a capture is whole at any time, and nothing in it is lost
when the switch is killed.
"""

from __future__ import annotations

from typing import Any

from ..runtime.native import native, store
from .calls import invoke


@native
def record_frame(loop: Any, world: Any, descriptor: Any, data: Any, length: Any) -> None:
    """Append a frame to a capture file, with the present time to the microsecond."""
    now = world.now + loop.realtime_ns
    header = loop.scratch + 64
    vectors = loop.scratch + 96
    store(header, 0, now // 1_000_000_000 | (now % 1_000_000_000 // 1000) << 32)
    store(header, 1, length | length << 32)
    store(vectors, 0, header)
    store(vectors, 1, 16)
    store(vectors, 2, data)
    store(vectors, 3, length)
    invoke(loop.writev, descriptor, vectors, 2, 0, 0)
