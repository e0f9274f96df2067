"""Table entries: every match kind both ways, wildcards, defaults, constants, direct counters, and every refusal."""

from __future__ import annotations

import grpc
import pytest
from finsy.proto import p4r

from weir.tests.emulator.p4runtime.p4runtime_rig import DELETE, INSERT, MODIFY, Client, Names, text

WIDEST = b"\x0f" + b"\xff" * 12
"""The largest bit<100>."""


def mixed(
    names: Names,
    *,
    priority: int = 10,
    dst: tuple[bytes, bytes] | None = (b"\x10", b"\xf0"),
    kind: tuple[bytes, bytes] | None = (b"\x01", b"\x08\x00"),
    port: bytes | None = b"\x01\xff",
    src: bytes | None = b"\x02",
) -> p4r.TableEntry:
    """An entry of `mixed_table`; None leaves a field out."""
    entry = p4r.TableEntry(table_id=names.table["mixed_table"], priority=priority)
    if dst:
        field = entry.match.add(field_id=1)
        field.ternary.value, field.ternary.mask = dst
    if kind:
        field = entry.match.add(field_id=2)
        field.range.low, field.range.high = kind
    if port:
        entry.match.add(field_id=3).optional.value = port
    if src:
        entry.match.add(field_id=4).exact.value = src
    entry.action.action.CopyFrom(names.call("forward", b"\x01"))
    return entry


def lpm(names: Names, value: bytes = b"\x0a\x00\x00\x00\x00\x00", length: int = 8) -> p4r.TableEntry:
    """An entry of `lpm_table`; length 0 leaves the field out."""
    entry = p4r.TableEntry(table_id=names.table["lpm_table"])
    if length:
        field = entry.match.add(field_id=1)
        field.lpm.value, field.lpm.prefix_len = value, length
    entry.action.action.CopyFrom(names.call("forward", b"\x01"))
    return entry


def in_table(names: Names, table: str) -> p4r.TableEntry:
    return p4r.TableEntry(table_id=names.table[table])


def texts(*entries: p4r.TableEntry) -> set[str]:
    return {text(p4r.Entity(table_entry=entry)) for entry in entries}


def test_written_entries_are_read_back(loaded: Client, names: Names) -> None:
    entries = [
        names.exact_entry(b"\xff" * 6, b"\x08\x00", names.call("rewrite", b"\x01\xff", b"\x0a", WIDEST)),
        names.exact_entry(b"\x00", b"\x00", names.call("drop")),
        lpm(names),
        lpm(names, length=0),
        lpm(names, b"\x01", 48),
        mixed(names),
        mixed(names, priority=2**31 - 1),
        mixed(names, dst=None, kind=None, port=None),
        mixed(names, kind=(b"\x05", b"\x05")),
    ]
    assert loaded.write(*((INSERT, entry) for entry in entries)) == ["OK"] * len(entries)
    constants = loaded.dump(in_table(names, "const_table"))
    assert len(constants) == 2
    assert loaded.dump(p4r.TableEntry()) == texts(*entries) | constants
    assert loaded.dump(in_table(names, "lpm_table")) == texts(*entries[2:5])


def test_answers_are_canonical(loaded: Client, names: Names) -> None:
    padded = names.exact_entry(b"\x00" * 9 + b"\x01", b"\x00\x00\x02", names.call("forward", b"\x00\x00\x03"))
    assert loaded.write((INSERT, padded)) == ["OK"]
    canonical = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    assert loaded.dump(in_table(names, "exact_table")) == texts(canonical)
    assert loaded.write((INSERT, canonical)) == ["ALREADY_EXISTS"]


def test_fields_and_params_come_in_any_order(loaded: Client, names: Names) -> None:
    entry = names.exact_entry(b"\x01", b"\x02", names.call("rewrite", b"\x01", b"\x02", b"\x03"))
    shuffled = p4r.TableEntry(table_id=entry.table_id, match=reversed(entry.match))
    shuffled.action.action.action_id = entry.action.action.action_id
    shuffled.action.action.params.extend(reversed(entry.action.action.params))
    assert loaded.write((INSERT, shuffled)) == ["OK"]
    assert loaded.dump(in_table(names, "exact_table")) == texts(entry)


