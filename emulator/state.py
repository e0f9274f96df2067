"""One switch's memory of a program.

Tables, action profiles, registers and counters, in the layout that native code knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from emulator.bmv2json import Document
from emulator.bmv2json import Table as TableNode
from emulator.compiler.layout import COUNTER_BYTES, Layout, RegisterPlace, is_static
from emulator.entries import ActionCall, Exact, Lpm, Match, Range, TableEntry, Ternary
from emulator.schema import ActionProfileSchema, ActionSchema, TableSchema
from emulator.tables.memory import Block, Graveyard
from emulator.tables.profile import ActionProfile
from emulator.tables.rows import row_layout
from emulator.tables.table import Table

__all__ = ["ActionProfile", "Counter", "ProgramState", "Register", "Table"]


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
        """Raises `IndexError` outside 0 … size - 1."""
        return int.from_bytes(self._cells[self._checked(index)].tobytes(), "little")

    def write(self, index: int, value: int) -> None:
        """Raises `IndexError` outside 0 … size - 1, `ValueError` for a value that does not fit."""
        if not 0 <= value < 1 << self.width:
            raise ValueError(f"{self.name}[{index}] = {value} does not fit {self.width} bits")
        content = value.to_bytes(self._bytes, "little")
        self._cells[self._checked(index)] = np.frombuffer(content, np.uint8)

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


class ProgramState:
    """Made by `Program.new_state`. One control plane at a time may write; packets may run meanwhile."""

    def __init__(
        self,
        document: Document,
        layout: Layout,
        tables: Mapping[str, TableSchema],
        actions: Mapping[str, ActionSchema],
        profiles: Mapping[str, ActionProfileSchema],
    ) -> None:
        self._memory = Block(layout.state_bytes)
        self._graveyard = Graveyard()
        self._roots_end = max((root for root in layout.table_root.values()), default=-16) + 16
        memory = self._memory.bytes
        self.address: int = self._memory.address
        """What the entry points take as `state`."""
        self.registers: Mapping[str, Register] = {
            name: Register(name, place, memory) for name, place in layout.registers.items()
        }
        self.counters: Mapping[str, Counter] = {
            name: Counter(name, self._counter_cells(offset, document.counters[name].size))
            for name, offset in layout.counter_offset.items()
        }
        self.action_profiles: Mapping[str, ActionProfile] = {
            name: ActionProfile(schema, actions, self._graveyard) for name, schema in profiles.items()
        }
        self._all: dict[str, Table] = {}
        for pipeline in (document.ingress, document.egress):
            for node in pipeline.nodes.values():
                if isinstance(node, TableNode) and not is_static(node):
                    self._all[node.name] = Table(
                        tables[node.name],
                        row_layout(document, node),
                        actions,
                        self.address + layout.table_root[node.name],
                        self.action_profiles[node.profile] if node.profile is not None else None,
                        const_entries(document, node),
                        self._graveyard,
                    )
        self.tables: Mapping[str, Table] = self._all

    def _counter_cells(self, offset: int, size: int) -> NDArray[np.uint64]:
        return self._memory.bytes[offset : offset + size * COUNTER_BYTES].view(np.uint64).reshape(size, 2)

    def reset(self) -> None:
        """Back to the state of a program just loaded."""
        for table in self._all.values():
            table.reset()
        for profile in self.action_profiles.values():
            profile.reset()
        self._memory.bytes[self._roots_end :] = 0


_MATCHES: Final[Mapping[str, Callable[[int, int], Match]]] = {
    "exact": lambda value, _: Exact(value),
    "lpm": Lpm,
    "ternary": Ternary,
    "range": Range,
}


def const_entries(document: Document, table: TableNode) -> tuple[TableEntry, ...]:
    """The program's own entries. BMv2's priorities (smallest wins) turn into P4Runtime's (largest wins)."""
    entries = table.entries or ()
    lowest = max((entry.priority for entry in entries), default=0) + 1
    ranked = any(key.match_kind in ("ternary", "range") for key in table.key)
    result = []
    for entry in entries:
        match: list[Match] = []
        for kind, value, other in entry.match:
            match.append(_MATCHES[kind](value, other))
        call = ActionCall(document.actions[entry.action_id].name, entry.params)
        result.append(TableEntry(tuple(match), call, lowest - entry.priority if ranked else 0))
    return tuple(result)
