"""INT-MD 2.1: probes that are sent, and stacks that come back, checked against a word-by-word reading."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether

from weir.tests.support.errors import raises
from weir.wire import WireError, frames, int_md
from weir.wire.int_md import DISCARD, DOMAIN, DomainInstruction, Hop, Instruction
from weir.wire.int_overhead import INT_METER, mark_number
from weir.wire.int_shim import Presence
from weir.wire.scapy_layers import IntMd, IntShim

bitmaps = st.integers(0, 0xFFFF)
NOTHING = Hop(*(None,) * 9)
BASELINE_WORDS = {0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 1, 8: 1, **dict.fromkeys(range(9, 16), 1)}


def probe(**options: Any) -> bytes:
    return int_md.probe_frame(**{"source": 1, "destination": 2, "source_mac": 3, "destination_mac": 4, **options})


def finished(
    bitmap: int,
    words: int,
    stack: bytes,
    domain: int = DOMAIN,
    domain_bitmap: int = 0,
    flags: int = 0,
    payload: bytes = b"",
) -> bytes:
    """A probe as the last node sends it, put together field by field."""
    body = struct.pack("!BBH", 0x14, 3 + len(stack) // 4, 22342)
    body += struct.pack("!BBBB", 0x20 | flags, 0, words, 9)
    body += struct.pack("!HHHH", bitmap, domain, domain_bitmap, 0) + stack + payload
    return frames.encapsulate(
        np.frombuffer(body, np.uint8)[None],
        source=1,
        destination=2,
        source_mac=3,
        destination_mac=4,
        source_port=77,
        destination_port=5000,
    ).tobytes()


def test_a_fresh_probe_field_by_field() -> None:
    packet = Ether(probe(remaining_hops=5, payload=b"\xca\xfe"))
    shim, header = packet[IntShim], packet[IntMd]
    assert (shim.type, shim.npt, shim.length, shim.original_port) == (1, 1, 3, 22342)
    assert (header.version, header.discard, header.hop_limit_exceeded, header.mtu_exceeded) == (2, 1, 0, 0)
    assert (header.hop_words, header.remaining_hops, header.instructions) == (6, 5, 0xF000)
    assert (header.domain, header.domain_instructions, header.domain_flags) == (0x5745, 0x8000, 0)
    assert (header.stack, bytes(header.payload)) == ([], b"\xca\xfe")


@given(bitmap=bitmaps, domain_bitmap=bitmaps)
def test_hop_words_follow_the_specification(bitmap: int, domain_bitmap: int) -> None:
    words = sum(count for bit, count in BASELINE_WORDS.items() if bitmap & 0x8000 >> bit)
    words += bin(domain_bitmap).count("1") + (domain_bitmap >> 15)
    assert int_md.hop_words(bitmap, domain_bitmap) == words
    if words > 31:
        with pytest.raises(WireError, match=f"{words} words"):
            probe(instructions=bitmap, domain_instructions=domain_bitmap)
    else:
        probes = int_md.parse_frames([probe(instructions=bitmap, domain_instructions=domain_bitmap)])
        assert (probes.rejected, len(probes), probes.path(0), len(probes.hops)) == (0, 1, (), 0)


def test_hop_limit_must_fit() -> None:
    with raises(WireError, place="remaining_hops", value=256):
        probe(remaining_hops=256)


def test_a_finished_probe_is_read_in_path_order() -> None:
    newest = struct.pack("!IHHIB3sQ", 12, 3, 4, 250, 7, b"\0\1\2", 2**40)
    oldest = struct.pack("!IHHIB3sQ", 11, 1, 2, 90, 0, b"\0\0\5", 1500)
    frame = finished(0xF000, 6, newest + oldest, domain_bitmap=0x8000, flags=0x06, payload=b"id")
    probes = int_md.parse_frames([frame])
    assert (probes.rejected, len(probes), probes.payload(0)) == (0, 1, b"id")
    (one,) = probes.records
    assert [one[name] for name in ("source", "source_port", "original_port")] == [1, 77, 22342]
    assert [one[name] for name in ("hop_limit_exceeded", "mtu_exceeded", "remaining_hops")] == [True, True, 9]
    assert probes.path(0) == (
        Hop(11, 1, 2, 90, 0, 5, None, None, 1500),
        Hop(12, 3, 4, 250, 7, 258, None, None, 2**40),
    )


def test_all_ones_are_unavailable() -> None:
    assert int_md.parse_frames([finished(0xFC00, 10, b"\xff" * 40, domain_bitmap=0x8000)]).path(0) == (NOTHING,)


@given(bitmap=bitmaps, domain_bitmap=bitmaps, hops=st.integers(1, 3), data=st.data())
def test_any_layout_against_a_word_by_word_reading(
    bitmap: int, domain_bitmap: int, hops: int, data: st.DataObject
) -> None:
    words = int_md.hop_words(bitmap, domain_bitmap)
    if not 0 < words <= 31:
        return
    stack = data.draw(st.binary(min_size=4 * words * hops, max_size=4 * words * hops))
    probes = int_md.parse_frames([finished(bitmap, words, stack, domain_bitmap=domain_bitmap)])
    assert probes.rejected == 0

    def number(part: bytes) -> int | None:
        return None if part == b"\xff" * len(part) else int.from_bytes(part, "big")

    def signed(value: int | None) -> int | None:
        return value if value is None or value < 2**63 else (value - 2**64)

    expected = []
    for hop in reversed(range(hops)):
        rest = stack[4 * words * hop : 4 * words * (hop + 1)]
        items = {}
        for bit in range(15):
            if bitmap & 0x8000 >> bit:
                items[bit], rest = rest[: 4 * BASELINE_WORDS[bit]], rest[4 * BASELINE_WORDS[bit] :]
        ports, queue = items.get(1, b"\xff" * 4), items.get(3, b"\xff" * 4)
        expected.append(
            Hop(
                number(items.get(0, b"\xff")),
                number(ports[:2]),
                number(ports[2:]),
                number(items.get(2, b"\xff")),
                number(queue[:1]),
                number(queue[1:]),
                signed(number(items.get(4, b"\xff"))),
                signed(number(items.get(5, b"\xff"))),
                signed(number(rest[:8] if domain_bitmap & 0x8000 else b"\xff")),
            )
        )
    assert probes.path(0) == tuple(expected)


def test_many_probes_of_several_layouts_at_once() -> None:
    asked = [finished(0x8000, 1, struct.pack("!I", number)) for number in range(5)]
    asked += [finished(0x2000, 1, struct.pack("!I", number)) for number in range(3)]
    asked += [finished(0x8000, 1, struct.pack("!II", 2, 1)), b"short", probe()[:-1]]
    probes = int_md.parse_frames(asked)
    assert probes.rejected == 2
    nodes = [[hop.node_id for hop in probes.path(index)] for index in range(len(probes))]
    assert nodes == [[0], [1], [2], [3], [4], [None], [None], [None], [1, 2]], "in the order in which they came"


def test_a_foreign_domain_keeps_the_baseline_items() -> None:
    stack = struct.pack("!III", 5, 0xAAAA, 0xBBBB)
    probes = int_md.parse_frames([finished(0x8000, 3, stack, domain=1, domain_bitmap=0x8000)])
    assert probes.rejected == 0
    assert [hop.node_id for hop in probes.path(0)] == [5]


def altered(frame: bytes, position: int, value: int) -> bytes:
    """`frame` with one byte of its INT part replaced; position 0 is the shim's first byte."""
    return frame[: 42 + position] + bytes([value]) + frame[43 + position :]


