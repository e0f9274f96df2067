"""Native lookups against a brute-force reading of the same entries."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from weir.emulator.entries import (
    ActionCall,
    EntryExists,
    EntryNotFound,
    Exact,
    InvalidEntry,
    Lpm,
    Match,
    MemberRef,
    Optional,
    Range,
    TableEntry,
    TableFull,
    Ternary,
)
from weir.emulator.program import Program
from weir.tests.emulator.harness import PacketRig, seeded_random
from weir.tests.paths import PROGRAMS
from weir.tests.support.errors import raises

NUMBER, NONE = "TablesIngress.number", "TablesIngress.none"
WIDTHS = {"mac": 48, "vlan": 12, "pcp": 4, "ip": 32, "ip6": 128, "port": 16, "protocol": 8}
Packet = dict[str, int]


@pytest.fixture(scope="module")
def program() -> Program:
    return Program.load(PROGRAMS / "tables.json")


@pytest.fixture
def rig(program: Program) -> PacketRig:
    return PacketRig(program)


def frame(which: int, packet: Packet) -> bytes:
    bits = which
    for name, width in WIDTHS.items():
        bits = bits << width | packet.get(name, 0)
    return bits.to_bytes(32, "big") + b"\xee" + bytes(4)


def answer(rig: PacketRig, which: int, packet: Packet) -> int | None:
    """The number of the entry that matched, None for a miss."""
    out = rig.send(frame(which, packet)).frame
    assert out is not None
    assert out[32] in (0, 1)
    return int.from_bytes(out[33:], "big") if out[32] else None


def matches(match: Match, value: int, width: int) -> bool:
    match match:
        case Exact(wanted):
            return value == wanted
        case Lpm(wanted, length):
            return value >> (width - length) == wanted >> (width - length)
        case Ternary(wanted, mask):
            return value & mask == wanted & mask
        case Range(low, high):
            return low <= value <= high
        case Optional(wanted_or_none):
            return wanted_or_none is None or value == wanted_or_none


class Oracle:
    """The answers that entries ought to give, by looking at every one of them."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self.fields = fields
        self.entries: dict[tuple[tuple[Match, ...], int], int] = {}

    def rank(self, match: tuple[Match, ...], priority: int) -> int:
        return priority or sum(part.prefix_length for part in match if isinstance(part, Lpm))

    def answers(self, packet: Packet) -> set[int | None]:
        """All numbers of the best rank: which of them wins is not defined."""
        best, numbers = -1, set[int | None]()
        for (match, priority), number in self.entries.items():
            if all(matches(m, packet[f], WIDTHS[f]) for m, f in zip(match, self.fields, strict=True)):
                rank = self.rank(match, priority)
                if rank > best:
                    best, numbers = rank, set()
                if rank == best:
                    numbers.add(number)
        return numbers or {None}


def few(rng: random.Random, width: int) -> int:
    """A value out of few, so that packets and entries meet."""
    return random.Random(rng.randrange(40) * 1000 + width).getrandbits(width)


def prefix(value: int, length: int, width: int) -> Lpm:
    return Lpm(value >> (width - length) << (width - length), length)


Maker = Callable[[random.Random], tuple[tuple[Match, ...], int]]


def exact_entry(rng: random.Random) -> tuple[tuple[Match, ...], int]:
    return (Exact(few(rng, 48)), Exact(few(rng, 12)), Exact(few(rng, 128))), 0


def longest_entry(rng: random.Random) -> tuple[tuple[Match, ...], int]:
    return (prefix(few(rng, 32), rng.randrange(33), 32), Exact(rng.randrange(4))), 0


def ternary_entry(rng: random.Random) -> tuple[tuple[Match, ...], int]:
    mask6 = rng.choice([0, (1 << 128) - 1, ((1 << 64) - 1) << 64, 0xFF])
    mask = rng.choice([0, 0xFFFF, 0xFF00])
    fields = (Ternary(few(rng, 128) & mask6, mask6), Ternary(few(rng, 16) & mask, mask), Exact(few(rng, 12)))
    return fields, rng.randrange(1, 50)


def entry_of_many_masks(rng: random.Random) -> tuple[tuple[Match, ...], int]:
    mask6, mask = (1 << 128) - 1 ^ (1 << rng.randrange(129)) - 1, rng.choice([0xFFFF, 0xFFFE, 0xFF00, 0x00FF, 0])
    fields = (Ternary(few(rng, 128) & mask6, mask6), Ternary(few(rng, 16) & mask, mask), Exact(few(rng, 12)))
    return fields, rng.randrange(1, 1000)


def range_entry(rng: random.Random) -> tuple[tuple[Match, ...], int]:
    low = rng.randrange(1 << 16)
    mask = rng.choice([0, 0xFF, 0xF0])
    fields = (
        Range(low, rng.randrange(low, 1 << 16)),
        Ternary(few(rng, 8) & mask, mask),
        prefix(few(rng, 32), rng.choice([0, 8, 32]), 32),
    )
    return fields, rng.randrange(1, 50)


