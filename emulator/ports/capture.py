"""Capture files in pcap's format: one for the frames that an interface received, one for those that it sent.

Native code writes every frame to the file at once, so a capture is complete at any time, and no frame is lost when the
switch is killed. If the disk is full, the file ends with the last whole frame.
"""

from __future__ import annotations

from typing import Any, Final

from ..runtime.native import native, store
from .calls import EINTR, EIO, invoke, last_error

_HEADER_BYTES: Final = 16


@native
def record_frame(loop: Any, world: Any, capture: Any, data: Any, length: Any) -> None:
    """Append a frame to a capture that has not ended, with the present time to the microsecond."""
    if capture.error != 0:
        return
    now = world.now + loop.realtime_ns
    header = loop.scratch + 64
    vectors = loop.scratch + 96
    store(header, 0, now // 1_000_000_000 | (now % 1_000_000_000 // 1000) << 32)
    store(header, 1, length | length << 32)
    size = _HEADER_BYTES + length
    written = 0
    while written < size:
        of_header = max(_HEADER_BYTES - written, 0)
        store(vectors, 0, header + _HEADER_BYTES - of_header)
        store(vectors, 1, of_header)
        store(vectors, 2, data + written + of_header - _HEADER_BYTES)
        store(vectors, 3, size - written - of_header)
        taken = invoke(loop.writev, capture.descriptor, vectors, 2, 0, 0)
        if taken > 0:
            written += taken
            continue
        error = EIO
        if taken < 0:
            error = last_error(loop)
        if error != EINTR:
            invoke(loop.ftruncate, capture.descriptor, capture.size, 0, 0, 0)
            capture.error = error
            loop.told = 1
            return
    capture.size += size
    capture.frames += 1
