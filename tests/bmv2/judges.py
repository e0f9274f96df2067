"""Judges of a program: the interpreter and the emulated switch, and bmv2 if a `Pair` provides it.

All get the same entries, cells and packets. Packets whose behaviour P4 leaves open, according to the interpreter, are
sent to none.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

from weir.emulator.entries import (
    ActionCall,
    CloneSession,
    EmulatorError,
    Exact,
    Lpm,
    Match,
    Optional,
    Range,
    Replica,
    TableEntry,
    Ternary,
)
from weir.emulator.program import MeterRates, Program
from weir.emulator.switch import CPU_PORT, Switch
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.harness import Output
from weir.tests.bmv2.interpreter import Bucket, Entry, Interpreter, Undefined
from weir.tests.bmv2.mutation import mutate
from weir.tests.bmv2.p4runtime_client import Refused, clone_session, multicast_group
from weir.tests.bmv2.random_programs import GROUP, SESSION
from weir.tests.emulator.generation import call, entries, number, packet

SHOWN: Final = 4
"""Differences that a failure prints."""


class Judges:
    def __init__(self, json: bytes, *, pair: Pair | None = None, interpreted: bytes | None = None) -> None:
        """Prepare the judges; `interpreted` is the interpreter's program, if different. Raises `Unsupported`."""
        self.interpreter = Interpreter(interpreted or json)
        self.program = Program.load(json)
        self.compared = 0
        """Packets that were compared so far."""
        self.forwarded = 0
        """Frames that left the emulated switch: a test checks with it that not all packets were dropped."""
        self._counted: list[tuple[str, TableEntry, Entry]] = []
        """Entries with a counter: table, entry, and the interpreter's entry."""
        self._pair = pair
        if pair is None:
            self._switch = Switch(1, ports=range(CPU_PORT))
            self._switch.start(self.program, self.program.new_state())
        else:
            self._switch = pair.switch
        assert self._switch.state is not None
        self._state = self._switch.state

    def fill(self, rng: random.Random) -> None:
        """Random entries in all tables, values in all registers, rates of half the meters, which earn nothing; ports of
        a clone session and a multicast group.
        """
        ports, group = [rng.randrange(8)], [(port, rng.randrange(3)) for port in rng.sample(range(8), 2)]
        self.interpreter.sessions[SESSION], self.interpreter.groups[GROUP] = ports, group
        session, replicas = CloneSession((Replica(ports[0], 0),)), tuple(Replica(*each) for each in group)
        if self._pair is None:
            self._switch.replication.set_session(SESSION, session)
            self._switch.replication.set_group(GROUP, replicas)
        else:
            self._pair.insert(clone_session(SESSION, session), multicast_group(GROUP, replicas))
        for schema in self.program.tables.values():
            for entry in entries(rng, self.program, schema):
                self._insert(schema.name, entry)
            if schema.actions and not schema.const_default and rng.random() < 0.3:
                self._set_default(schema.name, call(rng, self.program, schema.actions))
        for name, meter in self._state.meters.items():
            for index in range(0, meter.size, 2):
                committed, peak = (rng.choice((0, 1, 3, 1000)) * rng.choice((1, 1, 100)) for _ in range(2))
                rates = MeterRates(0, committed, 0, peak)
                self.interpreter.meters[name][index] = Bucket(committed, peak)
                if self._pair is None:
                    meter.set(index, rates)
                else:
                    self._pair.modify(self._pair.encoder.meter_entry(name, index, rates))
        for name, register in self._state.registers.items() if self._pair is None else ():
            for index in range(register.size):
                value = number(rng, register.width)
                register.write(index, value)
                self.interpreter.registers[name][index] = value

    def _insert(self, table: str, entry: TableEntry) -> None:
        """Write an entry where all take it; bmv2 refuses a second one that matches the same."""
        assert isinstance(entry.action, ActionCall)
        try:
            if self._pair is None:
                self._state.tables[table].insert(entry)
            else:
                entity = self._pair.encoder.table_entry(table, entry)
                theirs, ours = self._pair.clients
                theirs.insert(entity)
                ours.insert(entity)
        except (EmulatorError, Refused):
            return
        key = [written(match) for match in entry.match]
        self.interpreter.insert(table, key, entry.action.name, entry.action.params, -entry.priority)
        if self.program.tables[table].direct_counter is not None:
            self._counted.append((table, entry, self.interpreter.tables[table].entries[-1]))

    def _set_default(self, table: str, default: ActionCall) -> None:
        if self._pair is None:
            self._state.tables[table].set_default(default)
        else:
            self._pair.modify(self._pair.encoder.default_entry(table, default))
        self.interpreter.set_default(table, default.name, default.params)

    def random_packets(self, rng: random.Random, count: int) -> list[tuple[int, bytes]]:
        """(port, frame): such as the program's parser takes, a fifth of them damaged."""
        document = self.program._document
        return [(rng.randrange(8), mutate(rng, packet(rng, document) or b"\0")) for _ in range(count)]

    def differences(self, packets: Iterable[tuple[int, bytes]]) -> list[str]:
        """Send packets to all; return differences in words. Raises AssertionError if bmv2 differs from the emulator."""
        defined, expected = [], []
        for port, frame in packets:
            try:
                sent = self.interpreter.process(port, frame)
            except Undefined:
                continue
            defined.append((port, frame))
            expected.append(sorted(Output(*each) for each in sent))
        self.compared += len(defined)
        if self._pair is None:
            found = [sorted(Output(*each) for each in self._switch.forward(frame, port)) for port, frame in defined]
        else:
            found = self._pair.compare(defined)
        self.forwarded += sum(map(len, found))
        return [
            f"into port {port}: {frame.hex()}\n  emulator    -> {ours}\n  interpreter -> {plain}"
            for (port, frame), ours, plain in zip(defined, found, expected, strict=True)
            if ours != plain
        ] + self._cells_that_differ()

    def _cells_that_differ(self) -> list[str]:
        plain, state = self.interpreter, self._state
        found: dict[str, tuple[object, object]] = {}
        for name, register in state.registers.items():
            found[name] = [register.read(index) for index in range(register.size)], plain.registers[name]
        for name, counter in state.counters.items():
            found[name] = list(zip(counter.packets.tolist(), counter.bytes.tolist(), strict=True)), plain.counters[name]
        for name, entry, theirs in self._counted:
            found[f"{name} {entry}"] = state.tables[name].counter(entry.match, entry.priority), theirs.hits
        return [
            f"{name}: emulator {ours}, interpreter {theirs}" for name, (ours, theirs) in found.items() if ours != theirs
        ]


def written(match: Match) -> dict[str, Any]:
    """A match as an entry's `match_key` has it in the JSON."""
    match match:
        case Exact(value):
            return {"match_type": "exact", "key": hex(value)}
        case Lpm(value, length):
            return {"match_type": "lpm", "key": hex(value), "prefix_length": length}
        case Ternary(value, mask):
            return {"match_type": "ternary", "key": hex(value), "mask": hex(mask)}
        case Range(low, high):
            return {"match_type": "range", "start": hex(low), "end": hex(high)}
        case Optional(value):
            return written(Ternary(0, 0) if value is None else Exact(value))


def judged(json: bytes, seed: int, packets: int, pair: Pair | None = None) -> Judges:
    """Send entries and packets from a seed to all. Raises AssertionError with the first difference."""
    judges, rng = Judges(json, pair=pair), random.Random(seed)
    judges.fill(rng)
    found = judges.differences(judges.random_packets(rng, packets))
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:SHOWN])
    return judges
