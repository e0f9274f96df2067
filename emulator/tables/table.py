"""One match-action table of one switch, as the control plane sees it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..bmv2.schema import ActionSchema, TableSchema
from ..entries import (
    ActionCall,
    EmulatorError,
    EntryExists,
    EntryNotFound,
    InvalidEntry,
    Match,
    TableAction,
    TableEntry,
    TableFull,
)
from .index import ExactIndex, Index, RangeIndex, TupleIndex
from .keys import PackedKey, pack_key
from .memory import RetiredMemory, RowPool, write_word
from .meters import ColorCounts, MeterCell, MeterRates, meter_content
from .profile import ActionProfile, pack_params
from .rows import HIT_AT, METER_AT, RowLayout

_NO_ACTION_CODE: Final = (1 << 32) - 1
_DEFAULT_ROW_AT: Final = 8


@dataclass(slots=True)
class _Stored:
    entry: TableEntry
    row: int
    notes: int
    """Address of the cell that packets write for the entry (`RowLayout.cell_bytes`), or 0."""
    cell: int
    """The cell of the action profile that the entry refers to, or 0."""


class Table:
    """Entries of one table. Updates are seen whole by the packets that run meanwhile."""

    def __init__(
        self,
        schema: TableSchema,
        layout: RowLayout,
        actions: Mapping[str, ActionSchema],
        root: int,
        profile: ActionProfile | None,
        const_entries: Sequence[tuple[TableEntry, PackedKey]],
        retired: RetiredMemory,
        clock: Callable[[], int],
    ) -> None:
        """Create a table with its constant entries.

        Args:
            schema: Schema of the table.
            layout: Layout of its rows.
            actions: Schemas of the program's actions, by name.
            root: Address of the word through which packets find the table's index.
            profile: Action profile of the table; None: entries have their own actions.
            const_entries: Entries of the program, with their keys.
            retired: Memory that packets may still read, which is freed later.
            clock: Returns the switch's time in microseconds.
        """
        self.schema = schema
        self._layout = layout
        self._actions = actions
        self._codes = {name: code for code, name in enumerate(schema.actions)}
        self._root = root
        self._profile = profile
        self._const_entries = tuple(const_entries)
        self._rows = RowPool(layout.row_bytes, retired)
        self._notes = RowPool(max(16, layout.cell_bytes), retired)
        self._clock = clock
        self._entries: dict[PackedKey, _Stored] = {}
        self._default_row = 0
        self._default_notes = 0
        self.constant = schema.const_entries
        """True if `insert`, `modify` and `delete` are refused.

        The BMv2 JSON does not distinguish `const entries` from `entries`, which may change; the caller that knows sets
        it.
        """
        self._index = self._make_index(retired)
        self._own_default = self._program_default()
        self._default = self._own_default
        self._fill()

    def _make_index(self, retired: RetiredMemory) -> Index | None:
        match self._layout.strategy:
            case "none":
                return None
            case "exact":
                return ExactIndex(self._root, self._layout, retired)
            case "range":
                return RangeIndex(self._root, self._layout, retired)
            case _:
                return TupleIndex(self._root, self._layout, retired)

    def _program_default(self) -> ActionCall:
        return ActionCall(self.schema.default_action or "NoAction", self.schema.default_params)

    def _fill(self) -> None:
        old, self._default_notes = self._default_notes, self._make_notes()
        self._write_default(self._own_default)
        if old:
            self._notes.free(old)
        for entry, key in self._const_entries:
            self._insert(entry, key)

    def reset(self) -> None:
        """Restore the program's own entries and default action."""
        if self._index is not None:
            self._index.clear()
        for stored in self._entries.values():
            self._release(stored)
        self._entries.clear()
        self._fill()

    def hold(self) -> None:
        """Publish the changes that follow together, at `release` at the latest."""
        if self._index is not None:
            self._index.hold()

    def release(self) -> None:
        """Publish what `hold` has collected."""
        if self._index is not None:
            self._index.release()

    # ---- entries

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Iterator[TableEntry]:
        """Return all entries, constant ones included, without the default."""
        return (stored.entry for stored in list(self._entries.values()))

    def get(self, match: Sequence[Match], priority: int = 0) -> TableEntry:
        """Return the entry with this key.

        Raises:
            EntryNotFound: There is none.
            InvalidEntry: The key does not fit the table.
        """
        return self._find(match, priority).entry

    def insert(self, entry: TableEntry, counts: tuple[int, int] = (0, 0), rates: MeterRates | None = None) -> None:
        """Insert an entry; `counts` (packets, bytes) and `rates` initialise its direct counter and meter.

        Raises:
            EntryExists, TableFull, InvalidEntry: The entry cannot be inserted.
            EntryNotFound: The member or group is unknown.
        """
        self._refuse_constant()
        if self._index is None:
            raise InvalidEntry("has no key, only a default action", place=self.schema.name)
        key = pack_key(self.schema, self._layout, entry.match, entry.priority)
        self._insert(entry, key, counts, rates)

    def modify(self, entry: TableEntry) -> None:
        """Set the action of an entry; its direct counter keeps its value.

        Raises:
            EntryNotFound: There is none with this key.
            InvalidEntry: The entry does not fit the table.
        """
        self._refuse_constant()
        key = pack_key(self.schema, self._layout, entry.match, entry.priority)
        stored = self._entries.get(key)
        if stored is None:
            raise EntryNotFound(
                f"no entry {entry.match} with priority {entry.priority}", place=self.schema.name, value=entry.match
            )
        old_row, old_cell, old_action = stored.row, stored.cell, stored.entry.action
        row, cell = self._make_row(key, entry, stored.notes)
        self._put(key, row)
        stored.entry, stored.row, stored.cell = entry, row, cell
        self._rows.free(old_row)
        if self._profile is not None:
            self._profile.detach(old_action, old_cell)

    def delete(self, match: Sequence[Match], priority: int = 0) -> None:
        """Delete the entry with this key.

        Raises:
            EntryNotFound: There is none.
            InvalidEntry: The key does not fit the table.
        """
        self._refuse_constant()
        stored = self._find(match, priority)
        key = pack_key(self.schema, self._layout, match, priority)
        assert self._index is not None
        self._index.remove(key.identity(self._layout.words), key.mask, key.order)
        del self._entries[key]
        self._release(stored)

    def _find(self, match: Sequence[Match], priority: int) -> _Stored:
        stored = self._entries.get(pack_key(self.schema, self._layout, match, priority))
        if stored is None:
            raise EntryNotFound(
                f"no entry {tuple(match)} with priority {priority}", place=self.schema.name, value=tuple(match)
            )
        return stored

    def _insert(
        self, entry: TableEntry, key: PackedKey, counts: tuple[int, int] = (0, 0), rates: MeterRates | None = None
    ) -> None:
        if key in self._entries:
            raise EntryExists(
                f"an entry {entry.match} with priority {entry.priority} exists",
                place=self.schema.name,
                value=entry.match,
            )
        if len(self._entries) >= self.schema.size:
            raise TableFull(
                f"holds {self.schema.size} entries, its size", place=self.schema.name, value=self.schema.size
            )
        notes = self._make_notes(counts, rates)
        try:
            row, cell = self._make_row(key, entry, notes)
        except EmulatorError:
            if notes:
                self._notes.free(notes)
            raise
        self._put(key, row)
        self._entries[key] = _Stored(entry, row, notes, cell)

    def _make_notes(self, counts: tuple[int, int] = (0, 0), rates: MeterRates | None = None) -> int:
        if not self._layout.cell_bytes:
            return 0
        content = struct.pack("<QQ", *counts)
        if self._layout.cell_bytes > HIT_AT:
            content += self._clock().to_bytes(8, "little")
        if rates is not None:
            content += meter_content(rates, self.schema.name)
        notes = self._notes.allocate()
        self._notes.write(notes, content.ljust(self._layout.cell_bytes, b"\0"))
        return notes

    def _put(self, key: PackedKey, row: int) -> None:
        assert self._index is not None
        self._index.put(key.identity(self._layout.words), key.mask, key.order, row)

    def _release(self, stored: _Stored) -> None:
        self._rows.free(stored.row)
        if stored.notes:
            self._notes.free(stored.notes)
        if self._profile is not None:
            self._profile.detach(stored.entry.action, stored.cell)

    def _refuse_constant(self) -> None:
        if self.constant:
            raise InvalidEntry("its entries are constant", place=self.schema.name)

    # ---- the default action

    @property
    def default(self) -> TableAction:
        """The default action."""
        return self._default

    def set_default(self, action: TableAction | None) -> None:
        """Set the default action.

        Args:
            action: The action; None: the program's own.

        Raises:
            InvalidEntry: The default action is constant, or the table has an action profile.
        """
        if action is not None and self.schema.const_default:
            raise InvalidEntry("its default action is constant", place=self.schema.name)
        chosen = action if action is not None else self._own_default
        if not isinstance(chosen, ActionCall) or (self._profile is not None and chosen != self._own_default):
            raise InvalidEntry(f"{chosen} cannot be a default action here", place=self.schema.name, value=chosen)
        self._write_default(chosen)

    def _write_default(self, call: ActionCall) -> None:
        self._default = call
        params, code = b"", _NO_ACTION_CODE
        if self._profile is None and (self.schema.default_action is not None or call != self._own_default):
            params, code = self._params(call), self._codes[call.name]
        row = self._rows.allocate()
        head = struct.pack("<IIQ", code, 0, self._default_notes)
        self._rows.write(row, head.ljust(self._layout.params_at, b"\0") + params)
        write_word(self._root + _DEFAULT_ROW_AT, row)
        if self._default_row:
            self._rows.free(self._default_row)
        self._default_row = row

    # ---- direct counters; without a match the default entry's

    def counter(self, match: Sequence[Match] | None, priority: int = 0) -> tuple[int, int]:
        """Return (packets, bytes) of an entry; `match` None: of the default entry.

        Raises:
            EntryNotFound: No entry has this match and priority.
            InvalidEntry: The match does not fit the table's key.
        """
        packets, octets = self._counter_cell(match, priority)
        return packets, octets

    def set_counter(self, match: Sequence[Match] | None, packets: int, octets: int, priority: int = 0) -> None:
        """Set the direct counter of an entry.

        Args:
            match: Match of the entry; None: the default entry.
            packets: Number of packets.
            octets: Number of bytes.
            priority: Priority of the entry.

        Raises:
            EntryNotFound: There is no such entry.
            InvalidEntry: The key does not fit the table, or the table has no direct counter.
        """
        cell = self._counter_cell(match, priority)
        cell[0], cell[1] = packets, octets

    def _counter_cell(self, match: Sequence[Match] | None, priority: int) -> ctypes.Array[ctypes.c_uint64]:
        if self.schema.direct_counter is None:
            raise InvalidEntry("has no direct counter", place=self.schema.name)
        return (ctypes.c_uint64 * 2).from_address(self._notes_of(match, priority))

    def notes(self, match: Sequence[Match] | None, priority: int = 0) -> bytes:
        """Return the cell that packets have written for an entry, for `set_notes`. Raises `EntryNotFound`,
        `InvalidEntry`.
        """
        return ctypes.string_at(self._notes_of(match, priority), self._layout.cell_bytes)

    def set_notes(
        self, match: Sequence[Match] | None, content: bytes, priority: int = 0, *, counts: bool = True, hit: bool = True
    ) -> None:
        """Restore the cell that packets write for an entry. Its meter is always restored.

        Args:
            match: Match of the entry; None: the default entry.
            content: Cell, as `notes` returns it.
            priority: Priority of the entry.
            counts: True to restore the direct counter, too.
            hit: True to restore the time of the last hit, too.

        Raises:
            EntryNotFound: There is no such entry.
            InvalidEntry: The key does not fit the table.
        """
        notes = self._notes_of(match, priority)
        for wanted, start, end in ((counts, 0, HIT_AT), (hit, HIT_AT, METER_AT), (True, METER_AT, len(content))):
            if wanted:
                part = content[start:end]
                ctypes.memmove(notes + start, part, len(part))

    def _notes_of(self, match: Sequence[Match] | None, priority: int) -> int:
        return self._default_notes if match is None else self._find(match, priority).notes

    # ---- direct meters, the same, and idle timeouts

    def meter(self, match: Sequence[Match] | None, priority: int = 0) -> MeterRates | None:
        """Return an entry's rates; None: not configured. Raises `EntryNotFound`, `InvalidEntry`."""
        return self._meter_cell(match, priority).get()

    def set_meter(self, match: Sequence[Match] | None, rates: MeterRates | None, priority: int = 0) -> None:
        """Set the direct meter of an entry, or of the default for None.

        Raises:
            EntryNotFound: There is no such entry.
            InvalidEntry: The key does not fit the table, or a rate is invalid.
        """
        where = "the default entry" if match is None else f"entry {tuple(match)}"
        self._meter_cell(match, priority).set(rates, f"{self.schema.name}, {where}")

    def meter_counts(self, match: Sequence[Match] | None, priority: int = 0) -> ColorCounts:
        """Return an entry's meter counts by color. Raises `EntryNotFound`, `InvalidEntry`."""
        return self._meter_cell(match, priority).counts()

    def reset_meter_counts(self, match: Sequence[Match] | None, priority: int = 0) -> None:
        """Reset the counts of the direct meter of an entry, or of the default for None.

        Raises:
            EntryNotFound: There is no such entry.
            InvalidEntry: The key does not fit the table.
        """
        self._meter_cell(match, priority).reset_counts()

    def _meter_cell(self, match: Sequence[Match] | None, priority: int) -> MeterCell:
        if self.schema.direct_meter is None:
            raise InvalidEntry("has no direct meter", place=self.schema.name)
        return MeterCell(self._notes_of(match, priority) + METER_AT)

    def idle_ns(self, match: Sequence[Match], priority: int = 0) -> int:
        """Return the nanoseconds since the entry was last hit, or inserted. Raises `EntryNotFound`, `InvalidEntry`."""
        if not self.schema.support_timeout:
            raise InvalidEntry("does not support timeouts", place=self.schema.name)
        return self._idle_ns(self._find(match, priority))

    def idle_entries(self) -> list[TableEntry]:
        """Return the entries whose `idle_timeout_ns` has passed without a hit."""
        return [
            stored.entry
            for stored in list(self._entries.values())
            if stored.entry.idle_timeout_ns and self._idle_ns(stored) >= stored.entry.idle_timeout_ns
        ]

    def _idle_ns(self, stored: _Stored) -> int:
        last = ctypes.c_uint64.from_address(stored.notes + HIT_AT).value
        return max(self._clock() - int(last), 0) * 1000

    # ---- keys and rows

    def _params(self, call: ActionCall) -> bytes:
        if call.name not in self._codes:
            raise InvalidEntry(
                f"has no action {call.name}; it has {', '.join(self.schema.actions)}",
                place=self.schema.name,
                value=call.name,
            )
        return pack_params(self._actions[call.name], call, self.schema.name)

    def _make_row(self, key: PackedKey, entry: TableEntry, notes: int) -> tuple[int, int]:
        """(address of the row, cell of the action profile or 0)."""
        layout, cell, code = self._layout, 0, 0
        if entry.idle_timeout_ns < 0 or (entry.idle_timeout_ns and not self.schema.support_timeout):
            raise InvalidEntry(
                f"{self.schema.name}: an idle timeout of {entry.idle_timeout_ns} ns; "
                + ("it is 0 or more" if self.schema.support_timeout else "the table supports none")
            )
        if self._profile is not None:
            cell = self._profile.attach(entry.action)
            params = struct.pack("<Q", cell)
        else:
            if not isinstance(entry.action, ActionCall):
                raise InvalidEntry("has no action profile; its entries call an action", place=self.schema.name)
            params = self._params(entry.action)
            code = self._codes[entry.action.name]
        size = 8 * layout.words
        content = struct.pack("<IIQ", code, key.order, notes) + key.value.to_bytes(size, "little")
        if layout.ranges:
            content += key.mask.to_bytes(size, "little") + struct.pack(f"<{len(key.bounds)}Q", *key.bounds)
        row = self._rows.allocate()
        self._rows.write(row, content + params)
        return row, cell
