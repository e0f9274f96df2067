"""The indexes behind a table: which row answers which key. Layouts in `emulator.tables.rows`."""

from __future__ import annotations

import bisect
import struct
import time
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from .memory import MemoryBlock, RetiredMemory, write_word
from .rows import ADDRESS_BITS, RowLayout, hash_words

HOLD_SECONDS: Final = 0.25
"""Maximum time that changes wait for the end of a batch, after a second change has shown that there is one."""
_DELETED: Final = 1
_SMALLEST: Final = 8


class Index(Protocol):
    """`key` and `mask` are the packed key's integers; rows are ranked by `order`, the largest first.

    With range fields, `key` has their bounds above the packed key.
    """

    def put(self, key: int, mask: int, order: int, row: int) -> None:
        """Add a row, or replace the one with the same key, mask and order.

        Args:
            key: Integer of the packed key, with the bounds of range fields above it.
            mask: Integer of the packed mask.
            order: Rank among rows that match; the largest first.
            row: Address of the row.
        """

    def remove(self, key: int, mask: int, order: int) -> None:
        """Remove the row of a key, mask and order."""

    def clear(self) -> None:
        """Remove all rows."""

    def hold(self) -> None:
        """Begin to collect changes, which makes them cheaper and delays when packets see them."""

    def release(self) -> None:
        """Publish what was collected, and from now on each change at once."""


class Slots:
    """Open addressing with linear probing over packed keys; never more than half full."""

    def __init__(self, words: int) -> None:
        self._format = struct.Struct(f"<{words}Q")
        self.rows: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._used = 0
        self._allocate(_SMALLEST)

    def _allocate(self, capacity: int) -> None:
        self.block = MemoryBlock(8 * capacity)
        self._view = self.block.bytes.data.cast("Q")  # faster than NumPy, word by word
        self.mask = capacity - 1
        self.address = self.block.address

    def _hash(self, key: int) -> int:
        return hash_words(self._format.unpack(key.to_bytes(self._format.size, "little")))

    def put(self, key: int, row: int) -> MemoryBlock | None:
        """Put `row` under `key`. If the slots move, their new address must be published, and then the returned block of
        the old slots must be retired.
        """
        left = None
        place = self._places.get(key)
        h = self._hash(key)
        if place is None:
            if 2 * (self._used + 1) > self.mask + 1:
                left = self._grow()
            place = self._free_place(h)
            self._places[key] = place
            self._used += 1
        self.rows[key] = row
        write_word(self.address + 8 * place, (h >> ADDRESS_BITS) << ADDRESS_BITS | row)
        return left

    def remove(self, key: int) -> None:
        """Remove a packed key; its place becomes a tombstone."""
        del self.rows[key]
        write_word(self.address + 8 * self._places.pop(key), _DELETED)

    def _free_place(self, h: int) -> int:
        place, view = h & self.mask, self._view
        while view[place]:
            place = (place + 1) & self.mask
        return place

    def _grow(self) -> MemoryBlock:
        """Move to slots without deleted ones, at most a third full: small ones stay in the processor's caches."""
        left = self.block
        capacity = _SMALLEST
        while capacity < 3 * (len(self.rows) + 1):
            capacity *= 2
        self._allocate(capacity)
        for key, row in self.rows.items():
            h = self._hash(key)
            place = self._places[key] = self._free_place(h)
            self._view[place] = (h >> ADDRESS_BITS) << ADDRESS_BITS | row
        self._used = len(self.rows)
        return left


class _Published:
    """The block that the table's root points to; none where there is nothing to be found."""

    def __init__(self, root: int, retired: RetiredMemory, content: Callable[[], bytes]) -> None:
        """`content` returns the block to publish, now and whenever `change` is called; it is empty without entries."""
        self._root = root
        self._retired = retired
        self._content = content
        self._block: MemoryBlock | None = None
        self._held = False
        self._waiting_since: float | None = None
        self._publish()

    def change(self, *left: MemoryBlock) -> None:
        """Publish new content, which refers to these blocks no more."""
        if not self._held:
            self._publish()
        elif self._waiting_since is None:
            self._waiting_since = time.monotonic()
        elif time.monotonic() - self._waiting_since > HOLD_SECONDS:
            self._publish()
        for block in left:
            self._retired.bury(block)

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        if self._waiting_since is not None:
            self._publish()

    def _publish(self) -> None:
        self._waiting_since = None
        content = self._content()
        block = MemoryBlock(len(content)) if content else None
        if block is not None:
            block.bytes[:] = np.frombuffer(content, np.uint8)
        write_word(self._root, 0 if block is None else block.address)
        if self._block is not None:
            self._retired.bury(self._block)
        self._block = block


