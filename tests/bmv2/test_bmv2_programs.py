"""The emulated switch against bmv2 on programs that take v1model apart: parsers, tables, externs and copies of packets.

Packets and entries come from a seed; the seed stands in the test's name, so a failure replays by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from weir.emulator.entries import (
    ActionCall,
    ActionSet,
    CloneSession,
    Exact,
    GroupRef,
    Lpm,
    MemberRef,
    Optional,
    Range,
    Replica,
    TableEntry,
    Ternary,
    WeightedAction,
)
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.harness import CPU_PORT, Compiled, needs_bmv2, needs_p4c
from weir.tests.bmv2.mutation import mutate
from weir.tests.bmv2.p4runtime_client import clone_session, multicast_group
from weir.tests.checksums import internet_checksum

pytestmark = [pytest.mark.bmv2, needs_bmv2, needs_p4c]

PROGRAMS = Path(__file__).parent / "programs"
EMULATOR_PROGRAMS = PROGRAMS.parents[1] / "emulator" / "programs"
PORTS = range(8)
COVERING = (1, 2)
"""Seeds whose packets are known to reach everything."""

SEEDS = (*COVERING, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 110)))
PACKETS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bmv2_programs")


@pytest.fixture
def pair(request: pytest.FixtureRequest, folder: Path) -> Iterator[Pair]:
    """Both switches with the program that the test's first word names."""
    program = request.node.originalname.split("_")[1]
    with Pair(Compiled.compile(PROGRAMS / f"{program}.p4", folder), PORTS) as pair:
        yield pair


@pytest.mark.parametrize("seed", SEEDS)
def test_parsing_paths_and_errors(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    tails = (b"", b"\x00", b"\xff\xff\xff\xff\xff\xff", bytes.fromhex("018000ffc0ff1007"))
    packets: list[tuple[int, bytes]] = []
    for _ in range(PACKETS):
        kind = rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5))
        body = rng.choice(
            (
                rng.randbytes(rng.randrange(24)),
                bytes([rng.choice((0x10, 0x1F, 0x20, 0x30, 0x80, 0xBF)), rng.choice((1, 7, 0xFF))]) + rng.randbytes(12),
                bytes([0, rng.choice((0, 1, 0xFF)), 0x0F, 0xFF]) + rng.randbytes(8),
            )
        )
        packets.append((rng.randrange(4), mutate(rng, bytes([kind, 0]) + body + rng.choice(tails))))
    outputs = pair.compare(packets)
    errors = {out[0].frame[1] & 0xF for out in outputs if out}
    assert seed not in COVERING or errors == {0, 1, 4, 7, 8}, "every parser error of the program must have been met"


