"""Stress test of tables: packets in one thread, batches of changes in another, links in a third, and poisoned memory.

Freed memory is filled with bytes that are neither pointers nor keys, and blocks are not reused; garbage rests only
briefly, so that the packets' own activity protects it. Run as a program, since a wild pointer ends the process: `python
-m weir.tests.emulator.tables.poisoned [batches] [seconds that garbage rests]`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from weir.emulator.entries import (
    ActionCall,
    ActionSet,
    Exact,
    Lpm,
    Match,
    MemberRef,
    Range,
    TableEntry,
    Ternary,
    WeightedAction,
)
from weir.emulator.program import Program, ProgramState, Table
from weir.emulator.switch import Switch
from weir.emulator.tables import index, memory, merging
from weir.emulator.tables.keys import pack_key
from weir.emulator.tables.memory import MemoryBlock, RowPool
from weir.tests.emulator.harness import seeded_random
from weir.tests.paths import PROGRAMS

_POISON = 0xA5
_STABLE = 64
"""Entries in each table that stay; packets look for them alone."""
_quarantine: list[NDArray[np.uint8]] = []


def poison() -> None:
    """Let freed blocks, and rows that are about to be used again, hold nothing but poison."""

    def bury(block: MemoryBlock) -> None:
        block.bytes[:] = _POISON
        _quarantine.append(block._buffer)

    take, take_many = RowPool.allocate, RowPool.allocate_many

    def poisoned(self: RowPool) -> int:
        row = take(self)
        ctypes.memset(row, _POISON, self.row_bytes)
        time.sleep(0)
        return row

    def all_poisoned(self: RowPool, count: int) -> NDArray[np.uint64]:
        rows = take_many(self, count)
        for row in rows.tolist():
            ctypes.memset(row, _POISON, self.row_bytes)
        time.sleep(0)
        return rows

    MemoryBlock.__del__ = bury  # type: ignore[attr-defined]
    RowPool.allocate = poisoned  # type: ignore[method-assign]
    RowPool.allocate_many = all_poisoned  # type: ignore[method-assign]


def told(batches: int) -> Iterator[int]:
    """Yield numbers and print a dot for each, which shows progress."""
    for batch in range(batches):
        yield batch
        sys.stdout.write(".")
        sys.stdout.flush()
    sys.stdout.write("\n")


@contextmanager
def traffic(switch: Switch, frames: NDArray[np.uint8], check: Callable[[NDArray[np.uint8]], bool]) -> Iterator[None]:
    """Run these frames over and over, and end with an error if any frame that leaves is not as it must be."""
    stop, wrong, rounds = threading.Event(), list[int](), [0]

    def run() -> None:
        while not stop.is_set():
            out = switch.process(frames, ports=1)
            rounds[0] += 1
            if len(out.lengths) != len(frames) or not check(out.data.reshape(frames.shape)):
                wrong.append(rounds[0])
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    sys.stdout.write(f"{rounds[0]} rounds of {len(frames)} packets\n")
    assert not wrong, f"round {wrong[0]} had an answer of no entry"


def entry(table: int, number: int) -> TableEntry:
    """The entry of table 0 (exact), 1 (lpm), 2 (ternary) or 3 (range) that answers the packet of this number."""
    match: tuple[Match, ...]
    priority = 0
    if table == 0:
        match = (Exact(number), Exact(0), Exact(number))
    elif table == 1:
        match = (Lpm(number, 32), Exact(0))
    elif table == 2:
        match, priority = (Ternary(number, (1 << 128) - 1), Ternary(0, number % 40), Exact(0)), 1
    else:
        match, priority = (Range(number, number), Ternary(0, 0xFF), Lpm(0, 0)), 1
    return TableEntry(match, ActionCall("TablesIngress.number", (number,)), priority)


def rows_of(table: Table, entries: Sequence[TableEntry]) -> tuple[list[bytes], NDArray[np.uint64], NDArray[np.uint64]]:
    """Identities and rows of entries, as `Table.insert_many` takes them."""
    names = [pack_key(table.schema, table.layout, each.match, each.priority) for each in entries]
    contents = []
    for name, each in zip(names, entries, strict=True):
        row = table._make_row(name, each, 0)
        contents.append(ctypes.string_at(row, table.layout.row_bytes))
        table._rows.free(row)
    identities, rows = (np.array([np.frombuffer(each, np.uint64) for each in words]) for words in (names, contents))
    return names, identities, rows


def packet(table: int, number: int) -> bytes:
    """The frame that the table looks `number` up for: the answer stands in its last four bytes."""
    fields = [(table, 8), (number * (table == 0), 48), (0, 12), (0, 4), (number * (table == 1), 32)]
    fields += [(number * (table in (0, 2)), 128), (number * (table == 3), 16), (0, 8)]
    bits = 0
    for value, width in fields:
        bits = bits << width | value
    return bits.to_bytes(32, "big") + b"\xee" + bytes(4)


NAMES = ("exact_wide", "longest", "ternary6", "ranges")


def tables(rng: random.Random, batches: int) -> None:
    """Batches that make tables grow, shrink and change their entries while packets look for those that stay."""
    switch = Switch(1, ports=[1])
    switch.load((PROGRAMS / "tables.json").read_bytes())
    assert switch.state is not None
    state: ProgramState = switch.state
    chosen = [state.tables[f"TablesIngress.{name}"] for name in NAMES]
    for number, table in enumerate(chosen):
        for stable in range(1, _STABLE + 1):
            table.insert(entry(number, stable))
    wanted = [(number, stable) for number in range(len(chosen)) for stable in range(1, _STABLE + 1)]
    frames = np.array([list(packet(*each)) for each in wanted], np.uint8)
    expected = np.array([[1, *stable.to_bytes(4, "big")] for _, stable in wanted], np.uint8)
    with traffic(switch, frames, lambda out: bool((out[:, 32:] == expected).all())):
        for batch in told(batches):
            index.HOLD_SECONDS = rng.choice([0.0, 0.0025, 10.0])  # type: ignore[misc]
            merging.MOST_TOGETHER = rng.choice([0, 16])  # type: ignore[misc]  # masks are split, or merged
            others = {number: rng.sample(range(1000, 2000), 12 if number == 3 else 300) for number in range(4)}
            with state.held():
                for number, keys in others.items():
                    if batch % 3 == 2:
                        chosen[number].insert_many(*rows_of(chosen[number], [entry(number, key) for key in keys]))
                        continue
                    for key in keys:
                        chosen[number].insert(entry(number, key))
                for number, table in enumerate(chosen):
                    if batch % 3 == 2:
                        names, _, rows = rows_of(table, [entry(number, stable) for stable in range(1, _STABLE + 1)])
                        table.modify_many(names, rows)
                        continue
                    for stable in range(1, _STABLE + 1):
                        table.modify(entry(number, stable))
                if batch % 2:
                    for number, keys in others.items():
                        for key in keys:
                            chosen[number].delete(entry(number, key).match, entry(number, key).priority)
            if batch % 2 == 0:
                for number, keys in others.items():
                    for key in keys:
                        chosen[number].delete(entry(number, key).match, entry(number, key).priority)


def emptied(rng: random.Random, batches: int) -> None:
    """Tables lose their last entry and get another, over and over: a packet hits it, or misses."""
    switch = Switch(1, ports=[1])
    switch.load((PROGRAMS / "tables.json").read_bytes())
    assert switch.state is not None
    state: ProgramState = switch.state
    chosen = [state.tables[f"TablesIngress.{name}"] for name in NAMES]
    frames = np.array([list(packet(number, 7)) for number in range(len(chosen))] * 16, np.uint8)
    missed = switch.process(frames, ports=1).data.reshape(frames.shape)[:, 32:].copy()
    hit = np.tile(np.array([1, *(7).to_bytes(4, "big")], np.uint8), (len(frames), 1))

    def fits(out: NDArray[np.uint8]) -> bool:
        answers = out[:, 32:]
        return bool(((answers == hit).all(axis=1) | (answers == missed).all(axis=1)).all())

    with traffic(switch, frames, fits):
        for _ in range(10 * batches):
            index.HOLD_SECONDS = rng.choice([0.0, 0.0025, 10.0])  # type: ignore[misc]
            with state.held() if rng.random() < 0.3 else nullcontext():
                for number, table in enumerate(chosen):
                    table.insert(entry(number, 7))
                for number, table in enumerate(chosen):
                    table.delete(entry(number, 7).match, entry(number, 7).priority)


def profiles(rng: random.Random, batches: int) -> None:
    """Entries move between members and sets, which come and go with them; links of watched ports go down and up."""
    switch = Switch(1, ports=[1, 2, 3])
    switch.load((PROGRAMS / "selector.json").read_bytes())
    assert switch.state is not None
    state: ProgramState = switch.state
    grouped, choose = state.tables["SelectorIngress.grouped"], state.action_profiles["SelectorIngress.choose"]

    def to(number: int) -> ActionCall:
        return ActionCall("SelectorIngress.to", (1, number << 48))

    def several(number: int) -> ActionSet:
        first, second = (WeightedAction(to(number), 1, port.to_bytes(1, "big")) for port in (1, 2))
        return ActionSet((first, second, WeightedAction(to(number), 1)))

    kinds = list(range(1, 9))
    for kind in kinds:
        grouped.insert(TableEntry((Exact(kind),), several(kind)))
    frames = np.array([[kind, 0, 0, 0, 7, 0, 0, 0, 0] for kind in kinds * 16], np.uint8)
    expected = np.array(kinds * 16, np.uint32)
    ended = threading.Event()

    def links() -> None:
        while not ended.is_set():
            for down in ((1,), (1, 2), ()):
                state.set_ports_down(down)

    flapping = threading.Thread(target=links)
    flapping.start()
    try:
        with traffic(switch, frames, lambda out: bool((out[:, 1:5].copy().view(">u4")[:, 0] == expected).all())):
            for _ in told(batches):
                index.HOLD_SECONDS = rng.choice([0.0, 0.0025, 10.0])  # type: ignore[misc]
                with state.held():
                    for other in range(100, 180):
                        grouped.insert(TableEntry((Exact(other),), several(other)))
                    for kind in kinds:
                        choose.add_member(kind, to(kind))
                        grouped.modify(TableEntry((Exact(kind),), MemberRef(kind)))
                    for kind in kinds:
                        grouped.modify(TableEntry((Exact(kind),), several(kind)))
                        choose.delete_member(kind)
                    for other in range(100, 180):
                        grouped.delete((Exact(other),))
    finally:
        ended.set()
        flapping.join()


def main() -> None:
    faulthandler.enable()
    batches, rest = (int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 2 else (60, 0.001)
    for name in ("tables.json", "selector.json"):
        Program.load(PROGRAMS / name)  # compiled in quiet
    rng = seeded_random()
    memory.GRACE_SECONDS = rest  # type: ignore[misc]
    sys.setswitchinterval(1e-4)
    poison()
    tables(rng, batches)
    emptied(rng, batches)
    profiles(rng, batches)


if __name__ == "__main__":
    main()
