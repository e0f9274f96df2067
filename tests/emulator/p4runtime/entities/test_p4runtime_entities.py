"""Action profiles, counter and register arrays, multicast groups and clone sessions; and entities without support."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r

from weir.emulator.entries import CloneSession, Replica
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    INSERT,
    MODIFY,
    Client,
    Names,
    RecordingDatapath,
    entity,
    text,
)


def member(names: Names, profile: str, member_id: int, port: bytes = b"\x01") -> p4r.ActionProfileMember:
    return p4r.ActionProfileMember(
        action_profile_id=names.profile[profile], member_id=member_id, action=names.call("forward", port)
    )


def group(names: Names, group_id: int, *members: tuple[int, int], max_size: int = 0) -> p4r.ActionProfileGroup:
    """Members are (id, weight)."""
    message = p4r.ActionProfileGroup(action_profile_id=names.profile["paths"], group_id=group_id, max_size=max_size)
    for member_id, weight in members:
        message.members.add(member_id=member_id, weight=weight)
    return message


def indirect(names: Names, table: str, dst: bytes, **action: Any) -> p4r.TableEntry:
    """An entry of `profile_table` or `selector_table`."""
    entry = p4r.TableEntry(table_id=names.table[table], action=p4r.TableAction(**action))
    entry.match.add(field_id=1).exact.value = dst
    return entry


def one_shot(names: Names, *actions: tuple[bytes, int]) -> p4r.ActionProfileActionSet:
    """Actions are (port, weight)."""
    message = p4r.ActionProfileActionSet()
    for port, weight in actions:
        message.action_profile_actions.add(action=names.call("forward", port), weight=weight)
    return message


def texts(*messages: object) -> set[str]:
    return {text(entity(message)) for message in messages}


# -- action profiles


def test_members(loaded: Client, names: Names) -> None:
    first, second = member(names, "next_hops", 1), member(names, "next_hops", 2**32 - 1)
    elsewhere = member(names, "paths", 1, b"\x07")
    assert loaded.write((INSERT, first), (INSERT, second), (INSERT, elsewhere)) == ["OK"] * 3
    assert loaded.write((INSERT, first)) == ["ALREADY_EXISTS"]
    everything = p4r.ActionProfileMember()
    assert loaded.dump(everything) == texts(first, second, elsewhere)
    of_one = p4r.ActionProfileMember(action_profile_id=names.profile["next_hops"])
    assert loaded.dump(of_one) == texts(first, second)
    of_one.member_id = 1
    assert loaded.dump(of_one) == texts(first)
    of_one.member_id = 5
    assert loaded.read_outcome(of_one) == ["NOT_FOUND"]
    first.action.CopyFrom(names.call("drop"))
    assert loaded.write((MODIFY, first), (MODIFY, member(names, "paths", 2)), (DELETE, second)) == [
        "OK",
        "NOT_FOUND",
        "OK",
    ]
    assert loaded.dump(everything) == texts(first, elsewhere)
    assert loaded.write((DELETE, second)) == ["NOT_FOUND"]
    nameless = member(names, "paths", 0)
    empty = p4r.ActionProfileMember(action_profile_id=names.profile["paths"], member_id=9)
    lost = p4r.ActionProfileMember(action_profile_id=5, member_id=9)
    foreign = member(names, "paths", 9)
    foreign.action.CopyFrom(names.call("rewrite", b"\x01", b"\x01", b"\x01"))
    updates = [(INSERT, bad) for bad in (nameless, empty, lost, foreign)]
    assert loaded.write(*updates) == ["INVALID_ARGUMENT"] * 4
    assert loaded.read_outcome(p4r.ActionProfileMember(member_id=1)) == ["INVALID_ARGUMENT"]


def test_a_full_profile_is_exhausted(loaded: Client, names: Names) -> None:
    updates = [(INSERT, member(names, "next_hops", i)) for i in range(1, 18)]
    assert loaded.write(*updates) == ["OK"] * 16 + ["RESOURCE_EXHAUSTED"]


def test_groups(loaded: Client, names: Names) -> None:
    members = [member(names, "paths", i) for i in (1, 2, 3)]
    assert loaded.write(*((INSERT, each) for each in members)) == ["OK"] * 3
    first, second = group(names, 1, (1, 1), (2, 3), max_size=8), group(names, 2)
    first.members[0].watch_port = b"\x05"
    assert loaded.write((INSERT, first), (INSERT, second)) == ["OK", "OK"]
    assert loaded.dump(p4r.ActionProfileGroup()) == texts(first, second)
    assert loaded.write((INSERT, first), (MODIFY, group(names, 3))) == ["ALREADY_EXISTS", "NOT_FOUND"]
    del first.members[0]
    assert loaded.write((MODIFY, first)) == ["OK"]
    one = p4r.ActionProfileGroup(action_profile_id=names.profile["paths"], group_id=1)
    assert loaded.dump(one) == texts(first)
    assert loaded.write((DELETE, members[1]), (DELETE, members[0])) == ["FAILED_PRECONDITION", "OK"]
    one.group_id = 7
    assert loaded.read_outcome(one) == ["NOT_FOUND"]
    absent = group(names, 9, (2, 1))
    absent.members[0].watch_port = b"\x01\x2c"
    malformed = {
        "zero id": (group(names, 0), "INVALID_ARGUMENT"),
        "unknown member": (group(names, 9, (99, 1)), "NOT_FOUND"),
        "member twice": (group(names, 9, (2, 1), (2, 1)), "INVALID_ARGUMENT"),
        "no weight": (group(names, 9, (2, 0)), "INVALID_ARGUMENT"),
        "negative weight": (group(names, 9, (2, -1)), "INVALID_ARGUMENT"),
        "above its own limit": (group(names, 9, (2, 2), (3, 2), max_size=3), "RESOURCE_EXHAUSTED"),
        "negative limit": (group(names, 9, max_size=-1), "INVALID_ARGUMENT"),
        "a port that is not there": (absent, "INVALID_ARGUMENT"),
    }
    outcomes = loaded.write(*((INSERT, message) for message, _ in malformed.values()))
    assert dict(zip(malformed, outcomes, strict=True)) == {what: code for what, (_, code) in malformed.items()}
    assert loaded.write((MODIFY, group(names, 1, (2, 3), max_size=9))) == ["INVALID_ARGUMENT"]
    for port in (0, 4, 300):
        numeric = group(names, 10 + port, (2, 1))
        numeric.members[0].watch = port
        assert loaded.write((INSERT, numeric)) == ["OK" if port < 256 else "INVALID_ARGUMENT"]
    assert loaded.write((DELETE, group(names, 10)), (DELETE, group(names, 14))) == ["OK"] * 2
    assert loaded.write((DELETE, group(names, 2)), (DELETE, group(names, 2))) == ["OK", "NOT_FOUND"]
    assert loaded.dump(p4r.ActionProfileGroup()) == texts(first)
    no_selector = p4r.ActionProfileGroup(action_profile_id=names.profile["next_hops"], group_id=1)
    assert loaded.write((INSERT, no_selector)) == ["INVALID_ARGUMENT"]


def test_entries_use_members_and_groups(loaded: Client, names: Names) -> None:
    assert loaded.write((INSERT, member(names, "paths", 1)), (INSERT, member(names, "next_hops", 1))) == ["OK"] * 2
    assert loaded.write((INSERT, group(names, 4, (1, 1)))) == ["OK"]
    by_member = indirect(names, "selector_table", b"\x01", action_profile_member_id=1)
    by_group = indirect(names, "selector_table", b"\x02", action_profile_group_id=4)
    simple = indirect(names, "profile_table", b"\x01", action_profile_member_id=1)
    assert loaded.write((INSERT, by_member), (INSERT, by_group), (INSERT, simple)) == ["OK"] * 3
    for table, expected in (("selector_table", texts(by_member, by_group)), ("profile_table", texts(simple))):
        assert loaded.dump(p4r.TableEntry(table_id=names.table[table])) == expected
    updates = [
        (INSERT, indirect(names, "selector_table", b"\x09", action_profile_member_id=2)),
        (INSERT, indirect(names, "selector_table", b"\x09", action_profile_group_id=2)),
        (INSERT, indirect(names, "profile_table", b"\x09", action_profile_group_id=4)),
        (INSERT, indirect(names, "selector_table", b"\x09", action=names.call("forward", b"\x01"))),
        (INSERT, indirect(names, "selector_table", b"\x09", action_profile_action_set=one_shot(names, (b"\x01", 1)))),
        (DELETE, group(names, 4)),
        (DELETE, member(names, "next_hops", 1)),
    ]
    assert loaded.write(*updates) == [
        "NOT_FOUND",
        "NOT_FOUND",
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "FAILED_PRECONDITION",
    ]
    moved = indirect(names, "selector_table", b"\x02", action_profile_member_id=1)
    assert loaded.write((MODIFY, moved), (DELETE, group(names, 4)), (DELETE, simple)) == ["OK"] * 3
    assert loaded.write((DELETE, member(names, "next_hops", 1)), (DELETE, member(names, "paths", 1))) == [
        "OK",
        "FAILED_PRECONDITION",
    ]


def test_one_shot_sets(loaded: Client, names: Names) -> None:
    actions = one_shot(names, (b"\x01", 1), (b"\x02", 3), (b"\x01", 1))
    actions.action_profile_actions[1].watch_port = b"\x01"
    entry = indirect(names, "selector_table", b"\x01", action_profile_action_set=actions)
    assert loaded.write((INSERT, entry)) == ["OK"]
    query = p4r.TableEntry(table_id=names.table["selector_table"])
    assert loaded.dump(query) == texts(entry)
    assert loaded.read(p4r.ActionProfileMember(), p4r.ActionProfileGroup()) == []
    assert loaded.write((INSERT, member(names, "paths", 1)), (INSERT, group(names, 1))) == ["INVALID_ARGUMENT"] * 2
    entry.action.action_profile_action_set.CopyFrom(one_shot(names, (b"\x03", 2)))
    assert loaded.write((MODIFY, entry)) == ["OK"]
    assert loaded.dump(query) == texts(entry)
    random, unknown, absent = (one_shot(names, (b"\x01", 1)) for _ in range(3))
    random.action_selection_mode = p4r.ActionProfileActionSet.RANDOM
    unknown.size_semantics = 9  # type: ignore[assignment]
    absent.action_profile_actions[0].watch_port = b"\x01\x2c"
    attempts = {
        "random": (random, "UNIMPLEMENTED"),
        "unknown semantics": (unknown, "INVALID_ARGUMENT"),
        "a port that is not there": (absent, "INVALID_ARGUMENT"),
        "no weight": (one_shot(names, (b"\x01", 0)), "INVALID_ARGUMENT"),
        "too wide": (one_shot(names, (b"\x02\x00", 1)), "INVALID_ARGUMENT"),
        "too heavy": (one_shot(names, (b"\x01", 60_000)), "RESOURCE_EXHAUSTED"),
    }
    outcomes = loaded.write(
        *(
            (INSERT, indirect(names, "selector_table", b"\x02", action_profile_action_set=message))
            for message, _ in attempts.values()
        )
    )
    assert dict(zip(attempts, outcomes, strict=True)) == {what: code for what, (_, code) in attempts.items()}
    settings = p4r.ActionProfileActionSet
    for semantics in (settings.SUM_OF_MEMBERS, settings.SUM_OF_WEIGHTS):
        other = one_shot(names, (b"\x01", 1), (b"\x02", 2))
        other.action_selection_mode, other.size_semantics = settings.HASH, semantics
        other.action_profile_actions[0].watch = 7
        described = indirect(names, "selector_table", b"\x07", action_profile_action_set=other)
        assert loaded.write((INSERT, described)) == ["OK"]
        assert loaded.dump(query) == texts(entry, described)
        assert loaded.write((DELETE, described)) == ["OK"]
    empty = indirect(names, "selector_table", b"\x08", action_profile_action_set=one_shot(names))
    assert loaded.write((INSERT, empty)) == ["OK"]
    assert loaded.dump(query) == texts(entry, empty)
    assert loaded.write((DELETE, empty)) == ["OK"]
    no_selector = indirect(names, "profile_table", b"\x02", action_profile_action_set=one_shot(names, (b"\x01", 1)))
    assert loaded.write((INSERT, no_selector)) == ["INVALID_ARGUMENT"]
    assert loaded.dump(query) == texts(entry)
    assert loaded.write((DELETE, entry), (INSERT, member(names, "paths", 1))) == ["OK", "OK"]


# -- arrays


def count(names: Names, index: int | None, packets: int, octets: int) -> p4r.CounterEntry:
    entry = p4r.CounterEntry(
        counter_id=names.counter["ports"], data=p4r.CounterData(packet_count=packets, byte_count=octets)
    )
    if index is not None:
        entry.index.index = index
        entry.index.SetInParent()
    return entry


def cell(names: Names, register: str, index: int | None, data: bytes | None = None) -> p4r.RegisterEntry:
    entry = p4r.RegisterEntry(register_id=names.register[register])
    if index is not None:
        entry.index.index = index
        entry.index.SetInParent()
    if data is not None:
        entry.data.bitstring = data
    return entry


def test_counters(loaded: Client, names: Names) -> None:
    assert loaded.write((MODIFY, count(names, None, 1, 10)), (MODIFY, count(names, 2, 2**63 - 1, 20))) == ["OK"] * 2
    expected = texts(*(count(names, i, *((2**63 - 1, 20) if i == 2 else (1, 10))) for i in range(6)))
    assert loaded.dump(p4r.CounterEntry()) == expected
    assert loaded.dump(p4r.CounterEntry(counter_id=names.counter["ports"])) == expected
    one = count(names, 0, 0, 0)
    one.ClearField("data")
    assert loaded.dump(one) == texts(count(names, 0, 1, 10))
    assert loaded.write((MODIFY, one)) == ["OK"]
    assert loaded.dump(p4r.CounterEntry()) == expected
    updates = [
        (INSERT, count(names, 0, 1, 1)),
        (DELETE, count(names, 0, 1, 1)),
        (MODIFY, count(names, -1, 1, 1)),
        (MODIFY, count(names, 6, 1, 1)),
        (MODIFY, count(names, 0, -1, 1)),
        (MODIFY, p4r.CounterEntry()),
        (MODIFY, p4r.CounterEntry(counter_id=77)),
    ]
    assert loaded.write(*updates) == [*["INVALID_ARGUMENT"] * 3, "OUT_OF_RANGE", *["INVALID_ARGUMENT"] * 3]
    assert loaded.read_outcome(count(names, 6, 0, 0), count(names, -1, 0, 0)) == ["OUT_OF_RANGE", "INVALID_ARGUMENT"]
    assert loaded.dump(p4r.CounterEntry()) == expected


def test_registers(loaded: Client, names: Names, datapath: RecordingDatapath) -> None:
    widest = b"\x0f" + b"\xff" * 12
    updates = [
        (MODIFY, cell(names, "last_seen", 7, b"\x00" * 4 + b"\xff" * 6)),
        (MODIFY, cell(names, "levels", None, b"\xff")),
        (MODIFY, cell(names, "levels", 1, b"\x80\x00")),
        (MODIFY, cell(names, "levels", 2, b"\x7f\xff")),
        (MODIFY, cell(names, "wide_values", 1, widest)),
    ]
    assert loaded.write(*updates) == ["OK"] * 5
    assert loaded.dump(p4r.RegisterEntry()) == texts(
        *(cell(names, "last_seen", i, b"\xff" * 6 if i == 7 else b"\x00") for i in range(8)),
        *(cell(names, "levels", i, data) for i, data in enumerate((b"\xff", b"\x80\x00", b"\x7f\xff", b"\xff"))),
        cell(names, "wide_values", 0, b"\x00"),
        cell(names, "wide_values", 1, widest),
    )
    assert loaded.dump(cell(names, "levels", 1)) == texts(cell(names, "levels", 1, b"\x80\x00"))
    assert datapath.state is not None
    assert datapath.state.registers["MainIngress.levels"].read(0) == 0xFFFF
    typed = cell(names, "levels", 0)
    typed.data.bool = True
    bad = [
        (INSERT, cell(names, "levels", 0, b"\x01"), "INVALID_ARGUMENT"),
        (DELETE, cell(names, "levels", 0, b"\x01"), "INVALID_ARGUMENT"),
        (MODIFY, cell(names, "levels", 0, b"\x80\x00\x00"), "INVALID_ARGUMENT"),
        (MODIFY, cell(names, "levels", 0, b""), "INVALID_ARGUMENT"),
        (MODIFY, cell(names, "last_seen", 0, b"\x01" + b"\x00" * 6), "INVALID_ARGUMENT"),
        (MODIFY, cell(names, "levels", 4, b"\x01"), "OUT_OF_RANGE"),
        (MODIFY, cell(names, "levels", -1, b"\x01"), "INVALID_ARGUMENT"),
        (MODIFY, typed, "INVALID_ARGUMENT"),
        (MODIFY, p4r.RegisterEntry(), "INVALID_ARGUMENT"),
    ]
    assert loaded.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert loaded.read_outcome(cell(names, "levels", 4), p4r.RegisterEntry(register_id=1)) == [
        "OUT_OF_RANGE",
        "INVALID_ARGUMENT",
    ]


# -- replication


def replica(port: bytes, instance: int = 0) -> p4r.Replica:
    return p4r.Replica(port=port, instance=instance)


def backed(port: bytes, *backups: tuple[bytes, int]) -> p4r.Replica:
    """A replica of instance 0 with backups, (port, instance) each."""
    return p4r.Replica(
        port=port, backup_replicas=[p4r.BackupReplica(port=port, instance=instance) for port, instance in backups]
    )


def test_multicast_groups(loaded: Client, datapath: RecordingDatapath) -> None:
    first = p4r.MulticastGroupEntry(
        multicast_group_id=1, replicas=[replica(b"\x01", 1), replica(b"\x01", 2), replica(b"\x01\xfe", 65535)]
    )
    last = p4r.MulticastGroupEntry(multicast_group_id=65535, metadata=b"mine")
    old = p4r.MulticastGroupEntry(multicast_group_id=2, replicas=[p4r.Replica(egress_port=3, instance=4)])
    assert loaded.write((INSERT, first), (INSERT, last), (INSERT, old)) == ["OK"] * 3
    assert dict(datapath.replication.groups) == {
        1: (Replica(1, 1), Replica(1, 2), Replica(510, 65535)),
        2: (Replica(3, 4),),
        65535: (),
    }
    assert loaded.dump(p4r.MulticastGroupEntry()) == texts(first, old, last)
    assert loaded.dump(p4r.MulticastGroupEntry(multicast_group_id=2)) == texts(old)
    datapath.replication.set_group(2, (Replica(9, 9),))
    changed = p4r.MulticastGroupEntry(multicast_group_id=2, replicas=[replica(b"\x09", 9)])
    assert loaded.dump(p4r.MulticastGroupEntry(multicast_group_id=2)) == texts(changed)
    backup = backed(b"\x01", (b"\x02", 0), (b"\x01", 7))
    bad = [
        (INSERT, first, "ALREADY_EXISTS"),
        (MODIFY, p4r.MulticastGroupEntry(multicast_group_id=5), "NOT_FOUND"),
        (DELETE, p4r.MulticastGroupEntry(multicast_group_id=5), "NOT_FOUND"),
        (INSERT, p4r.MulticastGroupEntry(), "INVALID_ARGUMENT"),
        (INSERT, p4r.MulticastGroupEntry(multicast_group_id=65536), "INVALID_ARGUMENT"),
        *(
            (INSERT, p4r.MulticastGroupEntry(multicast_group_id=5, replicas=replicas), code)
            for replicas, code in (
                ([replica(b"\x01"), replica(b"\x00\x01")], "INVALID_ARGUMENT"),
                ([replica(b"\x02\x00")], "INVALID_ARGUMENT"),
                ([replica(b"")], "INVALID_ARGUMENT"),
                ([p4r.Replica(instance=1)], "INVALID_ARGUMENT"),
                ([p4r.Replica(egress_port=512)], "INVALID_ARGUMENT"),
                ([replica(b"\x01", 65536)], "INVALID_ARGUMENT"),
                ([backup], "INVALID_ARGUMENT"),
                ([replica(b"\x02", 1), backed(b"\x01", (b"\x02", 1))], "INVALID_ARGUMENT"),
                ([backed(b"\x01", (b"\x02", 65536))], "INVALID_ARGUMENT"),
            )
        ),
        (INSERT, p4r.PacketReplicationEngineEntry(), "INVALID_ARGUMENT"),
    ]
    assert loaded.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    assert loaded.read_outcome(p4r.MulticastGroupEntry(multicast_group_id=5), p4r.PacketReplicationEngineEntry()) == [
        "NOT_FOUND",
        "INVALID_ARGUMENT",
    ]
    modified = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[backed(b"\x04", (b"\x06", 2), (b"\x05", 1))])
    assert loaded.write((MODIFY, modified), (DELETE, last), (DELETE, old)) == ["OK"] * 3
    assert loaded.dump(p4r.MulticastGroupEntry()) == texts(modified)
    assert dict(datapath.replication.groups) == {1: (Replica(4, 0, ((6, 2), (5, 1))),)}
    datapath.replication.set_group(1, (Replica(4, 0, ((9, 9),)),))
    assert loaded.dump(p4r.MulticastGroupEntry()) == texts(
        p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[backed(b"\x04", (b"\x09", 9))])
    )


def test_clone_sessions(loaded: Client, datapath: RecordingDatapath) -> None:
    session = p4r.CloneSessionEntry(
        session_id=100, replicas=[replica(b"\x05", 1)], class_of_service=7, packet_length_bytes=128
    )
    plain = p4r.CloneSessionEntry(session_id=1, replicas=[replica(b"\x06")])
    assert loaded.write((INSERT, session), (INSERT, plain)) == ["OK", "OK"]
    assert dict(datapath.replication.sessions) == {
        100: CloneSession((Replica(5, 1),), packet_length_bytes=128, class_of_service=7),
        1: CloneSession((Replica(6),)),
    }
    assert loaded.dump(p4r.CloneSessionEntry()) == texts(session, plain)
    bad = [
        (INSERT, session, "ALREADY_EXISTS"),
        (MODIFY, p4r.CloneSessionEntry(session_id=5), "NOT_FOUND"),
        (INSERT, p4r.CloneSessionEntry(), "INVALID_ARGUMENT"),
        (INSERT, p4r.CloneSessionEntry(session_id=32_768), "INVALID_ARGUMENT"),
        (INSERT, p4r.CloneSessionEntry(session_id=5, class_of_service=8), "INVALID_ARGUMENT"),
        (INSERT, p4r.CloneSessionEntry(session_id=5, packet_length_bytes=-1), "INVALID_ARGUMENT"),
    ]
    assert loaded.write(*((kind, entry) for kind, entry, _ in bad)) == [code for _, _, code in bad]
    plain.replicas[0].port = b"\x07"
    assert loaded.write((MODIFY, plain), (DELETE, p4r.CloneSessionEntry(session_id=100))) == ["OK", "OK"]
    assert loaded.dump(p4r.CloneSessionEntry()) == texts(plain)
    assert loaded.read_outcome(p4r.CloneSessionEntry(session_id=100)) == ["NOT_FOUND"]


# -- unsupported entities


def test_externs_are_unimplemented(loaded: Client) -> None:
    assert loaded.write((MODIFY, p4r.ExternEntry())) == ["UNIMPLEMENTED"]
    assert "no extern entry" in loaded.explain((MODIFY, p4r.ExternEntry()))
    assert loaded.read(p4r.ExternEntry()) == []


def test_a_program_without_meters_and_digests_has_none(loaded: Client, names: Names) -> None:
    nothing = [p4r.MeterEntry(), p4r.DirectMeterEntry(), p4r.ValueSetEntry(), p4r.DigestEntry()]
    assert loaded.write(*((MODIFY, message) for message in nothing)) == ["INVALID_ARGUMENT"] * 4
    assert loaded.read(*nothing) == []
    metered = names.exact_entry(b"\x01", b"\x01", names.call("forward", b"\x01"))
    metered.meter_config.cir = 1
    assert loaded.write((INSERT, metered)) == ["INVALID_ARGUMENT"]
