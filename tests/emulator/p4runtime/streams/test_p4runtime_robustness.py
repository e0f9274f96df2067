"""Nonsense from clients: random bytes and messages get canonical codes, never UNKNOWN, without harm to others."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import grpc
import pytest
from finsy.proto import p4r
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.p4runtime.streams import session
from weir.tests.emulator.p4runtime.p4runtime_fuzz import fields_of
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    INSERT,
    Client,
    Names,
    RecordingDatapath,
    Stream,
    batch_errors,
    load_config,
    outcome,
)

SEED = 20260217


def random_message(message: Message, rng: random.Random, ids: list[int], depth: int = 0) -> None:
    """Fill some fields with values that are likely to hurt: real ids, zeros, extremes, junk bytes."""
    for field in fields_of(message):
        if rng.random() < 0.55 or depth > 6:
            continue
        count = rng.randint(1, 3) if field.is_repeated else 1
        for _ in range(count):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                assert field.message_type is not None
                if field.message_type.full_name == "google.protobuf.Any":
                    continue
                inner = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
                inner.SetInParent()
                random_message(inner, rng, ids, depth + 1)
                continue
            value = random_scalar(field, rng, ids)
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


def random_scalar(field: FieldDescriptor, rng: random.Random, ids: list[int]) -> object:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return rng.randbytes(rng.choice((0, 1, 1, 2, 6, 13, 40)))
            return rng.choice(("", "role", "ünicode"))
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice((0, 1, 2, 3, 99))
        case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_INT64:
            return rng.choice((-(2**31), -1, 0, 1, 2, 8, 48, 2**31 - 1))
        case _:
            return rng.choice((0, 1, 2, 3, 4, 2**32 - 1, *ids))


def random_update(rng: random.Random, names: Names) -> p4r.Update:
    ids = [*names.table.values(), *names.action.values(), *names.profile.values()]
    ids += [*names.counter.values(), *names.register.values()]
    update = p4r.Update(type=rng.choice((INSERT, p4r.Update.MODIFY, p4r.Update.DELETE, INSERT)))
    kind = rng.choice([field.name for field in p4r.Entity.DESCRIPTOR.fields] + ["table_entry"] * 6)
    entity = getattr(update.entity, kind)
    entity.SetInParent()
    random_message(entity, rng, ids)
    if kind == "table_entry" and rng.random() < 0.8:
        entity.table_id = rng.choice(list(names.table.values()))
    return update


def outcomes(call: Callable[[], object], size: int) -> set[str]:
    """Codes of a batch's parts; a batch that fails must name each of them."""
    parts = [("OK", "")] * size
    try:
        call()
    except grpc.RpcError as error:
        parts = batch_errors(error)
    assert len(parts) == size
    return {code for code, _ in parts}


def test_random_updates_and_queries(loaded: Client, names: Names) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")  # noqa: T201
    codes: set[str] = set()
    for _ in range(300):
        request = p4r.WriteRequest(device_id=1, election_id=loaded.election_id)
        request.updates.extend(random_update(rng, names) for _ in range(10))
        codes |= outcomes(partial(loaded.stub.Write, request), 10)
        query = p4r.ReadRequest(device_id=1, entities=[random_update(rng, names).entity for _ in range(5)])
        codes |= outcomes(partial(list, loaded.stub.Read(query)), 5)
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "PERMISSION_DENIED"} <= codes
    assert not codes & {"UNKNOWN", "INTERNAL"}
    assert loaded.set_config(load_config(), p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT) == "OK"


def test_random_configs_never_harm_the_running_program(loaded: Client, datapath: RecordingDatapath) -> None:
    rng = random.Random(SEED)
    good = load_config().SerializeToString()
    state = datapath.state
    tried = 0
    while tried < 60:
        damaged = bytearray(good)
        for _ in range(rng.randint(1, 20)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        config = p4r.ForwardingPipelineConfig()
        try:
            config.ParseFromString(bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))]))
        except DecodeError:
            continue
        tried += 1
        assert loaded.set_config(config, p4r.SetForwardingPipelineConfigRequest.VERIFY) in ("OK", "INVALID_ARGUMENT")
    assert datapath.state is state


