"""The table of the header's fields: docs/design.md §2.2 has the same, and every codec reads a header as it says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from weir.tests.paths import ROOT
from weir.wire.aggregation import HEADER, HEADER_BYTES, LANES
from weir.wire.fields import BY_NAME, FIELDS, HEADER_WORDS, PARTS, REDUCED, WORD_BITS, FieldReduction, HeaderField
from weir.wire.scapy_layers import Aggregation


def row(field: HeaderField) -> tuple[str, ...]:
    """Offset, names, bits, reduction and purpose, as the design's table writes them."""
    parts = field.parts or ((field.name, field.bits),)
    names, bits = ", ".join(name for name, _ in parts), " + ".join(str(bits) for _, bits in parts)
    return str(field.offset), names, bits, field.reduction.value, field.purpose


def test_the_designs_table_is_this_one() -> None:
    section = (ROOT / "docs" / "design.md").read_text().split("### 2.2 ")[1].split("### ")[0]
    assert section.startswith(f"Aggregation header ({HEADER_BYTES} bytes, big-endian, then the lanes)")
    table = section.split("\n\n")[1].splitlines()[2:]
    rows = [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in table]
    assert rows[:-1] == [row(field) for field in FIELDS]
    assert rows[-1][:4] == (str(HEADER_BYTES), "v₀…v₂₅₅", f"{LANES} × 32", FieldReduction.ADD.value)


def test_fields_fill_words_and_none_crosses_them() -> None:
    assert 8 * HEADER_BYTES == WORD_BITS * HEADER_WORDS == sum(bits for _, bits in PARTS)
    for field in FIELDS:
        assert 0 <= field.shift <= WORD_BITS - field.bits, field.name
        assert not field.offset % (field.bits // 8), f"{field.name} is not aligned"
        assert sum(bits for _, bits in field.parts or ((field.name, field.bits),)) == field.bits, field.name


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_codec_finds_a_field_in_the_same_place(field: HeaderField) -> None:
    header = np.zeros(1, HEADER)
    header[field.name] = field.mask
    words = header.view(">u4").astype(np.int64)
    assert words.tolist() == [field.mask << field.shift if word == field.word else 0 for word in range(HEADER_WORDS)]
    parts = field.parts or ((field.name, field.bits),)
    seen = Aggregation(header.tobytes())
    ones = {name: getattr(seen, name) for name, _ in PARTS if getattr(seen, name)}
    assert ones == {name: (1 << bits) - 1 for name, bits in parts}


@pytest.mark.parametrize("field", [field for field in FIELDS if field.reduction is not FieldReduction.NONE])
def test_the_neutral_value_changes_no_other(field: HeaderField) -> None:
    values = np.array([0, 1, field.mask // 3, field.mask], field.storage)
    assert field.ufunc(values, field.storage.type(field.neutral)).tolist() == values.tolist()


def test_reduced_and_forwarded_fields_are_as_designed() -> None:
    """The node's own bit takes the place of its children's."""
    reductions = {field.name: field.reduction for field in FIELDS if field.reduction is not FieldReduction.NONE}
    assert {field.name for field in REDUCED} == reductions.keys() - {"contributors"}
    assert BY_NAME.keys() == set(HEADER.names or ())
