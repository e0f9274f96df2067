"""A hash table in memory that native code looks rows up in; its layout is in `emulator.tables.rows`."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .memory import MemoryBlock, write_word
from .rows import ADDRESS_BITS, HASH_FACTOR, hash_words

_DELETED: Final = 1
_SMALLEST: Final = 8
_ROW: Final = np.uint64((1 << ADDRESS_BITS) - 1)


class Slots:
    """Open addressing with linear probing over packed keys; never more than half full. It does not know its keys: a row
    is found by its key's hash and its own address.
    """

    def __init__(self, words: int) -> None:
        self._format = struct.Struct(f"<{words}Q")
        self._used = 0
        self._count = 0
        self._allocate(_SMALLEST)

    def __len__(self) -> int:
        """Number of rows."""
        return self._count

    def _allocate(self, capacity: int) -> None:
        self.block = MemoryBlock(8 * capacity)
        self._view = self.block.bytes.data.cast("Q")  # faster than NumPy, word by word
        self._hashes = np.zeros(capacity, np.uint64)
        self.mask = capacity - 1
        self.address = self.block.address

    def put(self, key: bytes, row: int) -> MemoryBlock | None:
        """Put a row under a key that has none. If the slots move, their new address must be published, and then the
        returned block of the old slots must be retired.
        """
        left = self._make_room(1)
        h = hash_words(self._format.unpack(key))
        place, view = h & self.mask, self._view
        while view[place]:
            place = (place + 1) & self.mask
        self._hashes[place] = h
        write_word(self.address + 8 * place, _slot(h, row))
        self._used += 1
        self._count += 1
        return left

    def put_many(self, keys: NDArray[np.uint64], rows: NDArray[np.uint64]) -> MemoryBlock | None:
        """Put rows under different keys that have none; the result is that of `put`.

        Args:
            keys: Packed keys, shape (rows, words).
            rows: Addresses of the rows, shape (rows,).
        """
        left = self._make_room(len(rows))
        self._place(hash_many(keys), rows)
        self._used += len(rows)
        self._count += len(rows)
        return left

    def replace(self, key: bytes, old: int, row: int) -> None:
        """Put another row in the place of that of a key."""
        h, place = self._find(key, old)
        write_word(self.address + 8 * place, _slot(h, row))

    def remove(self, key: bytes, row: int) -> None:
        """Remove the row of a key; its place becomes a tombstone."""
        write_word(self.address + 8 * self._find(key, row)[1], _DELETED)
        self._count -= 1

    def _find(self, key: bytes, row: int) -> tuple[int, int]:
        """Return hash and place of a row that is there."""
        h = hash_words(self._format.unpack(key))
        wanted, place, view = _slot(h, row), h & self.mask, self._view
        while view[place] != wanted:
            place = (place + 1) & self.mask
        return h, place

    def _make_room(self, more: int) -> MemoryBlock | None:
        """Move, if necessary, to slots without deleted ones, at most a third full: small ones stay in the processor's
        caches. Return the block that is left.
        """
        if 2 * (self._used + more) <= self.mask + 1:
            return None
        left = self.block
        slots = left.bytes.view(np.uint64)
        kept = slots > _DELETED
        hashes, rows = self._hashes[kept], slots[kept] & _ROW
        capacity = _SMALLEST
        while capacity < 3 * (self._count + more):
            capacity *= 2
        self._allocate(capacity)
        self._place(hashes, rows)
        self._used = self._count
        return left

    def _place(self, hashes: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
        """Give each row the first free slot from its key's place on."""
        slots = self.block.bytes.view(np.uint64)
        waiting, places = np.arange(len(rows), dtype=np.uint64), (hashes & np.uint64(self.mask)).astype(np.int64)
        while len(waiting):
            free = slots[places] == 0
            self._hashes[places[free]] = waiting[free]  # of those that claim a place one is left
            won = free & (self._hashes[places] == waiting)
            there, chosen = places[won], waiting[won]
            self._hashes[there] = hashes[chosen]
            slots[there] = hashes[chosen] >> np.uint64(ADDRESS_BITS) << np.uint64(ADDRESS_BITS) | rows[chosen]
            waiting, places = waiting[~won], places[~won] + 1 & self.mask


def _slot(h: int, row: int) -> int:
    return (h >> ADDRESS_BITS) << ADDRESS_BITS | row


def hash_many(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`hash_words` of many keys, shape (keys, words)."""
    h = np.zeros(len(keys), np.uint64)
    for word in range(keys.shape[1]):
        h = (h ^ keys[:, word]) * np.uint64(HASH_FACTOR)
        h ^= h >> np.uint64(32)
    return h
