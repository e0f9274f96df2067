"""Batches that are applied as a whole or not at all, and those that packets see as one change."""

from __future__ import annotations

import threading

import grpc
import numpy as np
import pytest
from finsy.proto import p4r

from weir.emulator.p4runtime.pipeline import LoadedPipeline
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    EXTERNS,
    FLOWS,
    INSERT,
    MODIFY,
    Client,
    Names,
    batch_errors,
    flow,
    stage,
    stage_entry,
)

AT_ONCE = p4r.WriteRequest.DATAPLANE_ATOMIC


def all_or_none(
    client: Client,
    *updates: tuple[p4r.Update.Type.ValueType, object],
    atomicity: p4r.WriteRequest.Atomicity.ValueType = p4r.WriteRequest.ROLLBACK_ON_ERROR,
) -> list[str]:
    """Outcome of every update; one code alone when the batch was not tried."""
    request = client.write_request(*updates)
    request.atomicity = atomicity
    try:
        client.stub.Write(request)
    except grpc.RpcError as error:
        return [code for code, _ in batch_errors(error)] or [error.code().name]
    return ["OK"] * len(updates)


def test_a_failed_batch_leaves_everything_as_it_was(externs: Client) -> None:
    meter_id, set_id, digest_id = (
        things[0].preamble.id for things in (EXTERNS.meters, EXTERNS.value_sets, EXTERNS.digests)
    )
    kept, doomed, changed = flow(1, p4r.MeterConfig(cir=1, pir=2)), flow(2), flow(3)
    doomed.counter_data.packet_count, doomed.idle_timeout_ns, doomed.metadata = 5, 10**15, b"mine"
    digest = p4r.DigestEntry(digest_id=digest_id, config=p4r.DigestEntry.Config(max_list_size=3))
    assert externs.write(*((INSERT, entry) for entry in (kept, doomed, changed, digest))) == ["OK"] * 4
    everything = (
        p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig()),
        p4r.TableEntry(table_id=FLOWS, is_default_action=True),
        p4r.MeterEntry(),
        p4r.ValueSetEntry(),
        p4r.DigestEntry(),
        p4r.MulticastGroupEntry(),
    )
    before = externs.dump(*everything)
    members = p4r.ValueSetEntry(value_set_id=set_id)
    members.members.add().match.add(field_id=1).exact.value = b"\x05"
    default = p4r.TableEntry(table_id=FLOWS, is_default_action=True, action=changed.action)
    updates = [
        (DELETE, flow(2)),
        (INSERT, flow(2)),
        (MODIFY, flow(1)),
        (MODIFY, p4r.DirectMeterEntry(table_entry=flow(3), config=p4r.MeterConfig(cir=1, pir=1))),
        (DELETE, flow(3)),
        (MODIFY, default),
        (MODIFY, p4r.MeterEntry(meter_id=meter_id, config=p4r.MeterConfig(cir=5, pir=5))),
        (MODIFY, members),
        (MODIFY, p4r.DigestEntry(digest_id=digest_id)),
        (DELETE, p4r.DigestEntry(digest_id=digest_id)),
        (INSERT, p4r.MulticastGroupEntry(multicast_group_id=4)),
        (INSERT, flow(9)),
    ]
    assert all_or_none(externs, *updates, (INSERT, flow(1)), (INSERT, flow(8))) == [
        *["ABORTED"] * 12,
        "ALREADY_EXISTS",
        "ABORTED",
    ]
    assert externs.dump(*everything) == before
    assert all_or_none(externs, *updates) == ["OK"] * 12
    [now] = externs.read(everything[1])
    assert now.table_entry.action == default.action
    assert externs.read(p4r.DigestEntry()) == []


def test_an_entry_that_matches_everything_is_taken_back_alone(loaded: Client, names: Names) -> None:
    everything = p4r.TableEntry(table_id=names.table["lpm_table"], metadata=b"old")
    everything.action.action.CopyFrom(names.call("drop"))
    other = p4r.TableEntry(table_id=names.table["lpm_table"])
    other.CopyFrom(everything)
    lpm = other.match.add(field_id=1).lpm
    lpm.value, lpm.prefix_len = b"\x01\x00\x00\x00\x00\x00", 8
    assert loaded.write((INSERT, everything), (INSERT, other)) == ["OK"] * 2
    query = p4r.TableEntry(table_id=names.table["lpm_table"])
    before = loaded.dump(query)
    assert all_or_none(loaded, (DELETE, everything), (DELETE, everything)) == ["ABORTED", "NOT_FOUND"]
    everything.metadata = b"new"
    assert all_or_none(loaded, (MODIFY, everything), (INSERT, other)) == ["ABORTED", "ALREADY_EXISTS"]
    assert loaded.dump(query) == before


