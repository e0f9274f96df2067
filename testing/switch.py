"""One switch of a test's fabric: its tables, counters, registers and the rest, by names."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ..emulator.entries import CloneSession, EmulatorError, Replica, TableEntry
from ..emulator.program import Program, ProgramState
from ..emulator.switch import Switch
from ..topologies.runtime_json import RuntimeFile, RuntimeReplica
from .entries import action_of, matches_of, named


class Count(NamedTuple):
    """Value of one counter cell."""

    packets: int
    bytes: int


class SwitchUnderTest:
    """A switch whose objects are addressed by name, full or short: `routes` for `MyIngress.routes`, if that is
    unambiguous.

    Wrong names and values raise EmulatorError.
    """

    def __init__(self, name: str, switch: Switch) -> None:
        self.name = name
        self.switch = switch
        """The emulated switch itself, for everything else."""
        self._packet_ins: list[bytes] = []
        switch.on_packet_in = self._packet_ins.append

    # --- tables ---

    def add(
        self,
        table: str,
        match: Mapping[str, object],
        action: str,
        params: Mapping[str, object] | None = None,
        *,
        priority: int = 0,
    ) -> None:
        """Insert an entry: `add("ipv4_lpm", {"hdr.ipv4.dstAddr": "10.0.1.0/24"}, "ipv4_forward", {"port": 2})`.

        Args:
            table: Name of the table, or an end of it that only one table has.
            match: Value of each key field, in the notation of `testing.entries`.
            action: Name of the action, or an end of it.
            params: Value of each parameter.
            priority: Priority; the largest wins. Tables with ternary or range fields need one.

        Raises:
            EmulatorError: A name or value is invalid, or the entry exists.
        """
        entries = self._state.tables[named("table", table, self._state.tables)]
        call = action_of(self._program, entries.schema, action, params or {})
        entries.insert(TableEntry(matches_of(entries.schema, match), call, priority))

    def remove(self, table: str, match: Mapping[str, object], *, priority: int = 0) -> None:
        """Delete the entry with this key."""
        entries = self._state.tables[named("table", table, self._state.tables)]
        entries.delete(matches_of(entries.schema, match), priority)

    def set_default(self, table: str, action: str, params: Mapping[str, object] | None = None) -> None:
        """Set a table's default action."""
        entries = self._state.tables[named("table", table, self._state.tables)]
        entries.set_default(action_of(self._program, entries.schema, action, params or {}))

    def entries(self, table: str) -> list[TableEntry]:
        """Return all entries of a table."""
        return list(self._state.tables[named("table", table, self._state.tables)].entries())

    def hits(self, table: str, match: Mapping[str, object], *, priority: int = 0) -> Count:
        """Return the direct counter of an entry."""
        entries = self._state.tables[named("table", table, self._state.tables)]
        return Count(*entries.counter(matches_of(entries.schema, match), priority))

    def load_entries(self, file: str | PathLike[str]) -> None:
        """Load a switch's runtime JSON, in the format of p4lang/tutorials.

        Raises:
            EmulatorError: An entry is refused; names the file and the entry, counted from 0 as in the file's list.
        """
        read = RuntimeFile.read(Path(file))
        for number, row in enumerate(read.rows):
            try:
                if row.default:
                    self.set_default(row.table, row.action, row.params)
                else:
                    self.add(row.table, row.match, row.action, row.params, priority=row.priority)
            except EmulatorError as error:
                raise error.within(f"{file}: table_entries[{number}]") from None
        for number, replicas in read.groups.items():
            self.set_group(number, _pairs(replicas))
        for number, session in read.sessions.items():
            self.switch.replication.set_session(
                number, CloneSession(_replicas(_pairs(session.replicas)), session.packet_length_bytes)
            )

    # --- arrays ---

    def counter(self, name: str, index: int = 0) -> Count:
        """Return one cell of an indirect counter."""
        entry = self._state.counters[named("counter", name, self._state.counters)]
        if not 0 <= index < entry.size:
            raise EmulatorError(f"the counter has {entry.size} cells", place=f"{entry.name}[{index}]", value=entry.size)
        return Count(int(entry.packets[index]), int(entry.bytes[index]))

    def register(self, name: str, index: int = 0) -> int:
        """Return one cell of a register."""
        cells = self._state.registers[named("register", name, self._state.registers)]
        return cells.read(index)

    def set_register(self, name: str, index: int, value: int) -> None:
        """Write one cell of a register array.

        Args:
            name: Full or short name of the register.
            index: Cell, from 0.
            value: Unsigned value that fits the register's width.
        """
        cells = self._state.registers[named("register", name, self._state.registers)]
        cells.write(index, value)

    def digests(self, name: str) -> list[tuple[int, ...]]:
        """Return the program's new records by `digest` since the last call, with the struct's fields in order."""
        return self._state.digests[named("digest", name, self._state.digests)].drain()

    # --- replication, and the controller's packets ---

    def set_group(self, group: int, replicas: Mapping[int, int] | list[tuple[int, int]]) -> None:
        """Set a multicast group: (port, instance) of each copy."""
        pairs = list(replicas.items()) if isinstance(replicas, Mapping) else replicas
        self.switch.replication.set_group(group, _replicas(pairs))

    def set_session(self, session: int, port: int) -> None:
        """Set a clone session whose copies go to a port."""
        self.switch.replication.set_session(session, CloneSession((Replica(port),)))

    def packet_ins(self) -> list[bytes]:
        """Return packets that reached the CPU port since the last call, with packet-in headers. Time does not
        advance.
        """
        packets = self._packet_ins.copy()
        self._packet_ins.clear()
        return packets

    def packet_out(self, frame: bytes) -> None:
        """Send a frame from the controller, packet-out header included; it enters when time goes on."""
        self.switch.packet_out(frame)

    @property
    def _program(self) -> Program:
        if self.switch.program is None:
            raise EmulatorError(f"{self.name} has no program; fabric(topology, program) gives it one", value=self.name)
        return self.switch.program

    @property
    def _state(self) -> ProgramState:
        _ = self._program
        assert self.switch.state is not None
        return self.switch.state


def _pairs(replicas: tuple[RuntimeReplica, ...]) -> list[tuple[int, int]]:
    return [(replica.port, replica.instance) for replica in replicas]


def _replicas(pairs: list[tuple[int, int]]) -> tuple[Replica, ...]:
    return tuple(Replica(port, instance) for port, instance in pairs)
