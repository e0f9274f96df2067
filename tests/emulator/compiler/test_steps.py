"""Notes of traced programs about tables and messages; traced and untraced programs behave the same."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from weir.emulator.compiler.steps import STEP_WORDS
from weir.emulator.entries import ActionCall, Exact, GroupRef, Lpm, TableEntry
from weir.emulator.program import Program
from weir.emulator.stf import play, read_test
from weir.p4src import FABRIC_JSON as FABRIC
from weir.tests.emulator.compiler.test_compiler_selector import entry, to
from weir.tests.emulator.compiler.test_compiler_selector import frame as selector_frame
from weir.tests.emulator.compiler.test_compiler_tables import NUMBER
from weir.tests.emulator.compiler.test_compiler_tables import frame as tables_frame
from weir.tests.emulator.harness import PacketRig
from weir.tests.emulator.stf.test_stf_programs import TESTS
from weir.tests.paths import PROGRAMS


def traced(name: str) -> PacketRig:
    return PacketRig(Program.load(PROGRAMS / f"{name}.json", traced=True))


def notes(rig: PacketRig, frame: bytes) -> list[list[int]]:
    """Notes of ingress on a frame."""
    rig.begin(frame)
    rig.ingress()
    state = rig.state
    assert state.steps is not None
    number = ctypes.c_int64.from_address(state.steps.address)
    count, number.value = number.value, 0
    words = (ctypes.c_int64 * (STEP_WORDS * count)).from_address(state.steps.address + 8)
    return [list(words[i : i + STEP_WORDS]) for i in range(0, len(words), STEP_WORDS)]


def told(rig: PacketRig, frame: bytes) -> list[str]:
    """Notes of a frame in words, those of parser states left out."""
    found = notes(rig, frame)
    assert rig.state.steps is not None
    lines = [rig.state.steps.describe(note) for note in found]
    assert lines[0] == "parser state start"
    return [line for line in lines if not line.startswith("parser state ")]


def test_hits_misses_defaults_and_keys_of_all_widths() -> None:
    rig = traced("tables")
    tables = rig.state.tables
    wide = (Exact(0x123456789ABC), Exact(0xFFF), Exact(1 << 127 | 5))
    tables["TablesIngress.exact_wide"].insert(TableEntry(wide, ActionCall(NUMBER, (0xDEADBEEF,))))
    tables["TablesIngress.longest"].insert(TableEntry((Lpm(0x0A000000, 8), Exact(3)), ActionCall(NUMBER, (1,))))
    key = {"mac": 0x123456789ABC, "vlan": 0xFFF, "ip6": 1 << 127 | 5}
    assert told(rig, tables_frame(0, key)) == [
        "table TablesIngress.exact_wide: hit for hdr.key.mac=0x123456789abc, hdr.key.vlan=0xfff, "
        "hdr.key.ip6=0x80000000000000000000000000000005: TablesIngress.number(n=0xdeadbeef)"
    ]
    assert told(rig, tables_frame(1, {"ip": 0x0A0B0C0D, "pcp": 3})) == [
        "table TablesIngress.longest: hit for hdr.key.ip=0xa0b0c0d, hdr.key.pcp=0x3: TablesIngress.number(n=0x1)"
    ]
    assert told(rig, tables_frame(1, {"ip": 0x0A0B0C0D, "pcp": 4})) == [
        "table TablesIngress.longest: miss for hdr.key.ip=0xa0b0c0d, hdr.key.pcp=0x4: TablesIngress.none()"
    ]
    assert told(rig, tables_frame(6, {})) == ["table TablesIngress.keyless: miss: TablesIngress.number(n=0x4d)"]
    assert told(rig, tables_frame(99, {})) == ["table TablesIngress.fixed: miss: TablesIngress.number(n=0x4e)"]


def test_values_too_large_for_a_note_are_left_out() -> None:
    rig = traced("tables")
    steps = rig.state.steps
    assert steps is not None
    *_, note = notes(rig, tables_frame(0, {"mac": 1}))
    assert steps.describe(note[:2]) == (
        "table TablesIngress.exact_wide: miss for hdr.key.mac=0x1, hdr.key.vlan=0x0, hdr.key.ip6=…: "
        "TablesIngress.none()"
    )


def test_members_of_groups_and_groups_without_any() -> None:
    rig = traced("selector")
    choose, table = rig.state.action_profiles["SelectorIngress.choose"], rig.state.tables["SelectorIngress.grouped"]
    choose.add_member(10, to(10))
    choose.add_group(1, ((10, 1),))
    choose.add_group(2, ())
    table.insert(entry(1, GroupRef(1)))
    table.insert(entry(2, GroupRef(2)))
    for kind, found in (
        (1, "hit for hdr.key.kind=0x1: SelectorIngress.to(port=0xa, big=0x5)"),
        (2, "hit for hdr.key.kind=0x2: no action"),
        (3, "miss for hdr.key.kind=0x3: no action"),
    ):
        assert f"table SelectorIngress.grouped: {found}" in told(rig, selector_frame(kind))


def test_log_msg_messages_are_formatted() -> None:
    path = PROGRAMS.parent / "stf" / "statements.json"
    rig = PacketRig(Program.load(path, traced=True))
    said = [one for one in told(rig, bytes((6, 200)) + bytes(33)) if one.startswith("log_msg")]
    assert said == ["log_msg: what 6 value 200"]


def test_an_untraced_program_notes_nothing() -> None:
    assert Program.load(FABRIC).new_state().steps is None
    assert Program.load(FABRIC) is not Program.load(FABRIC, traced=True)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_a_traced_program_does_what_its_test_says(path: Path) -> None:
    program = Program.load(FABRIC if path.stem == "fabric" else path.with_suffix(".json"), traced=True)
    assert play(program, read_test(path)).failures == ()