FOUR_WORDS = finished(0xF000, 4, bytes(16))
CONTRADICTIONS = {
    "bytes sent asked for, hop ML without it": finished(0xF000, 5, bytes(20), domain_bitmap=0x8000),
    "fewer words than the baseline asks": finished(0xF000, 3, bytes(12), domain=1),
    "not a whole hop": finished(0xF000, 4, bytes(12)),
    "a stack, but hops of no words": finished(0xF000, 0, bytes(16)),
    "destination type": altered(FOUR_WORDS, 0, 0x24),
    "next protocol type 2": altered(FOUR_WORDS, 0, 0x18),
    "longer than the packet": altered(FOUR_WORDS, 1, 8),
    "shorter than its own header": altered(FOUR_WORDS, 1, 2),
    "INT 1.0": altered(FOUR_WORDS, 4, 0x10),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_contradictions_are_rejected(what: str) -> None:
    probes = int_md.parse_frames([CONTRADICTIONS[what], FOUR_WORDS])
    assert (probes.rejected, len(probes)) == (1, 1)


@given(body=st.binary(max_size=80))
def test_garbage_never_raises(body: bytes) -> None:
    frame = frames.encapsulate(
        np.frombuffer(body, np.uint8)[None],
        source=1,
        destination=2,
        source_mac=3,
        destination_mac=4,
        destination_port=5000,
    )
    probes = int_md.parse_frames([frame.tobytes()])
    assert len(probes) + probes.rejected == 1


FRAME = finished(0xFC00, 10, bytes(range(80)), domain_bitmap=0x8000, payload=b"id")


@given(data=st.data())
def test_damage_is_rejected_or_read_within_the_frame(data: st.DataObject) -> None:
    """A damaged length is never followed beyond the frame: its neighbours come out unchanged."""
    damaged = bytearray(FRAME)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(FRAME) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(FRAME)))
    probes = int_md.parse_frames([FRAME, bytes(damaged), FRAME[:cut], FRAME])
    assert len(probes) + probes.rejected == 4
    whole = int_md.parse_frames([FRAME])
    assert probes.path(0) == probes.path(len(probes) - 1) == whole.path(0)
    assert probes.payload(0) == probes.payload(len(probes) - 1) == b"id"


@pytest.mark.parametrize(("words", "hops"), [(1, 252), (6, 42), (10, 25), (31, 8)])
def test_hops_that_fit(words: int, hops: int) -> None:
    assert int_md.hops_that_fit(words) == hops


def test_instructions_are_the_specifications_bits() -> None:
    assert [bit.value for bit in Instruction] == [0x8000 >> bit for bit in (*range(9), 15)]
    assert DomainInstruction.BYTES_SENT.value == 0x8000


@given(st.binary(max_size=120), st.sampled_from(Presence))
def test_other_bytes_are_no_int_and_damage_stays_in_the_frame(tail: bytes, presence: Presence) -> None:
    meter = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)(INT_METER)

    def measured(frame: bytes) -> int:
        return int(meter(frame, len(frame), mark_number(presence)))

    whole = finished(0xF000, 4, bytes(16))
    watched = bytearray(whole)
    assert measured(whole) == (32 if presence is Presence.UDP_PORT else 0)
    watched[46] |= DISCARD
    assert measured(bytes(watched)) == 0  # a probe
    for start in (0, 12, 14, 34, 42, 46):
        damaged = whole[:start] + tail
        assert 0 <= measured(damaged) <= len(damaged)
