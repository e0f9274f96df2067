"""One match-action table of one switch, as the control plane sees it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
from .cells import EntryCells
from .index import ExactIndex, Index, RangeIndex
from .keys import order_of, pack_key, unpack_key
from .memory import RetiredMemory, RowPool, read_word, write_word
from .meters import MeterRates, meter_content
from .profile import ActionProfile, pack_params, unpack_params
from .rows import HIT_AT, KEY_AT, RowLayout
from .tuples import TupleIndex

_NO_ACTION_CODE: Final = (1 << 32) - 1
_DEFAULT_ROW_AT: Final = 8
_NOTES_AT: Final = 8
"""Offset in a row of the address of the cell that packets write for the entry (`RowLayout.cell_bytes`), or 0."""


class Table(EntryCells):
    """Entries of one table. Updates are seen whole by the packets that run meanwhile."""

    def __init__(
        self,
        schema: TableSchema,
        layout: RowLayout,
        actions: Mapping[str, ActionSchema],
        root: int,
        profile: ActionProfile | None,
        const_entries: Sequence[tuple[TableEntry, bytes]],
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
            const_entries: Entries of the program, with their identities.
            retired: Memory that packets may still read, which is freed later.
            clock: Returns the switch's time in microseconds.
        """
        super().__init__(schema, layout, clock)
        self._actions = actions
        self._codes = {name: code for code, name in enumerate(schema.actions)}
        self._root = root
        self._profile = profile
        self._const_entries = tuple(const_entries)
        self._rows = RowPool(layout.row_bytes, retired)
        self._notes = RowPool(max(16, layout.cell_bytes), retired)
        self._entries: dict[bytes, int] = {}
        """Rows by the identities of their entries (`emulator.tables.keys`)."""
        self._given: dict[bytes, TableEntry] = {}
        """Entries that were given as such; those of `insert_many` are read from their rows."""
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
        match self.layout.strategy:
            case "none":
                return None
            case "exact":
                return ExactIndex(self._root, self.layout, retired)
            case "range":
                return RangeIndex(self._root, self.layout, retired)
            case _:
                return TupleIndex(self._root, self.layout, retired)

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
        for key, row in self._entries.items():
            self._release(key, row)
        self._entries.clear()
        self._given.clear()
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
        size = self.layout.row_bytes
        now = [
            (key, self._given.get(key) or ctypes.string_at(row, size)) for key, row in list(self._entries.items())
        ]  # copies, since rows of entries that are deleted meanwhile are used again
        return (self._decoded(key, kept) if isinstance(kept, bytes) else kept for key, kept in now)

    def get(self, match: Sequence[Match], priority: int = 0) -> TableEntry:
        """Return the entry with this key.

        Raises:
            EntryNotFound: There is none.
            InvalidEntry: The key does not fit the table.
        """
        key, row = self._find(match, priority)
        return self._given.get(key) or self._decoded(key, ctypes.string_at(row, self.layout.row_bytes))

    def insert(self, entry: TableEntry, counts: tuple[int, int] = (0, 0), rates: MeterRates | None = None) -> None:
        """Insert an entry; `counts` (packets, bytes) and `rates` initialise its direct counter and meter.

        Raises:
            EntryExists, TableFull, InvalidEntry: The entry cannot be inserted.
            EntryNotFound: The member or group is unknown.
        """
        self._refuse_constant()
        if self._index is None:
            raise InvalidEntry("has no key, only a default action", place=self.schema.name)
        key = pack_key(self.schema, self.layout, entry.match, entry.priority)
        self._insert(entry, key, counts, rates)

    def modify(self, entry: TableEntry) -> None:
        """Set the action of an entry; its direct counter keeps its value.

        Raises:
            EntryNotFound: There is none with this key.
            InvalidEntry: The entry does not fit the table.
        """
        self._refuse_constant()
        key = pack_key(self.schema, self.layout, entry.match, entry.priority)
        old = self._entries.get(key)
        if old is None:
            raise EntryNotFound(
                f"no entry {entry.match} with priority {entry.priority}", place=self.schema.name, value=entry.match
            )
        row = self._make_row(key, entry, read_word(old + _NOTES_AT))
        self._put(key, row, old)
        self._rows.free(old)
        self._detach(key, old)
        self._entries[key], self._given[key] = row, entry

    def delete(self, match: Sequence[Match], priority: int = 0) -> None:
        """Delete the entry with this key.

        Raises:
            EntryNotFound: There is none.
            InvalidEntry: The key does not fit the table.
        """
        self._refuse_constant()
        self._delete(*self._find(match, priority))

    def _delete(self, key: bytes, row: int) -> None:
        assert self._index is not None
        self._index.remove(key, row)
        del self._entries[key]
        self._release(key, row)
        self._given.pop(key, None)

    # ---- many entries at a time, by identity (`emulator.tables.keys`); entries with actions of their own alone

    def code(self, action: str) -> int:
        """Return the code of an action in rows."""
        return self._codes[action]

    def takes(self, inserted: Sequence[bytes], there: Sequence[bytes]) -> bool:
        """Return True if all identities differ, those of `there` alone have entries, and the others have room."""
        names = {*inserted, *there}
        return (
            len(names) == len(inserted) + len(there)
            and self._entries.keys().isdisjoint(inserted)
            and all(name in self._entries for name in there)
            and len(self._entries) + len(inserted) <= self.schema.size
        )

    def insert_many(self, names: Sequence[bytes], identities: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
        """Insert entries that the table takes.

        Args:
            names: Identities of the entries.
            identities: The same as words, shape (entries, words).
            rows: Their rows (`emulator.tables.rows`), shape (entries, words); changed.
        """
        assert self._index is not None
        if self.layout.cell_bytes:
            rows[:, _NOTES_AT // 8] = self._make_many_notes(len(names))
        places = self._rows.allocate_many(len(names))
        self._rows.write_many(places, rows)
        self._index.put_many(identities, places)
        self._entries.update(zip(names, places.tolist(), strict=True))

    def modify_many(self, names: Sequence[bytes], rows: NDArray[np.uint64]) -> None:
        """Set the actions of entries that are there; the arguments are those of `insert_many`."""
        old = [self._entries[name] for name in names]
        rows[:, _NOTES_AT // 8] = [read_word(row + _NOTES_AT) for row in old]
        places = self._rows.allocate_many(len(names))
        self._rows.write_many(places, rows)
        for name, before, row in zip(names, old, places.tolist(), strict=True):
            self._put(name, row, before)
            self._rows.free(before)
            self._entries[name] = row
            self._given.pop(name, None)

    def delete_many(self, names: Sequence[bytes]) -> None:
        """Delete entries that are there."""
        for name in names:
            self._delete(name, self._entries[name])

    def _make_many_notes(self, count: int) -> NDArray[np.uint64]:
        content = np.zeros((count, self.layout.cell_bytes // 8), np.uint64)
        if self.layout.cell_bytes > HIT_AT:
            content[:, HIT_AT // 8] = self._clock()
        notes = self._notes.allocate_many(count)
        self._notes.write_many(notes, content)
        return notes

    def _find(self, match: Sequence[Match], priority: int) -> tuple[bytes, int]:
        """Return identity and row of an entry."""
        key = pack_key(self.schema, self.layout, match, priority)
        row = self._entries.get(key)
        if row is None:
            raise EntryNotFound(
                f"no entry {tuple(match)} with priority {priority}", place=self.schema.name, value=tuple(match)
            )
        return key, row

    def _insert(
        self, entry: TableEntry, key: bytes, counts: tuple[int, int] = (0, 0), rates: MeterRates | None = None
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
            row = self._make_row(key, entry, notes)
        except EmulatorError:
            if notes:
                self._notes.free(notes)
            raise
        self._put(key, row)
        self._entries[key], self._given[key] = row, entry

    def _make_notes(self, counts: tuple[int, int] = (0, 0), rates: MeterRates | None = None) -> int:
        if not self.layout.cell_bytes:
            return 0
        content = struct.pack("<QQ", *counts)
        if self.layout.cell_bytes > HIT_AT:
            content += self._clock().to_bytes(8, "little")
        if rates is not None:
            content += meter_content(rates, self.schema.name)
        notes = self._notes.allocate()
        self._notes.write(notes, content.ljust(self.layout.cell_bytes, b"\0"))
        return notes

    def _put(self, key: bytes, row: int, old: int = 0) -> None:
        assert self._index is not None
        self._index.put(key, row, old)

    def _release(self, key: bytes, row: int) -> None:
        self._rows.free(row)
        if notes := read_word(row + _NOTES_AT):
            self._notes.free(notes)
        self._detach(key, row)

    def _detach(self, key: bytes, row: int) -> None:
        if self._profile is not None:
            self._profile.detach(self._given[key].action, read_word(row + self.layout.params_at))

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
        self._rows.write(row, head.ljust(self.layout.params_at, b"\0") + params)
        write_word(self._root + _DEFAULT_ROW_AT, row)
        if self._default_row:
            self._rows.free(self._default_row)
        self._default_row = row

    # ---- what packets write, and idle timeouts

    def _notes_of(self, match: Sequence[Match] | None, priority: int) -> int:
        return self._default_notes if match is None else read_word(self._find(match, priority)[1] + _NOTES_AT)

    def idle_entries(self) -> list[TableEntry]:
        """Return the entries whose `idle_timeout_ns` has passed without a hit."""
        idle = []
        for key, entry in list(self._given.items()):
            row = self._entries.get(key)
            if (
                entry.idle_timeout_ns
                and row is not None
                and self._idle_ns_of(read_word(row + _NOTES_AT)) >= entry.idle_timeout_ns
            ):
                idle.append(entry)
        return idle

    # ---- keys and rows

    def _params(self, call: ActionCall) -> bytes:
        if call.name not in self._codes:
            raise InvalidEntry(
                f"has no action {call.name}; it has {', '.join(self.schema.actions)}",
                place=self.schema.name,
                value=call.name,
            )
        return pack_params(self._actions[call.name], call, self.schema.name)

    def _decoded(self, key: bytes, row: bytes) -> TableEntry:
        """Return an entry from its identity and the content of its row."""
        match, priority = unpack_key(self.layout, key)
        name = self.schema.actions[int.from_bytes(row[:4], "little")]
        call = ActionCall(name, unpack_params(self._actions[name], row[self.layout.params_at :]))
        return TableEntry(match, call, priority)

    def _make_row(self, key: bytes, entry: TableEntry, notes: int) -> int:
        layout, code = self.layout, 0
        if entry.idle_timeout_ns < 0 or (entry.idle_timeout_ns and not self.schema.support_timeout):
            raise InvalidEntry(
                f"{self.schema.name}: an idle timeout of {entry.idle_timeout_ns} ns; "
                + ("it is 0 or more" if self.schema.support_timeout else "the table supports none")
            )
        if self._profile is not None:
            params = struct.pack("<Q", self._profile.attach(entry.action))
        else:
            if not isinstance(entry.action, ActionCall):
                raise InvalidEntry("has no action profile; its entries call an action", place=self.schema.name)
            params = self._params(entry.action)
            code = self._codes[entry.action.name]
        compared = key[: layout.params_at - KEY_AT]  # the masks and bounds of an identity are those of the row
        content = struct.pack("<IIQ", code, order_of(key), notes) + compared + params
        row = self._rows.allocate()
        self._rows.write(row, content)
        return row
