"""Byte strings: the specification's tables of examples, and canonical form both ways."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.emulator.p4runtime import bytestring
from weir.emulator.p4runtime.refusal import Code, Refusal


@pytest.mark.parametrize(
    ("width", "value", "data"),
    [
        (8, 99, b"\x63"),
        (16, 99, b"\x00\x63"),
        (16, 99, b"\x63"),
        (16, 12388, b"\x30\x64"),
        (16, 12388, b"\x00\x30\x64"),
        (12, 99, b"\x00\x63"),
        (12, 99, b"\x63"),
        (12, 99, b"\x00\x00\x63"),
    ],
)
def test_accepts_the_specifications_unsigned_examples(width: int, value: int, data: bytes) -> None:
    assert bytestring.decode(data, width, "field") == value


@pytest.mark.parametrize(
    ("width", "value", "data"),
    [(8, 99, b"\x63"), (8, -99, b"\x9d"), (8, -99, b"\xff\x9d"), (12, -739, b"\xfd\x1d"), (16, 0, b"\x00\x00")],
)
def test_accepts_the_specifications_signed_examples(width: int, value: int, data: bytes) -> None:
    assert bytestring.decode_signed(data, width, "field") == value


@pytest.mark.parametrize(
    ("width", "data"),
    [
        (8, b"\x01\x63"),
        (8, b""),
        (16, b"\x01\x00\x63"),
        (12, b"\x10\x63"),
        (12, b"\x01\x00\x63"),
        (12, b"\x00\x40\x63"),
    ],
)
def test_refuses_the_specifications_invalid_unsigned_examples(width: int, data: bytes) -> None:
    with pytest.raises(Refusal, match="field") as refusal:
        bytestring.decode(data, width, "field")
    assert refusal.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(("width", "data"), [(8, b"\x00\x9d"), (12, b"\x8d\x1d"), (16, b"")])
def test_refuses_the_specifications_invalid_signed_examples(width: int, data: bytes) -> None:
    with pytest.raises(Refusal, match="field"):
        bytestring.decode_signed(data, width, "field")


@settings(deadline=None)
@given(st.data(), st.integers(1, 300))
def test_unsigned_values_survive_in_their_shortest_form(data: st.DataObject, width: int) -> None:
    value = data.draw(st.integers(0, (1 << width) - 1))
    canonical = bytestring.encode(value)
    assert bytestring.decode(canonical, width, "field") == value
    assert bytestring.decode(b"\x00\x00" + canonical, width, "field") == value
    assert len(canonical) == 1 or canonical[0] != 0


@settings(deadline=None)
@given(st.data(), st.integers(1, 300))
def test_signed_values_survive_in_their_shortest_form(data: st.DataObject, width: int) -> None:
    value = data.draw(st.integers(-(1 << (width - 1)), (1 << (width - 1)) - 1))
    canonical = bytestring.encode_signed(value)
    assert bytestring.decode_signed(canonical, width, "field") == value
    assert bytestring.decode_signed((b"\xff" if value < 0 else b"\x00") + canonical, width, "field") == value
    shorter = canonical[1:]
    assert not shorter or int.from_bytes(shorter, "big", signed=True) != value


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(0, 1 << 64))
def test_a_value_that_is_too_wide_is_refused(width: int, excess: int) -> None:
    value = (1 << width) + excess
    with pytest.raises(Refusal, match=f"bit<{width}>"):
        bytestring.decode(bytestring.encode(value), width, "field")
