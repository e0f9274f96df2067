"""DONE on the compiled program: results without lanes for children below which no worker wants them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.node_model import Bound
from weir.tests.p4src.queued_node import QueuedNode
from weir.tests.p4src.small_fabric import (
    GENERATION,
    INNER,
    LONE,
    PARENT,
    PARENT_PORT,
    ROOT,
    SLOTS,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    contribution,
    message,
    packet,
    tables,
)
from weir.wire import aggregation, frames, int_md
from weir.wire.aggregation import HEADER, HEADER_BYTES, LANES, MessageFlag, MessageType, message_bytes, present_width
from weir.wire.frames import FRAME_HEADER_BYTES
from weir.wire.int_messages import link_request

CONTRIBUTION, RESULT, PRESENT, DONE = (
    MessageType.CONTRIBUTION,
    MessageType.RESULT,
    MessageType.PRESENT,
    MessageType.DONE,
)
SCALE, SCALE_RESULT = MessageType.SCALE, MessageType.SCALE_RESULT
REPEATED, ADDED, WANTED = (int(flag) for flag in (MessageFlag.RETRANSMISSION, MessageFlag.LANES, MessageFlag.WANTED))
WIDTHS = pytest.mark.parametrize("width", [32, LANES])
CHILDREN = (0, 1, 2)
SUBSETS = [tuple(child for child in CHILDREN if mask >> child & 1) for mask in range(8)]


@pytest.fixture
def node() -> EmulatedNode:
    return EmulatedNode(tables())


def sent_by(worker: int, wanting: Iterable[int], width: int, *, adds: bool = True, **fields: Any) -> tuple[bytes, int]:
    """A worker's contribution with lanes of its number plus one, or PRESENT."""
    flags = fields.pop("flags", 0) | (WANTED if worker in wanting else 0) | (ADDED if adds else 0)
    kind = CONTRIBUTION if adds else PRESENT
    more = {"lanes": worker + 1, "width": width} if adds else {"reserved": present_width(width)}
    return contribution(worker, kind, **{"flags": flags, "weight": 5, **more, **fields})


def complete(node: EmulatedNode, wanting: Iterable[int], width: int, **fields: Any) -> list[tuple[int, bytes]]:
    """All three contributions of a round; what leaves with the last."""
    for worker in CHILDREN:
        sent = node.forward(*sent_by(worker, wanting, width, **fields))
    return sent


def kinds(sent: Iterable[tuple[int, bytes]]) -> dict[int, MessageType]:
    """Type of the message at each port, whose frame must be sound and as long as its headers say."""
    found = {}
    for port, frame in sent:
        received, rejects = frames.decapsulate(np.frombuffer(frame, np.uint8)[None])
        assert rejects.total == 0
        header = np.frombuffer(received.payload[:, :HEADER_BYTES].tobytes(), HEADER)
        assert aggregation.has_valid_checksum(header).all()
        kind = MessageType(int(header["version_type"][0]) & 15)
        assert int.from_bytes(frame[16:18]) == len(frame) - frames.ETHERNET_BYTES
        assert int.from_bytes(frame[38:40]) == len(frame) - frames.ETHERNET_BYTES - frames.IPV4_BYTES
        if not kind.has_lanes:
            assert received.payload.shape[1] == HEADER_BYTES
        assert port not in found
        found[port] = kind
    return found


def by_child(wanting: Iterable[int]) -> dict[int, MessageType]:
    wanting = tuple(wanting)
    return {child: RESULT if child in wanting else DONE for child in CHILDREN}


def result(width: int, kind: MessageType = RESULT, **fields: Any) -> tuple[bytes, int]:
    """The parent's result of a round, and the port that it arrives at."""
    fields = {"width": width, "lanes": 6, "weight": 15, "flags": ADDED | WANTED, **fields}
    return packet(message(kind, **fields), PARENT), PARENT_PORT


def dropped(node: EmulatedNode) -> dict[str, int]:
    return {reason: count for reason, count in node.drops.items() if count}


