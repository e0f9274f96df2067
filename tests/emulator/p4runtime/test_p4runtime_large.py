"""Large requests: batches that fail, reads of millions of cells, and both when the client or the server leaves."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_status
from google.protobuf import text_format

from weir.emulator.p4runtime import P4RuntimeServer, device
from weir.emulator.p4runtime.entities.arrays import RegisterService
from weir.emulator.p4runtime.refusal import DETAILS_BYTES, BatchRefusal, Refusal
from weir.emulator.program import Register
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    FLOWS,
    INSERT,
    Client,
    Names,
    RecordingDatapath,
    Stream,
    batch_errors,
    entity,
    flow,
    load_config,
    outcome,
)
from weir.tests.paths import STF

CELLS = 16384
QUERIES = 30


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indices of register cells that the server has turned into entities."""
    indices: list[int] = []
    make = RegisterService._entity

    def noted(service: RegisterService, index: int, value: int) -> p4r.Entity:
        indices.append(index)
        return make(service, index, value)

    monkeypatch.setattr(RegisterService, "_entity", noted)
    return indices


@pytest.fixture
def vast(client: Client, stream: Stream, datapath: RecordingDatapath) -> Client:
    """`client` as primary of a switch with a register of many cells."""
    assert client.set_config(with_large_register("last_seen")) == "OK"
    return client


def with_large_register(alias: str) -> p4r.ForwardingPipelineConfig:
    """`every_entity.p4` with `CELLS` cells of one register."""
    config = load_config()
    [register] = [register for register in config.p4info.registers if register.preamble.alias == alias]
    program = json.loads(config.p4_device_config)
    [array] = [array for array in program["register_arrays"] if array["name"] == register.preamble.name]
    register.size = array["size"] = CELLS
    config.p4_device_config = json.dumps(program).encode()
    return config


def all_cells(client: Client, names: Names) -> Iterator[p4r.ReadResponse]:
    register = p4r.RegisterEntry(register_id=next(iter(names.register.values())))
    request = p4r.ReadRequest(device_id=client.device_id, entities=[entity(register)] * QUERIES)
    return client.stub.Read(request)


def test_a_read_is_made_as_it_is_taken_while_writes_go_on(vast: Client, names: Names, made: list[int]) -> None:
    answer = all_cells(vast, names)
    assert len(next(answer).entities) > 0
    entry = names.exact_entry(b"\x01", b"\x02", names.call("drop"))
    assert vast.write((INSERT, entry)) == ["OK"]
    assert len(made) < CELLS * QUERIES / 2
    found = sum(len(response.entities) for response in answer)
    assert found + 1024 >= CELLS * QUERIES, "the first response had up to 1024"
    assert len(made) == CELLS * QUERIES


def test_a_read_ends_when_its_client_leaves(
    vast: Client, names: Names, made: list[int], server: P4RuntimeServer
) -> None:
    answer = all_cells(vast, names)
    next(answer)
    answer.cancel()  # type: ignore[attr-defined]
    server.stop()  # returns when nothing is being answered any more
    assert len(made) < CELLS * QUERIES / 2


def test_a_read_ends_when_the_server_does(vast: Client, names: Names, made: list[int], server: P4RuntimeServer) -> None:
    answer = all_cells(vast, names)
    next(answer)
    server.stop()
    assert len(made) < CELLS * QUERIES / 2


class PausedDatapath(RecordingDatapath):
    """Knows when no packet may run."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = 0
        self.is_paused = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pauses += 1
        self.is_paused = True
        yield
        self.is_paused = False


def test_wide_cells_are_read_between_packets_a_few_at_a_time(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet could change one of its words after another was read. All of the array would be too long to wait for."""
    datapath = PausedDatapath()
    read = Register.read
    pauses: Counter[int] = Counter()

    def noted(register: Register, index: int) -> int:
        assert datapath.is_paused
        pauses[datapath.pauses] += 1
        return read(register, index)

    with P4RuntimeServer([datapath]) as server, Client(server.address) as client:
        stream = client.primary()
        assert client.set_config(with_large_register("wide_values")) == "OK"
        monkeypatch.setattr(Register, "read", noted)
        for index in (None, p4r.Index(index=5)):
            pauses.clear()
            found = client.read(p4r.RegisterEntry(register_id=names.register["wide_values"], index=index))
            assert sum(pauses.values()) == len(found) == (CELLS if index is None else 1)
            assert max(pauses.values()) <= 256
        stream.close()


