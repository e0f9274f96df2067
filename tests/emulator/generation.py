"""Random packets and table entries for any program, from a generator with a seed.

Packets follow the program's own parser: a walk picks transitions at random and writes into the fields what they ask
for. So they get to where bytes at random never get. Numbers are small or at an end of their range more often than not,
in packets and entries alike, so that keys meet.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weir.emulator.bmv2.document import Const, Document, Expr, Field, Lookahead, Op, ParseState, Ref
from weir.emulator.entries import (
    ActionCall,
    ActionSet,
    CloneSession,
    EmulatorError,
    Exact,
    GroupRef,
    Lpm,
    Match,
    MemberRef,
    Optional,
    Range,
    Replica,
    TableAction,
    TableEntry,
    Ternary,
    WeightedAction,
)
from weir.emulator.program import ActionProfileSchema, MeterRates, Program, ProgramState, TableSchema
from weir.emulator.switch import Switch

MAX_STATES = 24
"""States of a walk: enough for every loop to go round a few times."""
MAX_ENTRIES = 12


def number(rng: random.Random, width: int) -> int:
    """Random integer of this width."""
    kind = rng.randrange(8)
    if kind < 4:
        return rng.randrange(min(8, 1 << width))
    if kind < 5:
        return (1 << width) - 1 - rng.randrange(min(2, 1 << width))
    if kind < 6:
        return 1 << rng.randrange(width)
    return rng.getrandbits(width)


# ---- packets


@dataclass(slots=True)
class _Walk:
    data: bytearray = field(default_factory=bytearray)
    places: dict[Field, tuple[int, int]] = field(default_factory=dict)
    """(first bit, width) of the fields extracted so far."""
    filled: dict[str, int] = field(default_factory=dict)
    wishes: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Matches that transitions require: (first bit, width, value, mask)."""