def test_cells_written_by_packets_are_restored_too(externs: Client, switch: Switch) -> None:
    """Counts, tokens, counts by color and times of hits of entries that a batch has deleted or changed."""
    slow = p4r.MeterConfig(cir=0, cburst=3, pir=0, pburst=4)
    kept, doomed = flow(1, slow), flow(2, slow)
    meter = p4r.MeterEntry(meter_id=EXTERNS.meters[0].preamble.id, index=p4r.Index(index=3), config=slow)
    default = p4r.TableEntry(table_id=FLOWS, is_default_action=True, action=flow(1).action, meter_config=slow)
    assert externs.write((INSERT, kept), (INSERT, doomed), (MODIFY, meter), (MODIFY, default)) == ["OK"] * 4

    def color(what: int, value: int) -> int:
        return switch.forward(bytes((what, 0, 0, value, 0, 0, 0, 0)), 0)[0][1][1]

    assert [color(1, 1), color(1, 2), color(1, 9), color(2, 3)] == [0, 0, 0, 2], "8 bytes are more than the burst"
    everything = (
        p4r.TableEntry(table_id=FLOWS, counter_data=p4r.CounterData(), meter_counter_data=p4r.MeterCounterData()),
        p4r.TableEntry(table_id=FLOWS, is_default_action=True, meter_counter_data=p4r.MeterCounterData()),
        p4r.MeterEntry(counter_data=p4r.MeterCounterData()),
    )
    before = externs.dump(*everything)
    fast = p4r.MeterConfig(cir=9, cburst=9, pir=9, pburst=9)
    changed, zero = flow(1, fast), p4r.MeterEntry(meter_id=meter.meter_id, counter_data=p4r.MeterCounterData())
    changed.meter_counter_data.SetInParent()
    key = p4r.TableEntry(table_id=FLOWS, is_default_action=True)
    updates = [(MODIFY, changed), (DELETE, doomed), (MODIFY, zero), (MODIFY, key)]
    for atomicity in (p4r.WriteRequest.ROLLBACK_ON_ERROR, AT_ONCE):
        assert all_or_none(externs, *updates, (INSERT, kept), atomicity=atomicity) == [
            *["ABORTED"] * 4,
            "ALREADY_EXISTS",
        ]
        assert externs.dump(*everything) == before
    assert [[color(1, value) for _ in range(4)] for value in (1, 2, 9)] == [[0, 0, 1, 2]] * 3


@pytest.mark.parametrize("atomicity", [p4r.WriteRequest.ROLLBACK_ON_ERROR, AT_ONCE])
def test_a_write_to_all_arrays_is_refused_before_any_read(
    loaded: Client, monkeypatch: pytest.MonkeyPatch, atomicity: p4r.WriteRequest.Atomicity.ValueType
) -> None:
    read = list[p4r.Entity]()
    monkeypatch.setattr(LoadedPipeline, "read", lambda _, query, *__: read.append(query))
    for entry in (p4r.RegisterEntry(), p4r.CounterEntry(), p4r.MeterEntry(), p4r.TableEntry()):
        assert all_or_none(loaded, (MODIFY, entry), atomicity=atomicity) == ["INVALID_ARGUMENT"]
    assert not read


def test_cells_of_a_failed_batch_are_brought_back(loaded: Client, names: Names) -> None:
    register, counter = next(iter(names.register.values())), next(iter(names.counter.values()))
    everything = (p4r.RegisterEntry(register_id=register), p4r.CounterEntry(counter_id=counter))
    one = p4r.CounterEntry(counter_id=counter, index=p4r.Index(index=1), data=p4r.CounterData(packet_count=5))
    assert loaded.write((MODIFY, one)) == ["OK"]
    before = loaded.dump(*everything)
    cell = loaded.read(p4r.RegisterEntry(register_id=register, index=p4r.Index(index=0)))[0].register_entry
    whole = p4r.RegisterEntry(register_id=register, data=cell.data)
    whole.data.bitstring = b"\x01"
    all_counts = p4r.CounterEntry(counter_id=counter, data=p4r.CounterData(packet_count=9))
    outcome = all_or_none(loaded, (MODIFY, whole), (MODIFY, all_counts), (DELETE, one))
    assert outcome == ["ABORTED", "ABORTED", "INVALID_ARGUMENT"]
    assert loaded.dump(*everything) == before


