"""Digests: lists by size and by time, acknowledgements, and records that are not told twice."""

from __future__ import annotations

import pytest
from finsy.proto import p4i, p4r

from weir.emulator.fabric import Fabric
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    EXTERNS,
    INSERT,
    MODIFY,
    Client,
    Stream,
    externs_config,
    grpc_code,
)

LEARNED = EXTERNS.digests[0].preamble.id
MS = 1_000_000
WIDE = bytes.fromhex("123456789ABCDEF01234")


def digest(max_timeout_ns: int, max_list_size: int, ack_timeout_ns: int) -> p4r.DigestEntry:
    config = p4r.DigestEntry.Config(
        max_timeout_ns=max_timeout_ns, max_list_size=max_list_size, ack_timeout_ns=ack_timeout_ns
    )
    return p4r.DigestEntry(digest_id=LEARNED, config=config)


def learn(switch: Switch, value: int, at_ns: int) -> None:
    switch.forward(bytes((3, 0)) + value.to_bytes(2, "big") + bytes(4), 2, at_ns)


def wait(switch: Switch, at_ns: int) -> None:
    switch.forward(bytes(8), 2, at_ns)


def told(message: p4r.StreamMessageResponse) -> tuple[int, int, list[int]]:
    """List id, time in ms, and the values learned, of a list whose other fields are as they must be."""
    assert message.digest.digest_id == LEARNED, message
    values = []
    for record in message.digest.data:
        what, value, port, wide = (member.bitstring for member in record.struct.members)
        assert (what, port, wide) == (b"\x03", b"\x02", WIDE)
        values.append(int.from_bytes(value, "big"))
    return message.digest.list_id, message.digest.timestamp // MS, values


def acknowledge(stream: Stream, list_id: int) -> None:
    """Returns when the server has taken it."""
    stream.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=LEARNED, list_id=list_id)))
    stream.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=5)))
    error = stream.receive().error
    assert (grpc_code(error.canonical_code), error.digest_list_ack.digest_list_ack.digest_id) == ("INVALID_ARGUMENT", 5)


def test_lists_are_sent_when_full_or_old_and_not_twice(externs: Client, externs_stream: Stream, switch: Switch) -> None:
    learn(switch, 9, 0)  # before anybody asks: never told
    assert externs.write((INSERT, digest(1000 * MS, 2, 10_000 * MS))) == ["OK"]
    for value in (1, 1, 2):
        learn(switch, value, MS)
    assert told(externs_stream.receive()) == (1, 1, [1, 2])
    for value in (1, 2, 3):
        learn(switch, value, 2 * MS)
    wait(switch, 1001 * MS)
    wait(switch, 1002 * MS)
    assert told(externs_stream.receive()) == (2, 1002, [3])
    acknowledge(externs_stream, 1)
    for value in (3, 1, 2):
        learn(switch, value, 1003 * MS)
    assert told(externs_stream.receive()) == (3, 1003, [1, 2])
    for value in (3, 4):
        learn(switch, value, 11_001 * MS)
    for value in (3, 4):
        learn(switch, value, 11_002 * MS)  # list 2 is forgotten by now
    assert told(externs_stream.receive()) == (4, 11_002, [4, 3])


def test_a_list_for_each_record(externs: Client, externs_stream: Stream, switch: Switch) -> None:
    for config in (digest(0, 5, 0), digest(50 * MS, 1, 0)):
        assert externs.write((INSERT, config)) == ["OK"]
        learn(switch, 7, MS)
        learn(switch, 7, MS)
        assert [told(externs_stream.receive())[2] for _ in range(2)] == [[7], [7]]
        assert externs.write((DELETE, config)) == ["OK"]


def test_digest_entries_are_written_and_read(externs: Client, externs_stream: Stream, switch: Switch) -> None:
    every, one = p4r.DigestEntry(), p4r.DigestEntry(digest_id=LEARNED)
    first, second = digest(5, 6, 7), digest(0, 1, 0)
    assert (externs.read(every), externs.read_outcome(one)) == ([], ["NOT_FOUND"])
    assert externs.write((MODIFY, first), (DELETE, first), (INSERT, first), (INSERT, second)) == [
        "NOT_FOUND",
        "NOT_FOUND",
        "OK",
        "ALREADY_EXISTS",
    ]
    assert [found.digest_entry for found in externs.read(every, one)] == [first, first]
    assert externs.write((MODIFY, second)) == ["OK"]
    assert [found.digest_entry for found in externs.read(one)] == [second]
    bad = [digest(-1, 0, 0), digest(0, -1, 0), digest(0, 0, -1), every, p4r.DigestEntry(digest_id=5)]
    assert externs.write(*((MODIFY, entry) for entry in bad)) == ["INVALID_ARGUMENT"] * 5
    reconcile = p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT
    assert externs.set_config(externs_config(), reconcile) == "OK"
    assert [found.digest_entry for found in externs.read(every)] == [second]
    learn(switch, 1, MS)
    assert told(externs_stream.receive())[2] == [1]
    assert externs.write((DELETE, second)) == ["OK"]
    assert (externs.read(every), switch.on_digest, switch.on_poll) == ([], None, None)


