"""Frames as bytes and as arrays, on their way into a switch or fabric and out of it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .port import SwitchValueError
from .runtime.engine import DrainResult

ETHERNET_BYTES: Final = 14
"""Bytes of a frame that the MTU does not count."""


def as_frames(frame: bytes | NDArray[np.uint8], max_frame: int) -> NDArray[np.uint8]:
    """Return one frame, or frames (n, size), contiguous, (n, size). Raises SwitchValueError for a size out of range."""
    frames = np.frombuffer(frame, np.uint8) if isinstance(frame, (bytes, bytearray, memoryview)) else frame
    if frames.ndim == 1:
        frames = frames[np.newaxis]
    if frames.ndim == 2 and frames.shape[1] > max_frame:
        raise SwitchValueError(
            f"at most {max_frame} bytes", place=f"frame of {frames.shape[1]} bytes", value=frames.shape[1]
        )
    if frames.dtype != np.uint8 or frames.ndim != 2:
        raise SwitchValueError(
            f"give uint8 (n, size) with size 0 … {max_frame}", place="frames", value=(frames.dtype.name, frames.shape)
        )
    return np.ascontiguousarray(frames)


def split(out: DrainResult) -> list[tuple[int, bytes]]:
    """Return the drained frames as (port, bytes)."""
    data = out.data.tobytes()
    ends = np.cumsum(out.lengths).tolist()
    return [
        (port, data[end - length : end])
        for port, end, length in zip(out.ports.tolist(), ends, out.lengths.tolist(), strict=True)
    ]


def by_size(frames: DrainResult) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.int64]]]:
    """Group frames by size; the sizes in order of their first frame."""
    lengths = frames.lengths
    if frames.size:
        return [frames.data.reshape(-1, frames.size)], [frames.times_ns]
    starts = np.cumsum(lengths) - lengths
    sizes, first = np.unique(lengths, return_index=True)
    groups, times = [], []
    for size in sizes[np.argsort(first)].tolist():
        members = np.flatnonzero(lengths == size)
        groups.append(frames.data[starts[members, np.newaxis] + np.arange(size)])
        times.append(frames.times_ns[members])
    return groups, times