@pytest.mark.parametrize("seed", SEEDS)
def test_aggregates_stacks_varbits_and_unions(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    packets: list[tuple[int, bytes]] = []
    for _ in range(PACKETS):
        labels = [rng.getrandbits(32) & ~0x100 for _ in range(rng.randrange(7))]
        stack = b"".join(label.to_bytes(4, "big") for label in [*labels, rng.getrandbits(32) | 0x100])
        kind = rng.choice((1, 1, 2, 3, 0))
        body = stack if kind == 1 else rng.randbytes(rng.randrange(40))
        packets.append((0, mutate(rng, bytes([kind, 0, rng.randrange(8)]) + body + rng.randbytes(rng.randrange(6)))))
    outputs = pair.compare(packets)
    errors = {out[0].frame[1] for out in outputs if out and len(out[0].frame) > 1}
    assert seed not in COVERING or errors >= {0, 1, 3, 4}


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_of_every_kind(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    write_tables(pair, rng)
    packets = [(rng.randrange(4), mutate(rng, table_packet(rng), rate=0.1)) for _ in range(PACKETS)]
    outputs = pair.compare(packets)
    hits = [out[0].frame[19] for out in outputs if out and len(out[0].frame) > 20]
    for bit in range(8):
        found = {hit >> bit & 1 for hit in hits}
        assert seed not in COVERING or found == {0, 1}, f"table {bit} must have both hits and misses"


def test_tables_change_between_packets(pair: Pair) -> None:
    rng = random.Random(5)
    table, value = "Forward.lpm_table", iter(range(1, 200))
    entries: dict[Lpm, object] = {}
    for _ in range(40):
        key = Lpm(rng.choice((0x0A000000, 0x0A010000, 0x0A010200, 0x0A010203)), rng.choice((8, 16, 24, 32)))
        key = Lpm(key.value >> 32 - key.prefix_length << 32 - key.prefix_length, key.prefix_length)
        entry = pair.encoder.table_entry(table, TableEntry((key,), ActionCall("Forward.set_lpm", (next(value),))))
        if key not in entries:
            pair.insert(entry)
        elif rng.random() < 0.5:
            pair.modify(entry)
        else:
            pair.delete(entry)
            del entries[key]
            continue
        entries[key] = entry
        pair.compare([(1, table_packet(rng)) for _ in range(4)])
    pair.modify(pair.encoder.default_entry(table, ActionCall("Forward.set_lpm", (next(value),))))
    pair.compare([(1, table_packet(rng)) for _ in range(10)])


@pytest.mark.parametrize("seed", SEEDS)
def test_externs_keep_the_same_state(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    packets: list[tuple[int, bytes]] = []
    for _ in range(PACKETS):
        ipv4 = bytearray(rng.randbytes(20))
        ipv4[10:12] = bytes(2)
        ipv4[10:12] = internet_checksum(bytes(ipv4)).to_bytes(2, "big") if rng.random() < 0.7 else rng.randbytes(2)
        data = bytes([rng.randrange(64), rng.choice((0, 1, 2, 15, 16, 255))]) + rng.randbytes(5)
        data += bytes([rng.randrange(16) << 4 | rng.choice((0, 1, 7))]) + rng.randbytes(6 + 19 + 10)
        packets.append((rng.randrange(4), mutate(rng, data + bytes(ipv4) + rng.randbytes(rng.randrange(20)), rate=0.1)))
    pair.compare(packets)
    counters = pair.compare_counters()
    assert sum(packets for packets, _ in counters["Forward.traffic"]) > PACKETS // 4


@pytest.mark.parametrize("seed", SEEDS)
def test_replication_copies(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    pair.insert(
        multicast_group(1, [Replica(1, 1), Replica(2, 2), Replica(3, 3)]),
        multicast_group(2, [Replica(1, 10), Replica(1, 11), Replica(CPU_PORT, 12)]),
        multicast_group(300, [Replica(7, 65535)]),
        clone_session(1, CloneSession((Replica(4, 0),))),
        clone_session(2, CloneSession((Replica(CPU_PORT, 7),))),
        clone_session(77, CloneSession((Replica(5, 1), Replica(6, 2)))),
    )
    packets: list[tuple[int, bytes]] = []
    for _ in range(PACKETS):
        op = rng.choice((0, 1, 4, 8, 5, 9, 12, 64, 65, 68, 72, 128, 129, 136, 2, 6, rng.randrange(256)))
        session, group = rng.choice((1, 2, 77, 3, 0)), rng.choice((1, 2, 300, 4, 0))
        port = rng.choice((0, 1, 2, 3, 7, CPU_PORT, 511, 0x203) if op & 4 else (0, 1, 2, 3, 7, 9, CPU_PORT, 511, 0x203))
        header = (
            bytes([op, session]) + group.to_bytes(2, "big") + port.to_bytes(2, "big") + bytes([0, rng.randrange(64)])
        )
        packet = mutate(rng, header + rng.randbytes(rng.randrange(40)), rate=0.05)
        empty = packet[0] & 64 and packet[7:8] <= b"\x02"  # no frame, or half a packet-in header
        reserved = packet[2:3] >= b"\x80"  # bmv2 keeps its clone sessions in multicast groups from 32768 on
        if not empty and not reserved:
            packets.append((rng.randrange(4), packet))
    outputs = pair.compare(packets)
    instances = {
        out.frame[2 if out.port == CPU_PORT else 0] for found in outputs for out in found if len(out.frame) > 2
    }
    assert {0, 1, 2, 5} <= instances


def test_replication_packet_out(pair: Pair) -> None:
    for port in (0, 3, 7, 9):
        pair.compare_packet_out(b"\x00payload of a packet-out", [(1, port), (2, 5)], (port << 7 | 5).to_bytes(2, "big"))
    assert pair.packets == 4


def table_packet(rng: random.Random) -> bytes:
    a, b = rng.randrange(24), rng.choice((rng.randrange(4), 0x1234, 0xFF00, rng.randrange(65536)))
    c = rng.choice((0x0A010203, 0x0A0102FF, 0x0A01FFFF, 0x0AFFFFFF, rng.getrandbits(32)))
    d, e = rng.choice((0x123, 0x121, 0x001, 0x100, 0xFFF, rng.getrandbits(12))), rng.choice((0, 1, 2, 7))
    key = bytes([a]) + b.to_bytes(2, "big") + c.to_bytes(4, "big") + (d << 4 | e).to_bytes(2, "big")
    return key + bytes(12) + rng.choice((0x0080, 0x8000, rng.getrandbits(16))).to_bytes(2, "big") + b"payload"


def write_tables(pair: Pair, rng: random.Random) -> None:
    """Random entries in all tables of `tables.p4`."""
    encoder, seen = pair.encoder, set()

    def add(table: str, match: tuple[object, ...], action: object, priority: int = 0) -> None:
        if (table, match, priority) not in seen:
            seen.add((table, match, priority))
            pair.insert(encoder.table_entry(f"Forward.{table}", TableEntry(match, action, priority)))  # type: ignore[arg-type]

    def call(name: str, *params: int) -> ActionCall:
        return ActionCall(f"Forward.{name}", params)

    def lpm(width: int, usual: int) -> Lpm:
        length = rng.randrange(width // 4, width + 1)
        value = usual if rng.random() < 0.7 else rng.getrandbits(width)
        return Lpm(value >> width - length << width - length, length)

    def ternary(width: int, value: int) -> Ternary:
        mask = rng.choice((0, (1 << width) - 1, rng.getrandbits(width), (1 << width) - 16))
        return Ternary(value & mask, mask)

    priorities = iter(rng.sample(range(1, 1000), 200))
    for _ in range(20):
        a, b, d = rng.randrange(24), rng.randrange(4), rng.choice((0x123, 0x121, 0x001, 0xFFF))
        value = rng.randrange(256)
        add("exact_table", (Exact(a), Exact(b), Exact(1)), call("set_exact", value))
        add("lpm_table", (lpm(32, 0x0A010203),), call("set_lpm", value))
        add("exact_lpm_table", (Exact(a), lpm(16, 0x1234)), call("set_mixed", value))
        match = (ternary(16, 0x1234), ternary(12, d), ternary(9, rng.choice((1, 0x100))))
        add("ternary_table", match, call("set_ternary", value), next(priorities))
        low = rng.randrange(65536)
        ranges = (
            Range(low, rng.randrange(low, 65536)),
            Exact(a),
            ternary(32, 0x0A010203),
            Optional(rng.choice((d, None))),
        )
        add("range_table", ranges, call("set_range", value), next(priorities))
    for a in range(24):
        if a % 3:
            action = rng.choice(
                (call("forward", rng.choice((0, 1, 5, 9, 511))), call("one"), call("two", 9), call("drop"))
            )
            for port in range(3):
                add("forward_table", (Exact(a & 15), Exact(port)), action)

    profile, narrow, wide = "Forward.profile", "Forward.narrow_selector", "Forward.wide_selector"
    members = list(range(1, 9))
    rng.shuffle(members)
    pair.insert(*(encoder.member(profile, i, call("set_profile", i)) for i in members))
    pair.insert(*(encoder.member(narrow, 100 + i, call("set_selector", i)) for i in members))
    for group in range(1, 5):
        chosen = rng.sample(members, rng.randrange(1, 6))
        pair.insert(encoder.group(narrow, group, [(100 + i, rng.choice((1, 1, 2, 3))) for i in chosen]))
    for a in range(0, 24, 2):
        add("profile_table", (Exact(a),), MemberRef(rng.choice(members)))
        add(
            "selector_table",
            (Exact(a),),
            rng.choice((GroupRef(rng.randrange(1, 5)), MemberRef(100 + rng.choice(members)))),
        )
    for length in (8, 16, 24):
        actions = [WeightedAction(call("set_wide", rng.getrandbits(16)), rng.randrange(1, 4)) for _ in range(4)]
        add("wide_selector_table", (Lpm(0x0A010203 >> 32 - length << 32 - length, length),), ActionSet(tuple(actions)))
    assert wide in encoder.profiles


@pytest.mark.parametrize("seed", SEEDS)
def test_constructs_of_the_emulators_own_tests(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    packets = []
    for i in range(PACKETS):
        what = rng.choice((*range(1, 16), 0x12, 0x1F, 40, 41, 42, rng.randrange(256)))
        odd = rng.randbytes(21) if what >> 4 == 1 else b""
        body = odd + rng.choice((0, 13, 50, 500, 5000, rng.getrandbits(32))).to_bytes(4, "big") + rng.randbytes(4)
        index = rng.choice((0, 1, 3, 5, 9, 15, 16, 30))
        if what in (
            1,
            6,
            41,
        ):  # reads beyond a register and empty frames are undefined; 41 clones its clones, without end
            index = 9
        packet = mutate(rng, bytes([what, index]) + body + rng.randbytes(rng.randrange(12)), rate=0.1)
        if packet[0] not in (1, 6, 41) or packet[1:2] == b"\x09":
            packets.append((9 if i % 7 == 0 else rng.randrange(4), packet))
    with Pair(Compiled.compile(EMULATOR_PROGRAMS / "constructs.p4", folder), PORTS) as pair:
        pair.insert(
            multicast_group(7, [Replica(1, 1), Replica(4, 2), Replica(CPU_PORT - 1, 3)]),
            clone_session(1, CloneSession((Replica(5, 0),))),
            clone_session(3, CloneSession((Replica(6, 1), Replica(0, 2)))),
        )
        pair.compare(packets)
        counters = pair.compare_counters()
    assert all(packets > 0 for packets, _ in counters["ConstructsIngress.counted"][:2]), "both parser errors must occur"


@pytest.mark.parametrize("seed", SEEDS)
def test_selectors_of_the_emulators_own_tests(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    with Pair(Compiled.compile(EMULATOR_PROGRAMS / "selector.p4", folder), PORTS) as pair:
        encoder, control = pair.encoder, "SelectorIngress"

        def to(port: int) -> ActionCall:
            return ActionCall(f"{control}.to", (port, rng.getrandbits(80)))

        pair.insert(*(encoder.member(f"{control}.choose", i, to(i)) for i in range(1, 8)))
        pair.insert(*(encoder.member(f"{control}.plain", i, to(i)) for i in range(1, 4)))
        pair.insert(encoder.member(f"{control}.plain", 9, ActionCall(f"{control}.drop")))
        pair.insert(encoder.group(f"{control}.choose", 1, [(i, 1) for i in range(1, 8)]))
        kinds = (7, 9, 0x80, 0x87, 1, 2, 3, 4)
        for kind in kinds[:5]:
            entry = TableEntry((Exact(kind),), rng.choice((GroupRef(1), MemberRef(3))))
            pair.insert(encoder.table_entry(f"{control}.grouped", entry))
        for kind in kinds[3:7]:
            entry = TableEntry((Exact(kind),), MemberRef(rng.choice((1, 2, 3, 9))))
            pair.insert(encoder.table_entry(f"{control}.single", entry))
        packets = [
            (1, mutate(rng, bytes([rng.choice(kinds)]) + rng.randbytes(8 + rng.randrange(8)), rate=0.1))
            for _ in range(PACKETS)
        ]
        outputs = pair.compare(packets)
    assert len({out[0].port for out in outputs if out}) > 4
