"""Every program of p4src, examples and tests through bmv2 and the emulated switch: random packets, random entries.

Packets follow the program's own parser (`tests.emulator.generation`) and are then cut short, damaged or made longer.
The seed is in the test's name, so a failure can be replayed alone. Behaviour that may legitimately differ between
switches is left out, for the reasons given here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from weir.emulator.bmv2.document import Document, Ref
from weir.emulator.entries import ActionCall, CloneSession, GroupRef, MemberRef, Replica, TableEntry
from weir.emulator.program import Program
from weir.tests.bmv2.differential import Mask, Pair
from weir.tests.bmv2.fabric_node import without_times
from weir.tests.bmv2.harness import CPU_PORT, Compiled, needs_bmv2
from weir.tests.bmv2.mutation import mutate
from weir.tests.bmv2.p4runtime_client import Refused, clone_session, multicast_group
from weir.tests.emulator.generation import match, number, packet
from weir.tests.paths import ROOT

pytestmark = [pytest.mark.bmv2, needs_bmv2]

TESTS: Final = ROOT / "tests"
PORTS: Final = range(8)
PACKETS: Final = 60
MANY_PACKETS: Final = 3000
MAX_ENTRIES: Final = 8
MATCH_KINDS: Final = {2: "exact", 3: "lpm", 4: "ternary", 5: "range", 6: "optional"}
DEFAULT_ONLY: Final = 2

APART: Final = {
    "loops": "its packets go round without end, and keep bmv2 busy for ever",
    "turns": "one of its actions goes round without end, and keeps bmv2 busy for ever",
    "elements": "bmv2 does not load it",
    "last_index": "bmv2 does not load it",
    "externs": "its assertions end bmv2, and it draws random numbers",
    "metadata": "it answers with instants",
    "statements": "its assertions end bmv2, and it draws random numbers",
    "meters": "colours depend on the instant at which a packet comes",
    "constructs": "reads beyond a register and clones without end are undefined (test_bmv2_programs has its packets)",
    "every_entity": "colours and idle times depend on the instant at which a packet comes",
}
"""Programs whose packets cannot be compared, and why."""
MASKS: Final[dict[str, Mask]] = {"fabric": without_times}
DEFINED: Final[dict[str, Callable[[bytes], bool]]] = {
    # hashes over the fields of a header that is not there
    "hashes": lambda frame: frame[0] & 1 == 1 and len(frame) >= 17,
    # an index beyond the stack, where bmv2 ends, and labels that are not there
    "stacks": lambda frame: frame[0] != 5 and (frame[0] != 6 or frame[1] < 4),
    "aggregates": lambda frame: frame[0] not in (3, 4) or frame[1] < 4,
    # labels that are not there
    "corners": lambda frame: len(frame) >= 4,
    # comparison of fields of which one is not there, and a varbit field that is parsed twice (docs/emulator.md)
    "varbit": lambda frame: frame[0] != 4 and (frame[0] != 2 or (frame[1] <= 8 and len(frame) >= 7 + frame[1])),
    # a choice that is not there, or is beyond the stack
    "absent": lambda frame: frame[0] == 1 and len(frame) >= 6 and frame[1] < 3,
}
"""Predicate of the packets that a program treats in a defined way, beyond those that lack its first header: bmv2 leaves
values of an earlier packet in the fields of an invalid header.
"""
GUARDED: Final = ("fabric",)
"""Programs that ask whether their first header is there."""


def programs() -> list[Path]:
    found = [
        *TESTS.glob("emulator/stf/*.json"),
        *TESTS.glob("emulator/programs/*.json"),
        *TESTS.glob("emulator/p4runtime/programs/*.json"),
        *ROOT.glob("p4src/build/*.json"),
        *ROOT.glob("examples/**/*.json"),
    ]
    return sorted(path for path in found if path.stem not in APART and path.with_suffix(".p4info.txtpb").exists())


def cases() -> Iterable[Any]:
    for path in programs():
        name = f"{path.parent.name}-{path.stem}"
        yield pytest.param(path, 1, PACKETS, id=f"{name}-1")
        for seed in range(100, 103):
            yield pytest.param(path, seed, MANY_PACKETS, id=f"{name}-{seed}", marks=pytest.mark.long)


@pytest.mark.parametrize(("path", "seed", "count"), list(cases()))
def test_random_packets_and_entries(path: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    document = Program.load(path)._document
    with Pair(Compiled.read(path, path.with_suffix(".p4info.txtpb")), PORTS) as pair:
        write_entries(rng, pair)
        shortest = 1 if path.stem in GUARDED else first_bytes(document)
        defined = DEFINED.get(path.stem, _any)
        packets: list[tuple[int, bytes]] = []
        while len(packets) < count:
            frame = mutate(rng, packet(rng, document) or b"\0", 0.4)
            if len(frame) >= shortest and defined(frame):
                packets.append((rng.randrange(8), frame))
        pair.compare(packets, MASKS.get(path.stem))
        pair.compare_counters()


def _any(frame: bytes) -> bool:
    return True


def first_bytes(document: Document) -> int:
    """Bytes of the headers that the parser takes first, whatever comes."""
    ops = document.parser.states[document.parser.init_state].ops
    names = [op.args[0].name for op in ops if op.op == "extract" and isinstance(op.args[0], Ref)]
    return sum(document.headers[name].bits // 8 for name in names if name in document.headers)


def write_entries(rng: random.Random, pair: Pair) -> None:
    """Random groups, sessions, members, entries and default actions, the same in both."""
    encoder = pair.encoder
    for i in range(1, 4):
        replicas = [Replica(port, rng.randrange(4)) for port in rng.sample(PORTS, rng.randrange(1, 4))]
        pair.insert(multicast_group(i, replicas))
        pair.insert(clone_session(i, CloneSession(tuple(replicas[:2]))))
    pair.insert(clone_session(5, CloneSession((Replica(rng.choice(PORTS), 1),))))
    for profile in encoder.profiles.values():
        tables = [table for table in encoder.tables.values() if table.preamble.id in profile.table_ids]
        for member in range(1, 6):
            pair.insert(encoder.member(profile.preamble.name, member, _call(rng, pair, tables[0])))
        if profile.with_selector:
            for group in range(1, 3):
                members = [(member, 1) for member in rng.sample(range(1, 6), rng.randrange(1, 4))]
                pair.insert(encoder.group(profile.preamble.name, group, members))
    for table in encoder.tables.values():
        if not table.is_const_table and table.match_fields:
            _write_table(rng, pair, table)
        if not table.const_default_action_id and not table.implementation_id and rng.random() < 0.3:
            call = _call(rng, pair, table)
            pair.modify(encoder.default_entry(table.preamble.name, call))


def _write_table(rng: random.Random, pair: Pair, table: Any) -> None:
    kinds = [MATCH_KINDS[field.match_type] for field in table.match_fields]
    ranked = not {"exact", "lpm"}.issuperset(kinds)
    profile = next((p for p in pair.encoder.profiles.values() if p.preamble.id == table.implementation_id), None)
    seen = set()
    for priority in rng.sample(range(1, 1000), min(MAX_ENTRIES, table.size)):
        keys = tuple(match(rng, kind, field.bitwidth) for kind, field in zip(kinds, table.match_fields, strict=True))
        action: ActionCall | MemberRef | GroupRef
        if profile is None:
            action = _call(rng, pair, table, entry=True)
        elif profile.with_selector and rng.random() < 0.5:
            action = GroupRef(rng.randrange(1, 3))
        else:
            action = MemberRef(rng.randrange(1, 6))
        if keys not in seen:
            seen.add(keys)
            entry = TableEntry(keys, action, priority if ranked else 0)
            _insert(pair, pair.encoder.table_entry(table.preamble.name, entry))


def _insert(pair: Pair, entity: Any) -> None:
    """Write an entry to both, if bmv2 takes it: it refuses some, such as a second one that matches the same."""
    theirs, ours = pair.clients
    try:
        theirs.insert(entity)
    except Refused:
        return
    ours.insert(entity)


def _call(rng: random.Random, pair: Pair, table: Any, entry: bool = False) -> ActionCall:
    """A call of one of a table's actions, which P4Info may keep for its default or for its entries."""
    wrong = DEFAULT_ONLY if entry else 1
    ids = {ref.id for ref in table.action_refs if ref.scope != wrong}
    action = rng.choice([action for action in pair.encoder.actions.values() if action.preamble.id in ids])
    return ActionCall(action.preamble.name, tuple(number(rng, param.bitwidth) for param in action.params))


def test_excluded_packets_exist() -> None:
    stems = {path.stem for path in TESTS.glob("emulator/**/*.json")}
    assert stems >= APART.keys()
    assert len(programs()) > 15
    assert {path.stem for path in programs()} >= {"fabric", "fabric_32", "firewall", "router"}
    assert CPU_PORT not in PORTS
