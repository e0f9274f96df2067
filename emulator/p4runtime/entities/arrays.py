"""Counter and register arrays: CounterEntry and RegisterEntry.

Registers are readable and writable here, which simple_switch_grpc does not offer. Both are MODIFY-only; a write
without an index sets every cell, a read without one answers with every cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from finsy.proto import p4i, p4r, p4t

from ...program import Counter, Register
from ..refusal import Code, Refusal, invalid
from . import typespec

COUNT_MASK: Final = (1 << 63) - 1
"""P4Runtime counts in int64."""


class CounterService:
    """One indirect counter of the P4Info, bound to one switch's memory."""

    def __init__(self, info: p4i.Counter, state: Counter, size: int) -> None:
        self.id = info.preamble.id
        self.name = info.preamble.name
        self._state = state
        self._size = size

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.CounterEntry) -> None:
        check_modify(kind, self.name)
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        if entry.HasField("data"):
            check_count(entry.data, self.name)
            self._state.packets[wanted.start : wanted.stop] = entry.data.packet_count
            self._state.bytes[wanted.start : wanted.stop] = entry.data.byte_count

    def read(self, query: p4r.CounterEntry) -> Iterator[p4r.Entity]:
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
        """The cells that are not zero."""
        for entity in self.read(p4r.CounterEntry()):
            if entity.counter_entry.data.packet_count or entity.counter_entry.data.byte_count:
                yield entity


class RegisterService:
    """One register array of the P4Info, bound to one switch's memory."""

    def __init__(self, info: p4i.Register, types: p4t.P4TypeInfo, state: Register, size: int) -> None:
        self.id = info.preamble.id
        self.name = info.preamble.name
        self.type = typespec.resolve(info.type_spec, types, self.name)
        self._state = state
        self._size = size

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.RegisterEntry) -> None:
        check_modify(kind, self.name)
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        if entry.HasField("data"):
            value = self.type.decode(entry.data)
            for index in wanted:
                self._state.write(index, value)

    def is_torn(self, query: p4r.RegisterEntry) -> bool:
        """Whether a packet could change the cell that is read, while it is read: it has more than one word."""
        return self.type.width > 64 and query.HasField("index")

    def read(self, query: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
        for index in cells(query.index, query.HasField("index"), self._size, self.name):
            yield self._entity(index)

    def written(self) -> Iterator[p4r.Entity]:
        """The cells that are not zero."""
        return (self._entity(index) for index in range(self._size) if self._state.read(index))

    def _entity(self, index: int) -> p4r.Entity:
        entity = p4r.Entity()
        message = entity.register_entry
        message.register_id = self.id
        message.index.index = index
        self.type.encode(self._state.read(index), message.data)
        return entity


def check_modify(kind: p4r.Update.Type.ValueType, name: str) -> None:
    if kind != p4r.Update.MODIFY:
        raise invalid(f"{name}: an array's cells are always there; only MODIFY applies to them")


def cells(index: p4r.Index, given: bool, size: int, name: str) -> range:
    if not given:
        return range(size)
    if index.index < 0:
        raise invalid(f"{name}: index {index.index} is negative")
    if index.index >= size:
        raise Refusal(Code.OUT_OF_RANGE, f"{name}: index {index.index} is not below its size {size}")
    return range(index.index, index.index + 1)


def check_count(data: p4r.CounterData, what: str) -> None:
    """Refuse counts that nothing can have counted."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"{what}: counter data {data.packet_count} packets, {data.byte_count} bytes must not be negative")
