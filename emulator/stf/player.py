"""A test played on an emulated switch: statements in their order, then what left each port against what was expected.

As in p4c's own runner, frames are compared port by port at the end, in the order in which they left; frames to ports
that the test does not mention go unseen (there is nothing attached to them).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from ..abi import DROP_PORT
from ..entries import (
    ActionSet,
    CloneSession,
    EmulatorError,
    Match,
    MemberRef,
    Replica,
    TableAction,
    TableEntry,
    WeightedAction,
)
from ..program import Counter, Program, Register, Table
from ..replication import ReplicationEngine
from ..runtime.engine import JUMBO_FRAME
from ..switch import CPU_PORT, Switch
from ..tables.meters import MeterArray, MeterRates
from .names import action_call, matches, resolve
from .statements import (
    Add,
    CheckCounter,
    CheckRegister,
    Comparison,
    Expect,
    NoPacket,
    Packet,
    RemoveAll,
    SetDefault,
    Statement,
    StfError,
    StfTest,
    SwitchCommand,
    Wait,
)

LAST_PORT: Final = CPU_PORT
"""The switch has all ports up to this: egress runs whether anybody looks at a port or not. A packet may also come in
at the drop port, as in bmv2, but none leaves there.
"""
PACKET_NS: Final = 1_000_000
"""Virtual time between two packets."""
WAIT_NS: Final = 1_000_000_000
"""Duration of a `wait`, in virtual time."""

_SHOWN_BYTES: Final = 8
"""Bytes shown on either side of the first difference of a long frame."""

_MICROSECONDS: Final = 1e6
"""Microseconds in a second, for rates are written per microsecond."""

_COMPARE: Final[Mapping[Comparison, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class PlayedScript:
    """Result of one STF script."""

    failures: tuple[str, ...]
    """Unmet expectations, each with `file:line`; empty if the test passed."""
    notes: tuple[str, ...]
    """Results of the statements that read something, each with `file:line`."""
    packets: int
    checks: int
    """Statements that could have failed."""


def play(program: Program, test: StfTest) -> PlayedScript:
    """Play a test on a switch of its own. Raises `StfError` for a statement that does not fit the program."""
    player = _Player(program, test)
    for step in (player.attach, player.play):
        for statement in test.statements:
            try:
                step(statement)
            except (EmulatorError, ValueError, IndexError) as error:
                raise StfError(f"{error}", place=f"{test.path.name}:{statement.line}") from None
    player.compare_frames()
    checks = sum(isinstance(s, (Expect, NoPacket, CheckCounter, CheckRegister)) for s in test.statements)
    packets = sum(isinstance(s, Packet) for s in test.statements)
    return PlayedScript(tuple(player.failures), tuple(player.notes), packets, checks)


class _Player:
    def __init__(self, program: Program, test: StfTest) -> None:
        self.failures: list[str] = []
        self.notes: list[str] = []
        self._program = program
        self._file = test.path.name
        self._switch = Switch(1, ports=range(LAST_PORT), max_frame=JUMBO_FRAME)
        self._state = program.new_state()
        self._switch.start(program, self._state)
        self._received: dict[int, list[bytes]] = {}
        self._expected: dict[int, list[Expect]] = {}
        self._now_ns = 0
        self._last_sent: list[tuple[int, bytes]] | None = None
        self._labels: dict[str, tuple[Table, tuple[Match, ...], int]] = {}
        self._members = 0
        self._replicator = _Replicator(self._switch.replication)

    def attach(self, statement: Statement) -> None:
        """Look at what leaves the port that a statement mentions."""
        if isinstance(statement, (Packet, Expect)) and statement.port not in self._received:
            last = DROP_PORT if isinstance(statement, Packet) else LAST_PORT
            if statement.port > last:
                raise ValueError(f"port {statement.port} is not one of 0 … {last}")
            self._received[statement.port] = []
            self._expected[statement.port] = []

    def play(self, statement: Statement) -> None:
        """Do what a statement says."""
        match statement:
            case Packet():
                self._packet(statement)
            case Expect():
                self._expected[statement.port].append(statement)
            case NoPacket():
                self._no_packet(statement)
            case Wait():
                self._now_ns += WAIT_NS
            case Add():
                self._add(statement)
            case SetDefault():
                table = self._table(statement.table)
                table.set_default(action_call(self._program, table.schema, statement.call))
            case RemoveAll():
                self._remove_all()
            case CheckCounter():
                self._check_counter(statement)
            case CheckRegister():
                register = self._register(statement.name)
                self._check(statement, f"{statement.name}({statement.index})", register.read(statement.index))
            case SwitchCommand():
                self._switch_command(statement)

    # ---- packets

    def _packet(self, packet: Packet) -> None:
        self._now_ns += PACKET_NS
        self._last_sent = self._switch.forward(packet.frame, packet.port, self._now_ns)
        for port, frame in self._last_sent:
            if port in self._received:
                self._received[port].append(frame)

    def _no_packet(self, statement: NoPacket) -> None:
        if self._last_sent is None:
            raise ValueError("no_packet is about the packet before it, and there is none")
        for port, frame in self._last_sent:
            self._fail(statement.line, f"no packet was expected, but one left port {port}: {frame.hex()}")

    def compare_frames(self) -> None:
        """Compare the frames that left each port with the expected ones."""
        for port, received in self._received.items():
            for number, (expect, frame) in enumerate(zip_longest(self._expected[port], received), start=1):
                if expect is None:
                    self._fail(None, f"port {port}: packet {number} was not expected: {frame.hex()}")
                elif frame is None:
                    self._fail(expect.line, f"port {port}: packet {number} was expected and did not come")
                elif (reason := difference(expect, frame)) is not None:
                    self._fail(expect.line, f"port {port}: packet {number} {reason}")

    # ---- tables

    def _table(self, name: str) -> Table:
        return self._state.tables[resolve("table", name, self._state.tables)]

    def _add(self, add: Add) -> None:
        table = self._table(add.table)
        schema = table.schema
        priority = add.priority or 0
        if not schema.needs_priority:
            priority = 0
        elif add.priority is None:
            raise ValueError(f"table {schema.name} needs a priority between its name and the key; the largest wins")
        match = matches(schema, add.key)
        table.insert(TableEntry(match, self._action(table, add), priority))
        if add.label is not None:
            self._labels[add.label] = (table, match, priority)

    def _action(self, table: Table, add: Add) -> TableAction:
        calls = [action_call(self._program, table.schema, call) for call in add.calls]
        profile = table.schema.profile
        if profile is not None and self._program.action_profiles[profile].selector:
            return ActionSet(tuple(WeightedAction(call) for call in calls))
        if len(calls) > 1:
            raise ValueError(f"{len(calls)} actions for one entry of table {table.schema.name}: it has no selector")
        if profile is None:
            return calls[0]
        self._members += 1
        self._state.action_profiles[profile].add_member(self._members, calls[0])
        return MemberRef(self._members)

    def _remove_all(self) -> None:
        for table in self._state.tables.values():
            if not table.schema.const_entries:
                for entry in list(table.entries()):
                    table.delete(entry.match, entry.priority)

    # ---- counters, registers, meters

    def _counter(self, name: str) -> Counter:
        return self._state.counters[resolve("counter", name, self._state.counters)]

    def _register(self, name: str) -> Register:
        return self._state.registers[resolve("register", name, self._state.registers)]

    def _meter(self, name: str) -> MeterArray:
        return self._state.meters[resolve("meter", name, self._state.meters)]

    def _check_counter(self, check: CheckCounter) -> None:
        packets, octets = self._count(check)
        where = f"{check.name}({check.index})"
        if check.unit != "bytes":
            self._check(check, f"{where} packets", packets)
        if check.unit != "packets":
            self._check(check, f"{where} bytes", octets)

    def _count(self, check: CheckCounter) -> tuple[int, int]:
        if isinstance(check.index, int):
            counter = self._counter(check.name)
            return _cell(counter, check.index)
        if check.index not in self._labels:
            raise ValueError(f"no entry has the label {check.index}; there are {', '.join(self._labels) or 'none'}")
        table, match, priority = self._labels[check.index]
        resolve(f"counter of {table.schema.name}:", check.name, filter(None, [table.schema.direct_counter]))
        return table.counter(match, priority)

    def _check(self, check: CheckCounter | CheckRegister, name: str, value: int) -> None:
        if not _COMPARE[check.comparison](value, check.value):
            self._fail(check.line, f"{name} is {value}, expected {check.comparison} {check.value}")

    # ---- the switch's own commands

    def _switch_command(self, command: SwitchCommand) -> None:
        numbers = command.numbers
        match command.command:
            case "counter_read":
                packets, octets = _cell(self._counter(command.name), numbers[0])
                self._note(command.line, f"{command.name}[{numbers[0]}]: {packets} packets, {octets} bytes")
            case "counter_write":
                counter = self._counter(command.name)
                _cell(counter, numbers[0])
                for count in numbers[1:]:
                    if count >= 1 << 64:
                        raise ValueError(f"a count of {count} does not fit 64 bits")
                counter.packets[numbers[0]], counter.bytes[numbers[0]] = numbers[1:]
            case "register_read":
                value = self._register(command.name).read(numbers[0])
                self._note(command.line, f"{command.name}[{numbers[0]}]: {value}")
            case "register_write":
                self._register(command.name).write(*numbers)
            case "register_reset":
                register = self._register(command.name)
                for index in range(register.size):
                    register.write(index, 0)
            case "mirroring_get":
                session = self._switch.replication.sessions.get(numbers[0])
                ports = ", ".join(str(replica.port) for replica in session.replicas) if session else "none"
                self._note(command.line, f"clone session {numbers[0]}: ports {ports}")
            case "meter_get_rates":
                found = self._meter(command.name).get(numbers[0])
                rates = "no rates"
                if found is not None:
                    rates = f"{found.committed_rate:g}/s in bursts of {found.committed_burst}, "
                    rates += f"peak {found.peak_rate:g}/s in bursts of {found.peak_burst}"
                self._note(command.line, f"{command.name}[{numbers[0]}]: {rates}")
            case "meter_set_rates":
                self._meter(command.name).set(numbers[0], _meter_rates(command))
            case "meter_array_set_rates":
                meter = self._meter(command.name)
                for index in range(meter.size):
                    meter.set(index, _meter_rates(command))
            case replication:
                _REPLICATION[replication](self._replicator, numbers)

    def _fail(self, line: int | None, text: str) -> None:
        self.failures.append(f"{self._file}{f':{line}' if line is not None else ''}: {text}")

    def _note(self, line: int, text: str) -> None:
        self.notes.append(f"{self._file}:{line}: {text}")


class _Replicator:
    """simple_switch's way to say multicast: groups of nodes, nodes of ports; and sessions that clone to groups."""

    def __init__(self, engine: ReplicationEngine) -> None:
        self._engine = engine
        self._nodes: list[tuple[Replica, ...]] = []
        self._groups: dict[int, list[int]] = {}
        self._sessions: dict[int, int] = {}
        """The multicast group behind each clone session, by the session's number."""

    def create_group(self, numbers: Sequence[int]) -> None:
        self._groups[numbers[0]] = []
        self._publish()

    def create_node(self, numbers: Sequence[int]) -> None:
        """Create a node; nodes count from 0 in the order of their creation."""
        self._nodes.append(_replicas(*numbers))

    def update_node(self, numbers: Sequence[int]) -> None:
        node, *ports = numbers
        if node >= len(self._nodes):
            raise ValueError(f"node {node} is not there; the nodes are 0 … {len(self._nodes) - 1}")
        self._nodes[node] = _replicas(self._nodes[node][0].instance, *ports)
        self._publish()

    def associate(self, numbers: Sequence[int]) -> None:
        group, node = numbers
        if group not in self._groups or node >= len(self._nodes):
            raise ValueError(f"group {group} or node {node} is not there: create both before")
        self._groups[group].append(node)
        self._publish()

    def mirror_to_port(self, numbers: Sequence[int]) -> None:
        session, port = numbers
        self._sessions.pop(session, None)
        self._engine.set_session(session, CloneSession((Replica(port),)))

    def mirror_to_group(self, numbers: Sequence[int]) -> None:
        session, group = numbers
        self._sessions[session] = group
        self._publish()

    def delete_session(self, numbers: Sequence[int]) -> None:
        self._sessions.pop(numbers[0], None)
        self._engine.delete_session(numbers[0])

    def _publish(self) -> None:
        for group, nodes in self._groups.items():
            self._engine.set_group(group, self._replicas(nodes))
        for session, group in self._sessions.items():
            self._engine.set_session(session, CloneSession(self._replicas(self._groups.get(group, []))))

    def _replicas(self, nodes: Sequence[int]) -> tuple[Replica, ...]:
        return tuple(replica for node in nodes for replica in self._nodes[node])


