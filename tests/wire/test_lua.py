"""Wireshark's dissector has the numbers and names of the wire. Read as text, for which no tshark is needed."""

from __future__ import annotations

import re
from typing import Final

from weir.controller.p4runtime.tables import DROP_REASONS
from weir.tests.paths import ROOT
from weir.wire.aggregation import AGGREGATION_PORT, HEADER_BYTES, TYPES_WITH_LANES, MessageType
from weir.wire.fields import FIELDS, PARTS

TEXT: Final = (ROOT / "wire" / "weir.lua").read_text()


def names_of(text: str) -> dict[int, str]:
    """A table of Lua: `[0] = "first", [1] = "second"`."""
    return {int(number): name for number, name in re.findall(r'\[(\d+)\] = "(\w+)"', text)}


def between(start: str, end: str) -> str:
    _, _, behind = TEXT.partition(start)
    assert behind, f"weir.lua has no {start}"
    return behind.partition(end)[0]


def test_drop_reasons_have_their_names() -> None:
    assert names_of(between("drop_reason = ", "})")) == dict(enumerate(DROP_REASONS))


def test_message_types_have_their_names() -> None:
    assert names_of(between("MESSAGE_TYPES = {", "}")) == {kind.value: kind.name for kind in MessageType}
    with_lanes = {int(number) for number in re.findall(r"\[(\d+)\] = true", between("CARRIES_LANES = {", "}"))}
    assert with_lanes == {kind.value for kind in TYPES_WITH_LANES}
    assert f"local AGGREGATION_PORT, PROBE_PORT, INT_PORT, REPORT_PORT = {AGGREGATION_PORT}, " in TEXT


def test_the_dissectors_fields_are_declared_as_in_the_table() -> None:
    """Compared by name: the bits of the number that a field is read from, and its mask."""
    declared = {}
    for kind, name, rest in re.findall(r'ProtoField\.(\w+)\("weir_agg\.(\w+)", (.*)\),', between("local a = {", "\n}")):
        mask = re.search(r"0x[0-9A-F]+$", rest)
        declared[name] = (kind, int(mask[0], 16) if mask else None)
    expected = {}
    for field in FIELDS:
        left = field.bits
        for name, bits in field.parts or ((field.name, field.bits),):
            left -= bits
            own = ((1 << bits) - 1) << left if field.parts else None
            expected[name] = (f"uint{field.bits}", own)
    lanes = {"lanes": ("uint16", None), "lane": ("int32", None)}
    assert declared == expected | lanes
    assert list(declared) == [*(name for name, _ in PARTS), *lanes]


def test_the_dissectors_fields_are_read_as_in_the_table() -> None:
    """Compared by name: offset and bytes."""
    dissector = between("function agg.dissector", "\nend\n")
    read = {
        name: (int(offset), int(size))
        for name, offset, size in re.findall(r"top:add\(a\.(\w+), buffer\((\d+), (\d+)\)\)", dissector)
    }
    assert read == {
        name: (field.offset, field.bits // 8)
        for field in FIELDS
        for name, _ in field.parts or ((field.name, field.bits),)
    }
    lengths = re.findall(r"buffer:len\(\) [<-] (\d+)|buffer\((\d+)(?:, 4 \* count| \+ 4 \* lane)", dissector)
    assert {first or second for first, second in lengths} == {str(HEADER_BYTES)}
    assert len(lengths) == 4
