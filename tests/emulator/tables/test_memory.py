"""Memory that packets read is freed when none of them can be reading it, and not by the clock alone."""

from __future__ import annotations

import ctypes
import sys
from contextlib import nullcontext

import pytest

from weir.emulator.entries import ActionCall, Exact, Lpm, TableEntry
from weir.emulator.program import Program
from weir.emulator.tables import memory
from weir.emulator.tables.memory import MemoryBlock, RetiredMemory, RowPool
from weir.tests.emulator.harness import PacketRig, watched
from weir.tests.emulator.tables.poisoned import NAMES, entry, packet
from weir.tests.paths import PROGRAMS, ROOT


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> MemoryBlock:
    """A state that no packet is in; garbage in it rests for no time."""
    monkeypatch.setattr(memory, "GRACE_SECONDS", 0.0)
    return MemoryBlock(64)


def taken(pool: RowPool, count: int) -> set[int]:
    return {pool.allocate() for _ in range(count)}


def test_a_row_comes_back_when_it_has_rested(state: MemoryBlock) -> None:
    pool = RowPool(32, RetiredMemory(state))
    rows = taken(pool, 256)
    row = rows.pop()
    pool.free(row)
    assert pool.allocate() == row


def test_a_row_rests_until_its_publication_has_reached_all_cores(
    state: MemoryBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "GRACE_SECONDS", 3600.0)
    pool = RowPool(32, RetiredMemory(state))
    rows = taken(pool, 256)
    pool.free(next(iter(rows)))
    assert not taken(pool, 256) & rows


def test_a_row_waits_for_the_packet_that_is_inside_however_long(state: MemoryBlock) -> None:
    pool = RowPool(32, RetiredMemory(state))
    rows = taken(pool, 256)
    passing = ctypes.c_uint64.from_address(state.address)
    passing.value = 7
    first, second, *_ = rows
    pool.free(first)
    others = taken(pool, 256)
    assert not others & rows
    passing.value = 8  # the packet has left
    pool.free(second)
    assert taken(pool, 2) == {first, second}
    passing.value = 9
    pool.free(first)
    assert first not in taken(pool, 256)
    passing.value = 11  # it has left, and the next one that is inside never knew the row
    assert pool.allocate() == first


def test_memory_replaced_in_a_batch_rests_from_its_publication(state: MemoryBlock) -> None:
    retired = RetiredMemory(state)
    pool = RowPool(32, retired)
    rows = taken(pool, 256)
    row = next(iter(rows))
    retired.hold()
    pool.free(row)
    assert row not in taken(pool, 256)
    retired.release()
    assert pool.allocate() == row


def test_packets_are_counted_in_and_out() -> None:
    rig = PacketRig(Program.load(PROGRAMS / "tables.json"))
    passing = ctypes.c_uint64.from_address(rig.state.address)
    before = passing.value
    rig.send(bytes(37))
    assert passing.value == before + 4, "in and out of ingress, in and out of egress"
    rig.begin(bytes(37))
    rig.reparse()
    assert passing.value == before + 6


def test_an_entry_is_found_while_a_batch_makes_two_tables_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables' old slots stay until the batch publishes the new ones."""
    monkeypatch.setattr(memory, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(MemoryBlock, "__del__", lambda block: block.bytes.fill(0xA5), raising=False)
    rig = PacketRig(Program.load(PROGRAMS / "tables.json"))
    wide, longest = (rig.state.tables[f"TablesIngress.{name}"] for name in ("exact_wide", "longest"))
    call = ActionCall("TablesIngress.number", (7,))
    longest.insert(TableEntry((Lpm(0, 0), Exact(0)), call))
    with rig.state.held():
        for number in range(1, 40):
            longest.insert(TableEntry((Lpm(number << 8, 24), Exact(0)), call))
            longest.insert(TableEntry((Lpm(number, 32), Exact(1)), call))
            wide.insert(TableEntry((Exact(number), Exact(0), Exact(0)), call))
            out = rig.send(b"\1" + bytes(36)).frame
            assert out is not None
            assert out[-5:] == bytes([1, 0, 0, 0, 7])


@pytest.mark.parametrize("kind", range(len(NAMES)), ids=NAMES)
@pytest.mark.parametrize("batched", [False, True])
def test_a_table_without_entries_misses_and_finds_the_next_one(kind: int, batched: bool) -> None:
    rig = PacketRig(Program.load(PROGRAMS / "tables.json"))
    table = rig.state.tables[f"TablesIngress.{NAMES[kind]}"]

    def answer(number: int) -> bytes:
        out = rig.send(packet(kind, number)).frame
        assert out is not None
        return out[-5:]

    missed = answer(7)
    assert missed == answer(8) != bytes([1, 0, 0, 0, 7])
    for number in (7, 8, 7, 9):
        with rig.state.held() if batched else nullcontext():
            table.insert(entry(kind, number))
        assert answer(number) == bytes([1, *number.to_bytes(4, "big")])
        assert answer(number + 1) == missed
        with rig.state.held() if batched else nullcontext():
            table.delete(entry(kind, number).match, entry(kind, number).priority)
        assert answer(number) == missed
    table.insert(entry(kind, 7))
    table.reset()
    assert answer(7) == missed


def test_a_table_keeps_its_memory_alive() -> None:
    table = Program.load(PROGRAMS / "tables.json").new_state().tables["TablesIngress.exact_wide"]
    entry = TableEntry((Exact(1), Exact(0), Exact(0)), ActionCall("TablesIngress.number", (1,)))
    table.insert(entry)  # writes into the state, which nobody else holds
    assert [*table.entries()] == [entry]


def test_packets_never_read_what_is_freed() -> None:
    said = watched(
        [sys.executable, "-m", "weir.tests.emulator.tables.poisoned", "3", "0.001"],
        silence_s=120,
        cwd=ROOT,
        environment={},
    )
    assert said.count("rounds of") == 3, said


@pytest.mark.long(minutes=5)
def test_packets_never_read_what_is_freed_for_long() -> None:
    watched(
        [sys.executable, "-m", "weir.tests.emulator.tables.poisoned", "100", "0.001"],
        silence_s=280,  # of which a batch takes about two
        cwd=ROOT,
        environment={},
    )