def test_a_new_primary_is_told_anew_and_acknowledges_alone(
    externs: Client, externs_stream: Stream, switch: Switch
) -> None:
    assert externs.write((INSERT, digest(0, 1, 1 << 60))) == ["OK"]
    learn(switch, 1, MS)
    assert told(externs_stream.receive()) == (1, 1, [1])
    successor = externs.stream()
    successor.arbitrate(2)
    assert successor.notice() == "OK/2"
    assert externs_stream.notice() == "ALREADY_EXISTS/2"
    learn(switch, 1, 2 * MS)
    assert told(successor.receive()) == (2, 2, [1])
    externs_stream.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=LEARNED, list_id=2)))
    assert grpc_code(externs_stream.receive().error.canonical_code) == "PERMISSION_DENIED"
    learn(switch, 1, 3 * MS)
    learn(switch, 2, 4 * MS)
    assert told(successor.receive()) == (3, 4, [2])
    successor.close()


@pytest.mark.parametrize("role", ["", "other"])
def test_waiting_digests_reach_a_new_primary(
    externs: Client, externs_stream: Stream, switch: Switch, role: str
) -> None:
    """A digest not yet sent is no repetition for a new primary of this or another role."""
    assert externs.write((INSERT, digest(10 * MS, 0, 1 << 60))) == ["OK"]
    learn(switch, 1, MS)
    newcomer = externs.stream()
    newcomer.arbitrate(2, role=role)
    assert newcomer.notice() == "OK/2"
    if not role:
        assert externs_stream.notice() == "ALREADY_EXISTS/2"
    wait(switch, 11 * MS)
    learn(switch, 2, 12 * MS)
    wait(switch, 22 * MS)
    for listener in (newcomer, externs_stream) if role else (newcomer,):
        for expected in ((1, 11, [1]), (2, 22, [2])):
            assert told(listener.receive()) == expected
    newcomer.close()


def test_a_digest_that_p4info_describes_otherwise_is_not_served(externs: Client) -> None:
    info = p4i.P4Info()
    info.CopyFrom(EXTERNS)
    info.type_info.structs["learned_t"].members[0].type_spec.bitstring.bit.bitwidth = 9
    assert externs.set_config(externs_config(info)) == "OK"
    assert externs.write((INSERT, digest(0, 1, 0))) == ["UNIMPLEMENTED"]
    assert "fields of [9, 16, 9, 80] bits; the program tells fields of [8, 16, 9, 80]" in externs.explain(
        (INSERT, digest(0, 1, 0))
    )


def test_a_digest_of_a_tuple_has_another_name_in_the_program(
    externs: Client, externs_stream: Stream, switch: Switch
) -> None:
    """p4c numbers it in P4Info, and in the program names it after its type."""
    info = p4i.P4Info()
    info.CopyFrom(EXTERNS)
    info.digests[0].preamble.name = "digest_0"
    fields = [member.type_spec for member in info.type_info.structs["learned_t"].members]
    info.digests[0].type_spec.tuple.members.extend(fields)
    assert externs.set_config(externs_config(info)) == "OK"
    assert externs.write((INSERT, digest(0, 1, 0))) == ["OK"]
    learn(switch, 7, MS)
    [record] = externs_stream.receive().digest.data
    assert [member.bitstring for member in record.tuple.members] == [b"\x03", b"\x07", b"\x02", WIDE]


def test_digests_in_a_fabric_go_by_its_time(externs: Client, externs_stream: Stream, switch: Switch) -> None:
    fabric = Fabric(seed=1)
    fabric.add_switch("s1", switch)
    fabric.add_host("h1")
    fabric.add_link(("h1", 0), ("s1", 2), delay_ns=MS)
    assert externs.write((INSERT, digest(10 * MS, 0, 1 << 60))) == ["OK"]
    frame = bytes((3, 0, 0, 5)) + bytes(4)
    fabric.send("h1", frame)
    fabric.run(2 * MS)
    fabric.send("h1", frame)
    fabric.run(11 * MS)
    fabric.run(12 * MS)
    fabric.send("h1", bytes((3, 0, 0, 6)) + bytes(4))
    fabric.run(20 * MS)
    fabric.run(30 * MS)
    assert [told(externs_stream.receive()) for _ in range(2)] == [(1, 12, [5]), (2, 30, [6])]