def test_modify_and_delete(loaded: Client, names: Names) -> None:
    entry = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    assert loaded.write((MODIFY, entry)) == ["NOT_FOUND"]
    assert loaded.write((DELETE, entry)) == ["NOT_FOUND"]
    assert loaded.write((INSERT, entry)) == ["OK"]
    entry.action.action.CopyFrom(names.call("drop"))
    entry.metadata = b"new"
    assert loaded.write((MODIFY, entry)) == ["OK"]
    assert loaded.dump(in_table(names, "exact_table")) == texts(entry)
    unchanged = names.exact_entry(b"\x01", b"\x02")
    unchanged.controller_metadata = 5
    assert loaded.write((MODIFY, unchanged)) == ["OK"]
    entry.metadata, entry.controller_metadata = b"", 5
    assert loaded.dump(in_table(names, "exact_table")) == texts(entry)
    nonsense = names.exact_entry(b"\x01", b"\x02", p4r.Action(action_id=12345))
    nonsense.is_const = True
    assert loaded.write((DELETE, nonsense)) == ["OK"]
    assert loaded.read(in_table(names, "exact_table")) == []


def test_priority_is_part_of_the_key(loaded: Client, names: Names) -> None:
    assert loaded.write((INSERT, mixed(names, priority=1)), (INSERT, mixed(names, priority=2))) == ["OK", "OK"]
    assert loaded.write((INSERT, mixed(names, priority=2))) == ["ALREADY_EXISTS"]
    assert loaded.write((DELETE, mixed(names, priority=3))) == ["NOT_FOUND"]
    assert loaded.write((DELETE, mixed(names, priority=1))) == ["OK"]
    assert loaded.dump(in_table(names, "mixed_table")) == texts(mixed(names, priority=2))


def test_a_batch_names_every_failure_and_does_the_rest(loaded: Client, names: Names) -> None:
    good = [names.exact_entry(bytes([i]), b"\x01", names.call("forward", b"\x01")) for i in range(3)]
    wide = names.exact_entry(b"\x09", b"\x01", names.call("forward", b"\x02\x00"))
    updates = [(INSERT, good[0]), (INSERT, wide), (INSERT, good[0]), (INSERT, good[1]), (DELETE, good[2])]
    assert loaded.write(*updates) == ["OK", "INVALID_ARGUMENT", "ALREADY_EXISTS", "OK", "NOT_FOUND"]
    assert loaded.dump(in_table(names, "exact_table")) == texts(*good[:2])
    assert "MainIngress.forward.port: value 0x0200 does not fit bit<9>" in loaded.explain((INSERT, wide))


def test_a_full_table_is_exhausted(loaded: Client, names: Names) -> None:
    entries = [lpm(names, bytes([i, 0, 0, 0, 0, 0])) for i in range(1, 6)]
    assert loaded.write(*((INSERT, entry) for entry in entries)) == ["OK"] * 4 + ["RESOURCE_EXHAUSTED"]


def test_an_unknown_atomicity_is_refused(loaded: Client, names: Names) -> None:
    request = loaded.write_request((INSERT, lpm(names)))
    request.atomicity = 7  # type: ignore[assignment]
    with pytest.raises(grpc.RpcError, match="atomicity 7 is none of CONTINUE_ON_ERROR") as error:
        loaded.stub.Write(request)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert loaded.read(in_table(names, "lpm_table")) == []


