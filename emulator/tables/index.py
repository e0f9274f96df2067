"""The indexes behind a table: which row answers which key. Layouts in `emulator.tables.rows`."""

from __future__ import annotations

import bisect
import struct
import time
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .keys import order_of
from .memory import MemoryBlock, RetiredMemory, write_word
from .rows import RowLayout
from .slots import Slots

HOLD_SECONDS: Final = 0.25
"""Maximum time that changes wait for the end of a batch, after a second change has shown that there is one."""


class Index(Protocol):
    """Rows by the identities of their entries (`emulator.tables.keys`)."""

    def put(self, identity: bytes, row: int, old: int = 0) -> None:
        """Add a row (its address), or put it in the place of `old`, that of the same identity."""

    def put_many(self, identities: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
        """Add rows of different identities that have none.

        Args:
            identities: Words of the identities, shape (rows, words).
            rows: Addresses of the rows, shape (rows,).
        """

    def remove(self, identity: bytes, row: int) -> None:
        """Remove the row of an identity."""

    def clear(self) -> None:
        """Remove all rows."""

    def hold(self) -> None:
        """Begin to collect changes, which makes them cheaper and delays when packets see them."""

    def release(self) -> None:
        """Publish what was collected, and from now on each change at once."""


class Published:
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
        """Same contract as `Index.hold`."""
        self._held = True

    def release(self) -> None:
        """Same contract as `Index.release`."""
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
        self._words = layout.words
        self._slots = Slots(layout.words)
        self._published = Published(root, retired, self._content)
        self.hold, self.release = self._published.hold, self._published.release

    def clear(self) -> None:
        """Remove all rows."""
        left, self._slots = self._slots.block, Slots(self._words)
        self._published.change(left)

    def _content(self) -> bytes:
        return struct.pack("<2Q", self._slots.address, self._slots.mask) if len(self._slots) else b""

    def put(self, identity: bytes, row: int, old: int = 0) -> None:
        """Same contract as `Index.put`."""
        key, first = identity[: 8 * self._words], not len(self._slots)
        if old:
            self._slots.replace(key, old, row)
        else:
            self._changed(self._slots.put(key, row), first)

    def put_many(self, identities: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
        """Same contract as `Index.put_many`."""
        first = not len(self._slots)
        self._changed(self._slots.put_many(identities[:, : self._words], rows), first)

    def _changed(self, left: MemoryBlock | None, first: bool) -> None:
        if left is not None:
            self._published.change(left)
        elif first:
            self._published.change()

    def remove(self, identity: bytes, row: int) -> None:
        """Remove the row of a key."""
        self._slots.remove(identity[: 8 * self._words], row)
        if not len(self._slots):
            self._published.change()


class RangeIndex:
    """Entries in the order of their priority, looked through one by one."""

    def __init__(self, root: int, layout: RowLayout, retired: RetiredMemory) -> None:
        self._size = 8 * layout.words
        self._rows: list[tuple[int, int, int, int]] = []
        self._published = Published(root, retired, self._content)
        self.hold, self.release = self._published.hold, self._published.release

    def clear(self) -> None:
        """Remove all rows."""
        self._rows = []
        self._published.change()

    def _content(self) -> bytes:
        rows = [row for _, _, _, row in self._rows]
        return struct.pack(f"<{len(rows) + 1}Q", len(rows), *rows) if rows else b""

    def _ranked(self, identity: bytes, row: int) -> tuple[int, int, int, int]:
        """Rank of an entry: its order, then the number of its key with the bounds above, then its mask."""
        size = self._size
        key = int.from_bytes(identity[:size] + identity[2 * size : -8], "little")
        return -order_of(identity), key, int.from_bytes(identity[size : 2 * size], "little"), row

    def put(self, identity: bytes, row: int, old: int = 0) -> None:
        """Same contract as `Index.put`."""
        at = bisect.bisect_left(self._rows, self._ranked(identity, 0))
        self._rows[at : at + bool(old)] = [self._ranked(identity, row)]
        self._published.change()

    def put_many(self, identities: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
        """Same contract as `Index.put_many`."""
        names = names_of(identities)
        self._rows += (self._ranked(name, row) for name, row in zip(names, rows.tolist(), strict=True))
        self._rows.sort()
        self._published.change()

    def remove(self, identity: bytes, row: int) -> None:
        """Remove a row and shift those behind it."""
        del self._rows[bisect.bisect_left(self._rows, self._ranked(identity, 0))]
        self._published.change()


def names_of(words: NDArray[np.uint64]) -> list[bytes]:
    """Return rows of words as byte strings."""
    whole = np.ascontiguousarray(words)
    names: list[bytes] = whole.view(f"V{8 * words.shape[1]}")[:, 0].tolist()
    return names