_REPLICATION: Final[Mapping[str, Callable[[_Replicator, Sequence[int]], None]]] = {
    "mc_mgrp_create": _Replicator.create_group,
    "mc_node_create": _Replicator.create_node,
    "mc_node_update": _Replicator.update_node,
    "mc_node_associate": _Replicator.associate,
    "mirroring_add": _Replicator.mirror_to_port,
    "mirroring_add_mc": _Replicator.mirror_to_group,
    "mirroring_delete": _Replicator.delete_session,
}


def _replicas(rid: int, *ports: int) -> tuple[Replica, ...]:
    """A node's replicas, by port number as in a set."""
    return tuple(Replica(port, rid) for port in sorted(set(ports)))


def _meter_rates(command: SwitchCommand) -> MeterRates:
    """The committed rate and burst, then the peak ones."""
    if len(command.rates) != 2:
        raise ValueError(f"{command.command} takes two rates, the committed and the peak one, not {len(command.rates)}")
    (committed, committed_burst), (peak, peak_burst) = command.rates
    return MeterRates(committed * _MICROSECONDS, committed_burst, peak * _MICROSECONDS, peak_burst)


def _cell(counter: Counter, index: int) -> tuple[int, int]:
    if index >= counter.size:
        raise IndexError(f"{counter.name}({index}): the counter has {counter.size} cells")
    return int(counter.packets[index]), int(counter.bytes[index])


