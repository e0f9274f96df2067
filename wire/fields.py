"""The fields of the aggregation header, as one table (docs/design.md §2.2).

All code that reads, writes or reduces the header takes its fields from here: the NumPy record and the packed words, the
scapy layer, the sums of parameter servers and of the tests' model switches. The switch program, which has its own
header and registers, and the design's table are tested against it.

::

    FIELDS  ─▶ columns of NumPy's record, some of several parts        REDUCED ─▶ fields that a node sums and sends on
    PARTS   ─▶ the parts that a switch distinguishes                   placed in 32-bit words by `word` and `shift`
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np

WORD_BITS: Final = 32


class FieldReduction(Enum):
    """Reduction of a field over a node's children; the value is the design's word for it."""

    NONE = "–"
    OR = "or"
    MIN = "min"
    MAX = "max"
    ADD = "+"


_UFUNCS: Final = {
    FieldReduction.OR: np.bitwise_or,
    FieldReduction.MIN: np.minimum,
    FieldReduction.MAX: np.maximum,
    FieldReduction.ADD: np.add,
}


@dataclass(frozen=True)
class HeaderField:
    """A column of the header: 8, 16 or 32 bits, big-endian."""

    name: str
    bits: int
    reduction: FieldReduction
    purpose: str
    """Purpose of the field, in the words of the design's table."""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and bits, from the highest on, of the parts that a switch distinguishes; empty: the field is one part."""
    sent_on: bool = True
    """True if its reduced value goes up and down the tree; else each node starts with a value of its own."""
    offset: int = 0
    """Offset in bytes; derived from its place in the table."""

    @cached_property
    def ufunc(self) -> np.ufunc:
        """The reduction of two values, which for ADD still has to be cut to the field's bits."""
        return _UFUNCS[self.reduction]

    @cached_property
    def mask(self) -> int:
        """Its largest value."""
        return (1 << self.bits) - 1

    @cached_property
    def neutral(self) -> int:
        """The value that changes no other in the field's reduction; 0 where it has none."""
        return self.mask if self.reduction is FieldReduction.MIN else 0

    @cached_property
    def word(self) -> int:
        """The header's 32-bit word that it lies in."""
        return 8 * self.offset // WORD_BITS

    @cached_property
    def shift(self) -> int:
        """Number of bits below the field in its word."""
        return WORD_BITS - self.bits - 8 * self.offset % WORD_BITS

    @cached_property
    def storage(self) -> np.dtype[np.unsignedinteger]:
        """Its type in a NumPy record of the header."""
        return np.dtype(f">u{self.bits // 8}")


def in_order(*fields: HeaderField) -> tuple[HeaderField, ...]:
    """Return the fields with their offsets: each begins where the one before it ends."""
    placed, offset = [], 0
    for field in fields:
        placed.append(replace(field, offset=offset))
        offset += field.bits // 8
    return tuple(placed)


FIELDS: Final = in_order(
    HeaderField(
        "version_type", 8, FieldReduction.NONE, "version 1; the type table below", (("version", 4), ("type", 4))
    ),
    HeaderField(
        "flags",
        8,
        FieldReduction.OR,
        "0x01 congestion seen, 0x02 retransmission, 0x04 lanes were added, 0x08 lanes are wanted",
    ),
    HeaderField("job", 16, FieldReduction.NONE, "1…65535 (0: an empty slot)"),
    HeaderField(
        "tag", 32, FieldReduction.NONE, "the round's *tag*; chunk = round mod 2²⁴", (("generation", 8), ("chunk", 24))
    ),
    HeaderField("contributors", 32, FieldReduction.OR, "bitmap of the *receiving* node's children", sent_on=False),
    HeaderField(
        "slot",
        16,
        FieldReduction.NONE,
        "chunk mod S, relative to the job's slots in the node; checked to be below S",
    ),
    HeaderField(
        "window",
        16,
        FieldReduction.MIN,
        "rounds in the network that the most loaded queue allows; 0xFFFF: no limit",
    ),
    HeaderField(
        "exponent",
        8,
        FieldReduction.MAX,
        "biased block exponent (e + 127) of the chunk P rounds later, see §3.3",
    ),
    HeaderField(
        "reserved", 8, FieldReduction.NONE, "PRESENT: a 32nd of the lanes in its round's other messages; else 0"
    ),
    HeaderField(
        "checksum",
        16,
        FieldReduction.NONE,
        "Internet checksum of the header's bytes, computed again by every node",
    ),
    HeaderField("weight", 32, FieldReduction.ADD, "samples behind this gradient"),
    HeaderField(
        "check",
        32,
        FieldReduction.ADD,
        "Σ rᵢ·vᵢ mod 2³² over the lanes, plus r₂₅₆·weight; linear, so it survives summing",
    ),
)

BY_NAME: Final = {field.name: field for field in FIELDS}

REDUCED: Final = tuple(field for field in FIELDS if field.reduction is not FieldReduction.NONE and field.sent_on)
"""Fields that every node reduces over its children and sends on, like the lanes."""

PARTS: Final = tuple(part for field in FIELDS for part in field.parts or ((field.name, field.bits),))
"""Names and bits of all parts that a switch distinguishes, in order."""

HEADER_WORDS: Final = sum(field.bits for field in FIELDS) // WORD_BITS
