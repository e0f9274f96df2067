"""INT on the compiled program: data that a probe collects, limits on pushing, and a probe's way to the CPU."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.node_model import CPU_PORT, Tables
from weir.tests.p4src.small_fabric import PARENT, PARENT_PORT, STRANGER, STRANGER_PORT, SWITCH, WORKERS, packet, tables
from weir.wire import frames, int_md
from weir.wire.int_md import DOMAIN, Hop

ALL_KNOWN = int(int_md.SUPPORTED)
PORT_1_OUT = struct.pack("!H", 1 << 7)


def probe(destination: int = STRANGER, **options: Any) -> bytes:
    return int_md.probe_frame(
        **{"source": PARENT, "destination": destination, "source_mac": 1, "destination_mac": 2, **options}
    )


def path(frame: bytes) -> tuple[Hop, ...]:
    probes = int_md.parse_frames([frame])
    assert (probes.rejected, len(probes)) == (0, 1)
    return probes.path(0)


def raw_probe(words: int, bitmap: int, *, domain: int = DOMAIN, domain_bitmap: int = 0, behind: bytes = b"") -> bytes:
    """A probe whose header says what it likes. `behind` is its stack, in whole words."""
    body = struct.pack(
        "!BBHBBBBHHHH", 0x14, 3 + len(behind) // 4, 22342, 0x20, 0, words, 9, bitmap, domain, domain_bitmap, 0
    )
    return packet(body + behind, PARENT, STRANGER, destination_port=5000)


def pushed(frame: bytes) -> bytes:
    """Bytes that the switch put behind the INT header of a probe without a stack."""
    ((port, sent),) = EmulatedNode(tables()).forward(frame, PARENT_PORT, 5)
    assert port == STRANGER_PORT
    return sent[42 + 16 :]


def test_one_hop_says_all_it_can() -> None:
    node = EmulatedNode(tables())
    node.forward(packet(b"x" * 100, PARENT, STRANGER, destination_port=9), PARENT_PORT)
    ((port, sent),) = node.forward(probe(instructions=ALL_KNOWN), PARENT_PORT, now_us=1234)
    assert port == STRANGER_PORT
    hop = Hop(1, PARENT_PORT, STRANGER_PORT, 0, 1, 0, 1_234_000, 1_234_000, 142)
    assert path(sent) == (hop,)
    assert node.bytes_sent == {STRANGER_PORT: 142 + len(sent)}


def test_hops_stack_up_and_the_frame_stays_sound() -> None:
    frame = probe(remaining_hops=3, payload=b"tail")
    for hop in range(3):
        node = EmulatedNode(Tables(node_id=hop, routes=tables().routes))
        ((_, frame),) = node.forward(frame, PARENT_PORT)
    assert [hop.node_id for hop in path(frame)] == [0, 1, 2]
    _, rejects = frames.decapsulate(np.frombuffer(frame, np.uint8)[None])
    assert rejects.total == 0
    assert frame.endswith(b"tail")
    (probe_,) = int_md.parse_frames([frame]).records
    assert [probe_[name] for name in ("remaining_hops", "hop_limit_exceeded", "mtu_exceeded")] == [0, False, False]


def test_the_queue_is_the_packets_own_class() -> None:
    ((_, sent),) = EmulatedNode(tables()).forward(probe(dscp=48), PARENT_PORT)
    assert path(sent)[0].queue_id == 7


def test_a_node_without_a_name_says_so() -> None:
    nameless = tables()
    nameless.node_id = None
    ((_, sent),) = EmulatedNode(nameless).forward(probe(), PARENT_PORT)
    assert path(sent)[0].node_id is None


@pytest.mark.parametrize("bit", range(16))
def test_each_instruction_alone(bit: int) -> None:
    words = int_md.item_words(0x8000 >> bit)
    expected = {
        0: struct.pack("!I", 1),
        1: struct.pack("!HH", PARENT_PORT, STRANGER_PORT),
        2: bytes(4),
        3: struct.pack("!I", 1 << 24),
        4: struct.pack("!Q", 5000),
        5: struct.pack("!Q", 5000),
        7: bytes(4),  # nothing was sent in the window before
    }
    assert pushed(raw_probe(words, 0x8000 >> bit)) == expected.get(bit, b"\xff" * 4 * words)


@pytest.mark.parametrize("which", ["bits 0 to 7", "bits 8 to 15", "the domain's 0 to 7", "the domain's 8 to 15"])
def test_instructions_together_push_what_each_pushes_alone(which: str) -> None:
    """All instructions of a byte, one item behind the other; the port's byte count grows meanwhile."""
    node, sent = EmulatedNode(tables()), int(int_md.DomainInstruction.BYTES_SENT)

    def pushed_for(byte: int) -> bytes:
        bits = byte << 8 if which.endswith("7") else byte
        bitmap, domain_bitmap = (0, bits) if which.startswith("the") else (bits, 0)
        probe = raw_probe(int_md.hop_words(bitmap, domain_bitmap), bitmap, domain_bitmap=domain_bitmap)
        ((_, frame),) = node.forward(probe, PARENT_PORT, 5)
        return bytes(8) + frame[42 + 24 :] if domain_bitmap & sent else frame[42 + 16 :]

    alone = {1 << bit: pushed_for(1 << bit) for bit in reversed(range(8))}
    for byte in range(1, 256):
        assert pushed_for(byte) == b"".join(item for bit, item in alone.items() if byte & bit), f"{byte:#04x}"


