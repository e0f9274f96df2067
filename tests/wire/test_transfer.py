"""Packets of transfers as bytes: round trips, and acknowledgements with the numbers of their packets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.wire.errors import WireError
from weir.wire.frames import (
    DSCP_CONTROL,
    ECN_CAPABLE,
    ECN_CONGESTED,
    ECN_NOT_CAPABLE,
    are_congested,
    decapsulate,
    encapsulate,
)
from weir.wire.transfer import (
    TRANSFER_PORT,
    acknowledgements,
    are_acknowledgements,
    are_marked,
    data_packets,
    heads_of,
)

NUMBERS = st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.booleans()), min_size=1, max_size=20)


@given(NUMBERS, st.integers(16, 1400))
def test_packed_transfers_are_read_back(packets: list[tuple[int, bool]], size: int) -> None:
    numbers, marked = np.array([number for number, _ in packets]), np.array([mark for _, mark in packets])
    payload = data_packets(numbers, size)
    assert payload.shape == (len(packets), size)
    heads = heads_of(payload)
    assert not are_acknowledgements(heads).any()
    answers = acknowledgements(heads, marked)
    assert answers.shape == (len(packets), 16)
    heard = heads_of(answers)
    assert are_acknowledgements(heard).all()
    assert heard["number"].tolist() == numbers.tolist()
    assert are_marked(heard).tolist() == marked.tolist()


def test_the_layout() -> None:
    payload = data_packets(np.array([0x0102030405060708]), 18)
    assert payload.tobytes().hex() == "5754" + "00" + "0000000000" + "0102030405060708" + "0000"
    assert acknowledgements(heads_of(payload), np.array([True])).tobytes().hex()[:6] == "575403"


@pytest.mark.parametrize("payload", [b"\x57\x54\x00", b"\x57\x48" + bytes(14), b"\x57\x54\x04" + bytes(13)])
def test_other_bytes_are_no_transfer(payload: bytes) -> None:
    with pytest.raises(WireError, match="transfer"):
        heads_of(np.frombuffer(payload, np.uint8)[None])


def test_marks_are_the_two_bits_beside_the_dscp() -> None:
    """RFC 3168, section 5."""
    ecn = [ECN_NOT_CAPABLE, 1, ECN_CAPABLE, ECN_CONGESTED]
    ends = {"source": 1, "destination": 2, "source_mac": 3, "destination_mac": 4, "destination_port": TRANSFER_PORT}
    frames = encapsulate(data_packets(np.arange(4), 100), **ends, dscp=DSCP_CONTROL, ecn=ecn)
    assert frames[:, 15].tolist() == [DSCP_CONTROL << 2 | bits for bits in ecn]
    assert are_congested(frames).tolist() == [False, False, False, True]
    assert len(decapsulate(frames, 2)[0]) == 4, "it is part of what the checksum covers"
