"""Packets of the transport as bytes: the design's table, the scapy layer, and errors that the check detects."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.tests.paths import ROOT
from weir.wire.scapy_layers import Transport
from weir.wire.transport import (
    FIELDS,
    HEADER_BYTES,
    SEQUENCES,
    FrameCheck,
    PacketFlag,
    PacketType,
    extended,
    heads_of,
    packets,
)

KEY = "c3" * 32


def sealed(key: str, payload: bytes, sequence: int) -> np.ndarray:
    rows = packets(
        np.frombuffer(payload, np.uint8)[None],
        kind=PacketType.DATA,
        job=9,
        epoch=3,
        peer_epoch=4,
        flags=PacketFlag.LAST,
        sequence=sequence,
        order=sequence + 7,
    )
    return FrameCheck(key).seal(rows, source=1, destination=2, sequences=np.array([sequence]))


def check_of(rows: np.ndarray, *, key: str = KEY, source: int = 1, destination: int = 2, sequence: int = 0) -> int:
    checks = FrameCheck(key).of(rows, source=source, destination=destination, sequences=np.array([sequence]))
    return int(checks[0])


def test_the_designs_table_is_this_one() -> None:
    section = (ROOT / "docs" / "design.md").read_text().split("### 2.5 ")[1].split("### ")[0]
    table = section.split("\n\n")[1].splitlines()[2:]
    rows = [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in table]
    expected = []
    for field in FIELDS:
        parts = field.parts or ((field.name, field.bits),)
        names, bits = ", ".join(name for name, _ in parts), " + ".join(str(bits) for _, bits in parts)
        expected.append((str(field.offset), names, bits, field.purpose))
    assert rows == expected


def test_scapy_reads_what_is_packed() -> None:
    packet = Transport(sealed(KEY, b"some payload", (5 << 32) + 77)[0].tobytes())
    values = (packet.version, packet.type, packet.job, packet.epoch, packet.peer_epoch, packet.sequence, packet.order)
    assert values == (1, PacketType.DATA, 9, 3, 4, 77, 84)
    assert bytes(packet.payload) == b"some payload"


@pytest.mark.parametrize("key", ["", KEY])
@given(st.binary(max_size=60), st.integers(0, 1 << 60), st.data())
def test_the_check_finds_every_change_of_a_byte(key: str, payload: bytes, sequence: int, data: st.DataObject) -> None:
    rows = sealed(key, payload, sequence)
    [written] = heads_of(rows)["check"].tolist()
    assert check_of(rows, key=key, sequence=sequence) == written
    at = data.draw(st.integers(0, rows.shape[1] - 1).filter(lambda at: not HEADER_BYTES - 8 <= at < HEADER_BYTES))
    rows[0, at] ^= data.draw(st.integers(1, 255))
    assert check_of(rows, key=key, sequence=sequence) != written


def test_the_check_is_of_its_key_its_ends_and_the_whole_sequence() -> None:
    rows = sealed(KEY, b"payload", 5)
    [written] = heads_of(rows)["check"].tolist()
    assert check_of(rows, sequence=5) == written
    for changes in ({"key": "d4" * 32}, {"key": ""}, {"source": 3}, {"source": 2, "destination": 1}):
        assert check_of(rows, sequence=5, **changes) != written
    assert check_of(rows, sequence=5 + SEQUENCES) != written


@given(st.integers(0, 1 << 50), st.integers(-(1 << 31) + 1, (1 << 31) - 1))
def test_numbers_are_extended_from_their_lower_half(near: int, distance: int) -> None:
    number = max(0, near + distance)
    [found] = extended(np.array([number % SEQUENCES]), near).tolist()
    assert found == number or near + distance < 0
