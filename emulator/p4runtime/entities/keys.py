"""Selection of a table's entries by a TableEntry: one, the default entry, or all that match a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from finsy.proto import p4i, p4r

from ...entries import EntryNotFound, Match, TableEntry
from ...program import Table
from ..refusal import Code, Refusal, invalid
from .aging import Key
from .matches import MatchKey


class EntryKeys:
    """The keys of one table's entries. A match of None is the default entry's."""

    def __init__(self, info: p4i.Table, state: Table) -> None:
        """Raises `Refusal` when P4Info and program disagree on the key."""
        self._table_id = info.preamble.id
        self._name = info.preamble.name
        self._key = MatchKey(self._name, info.match_fields, state.schema.key)
        self._state = state

    def __len__(self) -> int:
        """Number of match fields."""
        return len(self._key)

    @property
    def fields(self) -> tuple[tuple[int, int], ...]:
        """Id and type of match of each field."""
        return self._key.fields

    def decode(self, entry: p4r.TableEntry) -> Key:
        """Match and priority of one entry that is no default. Raises `Refusal`."""
        priority = entry.priority
        if self._key.needs_priority:
            if priority <= 0:
                raise invalid(f"{self._name}: its entries need a priority above 0, not {priority}")
        elif priority:
            raise invalid(f"{self._name}: priority {priority} given, but no field is ternary, range or optional")
        return self._key.decode(entry.match), priority

    def decode_target(self, entry: p4r.TableEntry) -> tuple[tuple[Match, ...] | None, int]:
        """Match and priority of the entry that a direct resource belongs to; None for the default entry."""
        if entry.is_default_action:
            self.check_default(entry)
            return None, 0
        return self.decode(entry)

    def check_default(self, entry: p4r.TableEntry) -> None:
        """Refuse a default entry that has a key."""
        if entry.match or entry.priority:
            raise invalid(f"{self._name}: the default entry has neither match fields nor a priority")

    def select(self, query: p4r.TableEntry) -> Iterator[TableEntry]:
        """Yield the entries, none of them default, that a query means. Raises `Refusal`."""
        if not query.match:
            for entry in self._state.entries():
                if not query.priority or entry.priority == query.priority:
                    yield entry
            return
        match = self._key.decode(query.match)
        if self._key.needs_priority and not query.priority:
            yield from (entry for entry in self._state.entries() if entry.match == match)
            return
        with suppress(EntryNotFound):
            yield self._state.get(match, query.priority)

    def targets(self, query: p4r.TableEntry) -> list[tuple[tuple[Match, ...] | None, int]]:
        """Return the direct resources that a query selects; None stands for the default entry's. Raises `Refusal`."""
        if query.is_default_action:
            self.check_default(query)
            return [(None, 0)]
        targets: list[tuple[tuple[Match, ...] | None, int]] = []
        targets += ((entry.match, entry.priority) for entry in self.select(query))
        if query.match and not targets:
            raise Refusal(Code.NOT_FOUND, f"{self._name} has no such entry")
        return targets

    def encode(self, match: tuple[Match, ...] | None, priority: int, message: p4r.TableEntry) -> None:
        """Write the canonical key of an entry into a message."""
        message.table_id = self._table_id
        if match is None:
            message.is_default_action = True
        else:
            message.priority = priority
            self._key.encode(match, message)