def test_malformed_entries_are_invalid(loaded: Client, names: Names) -> None:
    forward = names.call("forward", b"\x01")
    entry = names.exact_entry(b"\x01", b"\x02", forward)

    def changed(base: p4r.TableEntry, change: str, value: object = None) -> p4r.TableEntry:
        copy = p4r.TableEntry()
        copy.CopyFrom(base)
        match change:
            case "no action":
                copy.ClearField("action")
            case "half a key":
                del copy.match[1]
            case "twice a field":
                copy.match.add(field_id=1).exact.value = b"\x01"
            case "unknown field":
                copy.match.add(field_id=9).exact.value = b"\x01"
            case "kind of field":
                copy.match[0].lpm.value = b"\x01"
            case "no kind":
                copy.match[0].ClearField("exact")
            case "empty value":
                copy.match[0].exact.value = b""
            case "member":
                copy.action.action_profile_member_id = 1
            case "params":
                del copy.action.action.params[:]
                copy.action.action.params.extend(value)  # type: ignore[arg-type]
            case _:
                setattr(copy, change, value)
        return copy

    param = p4r.Action.Param
    malformed = [
        *(changed(entry, what) for what in ("no action", "half a key", "twice a field", "unknown field")),
        *(changed(entry, what) for what in ("kind of field", "no kind", "empty value", "member")),
        changed(entry, "table_id", 0),
        changed(entry, "table_id", 12345),
        changed(entry, "priority", 1),
        changed(entry, "is_const", True),
        changed(entry, "idle_timeout_ns", 1),
        changed(entry, "params", []),
        changed(entry, "params", [param(param_id=2, value=b"\x01")]),
        changed(entry, "params", [param(param_id=1)]),
        changed(entry, "params", [param(param_id=1, value=b"\x01"), param(param_id=1, value=b"\x01")]),
        names.exact_entry(b"\x01\x00\x00\x00\x00\x00\x00", b"\x02", forward),
        names.exact_entry(b"\x01", b"\x02", p4r.Action(action_id=1)),
        lpm(names, b"\x0a\x00\x00\x00\x00\x01", 8),
        lpm(names, b"\x00", 49),
        lpm(names, b"\x00", -1),
        mixed(names, priority=0),
        mixed(names, priority=-1),
        mixed(names, dst=(b"\x00", b"\x00")),
        mixed(names, dst=(b"\x11", b"\xf0")),
        mixed(names, dst=(b"\x10", b"")),
        mixed(names, kind=(b"\x02", b"\x01")),
        mixed(names, kind=(b"\x00", b"\xff\xff")),
        mixed(names, port=b"\x02\x00"),
        mixed(names, src=None),
    ]
    explicit_zero = lpm(names, length=0)
    explicit_zero.match.add(field_id=1).lpm.value = b"\x00"
    malformed.append(explicit_zero)
    keyless = p4r.TableEntry(table_id=names.table["keyless_table"])
    keyless.action.action.CopyFrom(forward)
    malformed.append(keyless)
    uncounted = lpm(names)
    uncounted.counter_data.packet_count = 1
    malformed.append(uncounted)
    negative = names.exact_entry(b"\x01", b"\x02", forward)
    negative.counter_data.packet_count = -1
    assert loaded.write(*((INSERT, bad) for bad in malformed)) == ["INVALID_ARGUMENT"] * len(malformed)
    assert loaded.write((p4r.Update.UNSPECIFIED, entry), (INSERT, p4r.Entity())) == ["INVALID_ARGUMENT"] * 2
    assert loaded.dump(p4r.TableEntry()) == loaded.dump(in_table(names, "const_table"))
    assert loaded.write((INSERT, negative)) == ["INVALID_ARGUMENT"]
    assert loaded.read(in_table(names, "exact_table")) == []


def test_action_scopes(loaded: Client, names: Names) -> None:
    only_default = names.exact_entry(b"\x01", b"\x02", names.call("only_default"))
    default = p4r.TableEntry(table_id=names.table["exact_table"], is_default_action=True)
    default.action.action.CopyFrom(names.call("drop"))
    assert loaded.write((INSERT, only_default), (MODIFY, default)) == ["PERMISSION_DENIED"] * 2


