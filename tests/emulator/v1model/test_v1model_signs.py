"""Constants below zero, which p4c writes with their sign: in selects, entries, default actions and switches."""

from __future__ import annotations

import itertools

import pytest

from weir.emulator.program import Program
from weir.tests.emulator.harness import PacketRig
from weir.tests.paths import PROGRAMS

WIDES = (0, -3 & 0x1FFF, 0x1000, 5)


@pytest.fixture(scope="module")
def rig() -> PacketRig:
    return PacketRig(Program.load(PROGRAMS / "signs.json"))


def as_signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> width - 1 else value


def packed(amount: int, wide: int, pad: int, entry: int) -> bytes:
    return bytes([amount & 0xFF]) + ((wide & 0x1FFF) << 3 | pad).to_bytes(2, "big") + bytes([entry])


def reference(amount: int, wide: int) -> bytes:
    """Result of the program, with Python's integers."""
    pad = 5 if (as_signed(wide, 13), as_signed(amount, 8)) in ((-3, -100), (-4096, 7)) else 0
    amount, wide = as_signed(amount - 3, 8), wide - 4096
    entry = {-8: 8, 4: 4}.get(amount, 0)
    if amount == -1:
        amount, wide = as_signed(amount - 128, 8), wide - 1
    if not entry and -16 <= amount < 0:
        entry = 16
    return packed(amount, wide, pad, entry | {-2: 0x40, 3: 0x20}.get(amount, 0))


def test_constants_below_zero_mean_their_bits(rig: PacketRig) -> None:
    seen = set[int]()
    for amount, wide in itertools.product(range(256), WIDES):
        out = rig.send(packed(amount, wide, 0, 0)).frame
        assert out == reference(amount, wide), (amount, wide)
        seen |= {out[2] & 7, out[3]}
    assert seen == {0, 5, 4, 8, 16, 16 | 0x40, 0x20}


def test_they_are_read_back_as_bits(rig: PacketRig) -> None:
    tables = rig.state.tables
    assert tables["SignsIngress.shift"].default.params == (0xFD, 0x1000)  # type: ignore[union-attr]
    entries = [entry.match[0] for entry in tables["SignsIngress.signs"].entries()]
    assert [match.value for match in entries] == [0xF8, 0xFF, 4]  # type: ignore[union-attr]
