"""Action profiles and selectors, hit and miss, and checksums over headers that may be absent."""

from __future__ import annotations

import struct

import pytest

from weir.emulator.entries import (
    ActionCall,
    ActionSet,
    EntryExists,
    EntryNotFound,
    Exact,
    GroupRef,
    InvalidEntry,
    MemberRef,
    TableAction,
    TableEntry,
    TableFull,
    WeightedAction,
)
from weir.emulator.program import Program
from weir.tests.checksums import crc16, internet_checksum
from weir.tests.emulator.harness import PacketRig, seeded_random
from weir.tests.paths import PROGRAMS
from weir.tests.support.errors import raises

TO, DROP = "SelectorIngress.to", "SelectorIngress.drop"


@pytest.fixture
def rig() -> PacketRig:
    return PacketRig(Program.load(PROGRAMS / "selector.json"))


def frame(kind: int, flow: int = 0, value: int = 0, checksum: int = 0, word: int = 0) -> bytes:
    more = struct.pack(">H", word) if kind & 0x80 else b""
    return struct.pack(">BIHH", kind, flow, value, checksum) + more + b"tail"


def to(port: int, flow: int = 0) -> ActionCall:
    return ActionCall(TO, (port, flow << 48 | 5))


def port(rig: PacketRig, *args: int) -> int:
    return rig.send(frame(*args)).ingress["egress_spec"]


def entry(kind: int, action: TableAction) -> TableEntry:
    return TableEntry((Exact(kind),), action)


def test_a_selector_uses_weights_in_the_order_of_bmv2s_numbers(rig: PacketRig) -> None:
    choose, table = rig.state.action_profiles["SelectorIngress.choose"], rig.state.tables["SelectorIngress.grouped"]
    for member in (30, 10, 20):
        choose.add_member(member, to(member))
    choose.add_group(1, ((30, 1), (10, 2), (20, 1)))
    table.insert(entry(1, GroupRef(1)))
    table.insert(entry(0x81, GroupRef(1)))
    order = [30, 10, 20, 10]  # as they were made; the second 10 since the group wanted it twice
    rng = seeded_random()
    for _ in range(200):
        flow, word = rng.getrandbits(32), rng.getrandbits(16)
        assert port(rig, 1, flow) == order[crc16(struct.pack(">I", flow)) % 4]
        assert port(rig, 0x81, flow, 0, 0, word) == order[crc16(struct.pack(">IH", flow, word)) % 4]


def test_members_and_groups_change_under_their_entries(rig: PacketRig) -> None:
    choose, table = rig.state.action_profiles["SelectorIngress.choose"], rig.state.tables["SelectorIngress.grouped"]
    choose.add_member(1, to(1, 0xABCD))
    choose.add_member(2, to(2))
    choose.add_group(5, ((1, 1),))
    table.insert(entry(1, GroupRef(5)))
    table.insert(entry(2, MemberRef(2)))
    out = rig.send(frame(1)).frame
    assert out is not None
    assert out[1:5] == bytes.fromhex("0000abcd")
    assert (port(rig, 1), port(rig, 2)) == (1, 2)
    choose.modify_member(1, to(11))
    choose.modify_member(2, ActionCall(DROP))
    assert (port(rig, 1), port(rig, 2)) == (11, 511)
    choose.modify_group(5, ((2, 1),))
    assert port(rig, 1) == 511
    choose.modify_group(5, ())
    assert port(rig, 1, 0, 0) == 0
    table.modify(entry(1, MemberRef(1)))
    assert port(rig, 1) == 11
    assert (dict(choose.members), dict(choose.groups)) == ({1: to(11), 2: ActionCall(DROP)}, {5: ()})


def test_one_shot_sets_live_and_die_with_their_entry(rig: PacketRig) -> None:
    table = rig.state.tables["SelectorIngress.grouped"]
    action = ActionSet((WeightedAction(to(1), 2), WeightedAction(to(2), 1)))
    table.insert(entry(1, action))
    assert table.get((Exact(1),)).action == action
    ports = [port(rig, 1, flow) for flow in range(50)]
    assert ports == [[1, 1, 2][crc16(struct.pack(">I", flow)) % 3] for flow in range(50)]
    table.modify(entry(1, ActionSet((WeightedAction(to(9)),))))
    assert port(rig, 1) == 9
    table.delete((Exact(1),))
    assert len(table) == 0
    assert port(rig, 1) == 0


def test_hit_miss_and_the_action_that_ran_steer_the_control(rig: PacketRig) -> None:
    plain, single = rig.state.action_profiles["SelectorIngress.plain"], rig.state.tables["SelectorIngress.single"]
    plain.add_member(1, to(3))
    plain.add_member(2, ActionCall("NoAction"))
    single.insert(entry(1, MemberRef(1)))
    single.insert(entry(2, MemberRef(2)))
    values = {}
    for kind in (1, 2, 3):
        out = rig.send(frame(kind)).frame
        assert out is not None
        values[kind] = out[5:7].hex()
    # a miss runs no action in a table with a profile, and bmv2 then takes no way through the switch
    assert values == {1: "aaaa", 2: "bbbb", 3: "0000"}


