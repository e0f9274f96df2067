"""Effects of the parser, actions, externs and deparser of a compiled program on one packet."""

from __future__ import annotations

import binascii
import struct
from typing import Any

import pytest

from weir.emulator.program import Program
from weir.tests.checksums import crc16, internet_checksum, xor16
from weir.tests.emulator.harness import PacketRig, seeded_random
from weir.tests.paths import PROGRAMS


@pytest.fixture
def rig() -> PacketRig:
    return PacketRig(Program.load(PROGRAMS / "constructs.json"))


def frame(what: int, index: int = 0, left: int = 0, right: int = 0, tail: bytes = b"tail") -> bytes:
    return struct.pack(">BBII", what, index, left, right) + tail


def sent(rig: PacketRig, data: bytes, **metadata: Any) -> bytes:
    out = rig.send(data, **metadata).frame
    assert out is not None
    return out


# ---- parser


def test_untouched_packets_leave_as_they_came(rig: PacketRig) -> None:
    assert sent(rig, frame(0, 1, 2, 3)) == frame(0, 1, 2, 3)


@pytest.mark.parametrize("length", [0, 1, 2, 5, 9])
def test_too_few_bytes_reach_ingress_as_packet_too_short(rig: PacketRig, length: int) -> None:
    outcome = rig.send(frame(0, 1, 2, 3)[:length])
    assert outcome.ingress["parser_error"] == rig.program.errors["PacketTooShort"] == 1
    assert outcome.ingress["payload"] == outcome.ingress["start"] + (2 if length >= 2 else 0)
    counter = rig.state.counters["ConstructsIngress.counted"]
    assert (counter.packets.tolist(), counter.bytes.tolist()) == ([1, 0, 0, 0], [length, 0, 0, 0])


def test_headers_of_the_last_packet_are_gone_when_parsing_stops(rig: PacketRig) -> None:
    sent(rig, frame(0x10) + bytes(21))
    rig.begin(frame(0)[:2])
    rig.ingress()
    rig.egress()
    assert rig.frame() == frame(0)[:2]


def test_verify_stops_with_its_error_and_exit_ends_ingress(rig: PacketRig) -> None:
    outcome = rig.send(frame(4, 2, 13))
    assert outcome.ingress["parser_error"] == rig.program.errors["Unlucky"]
    assert outcome.frame is None
    assert rig.state.counters["ConstructsIngress.counted"].packets.tolist() == [0, 1, 0, 0]


def test_lookahead_advance_and_select_on_metadata(rig: PacketRig) -> None:
    data = bytes([0, 0]) + b"\xab\xcd" + struct.pack(">II", 1, 2) + b"rest"
    assert sent(rig, data, ingress_port=9) == data
    assert sent(rig, data, ingress_port=8) == data
    assert rig.send(b"\0\0\xab", ingress_port=9).ingress["parser_error"] == 1


def test_fields_of_odd_widths_are_read_and_written_in_place(rig: PacketRig) -> None:
    rng = seeded_random()
    widths = (3, 13, 5, 11, 7, 1, 48, 80)
    for _ in range(200):
        values = [rng.choice([0, (1 << w) - 1, rng.getrandbits(w)]) for w in widths]
        a, b, c, d, e, f, g, h = values
        twisted = [a + 1, b - 1, c ^ 21, d << 1, e >> 1, ~f, g + 0xFFFF, h + 1]
        packed = []
        for numbers in (values, twisted):
            bits = 0
            for value, width in zip(numbers, widths, strict=True):
                bits = bits << width | value & ((1 << width) - 1)
            packed.append(bits.to_bytes(21, "big"))
        what = rng.randrange(0x10, 0x20)
        assert sent(rig, bytes([what, 0]) + packed[0] + frame(0)[2:])[2:23] == packed[1]


# ---- actions and externs


def test_registers_are_read_and_written_where_the_index_says(rig: PacketRig) -> None:
    words, times = (rig.state.registers[f"ConstructsIngress.{name}"] for name in ("words", "times"))
    words.write(3, 0xDEADBEEF)
    out = sent(rig, frame(1, 3, 0x01020304))
    assert out == frame(1, 3, 0x01020304, 0xDEADBEEF)
    assert words.values.tolist() == [0, 0, 0, 0x01020304, *[0] * 12]
    assert times.read(3) == 0x01020304FFFF
    assert [times.read(i) for i in range(16) if i != 3] == [0] * 15
    sent(rig, frame(1, 15, 9))
    assert (words.read(15), int(times.values[15])) == (9, 0x9FFFF)


@pytest.mark.parametrize("index", [16, 17, 255])
def test_registers_out_of_range_read_zero_and_lose_writes(rig: PacketRig, index: int) -> None:
    words = rig.state.registers["ConstructsIngress.words"]
    words.values[:] = 7
    for _ in range(2):
        assert sent(rig, frame(1, index, 5, 6)) == frame(1, index, 0, 0)
    assert words.values.tolist() == [7] * 16


def test_an_index_changed_within_an_action_names_another_cell(rig: PacketRig) -> None:
    words, small = (rig.state.registers[f"ConstructsIngress.{name}"] for name in ("words", "small"))
    sent(rig, frame(2, 4, 0xFFF))
    assert words.values.tolist() == [0, 0, 0, 0, 1, 2, *[0] * 10]
    assert small.values.tolist() == [0, 0, 0, 0, 0, 0x7F, 0, 0, 0, 0]
    sent(rig, frame(2, 15, 1))
    assert words.read(15) == 1
    sent(rig, frame(2, 9, 1))
    assert small.values.tolist() == [0, 0, 0, 0, 0, 0x7F, 0, 0, 0, 0]


