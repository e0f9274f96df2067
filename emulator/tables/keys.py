"""Match keys of entries, packed into the words that native lookups compare. Layouts are in `emulator.tables.rows`.

An entry's identity in its table is a byte string of words of 64 bits, little-endian::

    | key words | mask words | low, high per range field | order |

`order` ranks the rows that match a packet, the largest first. Entries differ if and only if their identities do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ..bmv2.schema import TableSchema
from ..entries import Exact, InvalidEntry, Lpm, Match, Optional, Range, Ternary
from .rows import RowLayout

MAX_PRIORITY: Final = (1 << 31) - 1


def identity_words(layout: RowLayout) -> int:
    """Return the words of an identity."""
    return 2 * layout.words + 2 * len(layout.ranges) + 1


def order_of(identity: bytes) -> int:
    """Return the rank of an entry among those that match the same packet."""
    return int.from_bytes(identity[-8:], "little")


def pack_key(schema: TableSchema, layout: RowLayout, match: Sequence[Match], priority: int) -> bytes:
    """Pack a match and its priority into the identity of an entry.

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
    size = 8 * layout.words
    tail = struct.pack(f"<{len(bounds) + 1}Q", *bounds, order)
    return value.to_bytes(size, "little") + mask.to_bytes(size, "little") + tail


def unpack_key(layout: RowLayout, identity: bytes) -> tuple[tuple[Match, ...], int]:
    """Return the match and the priority of an identity; an optional field becomes a ternary one."""
    size = 8 * layout.words
    value, mask = int.from_bytes(identity[:size], "little"), int.from_bytes(identity[size : 2 * size], "little")
    match: list[Match] = []
    limits = 2 * size
    for place in layout.keys:
        whole = (1 << place.width) - 1
        wanted = value >> place.position & whole
        match place.kind:
            case "exact":
                match.append(Exact(wanted))
            case "lpm":
                match.append(Lpm(wanted, (mask >> place.position & whole).bit_count()))
            case "ternary":
                match.append(Ternary(wanted, mask >> place.position & whole))
            case "range":
                match.append(Range(*struct.unpack_from("<2Q", identity, limits)))
                limits += 16
    return tuple(match), order_of(identity) if layout.strategy in ("tuple", "range") else 0