@pytest.mark.parametrize("method", ["Write", "Read", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig"])
def test_bytes_that_are_no_message(loaded: Client, method: str) -> None:
    rng = random.Random(SEED)
    path = f"/p4.v1.P4Runtime/{method}"
    unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = loaded.channel.unary_unary(path)
    streamed: grpc.UnaryStreamMultiCallable[bytes, bytes] = loaded.channel.unary_stream(path)
    for _ in range(50):
        junk = b"\xff" + rng.randbytes(rng.randint(0, 60))
        call: Callable[[], object]
        call = partial(list, streamed(junk)) if method == "Read" else partial(unary, junk)
        assert outcome(call) == "INTERNAL"
    assert loaded.read_outcome(p4r.TableEntry()) == ["OK"]


def test_bytes_that_are_no_message_on_a_stream(loaded: Client, stream: Stream) -> None:
    channel: grpc.StreamStreamMultiCallable[bytes, bytes]
    channel = loaded.channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")
    call = channel(iter([b"\xff\xff\xff"]))
    with pytest.raises(grpc.RpcError) as error:
        list(call)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    stream.arbitrate(1)
    assert stream.notice() == "OK/1"


def test_random_stream_messages(loaded: Client, stream: Stream, names: Names) -> None:
    rng = random.Random(SEED)
    for _ in range(200):
        request = p4r.StreamMessageRequest()
        kind = rng.choice(("packet", "digest_ack", "other", None))
        if kind is not None:
            getattr(request, kind).SetInParent()
            random_message(getattr(request, kind), rng, [])
        stream.send(request)
    stream.arbitrate(1)
    while (answer := stream.receive()).WhichOneof("update") == "error":
        assert answer.error.canonical_code not in (grpc.StatusCode.INTERNAL.value[0], grpc.StatusCode.UNKNOWN.value[0])
    assert answer.WhichOneof("update") == "arbitration"


def test_random_arbitration_ends_only_its_own_stream(loaded: Client, stream: Stream) -> None:
    rng = random.Random(SEED)
    for _ in range(100):
        other = loaded.stream()
        request = p4r.StreamMessageRequest()
        request.arbitration.SetInParent()
        random_message(request.arbitration, rng, [])
        if request.arbitration.device_id == 1 and not request.arbitration.role.name:
            request.arbitration.ClearField("election_id")
        other.send(request)
        other.close()
        assert other.ended() in ("OK", "NOT_FOUND", "INVALID_ARGUMENT", "FAILED_PRECONDITION")
    stream.arbitrate(1)
    assert stream.notice() == "OK/1"


def test_a_failure_that_nobody_foresaw_is_internal(
    loaded: Client, stream: Stream, datapath: RecordingDatapath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(datapath, "start", broken)
    assert loaded.set_config(load_config()) == "INTERNAL"
    assert loaded.read_outcome(p4r.TableEntry()) == ["OK"]
    monkeypatch.setattr(datapath, "packet_out", broken)
    metadata = [p4r.PacketMetadata(metadata_id=i, value=b"\x01") for i in (1, 2, 3)]
    stream.send(p4r.StreamMessageRequest(packet=p4r.PacketOut(metadata=metadata)))
    assert stream.ended() == "INTERNAL"


def test_concurrent_writers_are_serialised(server: P4RuntimeServer, loaded: Client, names: Names) -> None:
    found: list[list[str]] = []

    def insert_all() -> None:
        client = Client(server.address)
        forward = names.call("forward", b"\x01")
        entries = [names.exact_entry(bytes([i]), b"\x01", forward) for i in range(200)]
        found.append(client.write(*((INSERT, entry) for entry in entries)))
        client.channel.close()

    threads = [threading.Thread(target=insert_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.count("OK") for each in found) == [0, 0, 0, 200]
    assert sorted(each.count("ALREADY_EXISTS") for each in found) == [0, 200, 200, 200]
    assert len(loaded.read(p4r.TableEntry(table_id=names.table["exact_table"]))) == 200


def test_more_streams_than_there_is_room_for(client: Client) -> None:
    streams = [client.stream() for _ in range(16)]
    for number, stream in enumerate(streams):
        stream.arbitrate(100 - number)
        assert stream.notice() == ("OK/100" if number == 0 else "ALREADY_EXISTS/100")
    last = client.stream()
    last.arbitrate(1)
    assert last.ended() == "RESOURCE_EXHAUSTED"
    crowd = [client.stream() for _ in range(40)]
    assert client.set_config(load_config()) == "PERMISSION_DENIED"
    assert {stream.ended() for stream in crowd[:8]} == {"RESOURCE_EXHAUSTED"}
    for stream in (*streams, *crowd):
        stream.close()


def test_a_controller_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packet-ins beyond the limit are dropped; messages that must not be dropped end the stream, after the waiting
    ones.
    """
    monkeypatch.setattr(session, "MAX_WAITING", 3)
    slow = session.Session()
    message = p4r.StreamMessageResponse()
    assert [slow.offer(message) for _ in range(5)] == [True, True, True, False, False]
    assert slow.refusal is None
    slow.send(message)
    assert slow.refusal is not None
    assert slow.refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert list(slow.messages()) == [message.SerializeToString()] * 3


def test_a_few_large_messages_are_too_many_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of digests may have as many bytes as thousands of packet-ins."""
    large = p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=bytes(1000)))
    small = p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=bytes(10)))
    monkeypatch.setattr(session, "MAX_WAITING_BYTES", 2 * large.ByteSize() + small.ByteSize())
    slow = session.Session()
    assert [slow.offer(message) for message in (large, large, large, small, small)] == [True, True, False, True, False]
    sent = slow.messages()
    assert [next(sent) for _ in range(2)] == [large.SerializeToString()] * 2
    assert [slow.offer(message) for message in (large, large, large)] == [True, True, False]
    slow.send(large)
    assert slow.refusal is not None
    assert slow.refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert list(sent) == [message.SerializeToString() for message in (small, large, large)]
