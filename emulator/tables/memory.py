"""Memory that native code reads while Python writes it.

Nothing that a packet may be looking at is overwritten: what becomes garbage rests in a `RetiredMemory` until no packet
can know it any more. A row is written first and published by one aligned 8-byte store afterwards. That order reaches
other cores as it is on x86-64; a machine with a weaker memory model would need a release store in `write_word`.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
import time
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

GRACE_SECONDS: Final = 0.1
"""Minimum time before retired memory is freed: far longer than a store takes to reach another core."""
_CHUNK_ROWS: Final = (8, 256)
"""Rows of a pool's first chunk, for many tables have a default row alone, and of its largest. A pool doubles."""


def write_word(address: int, value: int) -> None:
    """Publish one word."""
    ctypes.c_uint64.from_address(address).value = value


def read_word(address: int) -> int:
    """Return a word that other threads may be writing."""
    return int(ctypes.c_uint64.from_address(address).value)


class MemoryBlock:
    """A zeroed stretch of memory on a cache line's boundary."""

    def __init__(self, size: int) -> None:
        self._buffer = np.zeros(size + 64, dtype=np.uint8)
        start = -self._buffer.ctypes.data % 64
        self.bytes = self._buffer[start : start + size]
        self.address: int = self.bytes.ctypes.data


class RetiredMemory:
    """Retired memory of one switch, kept until no packet can be reading it.

    Packets pass through a state one after another. Its first word counts entries and exits, so it is odd while a packet
    is inside (`emulator.compiler.module`). Retired memory first waits `GRACE_SECONDS`: after that every core has seen
    the new pointer, and the count shows whether a packet entered before. It is freed when that packet has left, even if
    the packet's thread is stopped for long.

    While tables collect changes (`hold`), packets still use the rows published before. Memory that these tables, or
    their rows' targets, retire meanwhile starts to wait when the changes are published.
    """

    def __init__(self, memory: MemoryBlock) -> None:
        """`memory` is the state, which lives as long as anybody who may bury something that it has referred to."""
        self._memory = memory
        self._passing = ctypes.c_uint64.from_address(memory.address)
        self._lock = threading.Lock()
        """Links go down, and groups change, while a control plane writes."""
        self._held = False
        self._unpublished: list[tuple[list[int] | None, MemoryBlock | int]] = []
        """Memory that packets may read until the tables publish: (free list of a row, the row), or (None, block)."""
        self._resting: deque[tuple[float, list[int] | None, MemoryBlock | int]] = deque()
        self._leaving: list[tuple[list[int] | None, MemoryBlock | int]] = []
        """Has rested; the packet that was inside at `_passing` == `_seen` may still be reading it."""
        self._seen = 0

    def bury(self, block: MemoryBlock) -> None:
        """Retire a block, which is not published any more."""
        self._add(None, block)

    def retire_row(self, free: list[int], row: int) -> None:
        """Retire a row, which is not published any more; it is put on the list `free` when it may be used again."""
        self._add(free, row)

    def hold(self) -> None:
        """Treat memory retired from now on as possibly still published."""
        with self._lock:
            self._held = True

    def release(self) -> None:
        """End `hold`: memory that is retired from now on is not published any more."""
        with self._lock:
            self._held = False
            ripe = time.monotonic() + GRACE_SECONDS
            self._resting.extend((ripe, free, item) for free, item in self._unpublished)
            self._unpublished.clear()

    def collect(self) -> None:
        """Free what no packet can be reading."""
        with self._lock:
            self._collect(time.monotonic())

    def _add(self, free: list[int] | None, item: MemoryBlock | int) -> None:
        with self._lock:
            if self._held:
                self._unpublished.append((free, item))
                return
            now = time.monotonic()
            self._resting.append((now + GRACE_SECONDS, free, item))
            self._collect(now)

    def _collect(self, now: float) -> None:
        if self._leaving and self._passing.value != self._seen:
            self._free_leaving()
        if not self._leaving and self._resting and self._resting[0][0] <= now:
            while self._resting and self._resting[0][0] <= now:
                _, free, item = self._resting.popleft()
                self._leaving.append((free, item))
            self._seen = self._passing.value
            if self._seen % 2 == 0:
                self._free_leaving()

    def _free_leaving(self) -> None:
        for free, item in self._leaving:
            if free is not None:
                assert isinstance(item, int)
                free.append(item)
        self._leaving.clear()


class RowPool:
    """Rows of one size at addresses that never move."""

    def __init__(self, row_bytes: int, retired: RetiredMemory) -> None:
        self.row_bytes = (row_bytes + 15) // 16 * 16
        self._retired = retired
        self._chunks: list[MemoryBlock] = []
        """Chunks in the order of their addresses."""
        self._free: list[int] = []
        self._count = 0

    def allocate(self) -> int:
        """Return the address of a free row, whose contents are undefined."""
        if not self._free:
            self._retired.collect()
        if not self._free:
            self._grow(1)
        return self._free.pop()

    def allocate_many(self, count: int) -> NDArray[np.uint64]:
        """Return the addresses of `count` free rows, whose contents are undefined; shape (count,)."""
        if len(self._free) < count:
            self._retired.collect()
        if len(self._free) < count:
            self._grow(count - len(self._free))
        return np.array([self._free.pop() for _ in range(count)], np.uint64)  # one by one: other threads add to them

    def _grow(self, needed: int) -> None:
        least, most = _CHUNK_ROWS
        rows = max(needed, min(max(least, self._count), most))
        chunk = MemoryBlock(self.row_bytes * rows)
        bisect.insort(self._chunks, chunk, key=lambda block: block.address)
        self._free[:0] = [chunk.address + self.row_bytes * i for i in reversed(range(rows))]
        self._count += rows

    def write(self, address: int, content: bytes) -> None:
        """Fill a row that is not published yet."""
        ctypes.memmove(address, content, len(content))

    def write_many(self, addresses: NDArray[np.uint64], contents: NDArray[np.uint64]) -> None:
        """Fill rows that are not published yet.

        Args:
            addresses: Addresses of the rows, shape (rows,).
            contents: Words from the beginning of each row on, shape (rows, words).
        """
        bases = np.array([chunk.address for chunk in self._chunks], np.uint64)
        chosen = np.searchsorted(bases, addresses, side="right") - 1
        words = contents.shape[1]
        for number in np.unique(chosen).tolist():
            chunk, mine = self._chunks[number], chosen == number
            rows = chunk.bytes.view(np.uint64).reshape(-1, self.row_bytes // 8)
            rows[(addresses[mine] - bases[number]) // self.row_bytes, :words] = contents[mine]

    def free(self, address: int) -> None:
        """Retire a row, which is not published any more."""
        self._retired.retire_row(self._free, address)
