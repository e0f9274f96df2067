"""Match keys of entries, packed into the words that native lookups compare. Layouts are in `emulator.tables.rows`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..bmv2.schema import TableSchema
from ..entries import Exact, InvalidEntry, Lpm, Match, Optional, Range, Ternary
from .rows import RowLayout

MAX_PRIORITY: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class PackedKey:
    """Identity of an entry: packed key, mask, the bounds of ranges, and the rank."""

    value: int
    mask: int
    bounds: tuple[int, ...]
    order: int

    def identity(self, words: int) -> int:
        """Return the key's integer as an index takes it, the bounds of ranges above the `words` of the packed key."""
        identity = self.value
        for number, bound in enumerate(self.bounds):
            identity |= bound << 64 * (words + number)
        return identity


def pack_key(schema: TableSchema, layout: RowLayout, match: Sequence[Match], priority: int) -> PackedKey:
    """Pack a match and its priority into the key of a row.

    Args:
        schema: Schema of the table.
        layout: Layout of its rows.
        match: A match for each field of the key, in the order of the schema.
        priority: Priority, larger first; 0 in tables whose key needs none.

    Raises:
        InvalidEntry: The match or the priority does not fit the table.
    """
    if len(match) != len(schema.key):
        raise InvalidEntry(
            f"{len(match)} match fields, its key has {len(schema.key)}", place=schema.name, value=len(match)
        )
    if schema.needs_priority:
        if not 0 <= priority <= MAX_PRIORITY:
            raise InvalidEntry(f"priority {priority} is not in 0 … {MAX_PRIORITY}", place=schema.name, value=priority)
    elif priority:
        raise InvalidEntry(f"priority {priority}, but its key takes none", place=schema.name, value=priority)
    value = mask = 0
    prefix = 0
    bounds: list[int] = []
    for field, place, part in zip(schema.key, layout.keys, match, strict=True):
        whole = (1 << place.width) - 1
        match field.match_kind, part:
            case "exact", Exact(wanted):
                own = whole
            case "lpm", Lpm(wanted, prefix):
                if not 0 <= prefix <= place.width:
                    raise InvalidEntry(
                        f"{field.name}: prefix length {prefix} of {place.width} bits",
                        place=schema.name,
                        value=field.name,
                    )
                own = whole ^ (whole >> prefix)
            case "ternary", Ternary(wanted, own):
                pass
            case "ternary", Optional(None):
                wanted = own = 0
            case "ternary", Optional(int() as wanted):
                own = whole
            case "range", Range(low, high):
                if not 0 <= low <= high <= whole:
                    raise InvalidEntry(
                        f"{field.name}: {low}…{high} is no range of {place.width} bits",
                        place=schema.name,
                        value=field.name,
                    )
                bounds += (low, high)
                continue
            case kind, _:
                raise InvalidEntry(
                    f"{field.name} is {kind}, not {type(part).__name__.lower()}", place=schema.name, value=field.name
                )
        if not 0 <= wanted <= whole or not 0 <= own <= whole:
            raise InvalidEntry(
                f"{field.name}: {part} does not fit {place.width} bits", place=schema.name, value=field.name
            )
        value |= (wanted & own) << place.position
        mask |= own << place.position
    order = prefix if layout.strategy == "first" else priority
    return PackedKey(value, mask, tuple(bounds), order)