class ExactIndex:
    """Hash of packed keys, for tables without masks."""

    def __init__(self, root: int, layout: RowLayout, retired: RetiredMemory) -> None:
        self._layout = layout
        self._slots = Slots(layout.words)
        self._published = _Published(root, retired, self._content)
        self.hold, self.release = self._published.hold, self._published.release

    def clear(self) -> None:
        """Remove all rows."""
        left, self._slots = self._slots.block, Slots(self._layout.words)
        self._published.change(left)

    def _content(self) -> bytes:
        return struct.pack("<2Q", self._slots.address, self._slots.mask) if self._slots.rows else b""

    def put(self, key: int, mask: int, order: int, row: int) -> None:
        """Same contract as `Index.put`."""
        first = not self._slots.rows
        left = self._slots.put(key, row)
        if left is not None:
            self._published.change(left)
        elif first:
            self._published.change()

    def remove(self, key: int, mask: int, order: int) -> None:
        """Remove the row of a key; `mask` and `order` do not matter."""
        self._slots.remove(key)
        if not self._slots.rows:
            self._published.change()


class _Group:
    """All entries with one mask; of those with the same key the first in order answers."""

    def __init__(self, words: int) -> None:
        self.slots = Slots(words)
        self.ranked: dict[int, list[tuple[int, int]]] = {}
        """Rows of each key as (order, row), the best one last."""
        self.orders: list[int] = []

    @property
    def best(self) -> int:
        return self.orders[-1]


class TupleIndex:
    """Tuple space search: a hash per mask, masks in the order of the best that they can give."""

    def __init__(self, root: int, layout: RowLayout, retired: RetiredMemory) -> None:
        self._layout = layout
        self._groups: dict[int, _Group] = {}
        self._published = _Published(root, retired, self._content)
        self.hold, self.release = self._published.hold, self._published.release

    def clear(self) -> None:
        """Remove all rows."""
        left, self._groups = [group.slots.block for group in self._groups.values()], {}
        self._published.change(*left)

    def _content(self) -> bytes:
        if not self._groups:
            return b""
        size = 8 * self._layout.words
        ordered = sorted(self._groups.items(), key=lambda item: -item[1].best)
        parts = [struct.pack("<2Q", len(ordered), 0)]
        for mask, group in ordered:
            parts.append(struct.pack("<3Q", group.slots.address, group.slots.mask, group.best))
            parts.append(mask.to_bytes(size, "little"))
        return b"".join(parts)

    def put(self, key: int, mask: int, order: int, row: int) -> None:
        """Same contract as `Index.put`. Of rows with one key and mask, packets see the one of the largest order."""
        group = self._groups.get(mask)
        before = group.best if group is not None else -1
        if group is None:
            group = self._groups[mask] = _Group(self._layout.words)
        ranked = group.ranked.setdefault(key, [])
        index = bisect.bisect_left(ranked, (order, 0))
        if index < len(ranked) and ranked[index][0] == order:
            ranked[index] = (order, row)
        else:
            ranked.insert(index, (order, row))
            bisect.insort(group.orders, order)
        left = group.slots.put(key, ranked[-1][1])
        if left is not None:
            self._published.change(left)
        elif group.best != before:
            self._published.change()

    def remove(self, key: int, mask: int, order: int) -> None:
        """Remove a row; of those left with its key and mask, packets see the one of the largest order."""
        group = self._groups[mask]
        ranked = group.ranked[key]
        del ranked[bisect.bisect_left(ranked, (order, 0))]
        before = group.best
        del group.orders[bisect.bisect_left(group.orders, order)]
        if ranked:
            group.slots.put(key, ranked[-1][1])
        else:
            del group.ranked[key]
            group.slots.remove(key)
        if not group.orders:
            self._published.change(self._groups.pop(mask).slots.block)
        elif group.best != before:
            self._published.change()


class RangeIndex:
    """Entries in the order of their priority, looked through one by one."""

    def __init__(self, root: int, layout: RowLayout, retired: RetiredMemory) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._published = _Published(root, retired, self._content)
        self.hold, self.release = self._published.hold, self._published.release

    def clear(self) -> None:
        """Remove all rows."""
        self._rows = []
        self._published.change()

    def _content(self) -> bytes:
        rows = [row for _, _, _, row in self._rows]
        return struct.pack(f"<{len(rows) + 1}Q", len(rows), *rows) if rows else b""

    def _find(self, key: int, mask: int, order: int) -> int:
        return bisect.bisect_left(self._rows, (-order, key, mask, 0))

    def put(self, key: int, mask: int, order: int, row: int) -> None:
        """Same contract as `Index.put`."""
        at = self._find(key, mask, order)
        if at < len(self._rows) and self._rows[at][:3] == (-order, key, mask):
            self._rows[at] = (-order, key, mask, row)
        else:
            self._rows.insert(at, (-order, key, mask, row))
        self._published.change()

    def remove(self, key: int, mask: int, order: int) -> None:
        """Remove a row and shift those behind it."""
        del self._rows[self._find(key, mask, order)]
        self._published.change()
