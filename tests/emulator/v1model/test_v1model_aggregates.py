"""Stacks, unions, stacks of unions and varbit fields; the expected output is bmv2's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weir.emulator.program import Program
from weir.tests.checksums import internet_checksum
from weir.tests.emulator.harness import PacketRig
from weir.tests.paths import PROGRAMS

PROGRAM = PROGRAMS / "aggregates.json"


@pytest.fixture
def rig() -> PacketRig:
    return PacketRig(Program.load(PROGRAM))


def labels(*values: int) -> bytes:
    return bytes(value << 1 | (number == len(values) - 1) for number, value in enumerate(values))


def packet(what: int, index: int, stack: bytes, options: bytes = b"", text: bytes = bytes.fromhex("08aa9988")) -> bytes:
    count = 0
    rest = options
    while rest:
        count, rest = count + 1, rest[2 if rest[0] == 1 else 3 :]
    return bytes([what, index, len(stack), count]) + stack + options + text


def test_a_stack_is_parsed_element_by_element_and_emitted(rig: PacketRig) -> None:
    for count in range(1, 5):
        data = packet(0, 0, labels(*range(count)), bytes.fromhex("0111 022233"))
        assert rig.send(data).frame == data


def test_a_full_stack_stops_the_parser(rig: PacketRig) -> None:
    data = packet(0, 0, labels(1, 2, 3, 4, 5))
    outcome = rig.send(data)
    assert outcome.ingress["parser_error"] == rig.program.errors["StackOutOfBounds"]
    assert outcome.ingress["payload"] - outcome.ingress["start"] == 4 + 4
    assert outcome.frame == data


def test_push_front_drops_the_last_element_and_pop_empties_it(rig: PacketRig) -> None:
    text = bytes.fromhex("08aa9988")
    two, four = labels(1, 2), labels(1, 2, 3, 4)
    assert rig.send(packet(1, 0, two)).frame == bytes([1, 0, 2, 0, 0xAA]) + two + text
    assert rig.send(packet(1, 0, four)).frame == bytes([1, 0, 4, 0, 0xAA]) + four[:3] + text
    assert rig.send(packet(2, 0, four)).frame == bytes([2, 0, 4, 0]) + four[2:] + text
    assert rig.send(packet(2, 0, labels(1))).frame == bytes([2, 0, 1, 0]) + text


@pytest.mark.parametrize("index", range(4))
def test_elements_are_read_and_written_by_an_index_of_the_packet(rig: PacketRig, index: int) -> None:
    values = [10, 20, 30, 40]
    left = labels(*values)[:index] + labels(*values)[index + 1 :]
    assert rig.send(packet(4, index, labels(*values))).frame == bytes([4, index, 4, 0]) + left + b"\x08\xaa\x99\x88"
    values[index] += 1
    changed = rig.send(packet(3, index, labels(10, 20, 30, 40))).frame
    assert changed == packet(3, index, labels(*values))


def test_an_index_out_of_range_reads_zeros_and_loses_writes(rig: PacketRig) -> None:
    for index in (4, 5, 200, 255):
        data = packet(3, index, labels(10, 20, 30, 40), bytes.fromhex("0111"))
        assert rig.send(data).frame == data


def test_a_member_of_a_union_that_becomes_valid_ends_the_other(rig: PacketRig) -> None:
    sent = rig.send(packet(5, 0, labels(1), bytes.fromhex("0111 0122"))).frame
    assert sent == bytes([5, 0, 1, 2]) + labels(1) + bytes.fromhex("02beef 0122 08aa9988")
    assert rig.send(packet(5, 0, b"")).frame == bytes([5, 0, 0, 0]) + bytes.fromhex("02beef 08aa9988")


def test_a_union_stays_valid_when_an_invalid_member_is_removed(rig: PacketRig) -> None:
    narrow = packet(6, 7, b"", bytes.fromhex("0111 0122"))
    assert rig.send(narrow).frame == narrow
    wide = packet(6, 7, b"", bytes.fromhex("0111 022233"))
    assert rig.send(wide).frame == bytes([6, 0xFF, 0, 2]) + bytes.fromhex("0111 08aa9988")


def test_an_invalid_header_keeps_its_fields_until_it_becomes_valid_again() -> None:
    """The action of command 5 makes a header invalid and valid, and reads its first field in between."""

    def field(header: str, name: str) -> dict[str, Any]:
        return {"type": "field", "value": [header, name]}

    header, kind = {"type": "header", "value": "options[1].wide"}, field("options[1].wide", "kind")
    add, remove = ({"op": op, "parameters": [header]} for op in ("add_header", "remove_header"))
    read = [{"op": "assign", "parameters": [field("command", name), kind]} for name in ("index", "labels", "options")]
    write = {"op": "assign", "parameters": [kind, {"type": "hexstr", "value": "0x07"}]}
    root = json.loads(PROGRAM.read_bytes())
    (action,) = [action for action in root["actions"] if "wide.setValid" in str(action)]
    action["primitives"] = [add, remove, read[0], write, read[1], add, read[2]]
    data = packet(5, 0, b"", bytes.fromhex("0111 022233"))
    sent = PacketRig(Program.load(json.dumps(root).encode())).send(data).frame
    assert sent == bytes([5, 2, 7, 0]) + bytes.fromhex("0111 000000 08aa9988")


@pytest.mark.parametrize("count", range(9))
def test_varbit_fields_keep_their_length(rig: PacketRig, count: int) -> None:
    text = bytes([8 * count]) + bytes(range(1, count + 1)) + b"\x99\x88"
    assert rig.send(packet(0, 0, b"", text=text) + b"rest").frame == packet(0, 0, b"", text=text) + b"rest"
    copied = rig.send(packet(7, 0, b"", text=text) + b"rest").frame
    summed = text[:-2] + b"\x07"
    check = internet_checksum(summed).to_bytes(2, "big")
    assert copied == packet(7, 0, b"", text=text) + text[:-2] + check + b"rest"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"\x0cabcdefgh", "ParserInvalidArgument"),
        (b"\x48" + bytes(11), "HeaderTooShort"),
        (b"\x40" + bytes(9), "PacketTooShort"),
    ],
)
def test_varbit_lengths_that_cannot_be_stop_the_parser(rig: PacketRig, text: bytes, error: str) -> None:
    data = packet(0, 0, b"", text=text)
    outcome = rig.send(data)
    assert outcome.ingress["parser_error"] == rig.program.errors[error]
    assert outcome.frame == data


def test_egress_has_the_packet_length_without_removed_varbits(rig: PacketRig) -> None:
    text = bytes.fromhex("18aabbcc9988")
    assert rig.send(packet(8, 0, b"", text=text) + bytes(10)).frame == bytes([8, 14, 0, 0]) + bytes(10)