@WIDTHS
@pytest.mark.parametrize("wanting", SUBSETS, ids=str)
@pytest.mark.parametrize("adding", [CHILDREN, (0, 1), (2,), ()], ids=str)
def test_a_root_sends_lanes_to_those_that_want_them(
    node: EmulatedNode, wanting: tuple[int, ...], adding: tuple[int, ...], width: int
) -> None:
    """The second round of a slot, whose first one all want; worker 2 completes it, by PRESENT or with lanes."""
    assert kinds(complete(node, CHILDREN, width, job=ROOT)) == by_child(CHILDREN)
    for worker in CHILDREN:
        sent = node.forward(*sent_by(worker, wanting, width, adds=worker in adding, job=ROOT, round_number=SLOTS))
    assert kinds(sent) == by_child(wanting)
    assert node.slot(SLOTS).wanting == sum(1 << child for child in wanting)
    total = sum(worker + 1 for worker in adding)
    headers = [np.frombuffer(frame, HEADER, 1, FRAME_HEADER_BYTES).copy() for _, frame in sent]
    for (port, frame), header in zip(sent, headers, strict=True):
        if port in wanting:
            assert len(frame) == FRAME_HEADER_BYTES + message_bytes(width)
            assert np.frombuffer(frame, ">i4", offset=FRAME_HEADER_BYTES + HEADER_BYTES).tolist() == [total] * width
        assert (int(header["weight"][0]), int(header["reserved"][0])) == (15, 0)
        header["version_type"] = header["checksum"] = 0
    assert all(header == headers[0] for header in headers), "but for its type DONE says what the result does"
    assert dropped(node) == {}


@pytest.mark.parametrize("wanting", [(), (1,), CHILDREN], ids=str)
def test_scale_results_go_to_all(node: EmulatedNode, wanting: tuple[int, ...]) -> None:
    """Their contributions say nothing of lanes."""
    for round_number in (0, 1):
        for worker in CHILDREN:
            flags = WANTED if worker in wanting else 0
            sent = node.forward(*contribution(worker, SCALE, job=ROOT, round_number=round_number, flags=flags))
        assert kinds(sent) == dict.fromkeys(CHILDREN, SCALE_RESULT)
    (again,) = node.forward(*contribution(1, SCALE, job=ROOT, round_number=1, flags=REPEATED))
    assert kinds([again]) == {1: SCALE_RESULT}
    node.forward(*contribution(0, SCALE, flags=0))
    assert kinds(node.forward(*result(32, SCALE_RESULT, flags=0))) == dict.fromkeys(CHILDREN, SCALE_RESULT)


@WIDTHS
@pytest.mark.parametrize("adds", [True, False], ids=["lanes", "PRESENT"])
@pytest.mark.parametrize("wanting", [(), (0,), (1,), CHILDREN], ids=str)
def test_who_asks_again_is_answered_by_its_own_word(
    node: EmulatedNode, wanting: tuple[int, ...], adds: bool, width: int
) -> None:
    complete(node, wanting, width, job=ROOT)
    (again,) = node.forward(*sent_by(1, wanting, width, adds=adds, job=ROOT, flags=REPEATED))
    assert kinds([again]) == {1: RESULT if 1 in wanting else DONE}
    header = np.frombuffer(again[1], HEADER, 1, FRAME_HEADER_BYTES)[0]
    flags = REPEATED | ADDED | (WANTED if wanting else 0)
    assert (int(header["flags"]), int(header["weight"]), int(header["reserved"])) == (flags, 15, 0)
    assert int(header["contributors"]) == 0


def test_a_lone_child_that_wants_nothing_gets_done(node: EmulatedNode) -> None:
    assert kinds(node.forward(*sent_by(0, (), LANES, job=LONE))) == {0: DONE}


def test_refused_contributions_want_nothing(node: EmulatedNode) -> None:
    """A duplicate, a late one and one from nowhere, all with the flag."""
    for worker in (0, 1):
        node.forward(*sent_by(worker, (), 32, job=ROOT, round_number=SLOTS))
    for refused in (
        sent_by(0, CHILDREN, 32, job=ROOT, round_number=SLOTS),
        sent_by(1, CHILDREN, 32, job=ROOT),
        sent_by(1, CHILDREN, 32, job=ROOT, round_number=9 * SLOTS),
    ):
        assert node.forward(*refused) == []
    assert node.slot(SLOTS).wanting == 0
    assert dropped(node) == {"duplicate": 1, "late": 1, "out_of_window": 1}
    assert kinds(node.forward(*sent_by(2, (2,), 32, job=ROOT, round_number=SLOTS))) == by_child((2,))


# --- results on their way down ---