def test_members_in_use_stay(rig: PacketRig) -> None:
    choose, table = rig.state.action_profiles["SelectorIngress.choose"], rig.state.tables["SelectorIngress.grouped"]
    choose.add_member(1, to(1))
    choose.add_group(1, ((1, 1),))
    table.insert(entry(1, GroupRef(1)))
    with raises(InvalidEntry, place="SelectorIngress.choose"):
        choose.delete_member(1)
    with raises(InvalidEntry, place="SelectorIngress.choose"):
        choose.delete_group(1)
    table.delete((Exact(1),))
    choose.delete_group(1)
    choose.delete_member(1)
    assert (dict(choose.members), dict(choose.groups)) == ({}, {})


def test_references_and_members_that_cannot_be(rig: PacketRig) -> None:
    choose, table = rig.state.action_profiles["SelectorIngress.choose"], rig.state.tables["SelectorIngress.grouped"]
    plain = rig.state.action_profiles["SelectorIngress.plain"]
    with raises(EntryNotFound, place="SelectorIngress.choose", value=4):
        table.insert(entry(1, MemberRef(4)))
    with raises(EntryNotFound, place="SelectorIngress.choose", value=4):
        table.insert(entry(1, GroupRef(4)))
    with raises(EntryNotFound, place="SelectorIngress.choose", value=4):
        choose.add_group(1, ((4, 1),))
    with raises(InvalidEntry, place="SelectorIngress.choose"):
        table.insert(entry(1, to(1)))
    with raises(InvalidEntry, place="SelectorIngress.plain"):
        plain.add_group(1)
    with raises(InvalidEntry, place="SelectorIngress.plain", value="nothing"):
        plain.add_member(1, ActionCall("nothing"))
    for member in range(32):
        plain.add_member(member, to(1))
    with raises(TableFull, place="SelectorIngress.plain", value=32):
        plain.add_member(32, to(1))
    choose.add_member(1, to(1))
    with pytest.raises(EntryExists):
        choose.add_member(1, to(1))
    with raises(InvalidEntry, place="SelectorIngress.grouped"):
        table.set_default(to(1))
    assert (len(table), dict(choose.groups)) == (0, {})


def test_checksums_verify_and_update_under_their_condition(rig: PacketRig) -> None:
    rng = seeded_random()
    for _ in range(100):
        flow, word = rng.getrandbits(32), rng.getrandbits(16)
        right = internet_checksum(struct.pack(">IH", flow, 0x1234))
        assert rig.send(frame(7, flow, 0x1234, right)).ingress["checksum_error"] == 0
        assert rig.send(frame(7, flow, 0x1234, right ^ 1)).ingress["checksum_error"] == 1
        assert rig.send(frame(6, flow, 0x1234, right ^ 1)).ingress["checksum_error"] == 0
        # the header `more` is summed only where it is there
        outputs = [rig.send(frame(kind, flow, 0, 3, word)).frame for kind in (1, 0x81, 9)]
        sums = [int.from_bytes(out[7:9], "big") for out in outputs if out is not None]
        present = internet_checksum(struct.pack(">IHH", flow, word, 0))
        assert sums == [internet_checksum(struct.pack(">IH", flow, 0)), present, 3]


def test_members_that_watch_a_port_are_chosen_while_it_is_up(rig: PacketRig) -> None:
    choose, table = rig.state.action_profiles["SelectorIngress.choose"], rig.state.tables["SelectorIngress.grouped"]
    for member in (1, 2, 3):
        choose.add_member(member, to(member))
    choose.add_group(1, ((1, 1), (2, 2), (3, 1)), watch={1: 7, 2: 8})
    table.insert(entry(1, GroupRef(1)))
    actions = tuple(WeightedAction(to(number), 1, bytes([watched])) for number, watched in ((4, 7), (5, 8)))
    table.insert(entry(2, ActionSet(actions)))

    rng = seeded_random()
    flows = [rng.getrandbits(32) for _ in range(200)]

    def chosen(kind: int) -> set[int]:
        return {port(rig, kind, flow) for flow in flows}

    assert (chosen(1), chosen(2)) == ({1, 2, 3}, {4, 5})
    rig.state.set_ports_down({7})
    assert (chosen(1), chosen(2)) == ({2, 3}, {5})
    rig.state.set_ports_down({7, 8})
    assert chosen(1) == {3}
    assert chosen(2) == {port(rig, 99)}, "a group without members does what a miss does"
    choose.modify_group(1, ((1, 1), (2, 1)), watch={1: 8})
    assert chosen(1) == {2}
    rig.state.set_ports_down(())
    assert (chosen(1), chosen(2)) == ({1, 2}, {4, 5})
