"""Admission by the compiled program at hosts' ports: their own addresses, and messages that they may send."""

from __future__ import annotations

import pytest

from weir.controller.planning.admission import OF_SERVERS, OF_WORKERS
from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.small_fabric import (
    INNER,
    OTHER_SWITCH,
    PARENT,
    PARENT_PORT,
    ROOT,
    STRANGER,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    contribution,
    hosts,
    message,
    packet,
    tables,
)
from weir.wire.aggregation import MessageType

UP = {MessageType.CONTRIBUTION, MessageType.SCALE, MessageType.PRESENT}
DOWN = {MessageType.RESULT, MessageType.SCALE_RESULT, MessageType.DONE}
BETWEEN_HOSTS = {MessageType.FETCH, MessageType.FETCHED, MessageType.SCALE_FETCHED}


def node(messages: int = OF_WORKERS) -> EmulatedNode:
    guarded = tables()
    guarded.hosts = hosts(messages)
    return EmulatedNode(guarded)


def dropped(switch: EmulatedNode) -> dict[str, int]:
    return {reason: count for reason, count in switch.drops.items() if count}


def passing(switch: EmulatedNode, source: int, port: int) -> set[MessageType]:
    """The types of messages that go through to a node behind this one."""
    return {kind for kind in MessageType if switch.forward(packet(message(kind), source, OTHER_SWITCH), port)}


def test_a_hosts_port_lets_through_its_own_address_alone() -> None:
    switch = node()
    for destination in (WORKERS[1], STRANGER, OTHER_SWITCH):
        for source in (WORKERS[1], PARENT, SWITCH, OTHER_SWITCH, 0):
            assert switch.forward(packet(b"x", source, destination, destination_port=9), 0) == []
        assert len(switch.forward(packet(b"x", WORKERS[0], destination, destination_port=9), 0)) == 1
    assert dropped(switch) == {"foreign_source": 15}


def test_a_port_without_an_entry_is_a_switchs_and_admits_all() -> None:
    switch = node()
    for source in (WORKERS[0], PARENT, STRANGER):
        assert len(switch.forward(packet(b"x", source, WORKERS[1], destination_port=9), PARENT_PORT)) == 1
    assert passing(switch, WORKERS[0], PARENT_PORT) == set(MessageType)
    assert dropped(switch) == {}


@pytest.mark.parametrize(
    ("messages", "let_through"),
    [
        (0, set()),
        (OF_WORKERS, UP | BETWEEN_HOSTS),
        (OF_SERVERS, DOWN | BETWEEN_HOSTS),
        (OF_WORKERS | OF_SERVERS, set(MessageType)),
        *((1 << kind, {kind}) for kind in MessageType if 2 < kind < MessageType.PRESENT),
        (1 << MessageType.CONTRIBUTION, {MessageType.CONTRIBUTION, MessageType.PRESENT}),
        (1 << MessageType.RESULT, {MessageType.RESULT, MessageType.DONE}),
    ],
)
def test_a_host_sends_the_messages_that_it_has_a_part_in(messages: int, let_through: set[MessageType]) -> None:
    switch = node(messages)
    assert passing(switch, WORKERS[0], 0) == let_through
    refused = len(MessageType) - len(let_through)
    assert dropped(switch) == ({"foreign_type": refused} if refused else {})


def test_a_host_of_no_job_sends_no_message_in_anyones_name() -> None:
    switch = node()
    assert passing(switch, STRANGER, STRANGER_PORT) == set()
    assert passing(switch, PARENT, STRANGER_PORT) == set()
    assert dropped(switch) == {"foreign_type": len(MessageType), "foreign_source": len(MessageType)}


def test_forgeries_into_a_switchs_sum_leave_it_as_it_is() -> None:
    """Members' own ports and addresses, from another process there; members' names at other ports; rounds far ahead."""
    switch = node()
    payload = message(contributors=1, job=ROOT, lanes=5)
    for worker in (1, 2):
        switch.forward(*contribution(worker, job=ROOT, lanes=1))
    forged = (
        (packet(payload, WORKERS[0], source_port=40_000), 0),
        (packet(payload, WORKERS[0]), STRANGER_PORT),
        (packet(payload, STRANGER), STRANGER_PORT),
        (packet(message(MessageType.RESULT, job=INNER), PARENT, source_port=40_000), PARENT_PORT),
        (packet(message(MessageType.RESULT, job=INNER), PARENT), STRANGER_PORT),
        (packet(message(MessageType.DONE, job=INNER), PARENT), STRANGER_PORT),
        contribution(0, job=ROOT, lanes=5, round_number=1 << 22),
    )
    for frame, port in forged:
        assert switch.forward(frame, port) == []
    assert dropped(switch) == {"foreign_port": 2, "not_member": 2, "not_parent": 2, "out_of_window": 1}
    sent = switch.forward(*contribution(0, job=ROOT, lanes=1))
    assert [frame[-4:] for _, frame in sent] == [(3).to_bytes(4)] * 3