def optional_entry(rng: random.Random) -> tuple[tuple[Match, ...], int]:
    values = [few(rng, width) if rng.random() < 0.7 else None for width in (16, 8)]
    return (Optional(values[0]), Optional(values[1])), rng.randrange(1, 50)


CASES: list[tuple[int, str, tuple[str, ...], Maker, int]] = [
    (0, "exact_wide", ("mac", "vlan", "ip6"), exact_entry, 4000),
    (1, "longest", ("ip", "pcp"), longest_entry, 3000),
    (2, "ternary6", ("ip6", "port", "vlan"), ternary_entry, 2000),
    (2, "ternary6", ("ip6", "port", "vlan"), entry_of_many_masks, 2000),
    (3, "ranges", ("port", "protocol", "ip"), range_entry, 400),
    (4, "optionals", ("port", "protocol"), optional_entry, 1000),
]


@pytest.mark.parametrize(("which", "name", "fields", "make", "count"), CASES, ids=[case[3].__name__ for case in CASES])
def test_lookups_agree_with_a_look_at_every_entry(
    rig: PacketRig, which: int, name: str, fields: tuple[str, ...], make: Maker, count: int
) -> None:
    rng = seeded_random()
    table = rig.state.tables[f"TablesIngress.{name}"]
    oracle = Oracle(fields)

    def check(packets: int) -> None:
        hits = 0
        for _ in range(packets):
            packet = {field: few(rng, WIDTHS[field]) for field in fields}
            if name == "exact_wide" and oracle.entries and rng.random() < 0.7:
                match, _ = rng.choice(list(oracle.entries)[-50:])
                packet = {f: m.value for f, m in zip(fields, match, strict=True) if isinstance(m, Exact)}
            if "pcp" in packet:
                packet["pcp"] = rng.randrange(5)
            expected = oracle.answers(packet)
            found = answer(rig, which, packet)
            assert found in expected, packet
            hits += found is not None
        assert hits or not oracle.entries

    check(5)
    for number in range(count):
        match, priority = make(rng)
        entry = TableEntry(match, ActionCall(NUMBER, (number,)), priority)
        if (match, priority) in oracle.entries:
            with pytest.raises(EntryExists):
                table.insert(entry)
            if number % 2:
                table.modify(entry)
                oracle.entries[match, priority] = number
        else:
            table.insert(entry)
            oracle.entries[match, priority] = number
    check(60)
    assert len(table) == len(oracle.entries)
    victims = rng.sample(sorted(oracle.entries, key=repr), len(oracle.entries) * 2 // 3)
    with rig.state.held():
        for match, priority in victims:
            table.delete(match, priority)
            del oracle.entries[match, priority]
    check(60)
    stored = {(e.match, e.priority): e.action for e in table.entries()}
    assert stored == {key: ActionCall(NUMBER, (n,)) for key, n in oracle.entries.items()}
    with rig.state.held():
        for match, priority in victims[:200]:
            table.insert(TableEntry(match, ActionCall(NUMBER, (9,)), priority))
            oracle.entries[match, priority] = 9
    check(40)
    table.reset()
    oracle.entries.clear()
    check(5)


@pytest.mark.parametrize(
    ("protocol", "port", "expected"),
    [
        (6, 80, 1),
        (6, 81, 1),
        (6, 82, 2),
        (0x15, 0x100, 3),
        (0x15, 0x1FF, 3),
        (0x15, 0x200, None),
        (9, 0x100, 4),
        (6, 0x100, 2),
    ],
)
def test_constant_entries_win_in_their_order(rig: PacketRig, protocol: int, port: int, expected: int | None) -> None:
    assert answer(rig, 5, {"protocol": protocol, "port": port}) == expected


def test_constant_entries_and_defaults_are_refused_updates(rig: PacketRig) -> None:
    table = rig.state.tables["TablesIngress.constants"]
    entry = next(iter(table.entries()))
    with raises(InvalidEntry, place="TablesIngress.constants"):
        table.insert(entry)
    with raises(InvalidEntry, place="TablesIngress.constants"):
        table.delete(entry.match, entry.priority)
    with raises(InvalidEntry, place="TablesIngress.constants"):
        table.set_default(ActionCall(NUMBER, (1,)))
    assert [e.action.params for e in table.entries() if isinstance(e.action, ActionCall)] == [(1,), (2,), (3,), (4,)]
    priorities = [e.priority for e in table.entries()]
    assert priorities == sorted(priorities, reverse=True)


def test_default_action_is_set_and_taken_back(rig: PacketRig) -> None:
    keyless = rig.state.tables["TablesIngress.keyless"]
    assert answer(rig, 6, {}) == 77
    keyless.set_default(ActionCall(NUMBER, (5,)))
    assert (answer(rig, 6, {}), keyless.default) == (5, ActionCall(NUMBER, (5,)))
    keyless.set_default(None)
    assert (answer(rig, 6, {}), keyless.default) == (77, ActionCall(NUMBER, (77,)))
    with raises(InvalidEntry, place="TablesIngress.keyless"):
        keyless.insert(TableEntry((), ActionCall(NUMBER, (1,))))


def test_a_table_with_nothing_to_set_is_still_a_table(rig: PacketRig) -> None:
    fixed = rig.state.tables["TablesIngress.fixed"]
    assert (answer(rig, 7, {}), fixed.default, len(fixed)) == (78, ActionCall(NUMBER, (78,)), 0)
    with raises(InvalidEntry, place="TablesIngress.fixed"):
        fixed.set_default(ActionCall(NUMBER, (1,)))


def test_direct_counter_counts_hits_and_outlives_a_modification(rig: PacketRig) -> None:
    table = rig.state.tables["TablesIngress.exact_wide"]
    match = (Exact(1), Exact(2), Exact(3))
    table.insert(TableEntry(match, ActionCall(NUMBER, (1,))))
    packet = {"mac": 1, "vlan": 2, "ip6": 3}
    for _ in range(3):
        answer(rig, 0, packet)
    answer(rig, 0, {"mac": 9})
    assert table.counter(match) == (3, 3 * 37)
    table.modify(TableEntry(match, ActionCall(NUMBER, (2,))))
    assert answer(rig, 0, packet) == 2
    assert table.counter(match) == (4, 4 * 37)
    table.set_counter(match, 10, 20)
    answer(rig, 0, packet)
    assert table.counter(match) == (11, 57)
    with raises(InvalidEntry, place="TablesIngress.longest"):
        rig.state.tables["TablesIngress.longest"].counter((Lpm(0, 0), Exact(0)))


@pytest.mark.parametrize(
    ("name", "entry", "problem"),
    [
        ("longest", TableEntry((Lpm(0, 0),), ActionCall(NUMBER, (1,))), "1 match fields, its key has 2"),
        ("longest", TableEntry((Exact(0), Exact(0)), ActionCall(NUMBER, (1,))), "hdr.key.ip is lpm, not exact"),
        ("longest", TableEntry((Lpm(0, 33), Exact(0)), ActionCall(NUMBER, (1,))), "prefix length 33 of 32 bits"),
        ("longest", TableEntry((Lpm(0, 0), Exact(16)), ActionCall(NUMBER, (1,))), "does not fit 4 bits"),
        ("longest", TableEntry((Lpm(0, 0), Exact(1)), ActionCall(NUMBER, (1,)), 3), "priority 3"),
        ("longest", TableEntry((Lpm(0, 0), Exact(1)), ActionCall("nothing")), "has no action nothing"),
        ("longest", TableEntry((Lpm(0, 0), Exact(1)), ActionCall(NUMBER)), "takes 1 parameters, not 0"),
        ("longest", TableEntry((Lpm(0, 0), Exact(1)), ActionCall(NUMBER, (1 << 32,))), "does not fit 32 bits"),
        ("longest", TableEntry((Lpm(0, 0), Exact(1)), MemberRef(1)), "has no action profile"),
        ("ranges", TableEntry((Range(5, 4), Ternary(0, 0), Lpm(0, 0)), ActionCall(NONE), 1), "no range of 16 bits"),
    ],
)
def test_entries_that_do_not_fit_are_refused(rig: PacketRig, name: str, entry: TableEntry, problem: str) -> None:
    table = rig.state.tables[f"TablesIngress.{name}"]
    with pytest.raises(InvalidEntry, match=problem):
        table.insert(entry)
    assert len(table) == 0


def test_missing_entries_and_full_tables(rig: PacketRig) -> None:
    table = rig.state.tables["TablesIngress.optionals"]
    with pytest.raises(EntryNotFound):
        table.delete((Optional(1), Optional(1)), 1)
    with pytest.raises(EntryNotFound):
        table.modify(TableEntry((Optional(1), Optional(1)), ActionCall(NONE), 1))
    for number in range(4096):
        table.insert(TableEntry((Optional(number), Optional(None)), ActionCall(NUMBER, (number,)), 1))
    with raises(TableFull, place="TablesIngress.optionals", value=4096):
        table.insert(TableEntry((Optional(5000), Optional(None)), ActionCall(NONE), 1))
    assert answer(rig, 4, {"port": 4095}) == 4095


def test_packets_see_entries_whole_while_they_change(program: Program) -> None:
    """One entry stays, its neighbours come, change and go; its answer must always be one of its two own."""
    rig = PacketRig(program)
    table = rig.state.tables["TablesIngress.longest"]
    table.insert(TableEntry((Lpm(1 << 24, 8), Exact(0)), ActionCall(NUMBER, (1,))))
    seen: set[int | None] = set()
    stop = threading.Event()

    def traffic() -> None:
        while not stop.is_set():
            seen.add(answer(rig, 1, {"ip": 1 << 24 | 77}))

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        for turn in range(4):
            for i in range(1500):
                table.insert(TableEntry((Lpm(2 << 24 | i << 8, 24 + turn), Exact(0)), ActionCall(NUMBER, (3,))))
                table.modify(TableEntry((Lpm(1 << 24, 8), Exact(0)), ActionCall(NUMBER, (1 + i % 2,))))
            for i in range(1500):
                table.delete((Lpm(2 << 24 | i << 8, 24 + turn), Exact(0)))
    finally:
        stop.set()
        thread.join()
    assert seen == {1, 2}