def packet(rng: random.Random, document: Document) -> bytes:
    """A frame that some walk through the program's parser accepts, if no condition forbids it, and a payload."""
    walk = _Walk()
    name: str | None = document.parser.init_state
    for _ in range(MAX_STATES):
        if name is None:
            break
        state = document.parser.states[name]
        for op in state.ops:
            if op.op in ("extract", "extract_VL") and isinstance(op.args[0], Ref):
                _extract(rng, document, walk, op.args[0])
            elif op.op in ("advance", "shift") and isinstance(op.args[0], Const):
                walk.data += rng.randbytes(min(op.args[0].value // (8 if op.op == "advance" else 1), 64))
        name = _follow(rng, document, walk, state)
    walk.data += rng.randbytes(rng.choice((0, 0, 1, 4, 20, 60)))
    for first, width, value, mask in walk.wishes:
        _write(walk.data, first, width, value, mask)
    return bytes(walk.data)


def _extract(rng: random.Random, document: Document, walk: _Walk, target: Ref) -> None:
    name = target.name
    if target.kind == "stack":
        headers = document.stacks[target.name].headers
        index = walk.filled.get(target.name, 0)
        walk.filled[target.name] = index + 1
        name = headers[min(index, len(headers) - 1)]
    header = document.headers[name]
    at = 8 * len(walk.data)
    bits = bits_so_far = 0
    for field_name, width, _ in header.fields:
        if field_name == header.varbit:
            width = 8 * rng.randrange(min(width // 8, 16) + 1)
        walk.places[Field(name, field_name)] = (at + bits_so_far, width)
        bits_so_far += width
        bits = bits << width | (number(rng, width) if width else 0)
    walk.data += (bits << -bits_so_far % 8).to_bytes((bits_so_far + 7) // 8, "big")


def _follow(rng: random.Random, document: Document, walk: _Walk, state: ParseState) -> str | None:
    """Pick a transition and note what it wants; the next state."""
    if not state.transitions:
        return None
    chosen = rng.choice(state.transitions)
    if chosen.value is not None:
        value, mask = chosen.value, -1 if chosen.mask is None else chosen.mask
        for part in reversed(state.key):
            place = _place(walk, part)
            width = place[1] if place is not None else 8
            shift = (width + 7) // 8 * 8
            if place is not None:
                walk.wishes.append((*place, value & ((1 << width) - 1), mask & ((1 << width) - 1)))
            value, mask = value >> shift, mask >> shift
    return chosen.next_state


def _place(walk: _Walk, part: Expr) -> tuple[int, int] | None:
    """Position of the bits of a select's expression in the packet."""
    match part:
        case Field():
            return walk.places.get(part)
        case Lookahead(offset, width):
            return 8 * len(walk.data) + offset, width
        case Op(_, (inner, Const())):  # p4c's casts and cuts of a field
            return _place(walk, inner)
    return None


def _write(data: bytearray, first: int, width: int, value: int, mask: int) -> None:
    """Set the bits of `value` under `mask`, as far as the data reach."""
    end = first + width
    if width == 0 or end > 8 * len(data):
        return
    shift = -end % 8
    inside = slice(first // 8, (end + 7) // 8)
    whole = int.from_bytes(data[inside], "big")
    whole = whole & ~(mask << shift) | (value & mask) << shift
    data[inside] = whole.to_bytes(inside.stop - inside.start, "big")


def damaged(
    rng: np.random.Generator, frames: list[bytes], count: int, size: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """`count` frames made of the given ones, as (count, size) bytes and their lengths.

    A third are whole; others have bytes replaced, from one to all, are cut short, even to nothing, or are longer.
    """
    table = np.zeros((len(frames), size), np.uint8)
    sizes = np.array([min(len(frame), size) for frame in frames])
    for i, frame in enumerate(frames):
        table[i, : sizes[i]] = np.frombuffer(frame[:size], np.uint8)
    which = rng.integers(len(frames), size=count)
    data, lengths = table[which], sizes[which]
    share = rng.choice([0.0, 0.0, 0.02, 0.2, 1.0], size=(count, 1))
    noise = rng.integers(256, size=data.shape, dtype=np.uint8)
    bits = np.where(rng.random((count, 1)) < 0.5, noise, np.uint8(1) << (noise & 7))
    data ^= np.where(rng.random(data.shape) < share, bits, np.uint8(0))
    kind = rng.integers(6, size=count)
    lengths = np.where(kind == 0, rng.integers(0, lengths + 1), lengths)
    lengths = np.where(kind == 1, rng.integers(lengths, size + 1), lengths)
    return data, lengths.astype(np.int64)


# ---- entries of the control plane


def match(rng: random.Random, kind: str, width: int) -> Match:
    value = number(rng, width)
    whole = (1 << width) - 1
    if kind == "lpm":
        length = rng.randrange(width + 1)
        return Lpm(value >> width - length << width - length, length)
    if kind == "ternary":
        mask = rng.choice((0, whole, whole, rng.getrandbits(width)))
        return Ternary(value & mask, mask)
    if kind == "optional":
        return Optional(rng.choice((value, value, None)))
    if kind == "range":
        other = number(rng, width)
        return Range(min(value, other), max(value, other))
    return Exact(value)


def call(rng: random.Random, program: Program, names: tuple[str, ...]) -> ActionCall:
    name = rng.choice(names)
    return ActionCall(name, tuple(number(rng, width) for _, width in program.actions[name].params))


def entries(rng: random.Random, program: Program, table: TableSchema) -> Iterator[TableEntry]:
    """Entries for one table. Some may be there already, or not fit a table's size: the switch refuses those."""
    if table.const_entries or not table.key or not table.actions:
        return
    for priority in rng.sample(range(1, 1000), rng.randrange(MAX_ENTRIES + 1)):
        keys = tuple(match(rng, key.match_kind, key.width) for key in table.key)
        yield TableEntry(keys, _action(rng, program, table), priority if table.needs_priority else 0)


def _action(rng: random.Random, program: Program, table: TableSchema) -> TableAction:
    if table.profile is None:
        return call(rng, program, table.actions)
    profile = program.action_profiles[table.profile]
    kind = rng.randrange(3) if profile.selector else 0
    if kind == 0:
        return MemberRef(rng.randrange(1, 6))
    if kind == 1:
        return GroupRef(rng.randrange(1, 4))
    return ActionSet(tuple(WeightedAction(call(rng, program, profile.actions)) for _ in range(rng.randrange(1, 4))))


def fill(rng: random.Random, program: Program, switch: Switch) -> int:
    """Write random entries, groups, sessions, rates and cells into a switch; how many table entries it took."""
    state: ProgramState | None = switch.state
    assert state is not None
    for profile_schema in program.action_profiles.values():
        _fill_profile(rng, program, state, profile_schema)
    written = 0
    for schema in program.tables.values():
        table = state.tables[schema.name]
        for entry in entries(rng, program, schema):
            try:
                table.insert(entry)
                written += 1
            except EmulatorError:
                continue
        if not schema.const_default and schema.profile is None and schema.actions and rng.random() < 0.3:
            table.set_default(call(rng, program, schema.actions))
    for name, schema_of_set in program.value_sets.items():
        members = [
            tuple(
                Ternary(value := number(rng, width), value | rng.getrandbits(width)) for width in schema_of_set.widths
            )
            for _ in range(min(3, schema_of_set.size))
        ]
        state.value_sets[name].replace(members)
    for meter in state.meters.values():
        for index in range(min(meter.size, 8)):
            committed, peak = sorted(rng.randrange(1, 1000) for _ in range(2))
            meter.set(index, MeterRates(committed, rng.randrange(1, 1000), peak, rng.randrange(1, 1000)))
    for register in state.registers.values():
        for index in range(min(register.size, 4)):
            register.write(index, number(rng, register.width))
    for group in range(1, 6):
        switch.replication.set_group(group, _replicas(rng))
        switch.replication.set_session(group, CloneSession(_replicas(rng), rng.choice((0, 0, 20)), rng.randrange(8)))
    return written


def _fill_profile(rng: random.Random, program: Program, state: ProgramState, schema: ActionProfileSchema) -> None:
    profile = state.action_profiles[schema.name]
    members = range(1, 1 + min(5, schema.size))
    if not schema.actions or not members:  # of a program that was damaged
        return
    for member in members:
        profile.add_member(member, call(rng, program, schema.actions))
    if schema.selector:
        for group in range(1, 4):
            chosen = rng.sample(members, min(len(members), rng.randrange(1, 4)))
            profile.add_group(group, tuple((member, rng.randrange(1, 3)) for member in chosen))


def _replicas(rng: random.Random) -> tuple[Replica, ...]:
    ports = (*range(8), 9, 300, 510)
    return tuple({Replica(rng.choice(ports), rng.randrange(4)) for _ in range(rng.randrange(4))})