@WIDTHS
@pytest.mark.parametrize("wanting", SUBSETS, ids=str)
def test_an_inner_node_prunes_its_parents_results(node: EmulatedNode, wanting: tuple[int, ...], width: int) -> None:
    ((port, up),) = complete(node, wanting, width, round_number=1)
    header = np.frombuffer(up, HEADER, 1, FRAME_HEADER_BYTES)[0]
    assert (port, int(header["flags"])) == (PARENT_PORT, ADDED | (WANTED if wanting else 0))
    for _ in range(2):  # copies are treated alike
        frame, at = result(width, round_number=1)
        sent = node.forward(frame, at)
        assert kinds(sent) == by_child(wanting)
        for port, each in sent:
            if port in wanting:
                assert each[FRAME_HEADER_BYTES:] == frame[FRAME_HEADER_BYTES:]
    assert dropped(node) == {}


@pytest.mark.parametrize("wanting", [(), (0, 2), CHILDREN], ids=str)
def test_the_parents_done_goes_to_every_child(node: EmulatedNode, wanting: tuple[int, ...]) -> None:
    complete(node, wanting, 32, round_number=1)
    for round_number in (1, 2):  # the slot's, and one of an empty slot
        frame, at = result(32, DONE, round_number=round_number, flags=0)
        sent = node.forward(frame, at)
        assert kinds(sent) == dict.fromkeys(CHILDREN, DONE)
        assert {each[FRAME_HEADER_BYTES:] for _, each in sent} == {frame[FRAME_HEADER_BYTES:]}


def test_a_repeated_request_goes_up_with_the_wants_of_all(node: EmulatedNode) -> None:
    """The child that asks wants nothing, and another did: the answer has lanes, for that one alone."""
    complete(node, (0,), 32, round_number=1)
    ((_, up),) = node.forward(*sent_by(1, (), 32, round_number=1, flags=REPEATED))
    flags = int(np.frombuffer(up, HEADER, 1, FRAME_HEADER_BYTES)["flags"][0])
    assert flags == REPEATED | ADDED | WANTED
    assert kinds(node.forward(*result(32, round_number=1))) == by_child((0,))


@pytest.mark.parametrize(
    "fields",
    [
        *({"round_number": number} for number in (1, 2, 1 + 2 * SLOTS)),
        {"generation": GENERATION + 1},
        *({"slot": slot} for slot in (SLOTS, 0xFFFF)),
    ],
    ids=str,
)
def test_results_of_rounds_that_no_slot_holds_keep_their_lanes(node: EmulatedNode, fields: dict[str, Any]) -> None:
    """The slot has moved on to a round that nobody wants, or never held the result's."""
    for round_number in (1, 1 + SLOTS):
        complete(node, (), 32, round_number=round_number)
    sent = node.forward(*result(32, **{"round_number": 1 + SLOTS, **fields}))
    assert kinds(sent) == dict.fromkeys(CHILDREN, RESULT)
    assert kinds(node.forward(*result(32, round_number=1 + SLOTS))) == dict.fromkeys(CHILDREN, DONE)


def test_another_jobs_round_in_the_slot_prunes_nothing() -> None:
    shared = tables()
    shared.jobs[ROOT, GENERATION] = shared.jobs[ROOT, GENERATION]._replace(slot_base=0)
    node = EmulatedNode(shared)
    complete(node, (), 32, job=ROOT, round_number=1)
    assert kinds(node.forward(*result(32, round_number=1))) == dict.fromkeys(CHILDREN, RESULT)


def test_a_result_of_a_job_that_has_left_is_of_no_job() -> None:
    """Its parent is still known, and its slots are not."""
    leaving = tables()
    del leaving.jobs[INNER, GENERATION]
    node = EmulatedNode(leaving)
    assert node.forward(*result(32)) == []
    assert dropped(node) == {"unknown_job": 1}


def test_messages_for_others_keep_their_lanes(node: EmulatedNode) -> None:
    """A result that is routed, as a parameter server's to a worker whose parent it is."""
    frame = packet(message(RESULT, flags=0), PARENT, WORKERS[0])
    ((port, sent),) = node.forward(frame, PARENT_PORT)
    assert (port, sent[FRAME_HEADER_BYTES:]) == (0, frame[FRAME_HEADER_BYTES:])


# --- what else egress does ---