def test_default_entries(loaded: Client, names: Names) -> None:
    default = p4r.TableEntry(table_id=names.table["exact_table"], is_default_action=True)
    original = p4r.TableEntry(table_id=names.table["exact_table"], is_default_action=True)
    original.action.action.CopyFrom(names.call("only_default"))
    assert loaded.dump(default) == texts(original)
    changed = p4r.TableEntry(table_id=names.table["exact_table"], is_default_action=True, metadata=b"m")
    changed.action.action.CopyFrom(names.call("forward", b"\x05"))
    assert loaded.write((INSERT, changed), (DELETE, changed)) == ["INVALID_ARGUMENT"] * 2
    assert loaded.write((MODIFY, changed)) == ["OK"]
    assert loaded.dump(default) == texts(changed)
    assert loaded.write((MODIFY, default)) == ["OK"]
    assert loaded.dump(default) == texts(original)
    constant = p4r.TableEntry(table_id=names.table["lpm_table"], is_default_action=True)
    assert loaded.write((MODIFY, constant)) == ["PERMISSION_DENIED"]
    assert all(found.table_entry.is_const for found in loaded.read(constant))
    for table in ("profile_table", "selector_table"):
        assert loaded.write((MODIFY, p4r.TableEntry(table_id=names.table[table], is_default_action=True))) == [
            "PERMISSION_DENIED"
        ]
    matched = names.exact_entry(b"\x01", b"\x02")
    matched.is_default_action = True
    changed.priority = 1
    assert loaded.write((MODIFY, matched), (MODIFY, changed)) == ["INVALID_ARGUMENT"] * 2
    assert len(loaded.read(p4r.TableEntry(is_default_action=True))) == len(names.table)


def test_constant_tables(loaded: Client, names: Names) -> None:
    def constant(kind: bytes, port: bytes) -> p4r.TableEntry:
        entry = p4r.TableEntry(table_id=names.table["const_table"], is_const=True)
        entry.match.add(field_id=1).exact.value = kind
        entry.action.action.CopyFrom(names.call("forward", port))
        return entry

    expected = texts(constant(b"\x08\x00", b"\x01"), constant(b"\x86\xdd", b"\x02"))
    assert loaded.dump(in_table(names, "const_table")) == expected
    fresh = constant(b"\x01", b"\x01")
    known = constant(b"\x08\x00", b"\x01")
    fresh.is_const = known.is_const = False
    updates = [(INSERT, fresh), (MODIFY, known), (DELETE, known)]
    assert loaded.write(*updates) == ["PERMISSION_DENIED"] * 3
    assert loaded.dump(in_table(names, "const_table")) == expected


def test_wildcard_reads_select(loaded: Client, names: Names) -> None:
    forward, drop = names.call("forward", b"\x01"), names.call("drop")
    first = names.exact_entry(b"\x01", b"\x01", forward)
    second = names.exact_entry(b"\x02", b"\x01", drop)
    third = names.exact_entry(b"\x03", b"\x01", forward)
    second.metadata, third.controller_metadata = b"m", 8
    low, high = mixed(names, priority=1), mixed(names, priority=2)
    assert loaded.write(*((INSERT, entry) for entry in (first, second, third, low, high))) == ["OK"] * 5
    table = names.table["exact_table"]
    by_action = p4r.TableEntry(table_id=table)
    by_action.action.action.action_id = names.action["forward"]
    assert loaded.dump(by_action) == texts(first, third)
    assert loaded.dump(p4r.TableEntry(table_id=table, metadata=b"m")) == texts(second)
    assert loaded.dump(p4r.TableEntry(table_id=table, controller_metadata=8)) == texts(third)
    assert loaded.dump(names.exact_entry(b"\x01", b"\x01")) == texts(first)
    assert loaded.read(names.exact_entry(b"\x07", b"\x01")) == []
    assert loaded.dump(p4r.TableEntry(table_id=names.table["mixed_table"], priority=2)) == texts(high)
    any_priority = mixed(names, priority=0)
    any_priority.ClearField("action")
    assert loaded.dump(any_priority) == texts(low, high)
    for filtered in (p4r.TableEntry(priority=1), p4r.TableEntry(metadata=b"m"), p4r.TableEntry(match=first.match)):
        assert loaded.read_outcome(filtered) == ["INVALID_ARGUMENT"], "a table id of 0 allows no other filter"
    bad = p4r.TableEntry(table_id=table)
    bad.action.action_profile_member_id = 1
    unknown = p4r.TableEntry(table_id=5)
    outcomes = loaded.read_outcome(by_action, bad, unknown, p4r.Entity())
    assert outcomes == ["OK", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]


