"""The index of LPM and ternary tables: a hash per mask, or per group of masks (`emulator.tables.merging`)."""

from __future__ import annotations

import bisect
import ctypes
import functools
import operator
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from . import merging
from .index import Published, names_of
from .keys import order_of
from .memory import MemoryBlock, RetiredMemory
from .rows import RowLayout
from .slots import Slots

_FEW_GROUPS: Final = 8
"""Number of groups that are never worth a merge."""
_MORE_MASKS: Final = 1.25
_MORE_ENTRIES: Final = 4.0
"""Growth of a table's masks, or entries, after which they are merged anew."""
_MORE_AFTER_SPLIT: Final = 1.25
"""The same of entries, after a group has been split."""
_ORDER_AT: Final = 4
"""Offset of an entry's rank in its row."""


class _Group:
    """Entries whose masks have certain bits in common, filed under their values there.

    An entry's name is its key and mask. Of entries with the same name the first in order answers; the others are kept
    here alone.
    """

    def __init__(self, bits: int, words: int) -> None:
        """Create an empty group.

        Args:
            bits: Bits that all masks of the group have.
            words: Number of words of a key.
        """
        self.bits = bits
        self.mask = np.frombuffer(bits.to_bytes(8 * words, "little"), np.uint64)
        """The same as words, shape (words,)."""
        self.slots = Slots(words)
        self.orders: dict[bytes, list[int]] = {}
        """Orders of each mask's entries, sorted."""
        self.ranked: dict[bytes, list[tuple[int, int]]] = {}
        """Rows of each name that has several as (order, row), the best one last."""
        self.best = -1
        """The largest order; -1 without rows."""
        self.merged = False
        """True if the group has been filled with several masks."""
        self._size = 8 * words
        self._together: Counter[bytes] = Counter()
        """Number of names with the same filed bits, in a merged group."""
        self._rows: dict[bytes, int] = {}
        """The row that answers for each name."""

    def __len__(self) -> int:
        """Number of names."""
        return len(self._rows)

    def items(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the words of all names, shape (names, 2 · words), and the rows that answer, shape (names,)."""
        words = np.frombuffer(b"".join(self._rows), np.uint64).reshape(len(self), -1)
        return words, np.fromiter(self._rows.values(), np.uint64, len(self))

    def crowded_by(self, names: Iterable[bytes]) -> bool:
        """Return True if too many names would have the same filed bits after these have been added."""
        if not self.merged:
            return False
        more = Counter(self._filed(name) for name in names if name not in self._rows)
        return any(self._together[filed] + count > merging.MOST_TOGETHER for filed, count in more.items())

    def _filed(self, name: bytes) -> bytes:
        key = name[: self._size]
        return (int.from_bytes(key, "little") & self.bits).to_bytes(self._size, "little") if self.merged else key

    def fill(
        self,
        words: NDArray[np.uint64],
        rows: NDArray[np.uint64],
        orders: dict[bytes, list[int]],
        ranked: Mapping[bytes, list[tuple[int, int]]],
    ) -> None:
        """Add names that differ to an empty group.

        Args:
            words: Words of the names, shape (names, 2 · words).
            rows: The rows that answer, shape (names,).
            orders: Orders of each mask's entries, sorted; those of the names' masks alone.
            ranked: (order, row) pairs of the names that have several, the best last; others' names may be among them.
        """
        names = names_of(words)
        self._rows = dict(zip(names, rows.tolist(), strict=True))
        self.ranked = {name: ranked[name] for name in names if name in ranked} if ranked else {}
        self.orders = orders
        self.best = max(mine[-1] for mine in orders.values())
        self.merged = len(orders) > 1
        self._file(words, rows)

    def _file(self, words: NDArray[np.uint64], rows: NDArray[np.uint64]) -> MemoryBlock | None:
        filed = words[:, : len(self.mask)] & self.mask
        if self.merged:
            self._together.update(names_of(filed))
        return self.slots.put_many(filed, rows)

    @property
    def overfull(self) -> bool:
        """True if too many names have the same filed bits."""
        return max(self._together.values(), default=0) > merging.MOST_TOGETHER

    def put(self, name: bytes, order: int, row: int, old: int) -> MemoryBlock | None:
        """Add a row, or replace `old` if that is not 0; the result is that of `Slots.put`."""
        answer = self._rows.get(name)
        if not old:
            bisect.insort(self.orders.setdefault(name[self._size :], []), order)
            self.best = max(self.best, order)
        if answer is None:
            return self._add(name, row)
        ranked = self.ranked.get(name)
        if ranked is not None or not old:
            if ranked is None:
                ranked = self.ranked[name] = [(_order_of(answer), answer)]
            at = bisect.bisect_left(ranked, (order, 0))
            ranked[at : at + bool(old)] = [(order, row)]
            row = ranked[-1][1]
        self._answer(name, answer, row)
        return None

    def _add(self, name: bytes, row: int) -> MemoryBlock | None:
        filed = self._filed(name)
        self._rows[name] = row
        if self.merged:
            self._together[filed] += 1
        return self.slots.put(filed, row)

    def put_many(self, words: NDArray[np.uint64], orders: list[int], rows: NDArray[np.uint64]) -> MemoryBlock | None:
        """Add rows, of names with these words; the result is that of `Slots.put`."""
        names, size = names_of(words), self._size
        if len(set(names)) == len(names) and self._rows.keys().isdisjoint(names):
            for name, order in zip(names, orders, strict=True):
                self.orders.setdefault(name[size:], []).append(order)
            for mask in {name[size:] for name in names}:
                self.orders[mask].sort()
            self.best = max(self.best, max(orders))
            self._rows.update(zip(names, rows.tolist(), strict=True))
            return self._file(words, rows)
        # the first block is the one that packets may be reading
        lefts = [self.put(name, order, row, 0) for name, order, row in zip(names, orders, rows.tolist(), strict=True)]
        return next((left for left in lefts if left is not None), None)

    def remove(self, name: bytes, order: int, row: int) -> None:
        """Remove a row."""
        mask = name[self._size :]
        orders = self.orders[mask]
        del orders[bisect.bisect_left(orders, order)]
        if not orders:
            del self.orders[mask]
        if order == self.best:
            self.best = max((mine[-1] for mine in self.orders.values()), default=-1)
        ranked = self.ranked.get(name)
        if ranked is None:
            self._drop(name, row)
            return
        del ranked[bisect.bisect_left(ranked, (order, 0))]
        self._answer(name, self._rows[name], ranked[-1][1])
        if len(ranked) == 1:
            del self.ranked[name]

    def _drop(self, name: bytes, row: int) -> None:
        filed = self._filed(name)
        del self._rows[name]
        if self.merged:
            self._together[filed] -= 1
            if not self._together[filed]:
                del self._together[filed]
        self.slots.remove(filed, row)

    def _answer(self, name: bytes, before: int, row: int) -> None:
        if row != before:
            self._rows[name] = row
            self.slots.replace(self._filed(name), before, row)


class TupleIndex:
    """Groups of entries, in the order of the best that they can give."""

    def __init__(self, root: int, layout: RowLayout, retired: RetiredMemory) -> None:
        self._size = 8 * layout.words
        self._merges = layout.strategy == "tuple"
        self._groups: dict[bytes, _Group] = {}
        """Groups by the masks of their entries; a merged one has several."""
        self._entries = 0
        self._considered = (0, 0)
        """Numbers of masks and of entries when a merge was last considered."""
        self._growth = _MORE_ENTRIES
        """Growth of the entries after which it is considered again."""
        self._published = Published(root, retired, self._content)
        self.hold, self.release = self._published.hold, self._published.release

    def _all(self) -> list[_Group]:
        return list(dict.fromkeys(self._groups.values()))

    def clear(self) -> None:
        """Remove all rows."""
        left = [group.slots.block for group in self._all()]
        self._groups, self._entries = {}, 0
        self._considered, self._growth = (0, 0), _MORE_ENTRIES
        self._published.change(*left)

    def _content(self) -> bytes:
        if not self._groups:
            return b""
        ordered = sorted(self._all(), key=lambda group: -group.best)
        parts = [struct.pack("<2Q", len(ordered), 0)]
        for group in ordered:
            parts.append(struct.pack("<3Q", group.slots.address, group.slots.mask, group.best))
            parts.append(group.mask.tobytes())
        return b"".join(parts)

    def put(self, identity: bytes, row: int, old: int = 0) -> None:
        """Same contract as `Index.put`. Of rows with one key and mask, packets see the one of the largest order."""
        name = identity[: 2 * self._size]
        group = self._group(name[self._size :])
        if not old and group.crowded_by((name,)):
            self._split(group)
            group = self._group(name[self._size :])
        before = group.best
        self._changed(group, before, group.put(name, order_of(identity), row, old))
        if not old:
            self._entries += 1
            self._merge_if_due()

    def put_many(self, identities: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
        """Same contract as `Index.put_many`."""
        self._put_many(identities, rows)
        self._entries += len(rows)
        self._merge_if_due()

    def _put_many(self, identities: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
        words = self._size // 8
        numbers: dict[_Group, list[int]] = {}
        masks = names_of(identities[:, words : 2 * words])
        for number, mask in enumerate(masks):
            numbers.setdefault(self._group(mask), []).append(number)
        for group, chosen in numbers.items():
            mine = identities[chosen]
            names = mine[:, : 2 * words]
            if group.crowded_by(names_of(names)):
                self._split(group)
                self._put_many(mine, rows[chosen])
                continue
            before = group.best
            left = group.put_many(names, mine[:, -1].tolist(), rows[chosen])
            self._changed(group, before, left)

    def _group(self, mask: bytes) -> _Group:
        """Return the group of a mask; a new mask joins a merged group whose rows are filed under bits of it."""
        group = self._groups.get(mask)
        if group is None:
            bits = int.from_bytes(mask, "little")
            wider = [other for other in self._all() if other.merged and other.bits & bits == other.bits]
            group = max(wider, key=lambda other: other.bits.bit_count()) if wider else _Group(bits, len(mask) // 8)
            self._groups[mask] = group
        return group

    def _changed(self, group: _Group, before: int, left: MemoryBlock | None) -> None:
        if left is not None:
            self._published.change(left)
        elif group.best != before:
            self._published.change()

    def remove(self, identity: bytes, row: int) -> None:
        """Remove a row; of those left with its key and mask, packets see the one of the largest order."""
        name = identity[: 2 * self._size]
        mask = name[self._size :]
        group = self._groups[mask]
        before = group.best
        group.remove(name, order_of(identity), row)
        self._entries -= 1
        if mask not in group.orders:
            del self._groups[mask]
        if not len(group):
            self._published.change(group.slots.block)
        elif group.best != before:
            self._published.change()

    # ---- merged groups

    def _split(self, group: _Group) -> None:
        """Give each mask of a group a group of its own."""
        names = _Names([group], self._size)
        for mask in [mask for mask, other in self._groups.items() if other is group]:
            del self._groups[mask]
        for mask in names.by_mask:
            self._groups[mask] = names.group([mask])
        self._growth = _MORE_AFTER_SPLIT
        self._published.change(group.slots.block)

    def _merge_if_due(self) -> None:
        masks, entries = self._considered
        if not self._merges or (len(self._groups) < _MORE_MASKS * masks and self._entries < self._growth * entries):
            return
        self._considered, self._growth = (len(self._groups), self._entries), _MORE_ENTRIES
        if len(self._all()) > _FEW_GROUPS:
            self._merge()

    def _merge(self) -> None:
        """Divide all masks into groups anew."""
        old = self._all()
        names = _Names(old, self._size)
        masks = list(names.by_mask)
        for cluster in merging.merge_masks([int.from_bytes(mask, "little") for mask in masks], names.keys()):
            self._regroup([masks[number] for number in cluster], names)
        kept = set(self._all())
        self._published.change(*(group.slots.block for group in old if group not in kept))

    def _regroup(self, masks: Sequence[bytes], names: _Names) -> None:
        """Make one group of masks; they get one each where that would be overfull."""
        if self._groups[masks[0]].orders.keys() == set(masks):
            return
        group = names.group(masks)
        if group.overfull:
            for mask in masks:
                self._regroup([mask], names)
        else:
            self._groups.update(dict.fromkeys(masks, group))


class _Names:
    """All names of some groups, for new groups of them."""

    def __init__(self, groups: Sequence[_Group], size: int) -> None:
        """`size` are the bytes of a key."""
        words, rows = zip(*(group.items() for group in groups), strict=True)
        self._words, self._rows, self._size = np.concatenate(words), np.concatenate(rows), size
        self._orders = dict(chain.from_iterable(group.orders.items() for group in groups))
        self._ranked = dict(chain.from_iterable(group.ranked.items() for group in groups))
        self.by_mask: dict[bytes, list[int]] = {}
        """Positions of each mask's names."""
        for number, mask in enumerate(names_of(self._words[:, size // 8 :])):
            self.by_mask.setdefault(mask, []).append(number)

    def keys(self) -> list[NDArray[np.uint64]]:
        """Return the keys of each mask's names, shape (names, words) each."""
        return [self._words[chosen, : self._size // 8] for chosen in self.by_mask.values()]

    def group(self, masks: Sequence[bytes]) -> _Group:
        """Return a group of all names with these masks."""
        common = functools.reduce(operator.and_, (int.from_bytes(mask, "little") for mask in masks))
        chosen = [number for mask in masks for number in self.by_mask[mask]]
        group = _Group(common, self._size // 8)
        orders = {mask: self._orders[mask] for mask in masks}
        group.fill(self._words[chosen], self._rows[chosen], orders, self._ranked)
        return group


def _order_of(row: int) -> int:
    return int(ctypes.c_uint32.from_address(row + _ORDER_AT).value)
