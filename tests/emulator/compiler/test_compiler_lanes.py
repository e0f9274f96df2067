"""Sums of 256 lanes in registers, and checksummed IPv4 forwarding: correct and fast at once."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from weir.emulator.entries import ActionCall, Lpm, MemberRef, TableEntry
from weir.emulator.program import Program
from weir.tests.checksums import internet_checksum
from weir.tests.emulator.harness import PacketRig, seeded_random
from weir.tests.paths import PROGRAMS

LANES, SLOTS = 256, 4096


@pytest.fixture
def rig() -> PacketRig:
    rig = PacketRig(Program.load(PROGRAMS / "lanes.json"))
    profile = rig.state.action_profiles["LanesIngress.ecmp"]
    profile.add_member(1, ActionCall("LanesIngress.forward", (3, 0x0A, 0x0B)))
    routes = rig.state.tables["LanesIngress.routes"]
    routes.insert(TableEntry((Lpm(10 << 24, 8),), MemberRef(1)))
    return rig


def ipv4(ttl: int, protocol: int, length: int, destination: int) -> bytes:
    head = struct.pack(">BBHHHBBHII", 0x45, 0, length, 0, 0, ttl, protocol, 0, 0x0A000001, destination)
    return head[:10] + struct.pack(">H", internet_checksum(head)) + head[12:]


def frame(slot: int, tag: int, lanes: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> bytes:
    body = struct.pack(">HHHH", 1, 22341, 0, 0) + struct.pack(">HH", slot, tag) + lanes.astype(">u4").tobytes()
    return bytes(12) + b"\x08\x00" + ipv4(64, 17, 20 + len(body), 0x0A000002) + body


def test_lanes_restart_and_add_per_slot_and_leave_in_the_packet(rig: PacketRig) -> None:
    rng = np.random.default_rng(seeded_random().getrandbits(32))
    sums = np.zeros((SLOTS, LANES), np.uint32)
    for _ in range(300):
        slot, tag = int(rng.choice([0, 1, 77, SLOTS - 1])), int(rng.integers(0, 3))
        lanes = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
        sums[slot] = lanes if tag == 0 else sums[slot] + lanes
        out = rig.send(frame(slot, tag, lanes)).frame
        assert out is not None
        np.testing.assert_array_equal(np.frombuffer(out[-4 * LANES :], ">u4"), sums[slot])
    stored = np.stack([rig.state.registers[f"LanesIngress.r{i}"].values for i in range(LANES)], axis=1)
    np.testing.assert_array_equal(stored, sums)


def test_a_slot_beyond_the_registers_changes_nothing(rig: PacketRig) -> None:
    ones = np.ones(LANES, np.uint32)
    for tag in (0, 1, 1):
        out = rig.send(frame(SLOTS, tag, ones)).frame
        assert out is not None
        assert np.frombuffer(out[-4 * LANES :], ">u4").tolist() == [1] * LANES
    assert not any(rig.state.registers[f"LanesIngress.r{i}"].values.any() for i in range(LANES))


def test_forwarding_rewrites_addresses_ttl_and_checksum(rig: PacketRig) -> None:
    frame_in = bytes(12) + b"\x08\x00" + ipv4(64, 6, 24, 0x0A000002) + b"data"
    outcome = rig.send(frame_in)
    addresses = bytes.fromhex("00000000000b00000000000a")
    assert outcome.frame == addresses + b"\x08\x00" + ipv4(63, 6, 24, 0x0A000002) + b"data"
    assert outcome.ingress["egress_spec"] == 3


def test_bad_checksums_and_unknown_destinations_are_dropped(rig: PacketRig) -> None:
    wrong = bytearray(bytes(12) + b"\x08\x00" + ipv4(64, 6, 24, 0x0A000002) + b"data")
    wrong[25] ^= 1
    assert rig.send(bytes(wrong)).frame is None
    assert rig.send(bytes(12) + b"\x08\x00" + ipv4(64, 6, 24, 0x0B000002) + b"data").frame is None


def test_reset_clears_registers_and_entries(rig: PacketRig) -> None:
    rig.send(frame(5, 1, np.ones(LANES, np.uint32)))
    rig.state.reset()
    assert rig.state.registers["LanesIngress.r0"].read(5) == 0
    assert len(rig.state.tables["LanesIngress.routes"]) == 0
    assert dict(rig.state.action_profiles["LanesIngress.ecmp"].members) == {}
    assert rig.send(frame(5, 1, np.ones(LANES, np.uint32))).frame is None


def test_states_of_one_program_are_apart(rig: PacketRig) -> None:
    other = rig.program.new_state()
    rig.send(frame(5, 1, np.ones(LANES, np.uint32)))
    assert rig.state.registers["LanesIngress.r9"].read(5) == 1
    assert other.registers["LanesIngress.r9"].read(5) == 0
