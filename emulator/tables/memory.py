"""Memory that native code reads while Python writes it.

Nothing that a packet may be looking at is overwritten: what becomes garbage rests for `GRACE_SECONDS`, far longer
than any packet's lookup, before it is used again. A row is written first and published by one aligned 8-byte store
afterwards. That order reaches other cores as it is on x86-64; a machine with a weaker memory model would need a
release store in `write_word`.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from typing import Final

import numpy as np

GRACE_SECONDS: Final = 2.0
_CHUNK_ROWS: Final = 256


def write_word(address: int, value: int) -> None:
    """Publish one word."""
    ctypes.c_uint64.from_address(address).value = value


class Block:
    """A zeroed stretch of memory on a cache line's boundary."""

    def __init__(self, size: int) -> None:
        self._buffer = np.zeros(size + 64, dtype=np.uint8)
        start = -self._buffer.ctypes.data % 64
        self.bytes = self._buffer[start : start + size]
        self.address: int = self.bytes.ctypes.data


class Pool:
    """Rows of one size at addresses that never move."""

    def __init__(self, row_bytes: int) -> None:
        self.row_bytes = (row_bytes + 15) // 16 * 16
        self._chunks: list[Block] = []
        self._free: list[int] = []
        self._resting: deque[tuple[float, int]] = deque()

    def take(self) -> int:
        """Address of a free row, whose contents are undefined."""
        if not self._free:
            now = time.monotonic()
            while self._resting and self._resting[0][0] <= now:
                self._free.append(self._resting.popleft()[1])
        if not self._free:
            chunk = Block(self.row_bytes * _CHUNK_ROWS)
            self._chunks.append(chunk)
            self._free = [chunk.address + self.row_bytes * i for i in reversed(range(_CHUNK_ROWS))]
        return self._free.pop()

    def write(self, address: int, content: bytes) -> None:
        """Fill a row that is not published yet."""
        ctypes.memmove(address, content, len(content))

    def give_back(self, address: int) -> None:
        self._resting.append((time.monotonic() + GRACE_SECONDS, address))


class Graveyard:
    """Keeps replaced blocks alive until no packet can be reading them."""

    def __init__(self) -> None:
        self._resting: deque[tuple[float, object]] = deque()

    def bury(self, block: object) -> None:
        now = time.monotonic()
        while self._resting and self._resting[0][0] <= now:
            self._resting.popleft()
        self._resting.append((now + GRACE_SECONDS, block))