def test_direct_counters(loaded: Client, names: Names) -> None:
    entry = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    other = names.exact_entry(b"\x02", b"\x02", names.call("forward", b"\x03"))
    key, other_key = names.exact_entry(b"\x01", b"\x02"), names.exact_entry(b"\x02", b"\x02")

    def counter(of: p4r.TableEntry, packets: int, octets: int) -> p4r.DirectCounterEntry:
        return p4r.DirectCounterEntry(table_entry=of, data=p4r.CounterData(packet_count=packets, byte_count=octets))

    entry.counter_data.packet_count, entry.counter_data.byte_count = 3, 300
    assert loaded.write((INSERT, entry), (INSERT, other)) == ["OK", "OK"]
    every = p4r.DirectCounterEntry(table_entry=in_table(names, "exact_table"))
    assert loaded.dump(every) == {
        text(p4r.Entity(direct_counter_entry=counter(key, 3, 300))),
        text(p4r.Entity(direct_counter_entry=counter(other_key, 0, 0))),
    }
    assert loaded.dump(p4r.DirectCounterEntry(table_entry=p4r.TableEntry())) == loaded.dump(every)
    assert loaded.write((MODIFY, counter(other_key, 2**62, 7))) == ["OK"]
    one = p4r.DirectCounterEntry(table_entry=other_key)
    assert loaded.dump(one) == {text(p4r.Entity(direct_counter_entry=counter(other_key, 2**62, 7)))}
    assert loaded.write((MODIFY, p4r.DirectCounterEntry(table_entry=other_key))) == ["OK"]
    assert loaded.dump(one) == {text(p4r.Entity(direct_counter_entry=counter(other_key, 2**62, 7)))}
    shown = in_table(names, "exact_table")
    shown.counter_data.SetInParent()
    other.counter_data.packet_count, other.counter_data.byte_count = 2**62, 7
    assert loaded.dump(shown) == texts(entry, other)
    assert loaded.write((INSERT, counter(key, 1, 1)), (DELETE, counter(key, 1, 1))) == ["INVALID_ARGUMENT"] * 2
    absent = names.exact_entry(b"\x09", b"\x02")
    assert loaded.write((MODIFY, counter(absent, 1, 1)), (MODIFY, counter(key, -1, 1))) == [
        "NOT_FOUND",
        "INVALID_ARGUMENT",
    ]
    queries = [absent, in_table(names, "lpm_table")]
    assert loaded.read_outcome(*(p4r.DirectCounterEntry(table_entry=query) for query in queries)) == [
        "NOT_FOUND",
        "INVALID_ARGUMENT",
    ]
    assert loaded.write((DELETE, other), (INSERT, other_of(other))) == ["OK", "OK"]
    assert loaded.dump(one) == {text(p4r.Entity(direct_counter_entry=counter(other_key, 0, 0)))}


def other_of(entry: p4r.TableEntry) -> p4r.TableEntry:
    """The same entry with a fresh counter."""
    copy = p4r.TableEntry()
    copy.CopyFrom(entry)
    copy.ClearField("counter_data")
    return copy


def test_ten_thousand_entries_in_one_batch(loaded: Client, names: Names) -> None:
    forward = names.call("forward", b"\x01")
    entries = [names.exact_entry((i + 1).to_bytes(2, "big"), b"\x01", forward) for i in range(10_000)]
    for entry in entries:
        entry.match[0].exact.value = entry.match[0].exact.value.lstrip(b"\x00")
    request = loaded.write_request(*((INSERT, entry) for entry in entries))
    loaded.stub.Write(request)
    assert loaded.dump(in_table(names, "exact_table")) == texts(*entries)
