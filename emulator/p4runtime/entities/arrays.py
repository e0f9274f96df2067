"""Counter and register arrays: CounterEntry and RegisterEntry.

Registers are readable and writable here, which simple_switch_grpc does not offer. Both are MODIFY-only; a write
without an index sets every cell, a read without one answers with every cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from finsy.proto import p4i, p4r, p4t

from ...program import Counter, Register
from ..refusal import Code, Refusal, invalid
from . import typespec

COUNT_MASK: Final = (1 << 63) - 1
"""P4Runtime counts in int64."""
_WORD_BITS: Final = 64
_PAUSE_CELLS: Final = 64
"""Cells of a register that are read while packets wait."""

Paused = Callable[[], AbstractContextManager[object]]
"""While what it gives is entered, no packet runs."""


class CounterService:
    """One indirect counter of the P4Info, bound to one switch's memory."""

    def __init__(self, info: p4i.Counter, state: Counter, size: int) -> None:
        self.id = info.preamble.id
        self.name = info.preamble.name
        self._state = state
        self._size = size

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.CounterEntry) -> None:
        """Write one cell, or all without an index. Raises Refusal."""
        check_modify(kind, self.name)
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        if entry.HasField("data"):
            check_count(entry.data, self.name)
            self._state.packets[wanted.start : wanted.stop] = entry.data.packet_count
            self._state.bytes[wanted.start : wanted.stop] = entry.data.byte_count

    def remember(self, kind: p4r.Update.Type.ValueType, entry: p4r.CounterEntry) -> Callable[[], None]:
        """Return what brings the cells that an update is to write back to what they hold now.

        Raises `EmulatorError` for an index or a kind of update that `write` refuses.
        """
        check_modify(kind, self.name)
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        kept = [counts[wanted.start : wanted.stop].copy() for counts in (self._state.packets, self._state.bytes)]

        def bring_back() -> None:
            self._state.packets[wanted.start : wanted.stop] = kept[0]
            self._state.bytes[wanted.start : wanted.stop] = kept[1]

        return bring_back

    def read(self, query: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        """Yield the cell of a query, or all cells without an index. Raises Refusal."""
        wanted = cells(query.index, query.HasField("index"), self._size, self.name)
        for index in wanted:
            packet_count, byte_count = int(self._state.packets[index]), int(self._state.bytes[index])
            entity = p4r.Entity()
            message = entity.counter_entry
            message.counter_id = self.id
            message.index.index = index
            message.data.packet_count = packet_count & COUNT_MASK
            message.data.byte_count = byte_count & COUNT_MASK
            yield entity

    def counted(self) -> Iterator[p4r.Entity]:
        """Yield the cells that are not zero."""
        for entity in self.read(p4r.CounterEntry()):
            if entity.counter_entry.data.packet_count or entity.counter_entry.data.byte_count:
                yield entity


class RegisterService:
    """One register array of the P4Info, bound to one switch's memory."""

    def __init__(self, info: p4i.Register, types: p4t.P4TypeInfo, state: Register, size: int) -> None:
        """Create the service.

        Args:
            info: Register of the P4Info.
            types: Types of the P4Info.
            state: Register of the switch.
            size: Number of cells.

        Raises:
            Refusal: No register of this switch holds the type.
        """
        self.id = info.preamble.id
        self.name = info.preamble.name
        self.type = typespec.resolve(info.type_spec, types, self.name)
        self._state = state
        self._size = size

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.RegisterEntry) -> None:
        """Write one cell, or all without an index. Raises Refusal."""
        check_modify(kind, self.name)
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        if entry.HasField("data"):
            value = self.type.decode(entry.data)
            for index in wanted:
                self._state.write(index, value)

    def remember(self, kind: p4r.Update.Type.ValueType, entry: p4r.RegisterEntry) -> Callable[[], None]:
        """Return what brings the cells that an update is to write back to what they hold now.

        Raises `EmulatorError` for an update that `write` refuses, before anything is copied.
        """
        check_modify(kind, self.name)
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        if not entry.HasField("data"):
            return lambda: None
        self.type.decode(entry.data)
        kept = self._state.content(wanted)
        return lambda: self._state.set_content(wanted, kept)

    def read(self, query: p4r.RegisterEntry, paused: Paused) -> Iterator[p4r.Entity]:
        """Yield the cells that a query selects.

        A packet could change one of more than one word while it is read: such cells are read within `paused()`, a few
        at a time.
        """
        wanted = cells(query.index, query.HasField("index"), self._size, self.name)
        if self.type.width <= _WORD_BITS:
            for index in wanted:
                yield self._entity(index, self._state.read(index))
            return
        for first in range(0, len(wanted), _PAUSE_CELLS):
            piece = wanted[first : first + _PAUSE_CELLS]
            with paused():
                values = [self._state.read(index) for index in piece]
            yield from map(self._entity, piece, values)

    def written(self) -> Iterator[p4r.Entity]:
        """Return the cells that are not zero. Those of more than one word are whole while no packet runs."""
        values = ((index, self._state.read(index)) for index in range(self._size))
        return (self._entity(index, value) for index, value in values if value)

    def _entity(self, index: int, value: int) -> p4r.Entity:
        entity = p4r.Entity()
        message = entity.register_entry
        message.register_id = self.id
        message.index.index = index
        self.type.encode(value, message.data)
        return entity


def check_modify(kind: p4r.Update.Type.ValueType, name: str) -> None:
    """Check that an update of an array's cell is a MODIFY. Raises Refusal."""
    if kind != p4r.Update.MODIFY:
        raise invalid(f"{name}: an array's cells are always there; only MODIFY applies to them")


def cells(index: p4r.Index, has_index: bool, size: int, name: str) -> range:
    """Return the range of cells that an index of a request names.

    Args:
        index: The index.
        has_index: False if the request has none, and so names all cells.
        size: Number of cells.
        name: Name of the array, for the message.

    Raises:
        Refusal: The index is negative, or not below the size.
    """
    if not has_index:
        return range(size)
    if index.index < 0:
        raise invalid(f"{name}: index {index.index} is negative")
    if index.index >= size:
        raise Refusal(Code.OUT_OF_RANGE, f"{name}: index {index.index} is not below its size {size}")
    return range(index.index, index.index + 1)


def check_count(data: p4r.CounterData, name: str) -> None:
    """Refuse counts that nothing can have counted."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"{name}: counter data {data.packet_count} packets, {data.byte_count} bytes must not be negative")