def _around(digits: str, index: int) -> str:
    """The bytes on both sides of a digit, its own in brackets; a short frame whole."""
    if len(digits) <= 4 * _SHOWN_BYTES:
        return digits
    byte = index - index % 2
    start, end = max(0, byte - 2 * _SHOWN_BYTES), min(len(digits), byte + 2 + 2 * _SHOWN_BYTES)
    before, after = "…" if start else "", "…" if end < len(digits) else ""
    return f"{before}{digits[start:byte]}[{digits[byte : byte + 2]}]{digits[byte + 2 : end]}{after}"


def difference(expect: Expect, frame: bytes) -> str | None:
    """Describe how a frame differs from the expected one; None if it does not."""
    if expect.pattern is None:
        return None
    digits = frame.hex().upper()
    if len(digits) < len(expect.pattern):
        return f"is {len(frame)} bytes, shorter than expected: {digits}, expected {expect.pattern}"
    for index, (wanted, digit) in enumerate(zip(expect.pattern, digits, strict=False)):
        if wanted not in ("*", digit):
            return f"differs at byte {index // 2}: {_around(digits, index)}, expected {_around(expect.pattern, index)}"
    if expect.whole and len(digits) > len(expect.pattern):
        return f"is {len(frame)} bytes, longer than expected: {digits}, expected {expect.pattern}$"
    return None
