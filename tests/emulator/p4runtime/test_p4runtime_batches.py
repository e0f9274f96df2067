"""Batches that are applied as a whole or not at all."""

from __future__ import annotations

import grpc
from finsy.proto import p4r

from tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    EXTERNS,
    FLOWS,
    INSERT,
    MODIFY,
    Client,
    Names,
    batch_errors,
    flow,
)


def all_or_none(client: Client, *updates: tuple[p4r.Update.Type.ValueType, object]) -> list[str]:
    """Outcome of every update."""
    request = client.write_request(*updates)
    request.atomicity = p4r.WriteRequest.ROLLBACK_ON_ERROR
    try:
        client.stub.Write(request)
    except grpc.RpcError as error:
        return [code for code, _ in batch_errors(error)]
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