@pytest.mark.parametrize("atomicity", [p4r.WriteRequest.ROLLBACK_ON_ERROR, AT_ONCE])
def test_a_batch_copies_no_cell_that_it_leaves_as_it_is(
    loaded: Client, names: Names, monkeypatch: pytest.MonkeyPatch, atomicity: p4r.WriteRequest.Atomicity.ValueType
) -> None:
    """Cells that change besides it, as by packets, keep their new values when it is taken back."""
    register = next(iter(names.register.values()))
    first = p4r.RegisterEntry(register_id=register, index=p4r.Index(index=0))
    second = p4r.RegisterEntry(register_id=register, index=p4r.Index(index=1))
    cells = loaded.read(p4r.RegisterEntry(register_id=register))
    assert len(cells) > 1
    for cell in (first, second):
        cell.data.bitstring = b"\x01"
    write, besides = LoadedPipeline.write, p4r.Update(type=MODIFY, entity=p4r.Entity(register_entry=second))

    def written(pipeline: LoadedPipeline, update: p4r.Update) -> None:
        write(pipeline, update)
        write(pipeline, besides)

    with monkeypatch.context() as patched:
        patched.setattr(LoadedPipeline, "write", written)
        outside = p4r.RegisterEntry(register_id=register, index=p4r.Index(index=len(cells)), data=first.data)
        outcome = all_or_none(loaded, (MODIFY, first), (MODIFY, outside), atomicity=atomicity)
    assert outcome == ["ABORTED", "OUT_OF_RANGE"]
    [before, changed, *_] = loaded.read(p4r.RegisterEntry(register_id=register))
    assert before == cells[0]
    assert int.from_bytes(changed.register_entry.data.bitstring) == 1


def test_packets_see_an_atomic_batch_as_one_change(stages: Client, switch: Switch) -> None:
    """Two tables give a packet one number each; a packet that finds them different is counted as torn."""
    size = 60
    assert stages.write(*((INSERT, stage_entry(*what, 0)) for key in range(size) for what in entries_of(key))) == [
        "OK"
    ] * (2 * size)
    frames = np.zeros((size, 5), np.uint8)
    frames[:, 0] = np.arange(size)
    stop, runs = threading.Event(), 0

    def traffic() -> None:
        nonlocal runs
        while not stop.is_set():
            switch.process(frames, repeat=200)
            runs += 1

    packets = threading.Thread(target=traffic)
    packets.start()
    try:
        for value in range(1, 41):
            updates = [(MODIFY, stage_entry(*what, value)) for key in range(size) for what in entries_of(key)]
            assert all_or_none(stages, *updates, atomicity=AT_ONCE) == ["OK"] * (2 * size)
    finally:
        stop.set()
        packets.join()
    assert runs > 0
    [torn] = stages.read(p4r.CounterEntry(counter_id=stage("torn")))
    assert torn.counter_entry.data.packet_count == 0
    halves = [(MODIFY, stage_entry("firsts", 1, "set_first", 77))]
    assert all_or_none(stages, *halves, atomicity=AT_ONCE) == ["OK"]
    switch.process(frames)
    [torn] = stages.read(p4r.CounterEntry(counter_id=stage("torn")))
    assert torn.counter_entry.data.packet_count == 1, "the counter tells a torn change"


def entries_of(key: int) -> tuple[tuple[str, int, str], tuple[str, int, str]]:
    return ("firsts", key, "set_first"), ("seconds", key, "set_second")


def test_a_batch_for_ingress_and_egress_cannot_be_one_change(stages: Client) -> None:
    first, third = stage_entry("firsts", 1, "set_first", 1), stage_entry("thirds", 1, "set_third", 1)
    member = p4r.ActionProfileMember(action_profile_id=stage("paths"), member_id=1)
    member.action.CopyFrom(stage_entry("balanced", 0, "send", 1).action.action)
    group, counter = p4r.MulticastGroupEntry(multicast_group_id=1), p4r.CounterEntry(counter_id=stage("torn"))
    for other in (first, member, group):
        assert all_or_none(stages, (INSERT, third), (INSERT, other), atomicity=AT_ONCE) == ["UNIMPLEMENTED"]
    assert stages.read(p4r.TableEntry(table_id=third.table_id), p4r.MulticastGroupEntry()) == []
    assert all_or_none(stages, (INSERT, third), (MODIFY, counter), atomicity=AT_ONCE) == ["OK"] * 2
    assert all_or_none(stages, *((INSERT, each) for each in (first, member, group)), atomicity=AT_ONCE) == ["OK"] * 3
    nothing = p4r.TableEntry(table_id=77)
    assert all_or_none(stages, (DELETE, third), (INSERT, nothing), atomicity=AT_ONCE) == ["ABORTED", "INVALID_ARGUMENT"]
    assert len(stages.read(p4r.TableEntry(table_id=third.table_id))) == 1
    assert all_or_none(stages, atomicity=AT_ONCE) == []
