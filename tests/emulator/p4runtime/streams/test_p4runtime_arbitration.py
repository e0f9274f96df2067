"""Arbitration: the state machine alone, then over real streams."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import grpc
import pytest
from finsy.proto import p4r
from google.protobuf import any_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.p4runtime.refusal import Code, Refusal
from weir.emulator.p4runtime.streams.arbitration import MAX_CLIENTS, Arbiter, Notice
from weir.emulator.program import Program, ProgramState
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    MODIFY,
    Client,
    Names,
    RecordingDatapath,
    load_config,
    wait_until,
)


def told(notices: list[Notice[str]]) -> list[str]:
    return [f"{notice.client} {notice.code.name} {notice.highest}" for notice in notices]


def test_highest_id_wins_and_is_told_last() -> None:
    arbiter: Arbiter[str] = Arbiter()
    assert told(arbiter.update("a", 5)) == ["a OK 5"]
    assert told(arbiter.update("b", 3)) == ["b ALREADY_EXISTS 5"]
    assert told(arbiter.update("c", 9)) == ["a ALREADY_EXISTS 9", "b ALREADY_EXISTS 9", "c OK 9"]


def test_without_an_election_id_a_client_is_a_backup() -> None:
    arbiter: Arbiter[str] = Arbiter()
    assert told(arbiter.update("a", None)) == ["a NOT_FOUND None"]
    assert told(arbiter.update("b", None)) == ["b NOT_FOUND None"]
    assert told(arbiter.update("c", 0)) == ["a ALREADY_EXISTS 0", "b ALREADY_EXISTS 0", "c OK 0"]


def test_without_a_primary_the_next_claim_of_the_highest_id_wins() -> None:
    arbiter: Arbiter[str] = Arbiter()
    arbiter.update("a", 5)
    arbiter.update("b", 4)
    assert told(arbiter.leave("a")) == ["b NOT_FOUND 5"]
    assert not arbiter.is_primary(4)
    assert not arbiter.is_primary(5)
    assert told(arbiter.update("b", 4)) == ["b NOT_FOUND 5"]
    assert told(arbiter.update("b", 5)) == ["b OK 5"]
    assert arbiter.is_primary(5)


def test_a_primary_can_downgrade_itself() -> None:
    arbiter: Arbiter[str] = Arbiter()
    arbiter.update("a", 5)
    arbiter.update("b", 4)
    assert told(arbiter.update("a", 1)) == ["a NOT_FOUND 5", "b NOT_FOUND 5"]
    assert arbiter.primary is None


def test_a_duplicate_id_is_refused_and_changes_nothing() -> None:
    arbiter: Arbiter[str] = Arbiter()
    arbiter.update("a", 5)
    with pytest.raises(Refusal, match="election id 5 is already used") as refusal:
        arbiter.update("b", 5)
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert arbiter.clients == {"a": 5}
    assert told(arbiter.update("a", 5)) == ["a OK 5"]


def test_a_role_has_room_for_so_many() -> None:
    arbiter: Arbiter[int] = Arbiter()
    for client in range(MAX_CLIENTS):
        arbiter.update(client, client)
    with pytest.raises(Refusal) as refusal:
        arbiter.update(MAX_CLIENTS, MAX_CLIENTS)
    assert refusal.value.code is Code.RESOURCE_EXHAUSTED


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.just("leave"), st.integers(0, 6))), max_size=40))
def test_at_most_one_primary_and_it_holds_the_highest_id_ever(steps: list[tuple[int, object]]) -> None:
    arbiter: Arbiter[int] = Arbiter()
    last_told: dict[int, Code] = {}
    highest: int | None = None
    for client, step in steps:
        try:
            if step == "leave":
                notices = arbiter.leave(client)
                last_told.pop(client, None)
            else:
                election_id = step if isinstance(step, int) else None
                notices = arbiter.update(client, election_id)
                if election_id is not None:
                    highest = max(election_id, highest or 0)
        except Refusal:
            continue
        last_told.update((notice.client, notice.code) for notice in notices)
        holders = [c for c, held in arbiter.clients.items() if held is not None and held == highest]
        assert len(holders) <= 1
        expected = Code.ALREADY_EXISTS if holders else Code.NOT_FOUND
        assert last_told == {c: Code.OK if c in holders else expected for c in arbiter.clients}
        assert arbiter.highest == highest


# -- over streams


def test_promotion_is_told_to_everybody(server: P4RuntimeServer, client: Client) -> None:
    first, second, third = client.stream(), client.stream(), client.stream()
    first.arbitrate(10)
    assert first.notice() == "OK/10"
    second.arbitrate(5)
    assert second.notice() == "ALREADY_EXISTS/10"
    third.arbitrate((1 << 100) + 1)
    assert third.notice() == f"OK/{(1 << 100) + 1}"
    assert first.notice() == f"ALREADY_EXISTS/{(1 << 100) + 1}"
    assert second.notice() == f"ALREADY_EXISTS/{(1 << 100) + 1}"
    third.close()
    assert first.notice() == f"NOT_FOUND/{(1 << 100) + 1}"
    assert second.notice() == f"NOT_FOUND/{(1 << 100) + 1}"


def test_a_broken_connection_is_a_lost_primary(server: P4RuntimeServer, client: Client) -> None:
    backup = client.stream()
    backup.arbitrate(1)
    assert backup.notice() == "OK/1"
    other = Client(server.address, election_id=2)
    lost = other.primary()
    assert backup.notice() == "ALREADY_EXISTS/2"
    other.channel.close()
    assert backup.notice() == "NOT_FOUND/2"
    assert lost.ended() == "CANCELLED"
    backup.arbitrate(2)
    assert backup.notice() == "OK/2"


def test_streams_end_with_the_specifications_codes(client: Client) -> None:
    primary = client.primary()
    duplicate = client.stream()
    duplicate.arbitrate(1)
    assert duplicate.ended() == "INVALID_ARGUMENT"
    unknown = client.stream()
    unknown.arbitrate(1, device_id=99)
    assert unknown.ended() == "NOT_FOUND"
    elsewhere = client.stream()
    elsewhere.arbitrate(2, role="other")
    assert elsewhere.notice() == "OK/2"
    elsewhere.arbitrate(2, role="another")
    assert elsewhere.ended() == "FAILED_PRECONDITION"
    moved = client.stream()
    moved.arbitrate(0)
    assert moved.notice() == "ALREADY_EXISTS/1"
    moved.arbitrate(0, device_id=2)
    assert moved.ended() == "FAILED_PRECONDITION"
    primary.arbitrate(1)
    assert primary.notice() == "OK/1"


def test_a_role_with_a_config_is_refused(client: Client) -> None:
    stream = client.stream()
    request = p4r.StreamMessageRequest()
    request.arbitration.device_id = 1
    request.arbitration.role.config.CopyFrom(any_pb2.Any(type_url="example.com/scheme"))
    stream.send(request)
    assert stream.ended() == "INVALID_ARGUMENT"


def test_every_role_has_its_own_primary(loaded: Client, names: Names) -> None:
    keyless = p4r.TableEntry(table_id=names.table["keyless_table"], is_default_action=True)
    assert loaded.write((MODIFY, keyless), role="other") == ["NOT_FOUND"]
    stream = loaded.stream()
    stream.arbitrate(4, role="other")
    assert stream.notice() == "OK/4"
    assert loaded.write((MODIFY, keyless), role="other") == ["PERMISSION_DENIED"]
    loaded.election_id.low = 4
    assert loaded.write((MODIFY, keyless), role="other") == ["OK"]
    assert loaded.write((MODIFY, keyless)) == ["PERMISSION_DENIED"]


def test_only_the_primary_writes(server: P4RuntimeServer, loaded: Client, names: Names) -> None:
    keyless = p4r.TableEntry(table_id=names.table["keyless_table"], is_default_action=True)
    assert loaded.write((MODIFY, keyless)) == ["OK"]
    successor = Client(server.address, election_id=2)
    assert successor.write((MODIFY, keyless)) == ["PERMISSION_DENIED"]
    stream = successor.primary()
    assert loaded.write((MODIFY, keyless)) == ["PERMISSION_DENIED"]
    assert loaded.set_config(load_config()) == "PERMISSION_DENIED"
    assert successor.write((MODIFY, keyless)) == ["OK"]
    stream.close()
    wait_until(lambda: successor_is_gone(loaded, keyless))


def successor_is_gone(client: Client, entry: p4r.TableEntry) -> bool:
    client.election_id.low = 2
    return client.write((MODIFY, entry)) == ["PERMISSION_DENIED"]


def test_a_write_without_election_id_is_denied(loaded: Client, names: Names) -> None:
    keyless = p4r.TableEntry(table_id=names.table["keyless_table"], is_default_action=True)
    request = loaded.write_request((MODIFY, keyless))
    request.ClearField("election_id")
    with pytest.raises(grpc.RpcError) as error:
        loaded.stub.Write(request)
    assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_new_primary_waits_for_what_the_old_one_started(
    client: Client, datapath: RecordingDatapath, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, released, start = threading.Event(), threading.Event(), datapath.start

    def slow_start(program: Program, state: ProgramState) -> None:
        started.set()
        assert released.wait(60)
        start(program, state)

    monkeypatch.setattr(datapath, "start", slow_start)
    old, new = client.primary(), client.stream()
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(client.set_config, load_config())
        assert started.wait(60)
        new.arbitrate(2)
        assert old.notice() == "ALREADY_EXISTS/2"
        heard = ThreadPoolExecutor(1).submit(new.notice)
        assert not wait([heard], timeout=0.1).done
        released.set()
        assert outcome.result() == "OK"
        assert heard.result(60) == "OK/2"


def test_two_switches_behind_one_server() -> None:
    switches = [RecordingDatapath(3), RecordingDatapath(4)]
    with P4RuntimeServer(switches) as server:
        first, second = Client(server.address, 3), Client(server.address, 4)
        streams = [first.primary(), second.primary()]
        assert first.set_config(load_config()) == "OK"
        assert [switch.program is not None for switch in switches] == [True, False]
        assert second.read_outcome(p4r.TableEntry()) == ["FAILED_PRECONDITION"]
        assert first.read_outcome(p4r.TableEntry()) == ["OK"]
        for stream in streams:
            stream.close()
