"""Hashes over fields that do not fill whole bytes, and over the payload, against plain readings of them."""

from __future__ import annotations

import binascii
import json
import random

import pytest

from weir.emulator.program import Program
from weir.tests.checksums import crc16, internet_checksum, xor16
from weir.tests.emulator.harness import PacketRig
from weir.tests.paths import PROGRAMS

PROGRAM = PROGRAMS / "hashes.json"


@pytest.fixture
def rig() -> PacketRig:
    return PacketRig(Program.load(PROGRAM))


def packed(*fields: tuple[int, int]) -> bytes:
    """Fields (value, width) end to end; zeros fill the last byte."""
    bits = "".join(f"{value:0{width}b}" for value, width in fields)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


class Packet:
    """Packet of this program with random fields; `extra` is present if `what` is odd."""

    def __init__(self, what: int, seed: int) -> None:
        rng = random.Random(seed)
        self.what = what
        self.upper, self.lower = rng.getrandbits(4), rng.getrandbits(12)
        self.a, self.b = rng.getrandbits(3), rng.getrandbits(13)
        self.deparsed = rng.getrandbits(32)
        self.payload = rng.randbytes(rng.randrange(40))

    def frame(self, value: int = 0, deparsed: int | None = None) -> bytes:
        front = bytes([self.what]) + packed((self.upper, 4), (self.lower, 12))
        extra = packed((self.a, 3), (self.b, 13)) if self.what & 1 else b""
        check = self.deparsed if deparsed is None else deparsed
        return front + extra + value.to_bytes(8, "big") + check.to_bytes(4, "big") + self.payload


SEEDS = range(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_fields_are_hashed_bit_by_bit(rig: PacketRig, seed: int) -> None:
    packet = Packet(3, seed)
    data = packed((packet.upper, 4), (packet.b, 13), (packet.lower, 12), (7, 8))
    assert rig.send(packet.frame()).frame == packet.frame(binascii.crc32(data) % 0x100000000)
    packet = Packet(5, seed)
    data = packed((21, 5), (packet.a, 3), (packet.lower, 12))
    assert rig.send(packet.frame()).frame == packet.frame(crc16(data) % 0x10000 + 3)
    packet = Packet(7, seed)
    data = packed((packet.b, 13), (packet.lower, 12))
    assert rig.send(packet.frame()).frame == packet.frame(int.from_bytes(data, "big"))
    packet = Packet(9, seed)
    data = packed((packet.a, 3), (packet.what, 8), (packet.upper, 4))
    assert rig.send(packet.frame()).frame == packet.frame(xor16(data))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("extra", [0, 1])
def test_checksums_go_over_valid_headers_and_the_payload(rig: PacketRig, seed: int, extra: int) -> None:
    packet = Packet(0x20 | extra, seed)
    fields = [(packet.what, 8), *([(packet.b, 13)] if extra else []), (packet.lower, 12)]
    expected = binascii.crc32(packed(*fields) + packet.payload)
    assert rig.send(packet.frame()).frame == packet.frame(deparsed=expected)
    packet = Packet(0x30 | extra, seed)
    fields = [(packet.what, 8), *([(packet.b, 13), (packet.a, 3)] if extra else [])]
    assert rig.send(packet.frame()).frame == packet.frame(deparsed=crc16(packed(*fields) + packet.payload))
    packet = Packet(0x40 | extra, seed)
    assert rig.send(packet.frame()).frame == packet.frame(
        deparsed=internet_checksum(bytes([packet.what]) + packet.payload)
    )
    packet = Packet(0x50 | extra, seed)
    fields = [(packet.what, 8), *([(packet.a, 3), (packet.b, 13)] if extra else [])]
    assert rig.send(packet.frame()).frame == packet.frame(deparsed=xor16(packed(*fields) + packet.payload))


@pytest.mark.parametrize("seed", SEEDS)
def test_payload_checksums_are_verified_without_a_change(rig: PacketRig, seed: int) -> None:
    packet = Packet(0x11, seed)
    right = binascii.crc32(packed((packet.upper, 4), (packet.lower, 12)) + packet.payload)
    for deparsed, error in ((right, 0), (right ^ 1, 1)):
        data = packet.frame(deparsed=deparsed)
        outcome = rig.send(data)
        assert outcome.ingress["checksum_error"] == error
        assert outcome.frame == packet.frame(error, deparsed)
        rig.begin(data)
        rig.ingress()
        assert rig.frame() == data


def test_a_deparser_runs_its_own_calls_after_the_checksums() -> None:
    root = json.loads(PROGRAM.read_bytes())
    field, constant = {"type": "field", "value": ["result", "deparsed"]}, {"type": "hexstr", "value": "0x1234"}
    root["deparsers"][0]["primitives"] = [{"op": "assign", "parameters": [field, constant]}]
    packet = Packet(0x21, 0)
    assert PacketRig(Program.load(json.dumps(root).encode())).send(packet.frame()).frame == packet.frame(
        deparsed=0x1234
    )
