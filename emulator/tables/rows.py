"""Memory layout of keys and entries, shared by compiled lookups and the Python writers.

A key is a run of 64-bit words; a field never straddles two words unless it is wider than one. An entry is a row::

    | action code u32, priority u32 | cell u64 | key words | [mask words] | [low, high per range field] | parameters |

Rows of the strategies `tuple` and `range` have masks. `cell` is the address of what packets write about the entry, or
0: (packets, bytes), the time of the last hit and a meter (`emulator.tables.meters`), as far as the table has them. The
default row, which the root's second word points to, has a cell too, but no time. Parameters take one word each, or as
many as they need. In a table with an action profile the only parameter is the address of a cell. A cell holds the
address of a member's row (action code and parameters, no key), or that of a group block plus 1::

    | count u64 | cell of member u64 ... |

The published index of a table, which the root's first word points to, is immutable but for the slots, which change by
single aligned 8-byte stores; without entries there is none, and that word is 0::

    exact          | slots | slot mask |
    lpm, ternary   | groups | unused | then per group: slots | slot mask | highest priority | mask words |
    range          | rows | addresses, in the order of matching |

A slot is 0 (empty), 1 (deleted) or a row's address with the upper 16 bits of the key's hash above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..bmv2.document import Action, Document, Table
from ..bmv2.schema import MatchKind, UnsupportedProgram

HASH_FACTOR: Final = 0x9E3779B97F4A7C15
KEY_AT: Final = 16
GROUP_HEAD_WORDS: Final = 3
INDEX_HEAD_WORDS: Final = 2
ADDRESS_BITS: Final = 48
HIT_AT: Final = 16
METER_AT: Final = 24
METER_BYTES: Final = 120
METER_COUNTS_AT: Final = 72
"""Offset of a meter's counts by color."""
TWO_RATES: Final = 1
SINGLE_RATE: Final = 2
"""The kinds of a configured meter."""
_WORD: Final = (1 << 64) - 1

Strategy = Literal["none", "exact", "tuple", "first", "range"]
"""`tuple`: a hash per group of masks, all that may beat the best so far; `first`: a hash per mask, the first hit is the
best (lpm).
"""


def hash_words(words: Sequence[int]) -> int:
    """Return the 64-bit hash of a key, as compiled code computes it."""
    h = 0
    for word in words:
        h = ((h ^ word) * HASH_FACTOR) & _WORD
        h ^= h >> 32
    return h


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Place of one field in a table's packed key."""

    kind: MatchKind
    width: int
    position: int
    """Bit offset in the key taken as one integer, word 0 lowest."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Layout of a table's rows in memory, in bytes; `words` is the packed key's length in words of 8 bytes."""

    strategy: Strategy
    keys: tuple[KeyPlace, ...]
    words: int
    ranges: tuple[int, ...]
    """Indices of the keys that are ranges."""
    masks_at: int
    ranges_at: int
    params_at: int
    row_bytes: int
    indirect: bool
    cell_bytes: int


def param_offsets(action: Action) -> tuple[int, ...]:
    """Return the byte offset of each parameter behind the start of the parameters."""
    offsets, offset = [], 0
    for _, width in action.params:
        offsets.append(offset)
        offset += param_bytes(width)
    return tuple(offsets)


def param_bytes(width: int) -> int:
    """Return the bytes of an action parameter of `width` bits: whole words of 8 bytes."""
    return (width + 63) // 64 * 8


def row_layout(document: Document, table: Table) -> RowLayout:
    """Lay out a table's rows. Raises `UnsupportedProgram` for a range over more than 64 bits."""
    actions = [document.actions[action_id] for action_id in action_codes(table)]
    places, position = [], 0
    for key in table.key:
        width = document.width(key.target)
        if key.match_kind == "range" and width > 64:
            raise UnsupportedProgram(
                f"range key {key.name} of {width} bits; the limit is 64", place=table.where, value=key.name
            )
        if position % 64 + width > 64:
            position = (position + 63) // 64 * 64
        places.append(KeyPlace(key.match_kind, width, position))
        position += width
    words = (position + 63) // 64
    ranges = tuple(i for i, key in enumerate(table.key) if key.match_kind == "range")
    kinds = {key.match_kind for key in table.key}
    strategy: Strategy = "none"
    if "range" in kinds:
        strategy = "range"
    elif "ternary" in kinds or table.match_type == "ternary":
        strategy = "tuple"
    elif "lpm" in kinds:
        strategy = "first"
    elif kinds:
        strategy = "exact"
    masks_at = KEY_AT + 8 * words
    ranges_at = masks_at + (8 * words if strategy in ("tuple", "range") else 0)
    params_at = ranges_at + 16 * len(ranges)
    room = max((sum(param_bytes(width) for _, width in action.params) for action in actions), default=0)
    indirect = table.profile is not None
    row_bytes = params_at + (8 if indirect else room)
    cell_bytes = HIT_AT if table.counters else 0
    if table.support_timeout:
        cell_bytes = METER_AT
    if table.meter is not None:
        cell_bytes = METER_AT + METER_BYTES
    return RowLayout(
        strategy, tuple(places), words, ranges, masks_at, ranges_at, params_at, row_bytes, indirect, cell_bytes
    )


def profile_actions(document: Document, profile: str) -> tuple[str, ...]:
    """Return names of all actions that an action profile's members may call.

    An action's code in their rows is the position here.
    """
    names: set[str] = set()
    for pipeline in (document.ingress, document.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, Table) and node.profile == profile:
                names |= {document.actions[action_id].name for action_id in node.action_ids}
    return tuple(sorted(names))


def action_codes(table: Table) -> tuple[int, ...]:
    """Return the action ids of a table.

    An action's code in the rows of a table without action profile is the position here.
    """
    if table.default_action is None or table.default_action in table.action_ids:
        return table.action_ids
    return (*table.action_ids, table.default_action)