def with_int(payload: bytes, hops: int = 9) -> bytes:
    """A message from the parent, behind INT that each node extends."""
    request = link_request(aggregation.AGGREGATION_PORT, hops)
    return packet(request + payload, PARENT, destination_port=int_md.INT_PORT)


@WIDTHS
@pytest.mark.parametrize("hops", [9, 0])
def test_done_keeps_int_and_this_nodes_item(node: EmulatedNode, width: int, hops: int) -> None:
    complete(node, (1,), width, round_number=1)
    payload = message(RESULT, width=width, lanes=6, round_number=1)
    sent = dict(node.forward(with_int(payload, hops), PARENT_PORT, 5))
    whole = sent[1]
    assert whole.endswith(payload[HEADER_BYTES:])
    for child in (0, 2):
        cut = sent[child]
        assert len(cut) == len(whole) - 4 * width
        assert int.from_bytes(cut[16:18]) == len(cut) - frames.ETHERNET_BYTES
        assert int.from_bytes(cut[38:40]) == len(cut) - frames.ETHERNET_BYTES - frames.IPV4_BYTES
        assert cut[-HEADER_BYTES] == aggregation.version_type(DONE)
        added = len(cut) - FRAME_HEADER_BYTES - HEADER_BYTES - int_md.INT_HEADER_BYTES
        assert (added > 0) == (hops > 0)
    assert {node.bytes_sent[port] - sent_up for port, sent_up in ((0, 0), (2, 0))} == {len(sent[0])}


@pytest.mark.parametrize("missing", [0, 100])
def test_a_virtual_queue_takes_no_bytes_of_lanes_that_were_cut_off(missing: int) -> None:
    """Its backlog has room for one message of 32 lanes, or for several without. Lanes may be missing on arrival."""
    room = 250
    bounded = tables()
    for child in CHILDREN:
        bounded.marking[child] = Bound(1, byte_cost=1 << 16, backlog=room << 16, window=40, congested_window=3)
    node = EmulatedNode(bounded)
    complete(node, (1,), 32, round_number=1)
    for copy in range(3):
        frame, at = result(32, round_number=1)
        sent = node.forward(frame[: len(frame) - missing], at)
        windows = {port: int(np.frombuffer(each, HEADER, 1, FRAME_HEADER_BYTES)["window"][0]) for port, each in sent}
        small = FRAME_HEADER_BYTES + HEADER_BYTES
        assert windows[0] == windows[2] == (3 if (copy + 1) * small >= room else 40)
        assert windows[1] == (3 if (copy + 1) * (small + 128 - missing) >= room else 40)


def test_a_replica_without_an_address_ends_whatever_is_wanted() -> None:
    incomplete = tables()
    del incomplete.replicas[101]
    node = EmulatedNode(incomplete)
    complete(node, (1,), 32, round_number=1)
    assert kinds(node.forward(*result(32, round_number=1))) == {0: DONE, 2: DONE}


@WIDTHS
def test_reports_of_done_have_no_lanes(width: int) -> None:
    """INT-XD of each copy, by clones at the end of egress: the reported packet is the one that has left."""
    node = QueuedNode(tables())
    node.report_to(STRANGER_PORT)
    address = (1, 0x020000000001, 0x020000000002, SWITCH, PARENT, 7, 8, 0)
    node.write("FabricEgress.int_reports.destination", (), "FabricEgress.int_reports.address", address)
    anything = ((0, 0),) * 5
    every = (1, 1, 0xF000, 0)
    node.watch(anything, 1, "FabricEgress.int_source.export_xd", every)
    steps = (0, 0, 0, 0, 0)
    node.write("FabricEgress.int_events.flow_steps", (), "FabricEgress.int_events.set_steps", steps)
    for worker in CHILDREN:
        sent = node.forward(*sent_by(worker, (1,), width, job=ROOT))
    left = [(port, frame) for port, frame in sent if port in CHILDREN]
    reports = [frame for port, frame in sent if port == STRANGER_PORT]
    assert kinds(left) == by_child((1,))
    assert len(reports) == 3
    for report in reports:
        [inner] = [frame for _, frame in left if frame[14:40] in report]
        assert len(report) < len(inner) + 200 if len(inner) < 100 else True
        at = report.index(inner[14:40])
        assert inner[14:].startswith(report[at:]), "bytes that are not the packet's"
