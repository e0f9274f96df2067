"""Idle timeouts: values in entries, notifications, and their repetition. Times are the switch's."""

from __future__ import annotations

from finsy.proto import p4r

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    FLOWS,
    INSERT,
    MODIFY,
    Client,
    Stream,
    flow,
    outcome,
    table_id,
    text,
)

MS = 1_000_000


def aging(value: int, timeout_ms: int, metadata: bytes = b"") -> p4r.TableEntry:
    entry = flow(value)
    entry.idle_timeout_ns, entry.metadata = timeout_ms * MS, metadata
    return entry


def hit(switch: Switch, value: int, at_ms: int) -> None:
    switch.forward(bytes((1, 0)) + value.to_bytes(2, "big") + bytes(4), 2, at_ms * MS)


def wait(switch: Switch, at_ms: int) -> None:
    switch.forward(bytes(8), 2, at_ms * MS)


def idle(stream: Stream) -> tuple[int, list[tuple[int, int, bytes]]]:
    """Time in ms; value, timeout in ms and metadata of each entry."""
    notification = stream.receive().idle_timeout_notification
    assert notification.table_entry, notification
    entries = []
    for entry in notification.table_entry:
        assert entry.table_id == FLOWS
        value = int.from_bytes(entry.match[0].exact.value, "big")
        entries.append((value, entry.idle_timeout_ns // MS, entry.metadata))
    return notification.timestamp // MS, entries


def test_idle_entries_are_told_again_after_each_timeout(
    externs: Client, externs_stream: Stream, switch: Switch
) -> None:
    assert externs.write((INSERT, aging(1, 100, b"mine")), (INSERT, aging(2, 250)), (INSERT, flow(3))) == ["OK"] * 3
    for at_ms in (99, 100, 150, 199):
        wait(switch, at_ms)
    assert idle(externs_stream) == (100, [(1, 100, b"mine")])
    wait(switch, 200)
    assert idle(externs_stream) == (200, [(1, 100, b"mine")])
    hit(switch, 1, 260)
    assert idle(externs_stream) == (260, [(2, 250, b"")])
    for at_ms in (300, 359, 361):
        wait(switch, at_ms)
    assert idle(externs_stream) == (361, [(1, 100, b"mine")])
    hit(switch, 2, 400)
    assert externs.write((DELETE, aging(1, 0)), (MODIFY, aging(2, 0))) == ["OK"] * 2
    assert (switch.on_digest, switch.on_poll) == (None, None)
    wait(switch, 5000)
    assert externs.write((MODIFY, aging(3, 10))) == ["OK"]
    wait(switch, 5001)
    assert idle(externs_stream) == (5001, [(3, 10, b"")])


def test_an_idle_entry_without_a_primary_is_told_to_the_next(
    externs: Client, externs_stream: Stream, externs_server: P4RuntimeServer, switch: Switch
) -> None:
    assert externs.write((INSERT, aging(1, 100))) == ["OK"]
    externs_stream.close()
    assert externs_stream.ended() == "OK"
    wait(switch, 100)
    stream = externs.primary()
    wait(switch, 101)
    assert idle(stream) == (101, [(1, 100, b"")])
    stream.close()


def test_time_since_the_last_hit(externs: Client, switch: Switch) -> None:
    wait(switch, 10)
    assert externs.write((INSERT, aging(1, 100)), (INSERT, flow(2))) == ["OK"] * 2
    hit(switch, 2, 30)
    wait(switch, 45)
    query = p4r.TableEntry(table_id=FLOWS)
    assert externs.dump(query) == {text(p4r.Entity(table_entry=entry)) for entry in (aging(1, 100), flow(2))}
    query.time_since_last_hit.SetInParent()
    found = {
        e.table_entry.match[0].exact.value: e.table_entry.time_since_last_hit.elapsed_ns for e in externs.read(query)
    }
    assert found == {b"\x01": 35 * MS, b"\x02": 15 * MS}
    everything = p4r.TableEntry(time_since_last_hit=p4r.TableEntry.IdleTimeout())
    assert outcome(lambda: externs.read(everything)) == "OK"
    elsewhere = p4r.TableEntry(table_id=table_id("plain"), time_since_last_hit=p4r.TableEntry.IdleTimeout())
    default = p4r.TableEntry(table_id=FLOWS, is_default_action=True, time_since_last_hit=p4r.TableEntry.IdleTimeout())
    assert externs.read_outcome(elsewhere, default) == ["INVALID_ARGUMENT"] * 2


def test_idle_timeouts_that_cannot_be_are_refused(externs: Client) -> None:
    elsewhere, default, told = aging(1, 1), p4r.TableEntry(table_id=FLOWS, is_default_action=True), aging(1, 1)
    elsewhere.table_id, default.idle_timeout_ns = table_id("plain"), 1
    told.time_since_last_hit.elapsed_ns = 5
    bad = [(INSERT, elsewhere), (MODIFY, default), (INSERT, told), (INSERT, aging(1, -1))]
    assert externs.write(*bad) == ["INVALID_ARGUMENT"] * 4
    assert externs.dump(p4r.TableEntry(table_id=FLOWS)) == set()
