"""One switch's memory of a program.

Tables, action profiles, registers, counters, meters, digests and value sets, in the layout that native code knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .bmv2.document import Digest as DigestNode
from .bmv2.document import Document
from .bmv2.document import Table as TableNode
from .bmv2.schema import ActionProfileSchema, ActionSchema, TableSchema, ValueSetSchema
from .compiler.layout import (
    COUNTER_BYTES,
    DIGEST_HEAD_BYTES,
    DIGEST_SLOTS,
    ROOT_BYTES,
    STATE_HEAD_BYTES,
    Layout,
    RegisterPlace,
    digest_places,
    digest_slot_bytes,
    is_static,
)
from .compiler.steps import Steps
from .entries import ActionCall, Exact, InvalidEntry, Lpm, Match, Optional, Range, TableEntry, TableFull, Ternary
from .tables.keys import pack_key
from .tables.memory import MemoryBlock, RetiredMemory, write_word
from .tables.meters import MeterArray
from .tables.profile import ActionProfile
from .tables.rows import RowLayout, row_layout
from .tables.table import Table

__all__ = ["ActionProfile", "Counter", "DigestQueue", "ProgramState", "Register", "Table", "ValueSetMembers"]


class Register:
    """A register array: `size` cells of `width` bits."""

    def __init__(self, name: str, place: RegisterPlace, memory: NDArray[np.uint8]) -> None:
        self.name = name
        self.size = place.size
        self.width = place.width
        self._bytes = place.bytes
        region = memory[place.rows : place.rows + place.stride * place.size].reshape(place.size, place.stride)
        self._cells = region[:, place.offset : place.offset + place.bytes]

    def read(self, index: int) -> int:
        """Return a cell's value.

        Raises:
            IndexError: The index is not in 0 … size - 1.
        """
        return int.from_bytes(self._cells[self._checked(index)].tobytes(), "little")

    def write(self, index: int, value: int) -> None:
        """Set a cell's value.

        Raises:
            IndexError: The index is not in 0 … size - 1.
            ValueError: The value does not fit.
        """
        if not 0 <= value < 1 << self.width:
            raise ValueError(f"{self.name}[{index}] = {value} does not fit {self.width} bits")
        content = value.to_bytes(self._bytes, "little")
        self._cells[self._checked(index)] = np.frombuffer(content, np.uint8)

    def content(self, cells: range) -> NDArray[np.uint8]:
        """Return a copy of the bytes of some cells, for `set_content`."""
        return self._cells[cells.start : cells.stop].copy()

    def set_content(self, cells: range, content: NDArray[np.uint8]) -> None:
        """Overwrite a range of cells with their bytes, uint8 (cells, bytes per cell)."""
        self._cells[cells.start : cells.stop] = content

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"{self.name}[{index}]: the register has {self.size} cells")
        return index

    @property
    def values(self) -> NDArray[Any]:
        """A view of all cells, shape (size,), uint8 … uint64; for widths up to 64."""
        if self._bytes > 8:
            raise ValueError(f"{self.name}: cells of {self.width} bits have no NumPy type; use read and write")
        return self._cells.view(np.dtype(f"<u{self._bytes}"))[:, 0]


class Counter:
    """An indirect counter array."""

    def __init__(self, name: str, cells: NDArray[np.uint64]) -> None:
        self.name = name
        self.size = len(cells)
        self.packets: NDArray[np.uint64] = cells[:, 0]
        self.bytes: NDArray[np.uint64] = cells[:, 1]


class DigestQueue:
    """Records of one struct's `digest` calls that have not been read: at most 1024; later ones are lost."""

    def __init__(
        self, name: str, memory: NDArray[np.uint8], places: tuple[tuple[int, int], ...], slot_bytes: int
    ) -> None:
        """Create the view of a queue in a program's state.

        Args:
            name: Name of the struct.
            memory: Memory of the queue, uint8: its head, and then its slots.
            places: Byte offset and width in bits of each field in a slot.
            slot_bytes: Bytes of a slot.
        """
        self.name = name
        self._head = memory[:DIGEST_HEAD_BYTES].view(np.uint64)
        self._slots = memory[DIGEST_HEAD_BYTES:].reshape(DIGEST_SLOTS, slot_bytes)
        self._places = places

    def __len__(self) -> int:
        return int(self._head[0] - self._head[1])

    @property
    def lost(self) -> int:
        """Records that found no room since the program was loaded."""
        return int(self._head[2])

    def drain(self, limit: int = DIGEST_SLOTS) -> list[tuple[int, ...]]:
        """Remove the oldest records, at most `limit`, and return them.

        Returns:
            A tuple per record, with the struct's fields in order.
        """
        first = int(self._head[1])
        count = min(len(self), limit)
        records = []
        for number in range(first, first + count):
            slot = self._slots[number % DIGEST_SLOTS].tobytes()
            values = (int.from_bytes(slot[at : at + (width + 63) // 64 * 8], "little") for at, width in self._places)
            records.append(tuple(values))
        self._head[1] = first + count
        return records


class ValueSetMembers:
    """A parser value set. A member has one match per expression of the select: Exact, Lpm, Ternary or Optional."""

    def __init__(self, schema: ValueSetSchema, root: int, retired: RetiredMemory) -> None:
        self.name = schema.name
        self.size = schema.size
        self._schema = schema
        self._root = root
        self._retired = retired
        self._block: MemoryBlock | None = None
        self.replace(())

    @property
    def members(self) -> tuple[tuple[Match, ...], ...]:
        """The members, in the order in which they were written."""
        return self._members

    def replace(self, members: Iterable[tuple[Match, ...]]) -> None:
        """Give the set other members, all at once. Raises `InvalidEntry`, `TableFull`."""
        chosen = tuple(members)
        if len(chosen) > self.size:
            raise TableFull(f"{len(chosen)} members, its size is {self.size}", place=self.name, value=len(chosen))
        bits = sum((width + 7) // 8 * 8 for width in self._schema.widths)
        size = (bits + 63) // 64 * 8
        parts = [len(chosen).to_bytes(8, "little")]
        for member in chosen:
            parts += (number.to_bytes(size, "little") for number in self._packed(member))
        block = MemoryBlock(sum(map(len, parts)))
        block.bytes[:] = np.frombuffer(b"".join(parts), np.uint8)
        write_word(self._root, block.address)
        if self._block is not None:
            self._retired.bury(self._block)
        self._block, self._members = block, chosen

    def _packed(self, member: tuple[Match, ...]) -> tuple[int, int]:
        """Value and mask of the select's key, each field in whole bytes."""
        widths = self._schema.widths
        if len(member) != len(widths):
            raise InvalidEntry(
                f"a member of {len(member)} matches, not {len(widths)}", place=self.name, value=len(member)
            )
        value = mask = 0
        for match, width in zip(member, widths, strict=True):
            own_value, own_mask = _value_and_mask(self.name, match, width)
            shift = (width + 7) // 8 * 8
            value, mask = value << shift | own_value, mask << shift | own_mask
        return value, mask


def _value_and_mask(where: str, match: Match, width: int) -> tuple[int, int]:
    whole = (1 << width) - 1
    pair = (-1, 0)
    match match:
        case Exact(value):
            pair = (value, whole)
        case Lpm(value, prefix) if 0 <= prefix <= width:
            pair = (value, whole ^ whole >> prefix)
        case Ternary(value, mask):
            pair = (value, mask)
        case Optional(value):
            pair = (0, 0) if value is None else (value, whole)
    if not all(0 <= number <= whole for number in pair):
        raise InvalidEntry(
            f"{match} is no exact, lpm, ternary or optional match of {width} bits", place=where, value=match
        )
    return pair


class Clock:
    """Clock in microseconds, read by the function `read`.

    Tables hold the clock, not the state that they belong to, so that a state that a switch gives up is freed at once.
    """

    def __init__(self) -> None:
        self.read: Callable[[], int] = lambda: 0

    def __call__(self) -> int:
        return self.read()


class InitialTable(NamedTuple):
    """Parts of a table that all states of a program share: they take longer to compute than to write."""

    layout: RowLayout
    entries: tuple[tuple[TableEntry, bytes], ...]
    """The program's own entries, with their identities."""


def initial_table(document: Document, node: TableNode, schema: TableSchema) -> InitialTable:
    """Lay out a table's rows and pack the keys of its own entries. Raises `InvalidEntry` for one that does not fit."""
    layout = row_layout(document, node)
    entries = const_entries(document, node)
    return InitialTable(
        layout, tuple((entry, pack_key(schema, layout, entry.match, entry.priority)) for entry in entries)
    )


class ProgramState:
    """Made by `Program.new_state`. One control plane at a time may write; packets may run meanwhile."""

    def __init__(
        self,
        document: Document,
        layout: Layout,
        tables: Mapping[str, TableSchema],
        actions: Mapping[str, ActionSchema],
        profiles: Mapping[str, ActionProfileSchema],
        initial: Mapping[str, InitialTable],
    ) -> None:
        """Allocate the memory of one switch, with the program's initial entries.

        Args:
            document: Parsed BMv2 JSON.
            layout: Layout of the state in memory.
            tables: Schemas of the tables, by name.
            actions: Schemas of the actions, by name.
            profiles: Schemas of the action profiles, by name.
            initial: Layout and initial entries of each table, by name.
        """
        self._memory = MemoryBlock(layout.state_bytes)
        self._retired = RetiredMemory(self._memory)
        roots = (*layout.table_root.values(), *layout.value_set_root.values())
        self._roots_end = max(roots, default=STATE_HEAD_BYTES - ROOT_BYTES) + ROOT_BYTES
        self.clock = Clock()
        """The switch's time in microseconds, which `Switch.start` sets; idle entries go by it."""
        memory = self._memory.bytes
        self.address: int = self._memory.address
        """The `state` argument of the entry points."""
        self.steps = None if layout.steps is None else Steps(document, self.address + layout.steps)
        """Notes of the last packet's table lookups; None in a program that is not traced."""
        self.registers: Mapping[str, Register] = {
            name: Register(name, place, memory) for name, place in layout.registers.items()
        }
        self.counters: Mapping[str, Counter] = {
            name: Counter(name, self._counter_cells(offset, document.counters[name].size))
            for name, offset in layout.counter_offset.items()
        }
        self.action_profiles: Mapping[str, ActionProfile] = {
            name: ActionProfile(schema, actions, self._retired) for name, schema in profiles.items()
        }
        self.meters: Mapping[str, MeterArray] = {
            name: MeterArray(name, document.meters[name].size, document.meters[name].unit, self._memory, offset)
            for name, offset in layout.meter_offset.items()
        }
        self.digests: Mapping[str, DigestQueue] = {
            digest.name: self._digest(document, digest, layout.digest_offset[digest.id])
            for digest in document.digests.values()
        }
        self.value_sets: Mapping[str, ValueSetMembers] = {
            name: ValueSetMembers(
                ValueSetSchema(name, document.value_sets[name].size, document.value_sets[name].widths),
                self.address + root,
                self._retired,
            )
            for name, root in layout.value_set_root.items()
        }
        self._all: dict[str, Table] = {}
        for pipeline in (document.ingress, document.egress):
            for node in pipeline.nodes.values():
                if isinstance(node, TableNode) and not is_static(node):
                    self._all[node.name] = Table(
                        tables[node.name],
                        initial[node.name].layout,
                        actions,
                        self.address + layout.table_root[node.name],
                        self.action_profiles[node.profile] if node.profile is not None else None,
                        initial[node.name].entries,
                        self._retired,
                        self.clock,
                    )
        self.tables: Mapping[str, Table] = self._all

    def _counter_cells(self, offset: int, size: int) -> NDArray[np.uint64]:
        return self._memory.bytes[offset : offset + size * COUNTER_BYTES].view(np.uint64).reshape(size, 2)

    def _digest(self, document: Document, digest: DigestNode, offset: int) -> DigestQueue:
        slot_bytes = digest_slot_bytes(digest, document)
        size = DIGEST_HEAD_BYTES + DIGEST_SLOTS * slot_bytes
        memory = self._memory.bytes[offset : offset + size]
        return DigestQueue(digest.name, memory, digest_places(digest, document), slot_bytes)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Group many changes: packets may see those of the tables in between or only at the end, in any order."""
        self._retired.hold()
        for table in self._all.values():
            table.hold()
        try:
            yield
        finally:
            for table in self._all.values():
                table.release()
            self._retired.release()

    def set_ports_down(self, ports: Collection[int]) -> None:
        """Set the ports that are down: selectors do not choose members that watch one of them."""
        for profile in self.action_profiles.values():
            profile.set_ports_down(ports)

    def mirror(self, other: ProgramState) -> None:
        """Take over registers, counters and meters of a state of the same program, and look up in its tables.

        Direct counters and meters are shared. `other` must live as long as this state, and its tables may change only
        while no packet passes through this one. The program of either may be traced.
        """
        common = min(len(self._memory.bytes), len(other._memory.bytes))
        self._memory.bytes[:common] = other._memory.bytes[:common]

    def reset(self) -> None:
        """Restore the state of a program just loaded."""
        for table in self._all.values():
            table.reset()
        for profile in self.action_profiles.values():
            profile.reset()
        for value_set in self.value_sets.values():
            value_set.replace(())
        self._memory.bytes[self._roots_end :] = 0


def _lpm(value: int, prefix_length: int, width: int) -> Match:
    return Lpm(_without(value, ((1 << width) - 1) >> max(prefix_length, 0), width), prefix_length)


def _ternary(value: int, mask: int, width: int) -> Match:
    return Ternary(_without(value, ~mask, width), mask)


def _without(value: int, bits: int, width: int) -> int:
    """A value of a field without some bits. One that does not fit stays as it is, for its table to refuse."""
    return value & ~bits if 0 <= value < 1 << width else value


_MATCHES: Final[Mapping[str, Callable[[int, int, int], Match]]] = {
    "exact": lambda value, _, __: Exact(value),
    "lpm": _lpm,
    "ternary": _ternary,
    "range": lambda low, high, _: Range(low, high),
}
"""A match from the values in the BMv2 JSON, and the width of the field. p4c writes the source's `0x1234 &&& 0xFF00`
unchanged; bits outside the mask are cleared, as in entries that controllers write.
"""


def const_entries(document: Document, table: TableNode) -> tuple[TableEntry, ...]:
    """Return the program's own entries. BMv2's priorities (smallest wins) turn into P4Runtime's (largest wins)."""
    entries = table.entries or ()
    lowest = max((entry.priority for entry in entries), default=0) + 1
    ranked = any(key.match_kind in ("ternary", "range") for key in table.key)
    result = []
    widths = [document.width(key.target) for key in table.key]
    for entry in entries:
        match: list[Match] = []
        for number, (kind, value, other) in enumerate(entry.match):
            width = widths[number] if number < len(widths) else 0  # one too many is the table's to refuse
            match.append(_MATCHES[kind](value, other, width))
        call = ActionCall(document.actions[entry.action_id].name, entry.params)
        result.append(TableEntry(tuple(match), call, lowest - entry.priority if ranked else 0))
    return tuple(result)
