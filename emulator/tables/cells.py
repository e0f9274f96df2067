"""Direct counters, direct meters and times of the last hit: what packets write about the entries of a table.

In all methods `match` None is the default entry.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from ..bmv2.schema import TableSchema
from ..entries import InvalidEntry, Match
from .memory import read_word
from .meters import ColorCounts, MeterCell, MeterRates
from .rows import HIT_AT, METER_AT, RowLayout


class EntryCells:
    """The cells of one table's entries (`RowLayout.cell_bytes`); the table finds them."""

    def __init__(self, schema: TableSchema, layout: RowLayout, clock: Callable[[], int]) -> None:
        self.schema = schema
        self.layout = layout
        """Layout of the table's rows."""
        self._clock = clock

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
        return ctypes.string_at(self._notes_of(match, priority), self.layout.cell_bytes)

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
        """Return the address of an entry's cell. Raises `EntryNotFound`, `InvalidEntry`."""
        raise NotImplementedError

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
        return self._idle_ns_of(self._notes_of(match, priority))

    def _idle_ns_of(self, notes: int) -> int:
        return max(self._clock() - read_word(notes + HIT_AT), 0) * 1000
