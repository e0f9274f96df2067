"""Heartbeats as bytes: packed ones are read back, and packing takes the token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.tests.support.errors import raises
from weir.wire.aggregation import MAX_ROUNDS
from weir.wire.errors import WireError
from weir.wire.heartbeat import HEARTBEAT_BYTES, Heartbeat, is_from

BEATS = st.builds(
    Heartbeat,
    job=st.integers(1, 0xFFFF),
    sequence=st.integers(0, 0xFFFF_FFFF),
    rounds=st.integers(0, MAX_ROUNDS),
    waiting=st.booleans(),
    sent_ns=st.integers(0, (1 << 64) - 1),
)


@given(beat=BEATS, token=st.text(min_size=1), bit=st.integers(0, 8 * HEARTBEAT_BYTES - 1))
def test_packed_heartbeats_are_read_and_changed_ones_rejected(beat: Heartbeat, token: str, bit: int) -> None:
    payload = beat.pack(token)
    assert len(payload) == HEARTBEAT_BYTES
    assert Heartbeat.parse(payload) == beat
    assert is_from(payload, token)
    assert not is_from(payload, token + "x")
    forged = bytearray(payload)
    forged[bit // 8] ^= 1 << bit % 8
    assert not is_from(bytes(forged), token)


def test_the_layout() -> None:
    payload = Heartbeat(job=0x0102, sequence=3, rounds=4, waiting=True, sent_ns=5).pack("t")
    assert payload[:28].hex() == "57480101" + "01020000" + "00000003" + "0000000000000004" + "0000000000000005"


@pytest.mark.parametrize(
    "payload", [b"", bytes(HEARTBEAT_BYTES), b"\x57\x48\x01\x02" + bytes(36), b"\x57\x48\x02\x00" + bytes(36)]
)
def test_other_bytes_are_no_heartbeat(payload: bytes) -> None:
    with pytest.raises(WireError, match="heartbeat"):
        Heartbeat.parse(payload)


@pytest.mark.parametrize("rounds", [MAX_ROUNDS + 1, (1 << 64) - 1])
def test_rounds_out_of_range_are_refused(rounds: int) -> None:
    payload = Heartbeat(job=1, sequence=0, rounds=rounds, waiting=False, sent_ns=0).pack("t")
    with raises(WireError, place="heartbeat", value=rounds):
        Heartbeat.parse(payload)
