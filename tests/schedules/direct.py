"""A controller's session with an emulated switch in the same process: direct calls take the place of gRPC.

It has the part of `SwitchSession` that a `Controller` uses, so that hundreds of fabrics a minute can be built, run and
thrown away. Entries are decoded from the switch's own tables on every read: nothing is cached here, so that entries
lost by a switch are missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from weir.controller.errors import SwitchUnreachable
from weir.controller.p4runtime.entries import ActionSpec, CloneSession, Entry, FieldValue, Group, Item, SwitchState
from weir.controller.p4runtime.loading import Loading
from weir.controller.p4runtime.refusals import RefusedUpdate, UpdateKind, WriteRefused
from weir.controller.p4runtime.session import PacketIn
from weir.emulator.entries import (
    ActionCall,
    ActionSet,
    EmulatorError,
    EntryExists,
    EntryNotFound,
    Exact,
    Lpm,
    Match,
    Replica,
    TableAction,
    TableEntry,
    TableFull,
    WeightedAction,
)
from weir.emulator.entries import CloneSession as EmulatedCloneSession
from weir.emulator.program import Program, ProgramState
from weir.emulator.switch import Switch
from weir.p4src import FABRIC_JSON
from weir.tests.p4src.emulated_node import AGGREGATION

_ACTIONS: Final = {
    "to_node": "FabricIngress.to_node",
    "inner_node": f"{AGGREGATION}.inner_node",
    "switch_root": f"{AGGREGATION}.switch_root",
    "accept": f"{AGGREGATION}.accept",
    "expand": f"{AGGREGATION}.expand.expand",
    "expand_wide": f"{AGGREGATION}.expand.expand_wide",
    "replicate": f"{AGGREGATION}.replicate",
    "forward": "FabricIngress.routing.forward",
    "set_class": "FabricIngress.set_class",
    "deliver": "FabricEgress.deliver",
    "bound_queue": "FabricEgress.congestion.bound_queue",
    "police": "FabricIngress.policing.police",
    "admit": "FabricIngress.admission.admit",
    "identify": "FabricEgress.telemetry.identify",
    "report": "FabricEgress.report",
}
"""Full names of actions by the last part of their names."""
_CODES: Final = {
    EntryExists: "ALREADY_EXISTS",
    EntryNotFound: "NOT_FOUND",
    TableFull: "RESOURCE_EXHAUSTED",
    EmulatorError: "INVALID_ARGUMENT",
}
_PROGRAM: Final = 1 << 63
"""Number of the switch program in cookies."""
_PACKET_IN_BYTES: Final = 2
"""ingress_port (9 bits), padding (7)."""


@lru_cache(maxsize=1)
def fabric_program() -> Program:
    """The compiled switch program."""
    return Program.load(FABRIC_JSON.read_bytes())


class StatePool:
    """Memories of switches that are used again, emptied, since making one takes longer than emptying it."""

    def __init__(self) -> None:
        self._free: list[ProgramState] = []

    def acquire(self) -> ProgramState:
        if not self._free:
            return fabric_program().new_state()
        state = self._free.pop()
        state.reset()
        return state

    def release(self, states: Iterable[ProgramState]) -> None:
        """Return the states of stopped switches."""
        self._free += states


class DirectSession:
    """A session with one switch. While `reachable` is False, everything raises SwitchUnreachable."""

    def __init__(self, name: str, switch: Switch) -> None:
        self.name = name
        self.device_id = switch.device_id
        self.reachable = True
        self.openings = 1
        self.deposed = False
        self.packet_outs_sent = 0
        self.packet_ins_received = 0
        self._switch = switch
        self._loading = Loading()
        self._cookie = 0
        """Cookie kept with the program, as in P4Runtime; 0: no program was loaded, and the registers are empty."""
        self._packets: list[PacketIn] = []
        switch.on_packet_in = self._packet_in

    def restart(self) -> None:
        """The switch loses all it holds: entries, groups, registers, counters, and the packets in its queues."""
        self._state.reset()
        self._switch.start(fabric_program(), self._state)

    @property
    def owner(self) -> int:
        return self._loading.owner

    @property
    def is_up(self) -> bool:
        return self.reachable

    async def claim(self, owner: int, *, forgetful: bool) -> None:
        """Load the program again if another owner loaded it, which empties tables and registers."""
        self._loading.claim(owner, forgetful=forgetful)
        self._check_reachable("load its program")
        if self._loading.accepts(self._cookie, _PROGRAM):
            return
        if self._cookie:
            for entry in self._state.tables[f"{AGGREGATION}.jobs"].entries():
                job, generation = (key.value for key in entry.match if isinstance(key, Exact))
                self._loading.left.add((job, generation))
            self.restart()
        self._cookie = self._loading.cookie(_PROGRAM)
        self._loading.loads += 1

    @property
    def loads(self) -> int:
        return self._loading.loads

    def pop_foreign_generations(self) -> set[tuple[int, int]]:
        left, self._loading.left = self._loading.left, set()
        return left

    @property
    def _state(self) -> ProgramState:
        assert self._switch.state is not None
        return self._switch.state

    async def write_updates(
        self, *, inserts: Iterable[Item] = (), modifies: Iterable[Item] = (), deletes: Iterable[Item] = ()
    ) -> None:
        self._check_reachable("write")
        refused: list[RefusedUpdate] = []
        kinds = ((UpdateKind.DELETE, deletes), (UpdateKind.MODIFY, modifies), (UpdateKind.INSERT, inserts))
        updates = [(kind, item) for kind, items in kinds for item in items]
        for kind, item in updates:
            try:
                self._write(kind, item)
            except EmulatorError as error:
                code = next(code for family, code in _CODES.items() if isinstance(error, family))
                refused.append(RefusedUpdate(kind, item, code, str(error)))
        if refused:
            raise WriteRefused(self.name, tuple(refused), len(updates))

    def _write(self, kind: UpdateKind, item: Item) -> None:
        replication = self._switch.replication
        match item:
            case Group(group_id, replicas):
                if kind is UpdateKind.DELETE:
                    replication.delete_group(group_id)
                else:
                    replication.set_group(group_id, _replicas(replicas))
            case CloneSession(session_id, replicas):
                if kind is UpdateKind.DELETE:
                    replication.delete_session(session_id)
                else:
                    replication.set_session(session_id, EmulatedCloneSession(_replicas(replicas)))
            case Entry():
                self._write_entry(kind, item)

    def _write_entry(self, kind: UpdateKind, entry: Entry) -> None:
        table = self._state.tables[entry.table]
        if entry.default:
            table.set_default(_encode_action(entry.calls))
            return
        fields = {_last(field.name): field.match_kind for field in table.schema.key}
        given = dict(entry.match)
        match = tuple(_encode_match(given[name]) for name in fields)
        if kind is UpdateKind.DELETE:
            table.delete(match)
            return
        action = _encode_action(entry.calls, selector=table.schema.profile is not None)
        if kind is UpdateKind.MODIFY:
            table.modify(TableEntry(match, action))
        else:
            table.insert(TableEntry(match, action))

    async def read(self, defaults: Sequence[str] = (), profiles: Sequence[str] = ()) -> SwitchState:
        self._check_reachable("read its state")
        assert not profiles, f"{profiles}: next hops are said with their tables' entries here"
        items: list[Item] = []
        for name, table in self._state.tables.items():
            fields = [_last(field.name) for field in table.schema.key]
            if not table.constant:
                for entry in table.entries():
                    match = zip(fields, map(_decode_match, entry.match), strict=True)
                    items.append(Entry(name, tuple(sorted(match)), _decode_action(entry.action)))
            if name in defaults:
                items.append(Entry(name, (), _decode_action(table.default), default=True))
        for number, replicas in self._switch.replication.groups.items():
            items.append(Group(number, tuple(sorted((r.port, r.instance) for r in replicas))))
        for number, session in self._switch.replication.sessions.items():
            items.append(CloneSession(number, tuple(sorted((r.port, r.instance) for r in session.replicas))))
        return SwitchState.of(items)

    async def send_packets(self, packets: Iterable[tuple[int, bytes]]) -> int:
        self._check_reachable("send packets")
        count = 0
        for port, frame in packets:
            self._switch.packet_out((port << 7).to_bytes(2, "big") + frame)
            count += 1
        self.packet_outs_sent += count
        return count

    def pop_packet_ins(self) -> list[PacketIn]:
        taken, self._packets = self._packets, []
        return taken

    async def drain(self, packet_ins: int, timeout_s: float = 5.0) -> None:
        """They are here as soon as the fabric has delivered them."""

    def _packet_in(self, frame: bytes) -> None:
        self.packet_ins_received += 1
        self._packets.append(PacketIn(int.from_bytes(frame[:2], "big") >> 7, frame[_PACKET_IN_BYTES:]))

    def _check_reachable(self, what: str) -> None:
        if not self.reachable:
            raise SwitchUnreachable(self.name, "in this process", what, "it is down")


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _encode_match(value: FieldValue) -> Match:
    return Lpm(*value) if isinstance(value, tuple) else Exact(value)


def _decode_match(match: Match) -> FieldValue:
    match match:
        case Exact(value):
            return value
        case Lpm(value, length):
            return value, length
    raise TypeError(f"the fabric's own tables have no {match}")


def _encode_call(call: ActionSpec) -> ActionCall:
    name = _ACTIONS[call.action]
    given = dict(call.args)
    return ActionCall(name, tuple(given[param] for param, _ in fabric_program().actions[name].params))


def _encode_action(calls: Sequence[ActionSpec], *, selector: bool = False) -> TableAction:
    if selector:
        return ActionSet(tuple(WeightedAction(_encode_call(call)) for call in calls))
    (call,) = calls
    return _encode_call(call)


def _decode_call(call: ActionCall) -> ActionSpec:
    if call.name not in fabric_program().actions:
        return ActionSpec(_last(call.name))
    names = [name for name, _ in fabric_program().actions[call.name].params]
    return ActionSpec(_last(call.name), tuple(sorted(zip(names, call.params, strict=True))))


def _decode_action(action: TableAction) -> tuple[ActionSpec, ...]:
    match action:
        case ActionCall():
            return (_decode_call(action),)
        case ActionSet(actions):
            calls = [_decode_call(one.call) for one in actions]
            return tuple(sorted(calls, key=lambda c: (c.action, c.args)))
    raise TypeError(f"the controller writes no {action}")


def _replicas(replicas: Iterable[tuple[int, int]]) -> tuple[Replica, ...]:
    return tuple(Replica(port, instance) for port, instance in replicas)
