"""Each row of the aggregation state machine and each reason to drop, on the compiled program."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from weir.emulator.entries import ActionCall
from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.node_model import Bound
from weir.tests.p4src.small_fabric import (
    GENERATION,
    INNER,
    LONE,
    MAC,
    OTHER_SWITCH,
    PARENT,
    PARENT_PORT,
    ROOT,
    SLOTS,
    STRANGER,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    contribution,
    host_mac,
    message,
    packet,
    tables,
)
from weir.wire import aggregation, frames
from weir.wire.aggregation import HEADER, HEADER_BYTES, LANES, MESSAGE_BYTES, MessageFlag, MessageType

CONTRIBUTION, RESULT = MessageType.CONTRIBUTION, MessageType.RESULT
SCALE, SCALE_RESULT = MessageType.SCALE, MessageType.SCALE_RESULT
PRESENT, DONE = MessageType.PRESENT, MessageType.DONE
ASK = int(MessageFlag.WANTED)
"""Children that say nothing else get DONE in place of a result."""
WIDTHS = pytest.mark.parametrize("width", [32, LANES])


@pytest.fixture
def node() -> EmulatedNode:
    return EmulatedNode(tables())


def dropped(node: EmulatedNode) -> dict[str, int]:
    return {reason: count for reason, count in node.drops.items() if count}


def read(frame: bytes, width: int = LANES) -> tuple[np.void, np.ndarray[Any, Any] | None]:
    """Header and lanes of a message, whose frame and checksums must be right."""
    received, rejects = frames.decapsulate(np.frombuffer(frame, np.uint8)[None])
    assert rejects.total == 0
    header = np.frombuffer(received.payload[:, :HEADER_BYTES].tobytes(), HEADER)
    assert aggregation.has_valid_checksum(header).all()
    size = received.payload.shape[1]
    if size == HEADER_BYTES:
        assert aggregation.is_well_formed(header, size).all()
        return header[0], None
    assert size == aggregation.message_bytes(width)
    assert aggregation.is_well_formed(header, MESSAGE_BYTES).all()
    return header[0], received.payload[0, HEADER_BYTES:].view(">i4")


def addresses(frame: bytes) -> tuple[int, int, int, int]:
    """Source and destination: MAC, then IPv4."""
    header = frames.frame_headers(np.frombuffer(frame, np.uint8)[None])[0]
    return (
        int.from_bytes(header["source_mac"].tobytes(), "big"),
        int.from_bytes(header["destination_mac"].tobytes(), "big"),
        int(header["ipv4"]["source"]),
        int(header["ipv4"]["destination"]),
    )


def lane_registers(node: EmulatedNode) -> np.ndarray[Any, Any]:
    """Content of all lanes of all slots: (256, slots)."""
    prefix = "FabricIngress.aggregation.lane_sums.lane_"
    return np.stack([node.state.registers[f"{prefix}{lane}"].values for lane in range(LANES)])


# --- the state machine ---


def test_the_last_child_completes_the_sum_for_the_parent(node: EmulatedNode) -> None:
    rng = np.random.default_rng(1)
    lanes = rng.integers(-(2**31), 2**31, (3, LANES))
    windows, exponents, flags, weights = (40, 12, 30), (120, 131, 125), (0, 2, 1), (2**32 - 1, 10, 20)
    sent = []
    for worker in (1, 0, 2):
        sent.append(
            node.forward(
                *contribution(
                    worker,
                    round_number=6,
                    lanes=lanes[worker],
                    window=windows[worker],
                    exponent=exponents[worker],
                    flags=flags[worker],
                    weight=weights[worker],
                )
            )
        )
    assert sent[:2] == [[], []]
    ((port, frame),) = sent[2]
    assert port == PARENT_PORT
    assert addresses(frame) == (MAC + PARENT_PORT, host_mac(PARENT), SWITCH, PARENT)
    header, total = read(frame)
    assert total is not None
    assert total.tolist() == lanes.astype(np.int32).sum(axis=0, dtype=np.int32).tolist()
    assert int(header["version_type"]) == 0x11
    assert int(header["tag"]) == aggregation.make_tag(GENERATION, 6)
    assert (int(header["contributors"]), int(header["slot"])) == (1 << 31, 2)
    assert (int(header["flags"]), int(header["window"]), int(header["exponent"])) == (3, 12, 131)
    assert int(header["weight"]) == 29
    assert int(header["check"]) == aggregation.linear_check(total[None], np.array([29]))[0]
    assert dropped(node) == {}


@pytest.mark.parametrize("ttl", [1, 2, 255])
@pytest.mark.parametrize(("job", "left"), [(INNER, frames.DEFAULT_TTL - 1), (ROOT, frames.DEFAULT_TTL)])
def test_a_nodes_message_is_a_new_packet_after_old_contributions(
    node: EmulatedNode, job: int, left: int, ttl: int
) -> None:
    """Towards the parent it is routed, which counts."""
    for worker in range(3):
        frame, port = contribution(worker, job=job)
        payload = frame[frames.FRAME_HEADER_BYTES :]
        sent = node.forward(packet(payload, WORKERS[worker], ttl=ttl), port)
    assert sent
    for _, frame in sent:
        header = frames.frame_headers(np.frombuffer(frame, np.uint8)[None])[0]
        assert int(header["ipv4"]["ttl"]) == left
    assert dropped(node) == {}


def test_a_switch_root_sends_the_result_to_every_child(node: EmulatedNode) -> None:
    for worker in range(3):
        sent = node.forward(*contribution(worker, job=ROOT, lanes=10**worker))
    assert sorted(port for port, _ in sent) == [0, 1, 2]
    for port, frame in sent:
        assert addresses(frame) == (MAC + port, host_mac(WORKERS[port]), SWITCH, WORKERS[port])
        header, total = read(frame)
        assert total is not None
        assert (int(header["version_type"]), int(header["contributors"])) == (0x12, 0)
        assert total.tolist() == [111] * LANES


def test_a_lone_child_is_answered_at_once(node: EmulatedNode) -> None:
    ((port, frame),) = node.forward(*contribution(0, job=LONE, lanes=5))
    header, total = read(frame)
    assert total is not None
    assert (port, int(header["version_type"]), total.tolist()) == (0, 0x12, [5] * LANES)


def test_a_repeated_contribution_to_a_complete_round_is_answered(node: EmulatedNode) -> None:
    for worker in range(3):
        first = node.forward(*contribution(worker, lanes=worker + 1, window=20 + worker))
    again = node.forward(*contribution(1, lanes=99, window=1, weight=7, exponent=255))
    assert again == first
    ((_, frame),) = node.forward(*contribution(1, lanes=99, flags=2 | ASK))
    assert int(read(frame)[0]["flags"]) == 2 | ASK  # the answer to a repeated request has this flag
    assert dropped(node) == {}


def test_a_root_answers_a_repeat_to_the_asking_child_alone(node: EmulatedNode) -> None:
    for worker in range(3):
        first = dict(node.forward(*contribution(worker, job=ROOT, lanes=worker + 1)))
    ((port, frame),) = node.forward(*contribution(1, job=ROOT, lanes=2, flags=2 | ASK))
    assert port == 1
    assert addresses(frame) == addresses(first[1])
    header, total = read(frame)
    assert total is not None
    assert (int(header["version_type"]), total.tolist()) == (0x12, [6] * LANES)


def test_a_repeat_before_completion_is_a_duplicate(node: EmulatedNode) -> None:
    node.forward(*contribution(0, lanes=1))
    assert node.forward(*contribution(0, lanes=1)) == []
    assert dropped(node) == {"duplicate": 1}
    node.forward(*contribution(1, lanes=1))
    ((_, frame),) = node.forward(*contribution(2, lanes=1))
    assert set(read(frame)[1].tolist()) == {3}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("held", "packet_", "reason"),
    [
        ((GENERATION, 1), (GENERATION, 5), ""),
        ((GENERATION, 5), (GENERATION, 1), "late"),
        ((GENERATION, 2**24 - 3), (GENERATION, 1), ""),  # across the wrap of chunks
        ((GENERATION, 1), (GENERATION, 2**24 - 3), "late"),
        ((GENERATION, 1), (GENERATION, 2**23 + 1), "late"),  # half the circle is behind
        ((GENERATION, 1), (GENERATION, 2**23 - 3), "out_of_window"),  # and less of it further than anybody can be
        ((GENERATION, 1), (GENERATION, 9), "out_of_window"),
        ((GENERATION, 2**24 - 3), (GENERATION, 5), "out_of_window"),
        ((GENERATION, 5), (GENERATION + 1, 1), ""),  # a later generation, whatever its chunk
        ((GENERATION, 5), (GENERATION + 1, 2**23 + 1), ""),
        ((GENERATION + 3, 5), (GENERATION, 1), ""),  # one that comes after all others have come and gone
    ],
)
def test_the_next_round_takes_the_slot_and_others_are_dropped(
    node: EmulatedNode, held: tuple[int, int], packet_: tuple[int, int], reason: str
) -> None:
    newer = not reason

    def send(worker: int, tag: tuple[int, int], value: int) -> list[tuple[int, bytes]]:
        return node.forward(*contribution(worker, generation=tag[0], round_number=tag[1], slot=1, lanes=value))

    assert send(0, held, 1) == []
    assert send(1, packet_, 10) == []
    assert dropped(node) == ({reason: 1} if reason else {})
    survivor, values = (packet_, {111}) if newer else (held, {111})
    first = 0 if newer else 1
    send(first, survivor, 1 if newer else 10)
    ((_, frame),) = send(2, survivor, 100)
    header, total = read(frame)
    assert int(header["tag"]) == aggregation.make_tag(*survivor)
    assert set(total.tolist()) == values  # type: ignore[union-attr]


def test_another_jobs_slot_is_restarted_whatever_its_tag() -> None:
    shared = tables()
    shared.jobs[ROOT, GENERATION] = shared.jobs[ROOT, GENERATION]._replace(slot_base=0)
    node = EmulatedNode(shared)
    node.forward(*contribution(0, round_number=8, lanes=1))
    for worker in range(3):
        sent = node.forward(*contribution(worker, job=ROOT, round_number=4, lanes=5))
    assert {tuple(set(read(frame)[1].tolist())) for _, frame in sent} == {(15,)}  # type: ignore[union-attr]
    assert dropped(node) == {}


def test_a_scale_round_reduces_the_header_and_not_the_lanes(node: EmulatedNode) -> None:
    for worker in range(2):
        node.forward(*contribution(worker, round_number=0, lanes=7))
    before = lane_registers(node)
    assert np.any(before)
    for worker in range(3):
        sent = node.forward(*contribution(worker, SCALE, job=ROOT, exponent=100 + worker, weight=1))
    assert len(sent) == 3
    for _, frame in sent:
        header, lanes = read(frame)
        assert lanes is None
        assert (int(header["version_type"]), int(header["exponent"]), int(header["weight"])) == (0x14, 102, 3)
    assert np.array_equal(before, lane_registers(node))


@WIDTHS
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_present_counts_as_a_contribution_of_zeros(node: EmulatedNode, order: tuple[int, ...], width: int) -> None:
    """Worker 0 adds lanes, to the second round of a slot whose first left some there."""
    lanes, units = np.arange(width) + 1, aggregation.present_width(width)
    for number, adding in ((1, (0, 1, 2)), (1 + SLOTS, (0,))):
        for job in (INNER, ROOT):
            for worker in order:
                kind = CONTRIBUTION if worker in adding else PRESENT
                fields = {"lanes": lanes, "flags": 4 | ASK} if worker in adding else {"reserved": units, "flags": ASK}
                sent = node.forward(
                    *contribution(worker, kind, job=job, round_number=number, width=width, weight=worker, **fields)
                )
            assert len(sent) == (3 if job == ROOT else 1)
            for _, frame in sent:
                header, total = read(frame, width)
                assert total is not None
                assert total.tolist() == (len(adding) * lanes).tolist()
                assert header["version_type"] == (0x12 if job == ROOT else 0x11)
                assert (int(header["reserved"]), int(header["flags"]), int(header["weight"])) == (0, 4 | ASK, 3)
    (again,) = node.forward(*contribution(1, PRESENT, round_number=1 + SLOTS, reserved=units, flags=2))
    header, total = read(again[1], width)
    assert total is not None
    assert (total.tolist(), int(header["flags"])) == (lanes.tolist(), 6 | ASK)
    assert dropped(node) == {}


@WIDTHS
def test_present_of_all_children_goes_up_and_returns_with_lanes(node: EmulatedNode, width: int) -> None:
    units = aggregation.present_width(width)
    for worker in range(3):
        fields = {"round_number": 1, "reserved": units, "flags": ASK}
        up = node.forward(*contribution(worker, PRESENT, exponent=worker, **fields))
        down = node.forward(*contribution(worker, PRESENT, job=ROOT, **fields))
    ((port, frame),) = up
    header, lanes = read(frame)
    assert (port, lanes, int(header["version_type"])) == (PARENT_PORT, None, 0x18)
    assert (int(header["reserved"]), int(header["contributors"]), int(header["exponent"])) == (units, 1 << 31, 2)
    assert len(down) == 3
    for _, frame in down:
        header, lanes = read(frame, width)
        assert lanes is not None
        assert (int(header["version_type"]), int(header["reserved"]), bool(lanes.any())) == (0x12, 0, False)


@WIDTHS
def test_a_switch_counts_the_bytes_that_present_grows_by(node: EmulatedNode, width: int) -> None:
    fields = {"job": ROOT, "reserved": aggregation.present_width(width), "flags": ASK}
    for worker in range(3):
        sent = node.forward(*contribution(worker, PRESENT, **fields))
    assert [len(frame) for _, frame in sent] == [frames.FRAME_HEADER_BYTES + aggregation.message_bytes(width)] * 3
    assert {node.bytes_sent[port] for port, _ in sent} == {len(frame) for _, frame in sent}


def test_a_width_without_an_entry_is_malformed() -> None:
    """The rule of simple_switch, where a packet cannot grow by 256 lanes."""
    narrow = tables()
    narrow.widths = {1: 32}
    node = EmulatedNode(narrow)
    for worker, reserved in ((0, aggregation.present_width(LANES)), (1, 1)):
        assert node.forward(*contribution(worker, PRESENT, job=ROOT, reserved=reserved)) == []
    assert dropped(node) == {"malformed": 1}
    assert node.slot(SLOTS).contributors == 2


def test_rounds_in_different_slots_do_not_meet(node: EmulatedNode) -> None:
    for round_number in range(SLOTS):
        for worker in range(2):
            node.forward(*contribution(worker, round_number=round_number, lanes=10**round_number))
    for round_number in range(SLOTS):
        ((_, frame),) = node.forward(*contribution(2, round_number=round_number, lanes=10**round_number))
        assert set(read(frame)[1].tolist()) == {3 * 10**round_number}  # type: ignore[union-attr]


def test_the_last_slot_of_the_switch_can_be_used() -> None:
    full = tables()
    full.jobs[ROOT, GENERATION] = full.jobs[ROOT, GENERATION]._replace(slot_base=1020)
    node = EmulatedNode(full)
    for worker in range(3):
        sent = node.forward(*contribution(worker, job=ROOT, round_number=3, lanes=1))
    assert {tuple(set(read(frame)[1].tolist())) for _, frame in sent} == {(3,)}  # type: ignore[union-attr]


# --- results on their way down ---


@pytest.mark.parametrize("kind", [RESULT, SCALE_RESULT])
def test_the_parents_result_goes_to_every_child_unchanged(node: EmulatedNode, kind: MessageType) -> None:
    payload = message(kind, round_number=3, lanes=np.arange(LANES), window=9, exponent=3, weight=30)
    sent = node.forward(packet(payload, PARENT, ttl=1), PARENT_PORT)
    assert sorted(port for port, _ in sent) == [0, 1, 2]
    for port, frame in sent:
        assert addresses(frame) == (MAC + port, host_mac(WORKERS[port]), SWITCH, WORKERS[port])
        assert frame[42:] == payload
    assert not np.any(node.state.registers["FabricIngress.aggregation.slot_round"].values)


def test_a_replica_without_an_address_ends() -> None:
    incomplete = tables()
    del incomplete.replicas[101]
    sent = EmulatedNode(incomplete).forward(packet(message(RESULT), PARENT), PARENT_PORT)
    assert sorted(port for port, _ in sent) == [0, 2]


# --- reasons to drop ---

GOOD, _ = contribution(0)


def wrong_length(kind: MessageType, extra: int) -> bytes:
    payload = message(kind, contributors=1)
    return packet(payload + bytes(extra) if extra > 0 else payload[:extra], WORKERS[0])


def first_byte(value: int) -> bytes:
    return packet(message(contributors=1, version_type=value), WORKERS[0])


BAD: dict[str, tuple[str, bytes, int]] = {
    "cut in Ethernet": ("truncated", GOOD[:10], 0),
    "cut behind Ethernet": ("truncated", GOOD[:14], 0),
    "cut in IPv4": ("truncated", GOOD[:20], 0),
    "cut in UDP": ("truncated", GOOD[:40], 0),
    "cut in the aggregation header": ("truncated", GOOD[:60], 0),
    "cut in the lanes": ("truncated", GOOD[:-1], 0),
    "version 0": ("malformed", first_byte(0x01), 0),
    "version 2": ("malformed", first_byte(0x21), 0),
    "type 0": ("malformed", first_byte(0x10), 0),
    "type 10": ("malformed", first_byte(0x1A), 0),
    "PRESENT with lanes": ("malformed", first_byte(0x18), 0),
    "PRESENT of no width": ("malformed", contribution(0, PRESENT, job=ROOT)[0], 0),
    "PRESENT of a width that no job has": ("malformed", contribution(0, PRESENT, job=ROOT, reserved=2)[0], 0),
    "PRESENT of too many lanes": ("malformed", contribution(0, PRESENT, job=ROOT, reserved=9)[0], 0),
    "PRESENT of another job": ("unknown_job", contribution(0, PRESENT, job=77, reserved=1)[0], 0),
    "DONE with lanes": ("malformed", first_byte(0x19), 0),
    "DONE from a worker": ("not_parent", packet(message(DONE), WORKERS[0]), 0),
    "DONE at another port": ("not_parent", packet(message(DONE), PARENT), 1),
    "DONE of an older generation": ("not_parent", packet(message(DONE, generation=4), PARENT), PARENT_PORT),
    "DONE for a job with its root here": ("not_parent", packet(message(DONE, job=ROOT), PARENT), PARENT_PORT),
    "DONE of no job": ("not_parent", packet(message(DONE, job=77), PARENT), PARENT_PORT),
    "scale with lanes": ("malformed", first_byte(0x13), 0),
    "contribution too long": ("malformed", wrong_length(CONTRIBUTION, 4), 0),
    "contribution too short": ("malformed", wrong_length(CONTRIBUTION, -4), 0),
    "scale too long": ("malformed", wrong_length(SCALE, 1), 0),
    "header checksum": ("bad_checksum", packet(message(contributors=1, bad_checksum=True), WORKERS[0]), 0),
    "header checksum in transit": (
        "bad_checksum",
        packet(message(contributors=1, bad_checksum=True), WORKERS[0], OTHER_SWITCH),
        0,
    ),
    "IPv4 checksum": ("bad_checksum", GOOD[:24] + b"\0\0" + GOOD[26:], 0),
    "ARP": ("not_ipv4", GOOD[:12] + b"\x08\x06" + GOOD[14:], 0),
    "IPv4 options": ("not_ipv4", GOOD[:14] + b"\x46" + GOOD[15:], 0),
    "TTL 1 in transit": ("ttl_expired", packet(b"x", STRANGER, WORKERS[0], destination_port=9, ttl=1), STRANGER_PORT),
    "TTL 0 in transit": ("ttl_expired", packet(b"x", STRANGER, WORKERS[0], destination_port=9, ttl=0), STRANGER_PORT),
    "no route": ("no_route", packet(b"x", STRANGER, 0x01020304, destination_port=9), STRANGER_PORT),
    "another UDP port": ("no_service", packet(b"x", STRANGER, destination_port=9), STRANGER_PORT),
    "INT of another type": (
        "no_service",
        packet(b"\x34\x03\x57\x46" + bytes(12), STRANGER, destination_port=5000),
        STRANGER_PORT,
    ),
    "FETCH": ("no_service", packet(message(MessageType.FETCH), WORKERS[0]), 0),
    "FETCHED": ("no_service", packet(message(MessageType.FETCHED), WORKERS[0]), 0),
    "SCALE_FETCHED": ("no_service", packet(message(MessageType.SCALE_FETCHED), WORKERS[0]), 0),
    "another job": ("unknown_job", contribution(0, job=77)[0], 0),
    "an older generation": ("unknown_job", contribution(0, generation=GENERATION - 1)[0], 0),
    "another child's bit": ("not_member", contribution(0, contributors=2)[0], 0),
    "two bits": ("not_member", contribution(0, contributors=3)[0], 0),
    "another port": ("not_member", GOOD, 1),
    "another source": ("not_member", packet(message(contributors=1), WORKERS[1]), 0),
    "a result from a worker": ("not_parent", packet(message(RESULT), WORKERS[0]), 0),
    "a result at another port": ("not_parent", packet(message(RESULT), PARENT), 1),
    "a result of no job": ("not_parent", packet(message(RESULT, job=77), PARENT), PARENT_PORT),
    "a result of an older generation": ("not_parent", packet(message(RESULT, generation=4), PARENT), PARENT_PORT),
    "a result for a job with its root here": ("not_parent", packet(message(RESULT, job=ROOT), PARENT), PARENT_PORT),
    "slot S": ("bad_slot", contribution(0, slot=SLOTS)[0], 0),
    "slot 65535": ("bad_slot", contribution(0, slot=0xFFFF)[0], 0),
    "another source port": ("foreign_port", packet(message(contributors=1), WORKERS[0], source_port=22342), 0),
    "the slot's round after the next": ("out_of_window", contribution(0, job=ROOT, round_number=2 * SLOTS)[0], 0),
    "a round far ahead": ("out_of_window", contribution(0, job=ROOT, round_number=(1 << 23) - SLOTS)[0], 0),
    "a later round of another slot": ("out_of_window", contribution(0, job=ROOT, round_number=1, slot=0)[0], 0),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_packets_are_counted_once_and_change_nothing(node: EmulatedNode, what: str) -> None:
    reason, frame, port = BAD[what]
    for worker in (0, 1):
        node.forward(*contribution(worker, job=ROOT, lanes=1))
    assert node.forward(frame, port) == []
    assert dropped(node) == {reason: 1}
    assert len(node.forward(*contribution(2, job=ROOT, lanes=1))) == 3


# --- routing ---


def test_plain_packets_are_routed_with_one_hop_less(node: EmulatedNode) -> None:
    frame = packet(b"hello", WORKERS[0], STRANGER, destination_port=9, ttl=2, dscp=48)
    ((port, sent),) = node.forward(frame, 0)
    assert port == STRANGER_PORT
    assert sent == packet(
        b"hello",
        WORKERS[0],
        STRANGER,
        destination_port=9,
        ttl=1,
        dscp=48,
        source_mac=MAC + STRANGER_PORT,
        destination_mac=host_mac(STRANGER),
    )


def test_the_longest_prefix_wins_and_messages_for_others_pass(node: EmulatedNode) -> None:
    payload = message(contributors=1, lanes=3)
    ((port, sent),) = node.forward(packet(payload, WORKERS[0], OTHER_SWITCH), 0)
    assert (port, sent[42:]) == (PARENT_PORT, payload)
    node.route(OTHER_SWITCH, 32, ActionCall("FabricIngress.routing.forward", (STRANGER_PORT, MAC, MAC)))
    assert [port for port, _ in node.forward(packet(payload, WORKERS[0], OTHER_SWITCH), 0)] == [STRANGER_PORT]


def test_flows_spread_over_equal_cost_paths_and_stay_on_theirs(node: EmulatedNode) -> None:
    ports = (4, 5, 6, 7)
    forwards = [ActionCall("FabricIngress.routing.forward", (port, MAC, MAC)) for port in ports]
    node.route(0x0B000000, 8, *forwards)

    def path(source_port: int) -> int:
        frame = packet(b"x", WORKERS[0], 0x0B010203, source_port=source_port, destination_port=9)
        ((port, _),) = node.forward(frame, 0)
        return port

    taken = [path(source_port) for source_port in range(200)]
    assert taken == [path(source_port) for source_port in range(200)]
    assert all(taken.count(port) > 20 for port in ports)


def test_a_packet_out_leaves_as_it_is(node: EmulatedNode) -> None:
    arp = b"\xff" * 6 + bytes(6) + b"\x08\x06" + bytes(28)
    assert node.forward((11 << 7).to_bytes(2, "big") + arp, 510) == [(11, arp)]
    frame = packet(b"x", STRANGER, 0x01020304, destination_port=9, ttl=1)
    assert node.forward((3 << 7).to_bytes(2, "big") + frame, 510) == [(3, frame)]


# --- marking ---


def marked(threshold: int, payload: bytes, **options: int) -> bytes:
    """Frame towards STRANGER through a port whose queue is bounded and empty."""
    bounded = tables()
    bounded.marking[STRANGER_PORT] = Bound(threshold, window=25, congested_window=25)
    frame = packet(payload, WORKERS[0], STRANGER, **options)
    ((port, sent),) = EmulatedNode(bounded).forward(frame, 0)
    assert port == STRANGER_PORT
    return sent


@pytest.mark.parametrize(("threshold", "flags"), [(0, 3), (1, 2)])
@pytest.mark.parametrize(("window", "expected"), [(0xFFFF, 25), (26, 25), (25, 25), (24, 24)])
def test_marking_sets_the_flag_at_the_threshold_and_the_window(
    threshold: int, flags: int, window: int, expected: int
) -> None:
    header, _ = read(marked(threshold, message(lanes=1, window=window, flags=2)))
    assert (int(header["flags"]), int(header["window"])) == (flags, expected)


@pytest.mark.parametrize(("ecn", "expected"), [(0, 0), (1, 3), (2, 3), (3, 3)])
@pytest.mark.parametrize("threshold", [0, 1])
def test_marking_sets_congestion_experienced_if_ecn_capable(threshold: int, ecn: int, expected: int) -> None:
    # DSCP and ECN share a byte: a fraction of a DSCP would be ECN, so the byte is set behind the codec's back
    bounded = tables()
    bounded.marking[STRANGER_PORT] = Bound(threshold, window=25, congested_window=25)
    frame = bytearray(packet(b"x", WORKERS[0], STRANGER, destination_port=9))
    frame[15] |= ecn
    frame[24:26] = bytes(2)
    headers = frames.frame_headers(np.frombuffer(bytes(frame), np.uint8)[None])
    frame[24:26] = int(frames.ipv4_checksum(headers["ipv4"])[0]).to_bytes(2, "big")
    ((_, sent),) = EmulatedNode(bounded).forward(bytes(frame), 0)
    assert sent[15] & 3 == (expected if threshold == 0 else ecn)


def test_the_control_class_is_not_marked() -> None:
    header, _ = read(marked(0, message(lanes=1), dscp=48))
    assert (int(header["flags"]), int(header["window"])) == (0, 0xFFFF)


def test_replicas_are_marked_each_by_its_own_port() -> None:
    bounded = tables()
    bounded.marking = {1: Bound(0, window=40, congested_window=20), 2: Bound(1, window=30, congested_window=3)}
    sent = EmulatedNode(bounded).forward(packet(message(RESULT, lanes=1), PARENT), PARENT_PORT)
    seen = {port: (int(read(frame)[0]["flags"]), int(read(frame)[0]["window"])) for port, frame in sent}
    assert seen == {0: (0, 0xFFFF), 1: (1, 20), 2: (0, 30)}