@pytest.mark.long
def test_a_batch_ends_when_the_server_does(
    loaded: Client,
    names: Names,
    server: P4RuntimeServer,
    datapath: RecordingDatapath,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Written entities stay, the rest is not begun."""
    entry = names.exact_entry(b"\x01", b"\x02", names.call("drop"))
    request = loaded.write_request()
    for _ in range(100_000):
        for kind in (INSERT, DELETE):
            request.updates.add(type=kind).entity.table_entry.CopyFrom(entry)
    ended: list[str] = []
    writing = threading.Thread(target=lambda: ended.append(outcome(lambda: loaded.stub.Write(request))))
    writing.start()
    assert datapath.state is not None
    table = next(table for name, table in datapath.state.tables.items() if name.endswith("exact_table"))
    begun = threading.Event()
    insert = table.insert

    def noted(*arguments: Any) -> None:
        begun.set()
        insert(*arguments)

    monkeypatch.setattr(table, "insert", noted)
    assert begun.wait(60)
    server.stop()
    writing.join()
    assert ended in (["UNAVAILABLE"], ["CANCELLED"], ["UNKNOWN"])


def test_entries_deleted_during_a_read(
    externs: Client, externs_server: P4RuntimeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client deletes entries between two pieces of an answer: their counts are gone, and so left out."""
    monkeypatch.setattr(device, "_PIECE_ENTITIES", 2)
    entries = [flow(number) for number in range(1, 9)]
    assert externs.write(*((INSERT, entry) for entry in entries)) == ["OK"] * 8
    with_counts = p4r.TableEntry(table_id=FLOWS, counter_data=p4r.CounterData())
    counts = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=FLOWS))
    request = p4r.ReadRequest(device_id=1, entities=[entity(with_counts), entity(counts)])
    pieces = externs_server._devices[1].read(request)
    found = next(pieces)
    assert externs.write(*((DELETE, entry) for entry in entries[4:])) == ["OK"] * 4
    while not found[-1].HasField("direct_counter_entry"):
        found += next(pieces)
    assert externs.write(*((DELETE, entry) for entry in entries[2:4])) == ["OK"] * 2
    found += [each for piece in pieces for each in piece]
    kinds = [each.WhichOneof("entity") for each in found]
    assert (kinds.count("table_entry"), kinds.count("direct_counter_entry")) == (4, 2)


def test_a_new_config_ends_a_read(vast: Client, names: Names, made: list[int]) -> None:
    answer = all_cells(vast, names)
    next(answer)
    assert vast.set_config(load_config()) == "OK"
    with pytest.raises(grpc.RpcError) as raised:
        for _ in answer:
            pass
    assert raised.value.code() is grpc.StatusCode.ABORTED
    assert raised.value.details() == "the pipeline config was replaced while it was read"


@pytest.mark.parametrize("count", [1, 30, 100, 150, 250, 1000, 20_000])
def test_failed_batches_reach_clients_with_usual_message_limits(
    loaded: Client, names: Names, server: P4RuntimeServer, count: int
) -> None:
    """Half of the updates fail, each with a message of its own."""
    request = loaded.write_request()
    for number in range(count):
        entry = names.exact_entry(number.to_bytes(2, "big").lstrip(b"\0") or b"\0", b"\x02", names.call("drop"))
        request.updates.add(type=DELETE if number % 2 == 0 else INSERT).entity.table_entry.CopyFrom(entry)
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as raised:
        p4r_grpc.P4RuntimeStub(channel).Write(request)
    error = raised.value
    assert error.code() is grpc.StatusCode.UNKNOWN
    [details] = [item.value for item in error.trailing_metadata() if item.key == "grpc-status-details-bin"]
    assert len(details) <= DETAILS_BYTES
    parts = batch_errors(error)
    failed = (count + 1) // 2
    if count <= 250:
        assert [code for code, _ in parts] == [("NOT_FOUND", "OK")[number % 2] for number in range(count)]
        assert error.details() == "Write failure."
        assert (count > 100) or all(message for code, message in parts if code != "OK")
    else:
        assert parts == []
        said = error.details() or ""
        assert said.startswith(f"Write failure. {failed} of {count} failed; the first is number 0, NOT_FOUND: ")
        assert rpc_status.Status.FromString(details).message == error.details()


def test_a_table_named_outside_its_control_is_a_table(client: Client, stream: Stream) -> None:
    config = p4r.ForwardingPipelineConfig(p4_device_config=(STF / "corners.json").read_bytes())
    text_format.Parse((STF / "corners.p4info.txtpb").read_text(), config.p4info)
    assert client.set_config(config) == "OK"
    [table] = [table for table in config.p4info.tables if table.preamble.name == "top"]
    [counter] = client.read(
        p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=table.preamble.id, is_default_action=True))
    )
    assert counter.direct_counter_entry.data == p4r.CounterData()


def test_the_program_may_come_in_pis_message_around_it(
    client: Client, stream: Stream, datapath: RecordingDatapath
) -> None:
    """Message as p4lang/tutorials send it: `reassign` (field 1) set, and the JSON as `device_data` (field 3)."""
    config = load_config()
    json = config.p4_device_config
    size = len(json)
    varint = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    config.p4_device_config = b"\x08\x01\x1a" + varint + json
    assert client.set_config(config) == "OK"
    assert datapath.program is not None
    kept = client.get_config(p4r.GetForwardingPipelineConfigRequest.ALL).config
    assert kept.p4_device_config == config.p4_device_config, "it is read back as it was written"
    config.p4_device_config = b"\x08\x01\x1a" + varint + json[:-9]
    assert client.set_config(config) == "INVALID_ARGUMENT"
    config.p4_device_config = b"\x08\x01"
    assert client.set_config(config) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("parts", [1, 200, 400, 1_000_000])
def test_an_answer_with_any_number_of_failed_parts_is_short(parts: int) -> None:
    """Details that cannot fit are not made: of a million they would be 100 MB, six times over."""
    refusals = [Refusal(grpc.StatusCode.NOT_FOUND, "no such entry")] * parts
    tracemalloc.start()
    try:
        status = BatchRefusal("some updates failed:", refusals).status()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status.ByteSize() <= DETAILS_BYTES
    assert len(status.details) in (0, parts)
    assert (parts > 200) == (not status.details)
    assert peak < 2_000_000