def test_registers_from_python_are_checked(rig: PacketRig) -> None:
    small = rig.state.registers["ConstructsIngress.small"]
    with pytest.raises(ValueError, match="does not fit 7 bits"):
        small.write(0, 128)
    with pytest.raises(IndexError, match="10 cells"):
        small.read(10)
    with pytest.raises(IndexError):
        small.write(-1, 0)


@pytest.mark.parametrize(("left", "right"), [(0, 3), (100, 3), (101, 1), (1000, 1), (1001, 2), (1 << 31, 2)])
def test_conditions_within_actions(rig: PacketRig, left: int, right: int) -> None:
    assert sent(rig, frame(3, 0, left, 9)) == frame(3, 0, right + 10, right)


def test_counters_count_packets_and_bytes_within_their_size(rig: PacketRig) -> None:
    counter = rig.state.counters["ConstructsIngress.counted"]
    for index in (1, 3, 3, 4, 255):
        sent(rig, frame(4, index))
    assert counter.packets.tolist() == [0, 1, 0, 2]
    assert counter.bytes.tolist() == [0, 14, 0, 28]


def test_clone_truncate_and_multicast_are_requests_in_the_record(rig: PacketRig) -> None:
    assert rig.send(frame(5, 0)).ingress["clone_session"] == 1
    assert rig.send(frame(5, 200)).ingress["clone_session"] == 201
    assert rig.send(frame(6, 64)).ingress["truncate"] == 65
    assert rig.send(frame(11)).ingress["mcast_grp"] == 7
    dropped = rig.send(frame(12)).ingress
    assert (dropped["mcast_grp"], dropped["egress_spec"]) == (0, 511)
    outcome = rig.send(frame(41, 3))
    assert outcome.egress is not None
    assert (outcome.egress["clone_session"], outcome.frame) == (4, None)


def test_hashes_are_those_of_simple_switch(rig: PacketRig) -> None:
    rng = seeded_random()
    for _ in range(50):
        left, index = rng.getrandbits(32), rng.getrandbits(8)
        data = struct.pack(">IB", left, index)
        expected = {
            7: binascii.crc32(data),
            8: 1000 + crc16(data) % 77,
            13: internet_checksum(data),
            14: xor16(data),
            15: left,
        }
        if left == 13:
            continue
        for what, value in expected.items():
            assert int.from_bytes(sent(rig, frame(what, index, left))[6:10], "big") == value, what


def test_headers_are_added_empty_removed_and_copied(rig: PacketRig) -> None:
    assert sent(rig, frame(9, 0, 1, 2)) == bytes([9, 0, 0, 0]) + b"tail"
    both = struct.pack(">II", 1, 2) + struct.pack(">II", 5, 2)
    assert sent(rig, frame(10, 0, 1, 2)) == bytes([10, 0]) + both + b"tail"


def test_metadata_reaches_egress_but_no_other_packet(rig: PacketRig) -> None:
    assert sent(rig, frame(40, 0, 0x1234ABCD))[6:10] == bytes.fromhex("0000abcd")
    for _ in range(2):
        assert sent(rig, frame(42))[6:10] == bytes.fromhex("00000001")


def test_a_clone_made_in_egress_starts_with_fresh_metadata(rig: PacketRig) -> None:
    rig.begin(frame(40, 0, 0x1234ABCD))
    rig.ingress()
    rig.preserve()
    rig.egress()
    assert rig.frame()[6:10] == bytes(4)


def test_structs_of_metadata_are_copied_field_by_field(rig: PacketRig) -> None:
    record = rig.send(frame(44), ingress_port=6).ingress
    assert (record["egress_spec"], record["priority"], record["ingress_port"]) == (4, 3, 6)


def test_reparse_gives_egress_new_headers_and_metadata(rig: PacketRig) -> None:
    rig.begin(frame(40, 0, 0x1234ABCD))
    rig.ingress()
    rig.begin(frame(40, 0, 0x11112222))
    rig.reparse()
    rig.egress()
    assert rig.frame() == frame(40, 0, 0x11112222, 0)


def test_a_packet_that_outgrows_its_headroom_is_dropped(rig: PacketRig) -> None:
    rig.begin(frame(10))
    rig.ingress()
    rig.record["payload"] = 10
    rig.record["egress_spec"] = 0
    rig.egress()
    assert rig.record["egress_spec"] == 511


def test_random_bytes_never_harm(rig: PacketRig) -> None:
    rng = seeded_random()
    for _ in range(3000):
        data = rng.randbytes(rng.randrange(80))
        outcome = rig.send(data, ingress_port=rng.choice([0, 9]))
        assert outcome.frame is None or len(outcome.frame) < len(data) + 20


def test_a_clone_cut_within_its_headers_keeps_whole_headers_only(rig: PacketRig) -> None:
    rig.begin(frame(0, 1, 2, 3))
    rig.ingress()
    rig.record["length"] = 4
    rig.egress()
    assert rig.frame() == frame(0, 1, 2, 3, b"")