def test_the_domains_items_come_before_the_checksum_complement() -> None:
    everything = pushed(raw_probe(12 + 6 + 2 + 11, 0xFFFF, domain_bitmap=0xFFE0))
    known = struct.pack("!IHHIIQQ", 1, PARENT_PORT, STRANGER_PORT, 0, 1 << 24, 5000, 5000)
    assert everything == known + b"\xff" * 8 + bytes(4) + b"\xff" * 4 * 7 + bytes(8) + b"\xff" * 4 * 11
    assert pushed(raw_probe(4, 0x8001, domain_bitmap=0x8000)) == struct.pack("!IQ", 1, 0) + b"\xff" * 4


@pytest.mark.parametrize(
    "frame",
    [
        raw_probe(3, 0xF000),
        raw_probe(5, 0xF000),
        raw_probe(0, 0),
        raw_probe(3, 0x8000, domain=77, domain_bitmap=0x8000),
        raw_probe(7, 0xF800, domain_bitmap=0x8000, behind=bytes(4 * 246)),
        raw_probe(1, 0x8000).replace(b"\x20\x00\x01\x09\x80", b"\x10\x00\x01\x09\x80"),
        raw_probe(2, 0x8000, domain=0, domain_bitmap=0x8000),
    ],
    ids=[
        "hop ML too small",
        "hop ML too large",
        "nothing asked",
        "another domain",
        "more than the shim can count",
        "version 1",
        "reserved instructions of the domain 0",
    ],
)
def test_a_layout_that_cannot_be_had_passes_untouched(frame: bytes) -> None:
    ((_, sent),) = EmulatedNode(tables()).forward(frame, PARENT_PORT)
    assert sent[42:] == frame[42:]


def test_another_domain_without_items_still_gets_the_baseline() -> None:
    assert pushed(raw_probe(1, 0x8000, domain=77)) == struct.pack("!I", 1)


def test_reserved_bits_are_ignored_and_left_as_they_are() -> None:
    """The shim's two, and the twelve of the header."""
    frame = bytearray(raw_probe(1, 0x8000))
    frame[42] |= 0x03
    frame[46:49] = bytes([0x21, 0xFF, 0xE0 | 1])
    ((_, sent),) = EmulatedNode(tables()).forward(bytes(frame), PARENT_PORT, 5)
    assert sent[42:] == frame[42:43] + b"\x04" + frame[44:49] + b"\x08" + frame[50:] + struct.pack("!I", 1)


def test_no_hops_left_sets_e() -> None:
    frame = probe(remaining_hops=0)
    ((_, sent),) = EmulatedNode(tables()).forward(frame, PARENT_PORT)
    probes = int_md.parse_frames([sent])
    assert [probes.records[name].tolist() for name in ("hop_limit_exceeded", "mtu_exceeded")] == [[True], [False]]
    assert probes.path(0) == ()
    assert len(sent) == len(frame)


@pytest.mark.parametrize(("spare", "fits"), [(24, True), (23, False)])
def test_the_mtu_sets_m(spare: int, fits: bool) -> None:
    payload = bytes(frames.MTU - 28 - 16 - spare)
    ((_, sent),) = EmulatedNode(tables()).forward(probe(payload=payload), PARENT_PORT)
    probes = int_md.parse_frames([sent])
    assert (probes.records["mtu_exceeded"].tolist(), len(probes.path(0))) == ([not fits], int(fits))
    assert int(probes.records["remaining_hops"][0]) == 16 - fits


def test_a_probe_for_the_switch_goes_to_the_cpu_as_it_came() -> None:
    frame = probe(SWITCH)
    assert EmulatedNode(tables()).forward(frame, 1) == [(CPU_PORT, PORT_1_OUT + frame)]


def test_a_sink_sends_the_finished_probe_to_the_cpu_instead() -> None:
    sinks = tables()
    sinks.sinks[STRANGER_PORT] = 5
    node = EmulatedNode(sinks)
    ((port, sent),) = node.forward(probe(), 1)
    assert (port, sent[:2]) == (CPU_PORT, PORT_1_OUT)
    assert [(hop.node_id, hop.egress_port) for hop in path(sent[2:])] == [(1, STRANGER_PORT)]
    assert node.bytes_sent == {}
    plain = packet(b"x", PARENT, STRANGER, destination_port=9)
    assert [port for port, _ in node.forward(plain, 1)] == [STRANGER_PORT]


def test_a_packet_out_probe_starts_at_its_first_switch() -> None:
    frame = struct.pack("!H", PARENT_PORT << 7) + probe(WORKERS[0])
    ((port, sent),) = EmulatedNode(tables()).forward(frame, CPU_PORT)
    assert port == PARENT_PORT
    assert [(hop.ingress_port, hop.egress_port) for hop in path(sent)] == [(CPU_PORT, PARENT_PORT)]


def test_bytes_sent_count_every_packet_that_leaves() -> None:
    node = EmulatedNode(tables())
    sent = []
    for size in (0, 10, 1000):
        sent += node.forward(packet(bytes(size), PARENT, STRANGER, destination_port=9), PARENT_PORT)
    arp = b"\xff" * 6 + bytes(6) + b"\x08\x06" + bytes(28)
    sent += node.forward(struct.pack("!H", STRANGER_PORT << 7) + arp, CPU_PORT)
    assert node.bytes_sent == {STRANGER_PORT: sum(len(frame) for _, frame in sent)}
    ((_, last),) = node.forward(probe(), PARENT_PORT)
    assert path(last)[0].bytes_sent == sum(len(frame) for _, frame in sent)
