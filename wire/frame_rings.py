"""Frames between a process and the emulated fabric on its machine, in memory that both share; the fabric takes the
place of a network card.

::

    process ──rows, IN_HEAD──▶ ring ──▶ fabric      the eventfd of the reader wakes it
            ◀── ring ◀──rows, OUT_HEAD──

The process connects to the host's unix socket. The answer is one message, a `HELLO`, with three descriptors: the
memory, the eventfd that wakes the fabric and the one that wakes the process. Nothing else is ever sent on the socket;
its end tells either side that the other has gone.

The memory is a page of 64-bit words, each in a cache line of its own, and two rings of `ROWS` rows. A row is the
frame's length in 8 bytes, and the frame from `FRAME_AT` on, which aligns the payload of its UDP datagram to 64 bytes. A
writer publishes rows by a counter after it has written them. This relies on stores that become visible in their order,
as on x86-64; a processor that reorders them may show a frame too early, which its checksums then reveal.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .frames import FRAME_HEADER_BYTES

ROWS: Final = 1024
"""Rows of either ring, a power of two."""
ROW_BYTES: Final = 1600
FRAME_AT: Final = 64 - FRAME_HEADER_BYTES
LONGEST: Final = ROW_BYTES - FRAME_AT
"""Longest frame, in bytes."""
IN_HEAD: Final = 0
IN_TAIL: Final = 8
OUT_HEAD: Final = 16
OUT_TAIL: Final = 24
HELLO: Final = struct.Struct("=IHHQQ")
"""Host's IPv4 address, UDP port, DSCP, its MAC and its gateway's."""
_PAGE_BYTES: Final = 4096
_WORDS: Final = 32
_BYTES: Final = _PAGE_BYTES + 2 * ROWS * ROW_BYTES


class FrameRings:
    """The shared memory, mapped."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Map the memory behind this descriptor, which stays open; None: new memory. Raises OSError."""
        self.descriptor = -1
        """Descriptor of new memory; -1: none."""
        if descriptor is None:
            descriptor = self.descriptor = os.memfd_create("weir frames", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, _BYTES)
        memory = np.frombuffer(mmap.mmap(descriptor, _BYTES), np.uint8)
        self.words: NDArray[np.int64] = memory[: 8 * _WORDS].view(np.int64)
        rings = memory[_PAGE_BYTES:].reshape(2, ROWS, ROW_BYTES)
        self.inbound: NDArray[np.uint8] = rings[0]
        """Rows that the process writes (ROWS, ROW_BYTES)."""
        self.outbound: NDArray[np.uint8] = rings[1]
        """Rows that the fabric writes (ROWS, ROW_BYTES)."""

    def close_descriptor(self) -> None:
        """Close the descriptor of new memory; the memory stays mapped. May be repeated."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def lengths_of(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return lengths of the frames in these rows, (n,), writeable like the rows."""
    lengths: NDArray[np.int64] = rows[:, :8].view(np.int64)[:, 0]
    return lengths
