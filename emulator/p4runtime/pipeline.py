"""A forwarding-pipeline config bound to one switch's memory: every P4Info id resolved once, checked against the
program.

`Pipeline.write` and `Pipeline.read` take one entity each and hand it to the service that owns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from finsy.proto import p4i, p4r

from emulator.p4runtime.actions import Action, ActionSet
from emulator.p4runtime.arrays import CounterService, RegisterService
from emulator.p4runtime.digests import DigestService, Record
from emulator.p4runtime.meters import MeterService
from emulator.p4runtime.packet_io import PacketHeader
from emulator.p4runtime.profiles import ProfileService
from emulator.p4runtime.refusal import Refusal, invalid, unimplemented
from emulator.p4runtime.replication import ReplicationService
from emulator.p4runtime.tables import TableService
from emulator.p4runtime.value_sets import ValueSetService
from emulator.program import Program, ProgramState

_Thing = TypeVar("_Thing")
_Service = TypeVar(
    "_Service",
    TableService,
    ProfileService,
    CounterService,
    RegisterService,
    MeterService,
    ValueSetService,
    DigestService,
)

_NOT_HERE: Final[Mapping[str, str]] = {
    "extern_entry": "externs",
}
"""Entities without an implementation, and the P4Info list that says whether the program has any."""


class Pipeline:
    """One config, one program, one state."""

    def __init__(
        self,
        config: p4r.ForwardingPipelineConfig,
        program: Program,
        state: ProgramState,
        replication: ReplicationService,
    ) -> None:
        """Raises `Refusal` (INVALID_ARGUMENT) when the P4Info and the program do not belong together."""
        self.config = config
        self.program = program
        self._replication = replication
        info = config.p4info
        self._info = info
        _check_ids(info)
        actions = self._resolve_actions(info, program)
        self._profiles = self._resolve_profiles(info, program, state, actions)
        self._tables = self._resolve_tables(info, program, state, actions)
        self._counters = {
            counter.preamble.id: CounterService(
                counter,
                _named(state.counters, "counter", counter.preamble.name),
                _same_size(counter.preamble.name, counter.size, program.counters),
            )
            for counter in info.counters
        }
        self._registers = {
            register.preamble.id: self._resolve_register(register, info, program, state) for register in info.registers
        }
        self._meters = {
            meter.preamble.id: MeterService(
                meter,
                _named(state.meters, "meter", meter.preamble.name),
                _same_size(meter.preamble.name, meter.size, program.meters),
            )
            for meter in info.meters
        }
        self._value_sets = {
            value_set.preamble.id: ValueSetService(
                value_set,
                _named(program.value_sets, "value set", value_set.preamble.name),
                state.value_sets[value_set.preamble.name],
            )
            for value_set in info.value_sets
        }
        self._digests = {
            digest.preamble.id: DigestService(
                digest,
                info.type_info,
                program.digests.get(digest.preamble.name),
                state.digests.get(digest.preamble.name),
            )
            for digest in info.digests
        }
        self._digest_named = {digest.name: digest for digest in self._digests.values()}
        self._state = state
        headers = {header.preamble.name: PacketHeader(header) for header in info.controller_packet_metadata}
        self.packet_in: PacketHeader | None = headers.get("packet_in")
        self.packet_out: PacketHeader | None = headers.get("packet_out")

    # -- one entity at a time

    def write(self, update: p4r.Update) -> None:
        """Apply one update. Raises `EmulatorError`."""
        kind = update.type
        if not p4r.Update.INSERT <= kind <= p4r.Update.DELETE:
            raise invalid(f"update type {kind} is none of INSERT, MODIFY, DELETE")
        entity = update.entity
        match entity.WhichOneof("entity"):
            case "table_entry":
                self._table(entity.table_entry.table_id).write(kind, entity.table_entry)
            case "action_profile_member":
                member = entity.action_profile_member
                self._profile(member.action_profile_id).write_member(kind, member)
            case "action_profile_group":
                group = entity.action_profile_group
                self._profile(group.action_profile_id).write_group(kind, group)
            case "counter_entry":
                counter = entity.counter_entry
                _by_id(self._counters, "counter", counter.counter_id).write(kind, counter)
            case "direct_counter_entry":
                direct = entity.direct_counter_entry
                self._table(direct.table_entry.table_id).write_counter(kind, direct)
            case "meter_entry":
                meter = entity.meter_entry
                _by_id(self._meters, "meter", meter.meter_id).write(kind, meter)
            case "direct_meter_entry":
                metered = entity.direct_meter_entry
                self._table(metered.table_entry.table_id).write_meter(kind, metered)
            case "value_set_entry":
                value_set = entity.value_set_entry
                _by_id(self._value_sets, "value set", value_set.value_set_id).write(kind, value_set)
            case "digest_entry":
                digest = _by_id(self._digests, "digest", entity.digest_entry.digest_id)
                if not self.watches:
                    digest.discard()
                digest.write(kind, entity.digest_entry)
            case "register_entry":
                register = entity.register_entry
                _by_id(self._registers, "register", register.register_id).write(kind, register)
            case "packet_replication_engine_entry":
                self._replication.write(kind, entity.packet_replication_engine_entry)
            case None:
                raise invalid("the update has no entity")
            case name:
                raise unimplemented(f"this switch has no {name.replace('_', ' ')}")

    def read(self, query: p4r.Entity) -> Iterator[p4r.Entity]:
        """What one query selects; id 0 means all objects of the kind. Raises `EmulatorError`, also while iterating."""
        match query.WhichOneof("entity"):
            case "table_entry":
                for table in _wanted(self._tables, "table", query.table_entry.table_id):
                    yield from table.read(query.table_entry)
            case "action_profile_member":
                member = query.action_profile_member
                yield from self._read_members(member.action_profile_id, member.member_id)
            case "action_profile_group":
                group = query.action_profile_group
                yield from self._read_groups(group.action_profile_id, group.group_id)
            case "counter_entry":
                for counter in _wanted(self._counters, "counter", query.counter_entry.counter_id):
                    yield from counter.read(query.counter_entry)
            case "direct_counter_entry":
                entry = query.direct_counter_entry.table_entry
                for table in _wanted(self._tables, "table", entry.table_id):
                    if entry.table_id or table.has_counter:
                        yield from table.read_counters(entry)
            case "meter_entry":
                for meter in _wanted(self._meters, "meter", query.meter_entry.meter_id):
                    yield from meter.read(query.meter_entry)
            case "direct_meter_entry":
                metered = query.direct_meter_entry
                for table in _wanted(self._tables, "table", metered.table_entry.table_id):
                    if metered.table_entry.table_id or table.has_meter:
                        yield from table.read_meters(metered)
            case "value_set_entry":
                for value_set in _wanted(self._value_sets, "value set", query.value_set_entry.value_set_id):
                    yield value_set.read()
            case "digest_entry":
                for digest in _wanted(self._digests, "digest", query.digest_entry.digest_id):
                    if query.digest_entry.digest_id or digest.enabled:
                        yield digest.read()
            case "register_entry":
                for register in _wanted(self._registers, "register", query.register_entry.register_id):
                    yield from register.read(query.register_entry)
            case "packet_replication_engine_entry":
                yield from self._replication.read(query.packet_replication_engine_entry)
            case None:
                raise invalid("a query needs an entity; an empty one does not select everything")
            case name:
                if getattr(self._info, _NOT_HERE[name]):
                    raise unimplemented(f"this switch has no {name.replace('_', ' ')}")

    def undo(self, update: p4r.Update) -> list[p4r.Update]:
        """The updates that take this one back once it has been applied; to be asked before. Raises `EmulatorError`."""
        if update.type == p4r.Update.INSERT:
            return [p4r.Update(type=p4r.Update.DELETE, entity=update.entity)]
        kind = p4r.Update.INSERT if update.type == p4r.Update.DELETE else p4r.Update.MODIFY
        query = p4r.Entity()
        query.CopyFrom(update.entity)
        if query.HasField("table_entry"):
            key = update.entity.table_entry
            query.table_entry.CopyFrom(
                p4r.TableEntry(
                    table_id=key.table_id,
                    match=key.match,
                    priority=key.priority,
                    is_default_action=key.is_default_action,
                    meter_config=p4r.MeterConfig(),
                )
            )
            if kind == p4r.Update.INSERT or key.HasField("counter_data"):
                query.table_entry.counter_data.SetInParent()
        wanted = _key_of(query)
        found = [entity for entity in self.read(query) if wanted.match or not _key_of(entity).match]
        for entity in found:
            if entity.table_entry.is_const:  # only its direct resources can have changed
                entity.table_entry.ClearField("is_const")
                entity.table_entry.ClearField("action")
        return list(_updates(kind, found))

    def snapshot(self) -> Iterator[p4r.Update]:
        """The updates that make a fresh switch with the same program equal to this one, in an order that works."""
        for profile in self._profiles.values():
            yield from _updates(p4r.Update.INSERT, profile.read_members(0))
            yield from _updates(p4r.Update.INSERT, profile.read_groups(0))
        for table in self._tables.values():
            yield from _updates(p4r.Update.INSERT, table.writable_entries())
            yield from _updates(p4r.Update.MODIFY, table.changed_default())
        yield from _updates(p4r.Update.INSERT, self._replication.read_all())
        for counter in self._counters.values():
            yield from _updates(p4r.Update.MODIFY, counter.counted())
        for register in self._registers.values():
            yield from _updates(p4r.Update.MODIFY, register.written())
        for meter in self._meters.values():
            yield from _updates(p4r.Update.MODIFY, meter.configured())
        for value_set in self._value_sets.values():
            yield from _updates(p4r.Update.MODIFY, value_set.filled())
        for digest in self._digests.values():
            if digest.enabled:
                yield from _updates(p4r.Update.INSERT, (digest.read(),))

    def restore(self, updates: Iterable[p4r.Update]) -> None:
        """Apply a snapshot to a switch that has just loaded its program. Raises `EmulatorError`."""
        for table in self._tables.values():
            table.clear()
        for update in updates:
            self.write(update)

    # -- what the switch tells of itself

    @property
    def watches(self) -> bool:
        """Whether a controller waits for digests or idle entries."""
        return any(digest.enabled for digest in self._digests.values()) or any(
            table.ages for table in self._tables.values()
        )

    def learn(self, name: str, records: Iterable[Record]) -> list[p4r.DigestList]:
        """What the data plane told by one digest; the lists to send."""
        digest = self._digest_named.get(name)
        return [] if digest is None else digest.take(records, self._now_ns)

    def pass_time(self) -> tuple[list[p4r.DigestList], list[p4r.IdleTimeoutNotification]]:
        """What is due by now, in the switch's time: lists of digests, and tables' idle entries."""
        now_ns = self._now_ns
        lists = [message for digest in self._digests.values() for message in digest.tick(now_ns)]
        return lists, [message for table in self._tables.values() for message in table.idle(now_ns)]

    def acknowledge(self, ack: p4r.DigestListAck) -> None:
        """Raises `Refusal` for a digest that is not there."""
        _by_id(self._digests, "digest", ack.digest_id).acknowledge(ack.list_id)

    def forget_digests(self) -> None:
        """The primary has changed: tell everything anew."""
        for digest in self._digests.values():
            digest.forget()

    @property
    def _now_ns(self) -> int:
        return self._state.clock() * 1000

    def _table(self, table_id: int) -> TableService:
        table = self._tables.get(table_id)
        if table is None:
            raise _unknown("table", table_id)
        return table

    def _profile(self, profile_id: int) -> ProfileService:
        return _by_id(self._profiles, "action profile", profile_id)

    def _read_members(self, profile_id: int, member_id: int) -> Iterator[p4r.Entity]:
        if member_id and not profile_id:
            raise invalid(f"member {member_id} of which action profile? action_profile_id is 0")
        for profile in _wanted(self._profiles, "action profile", profile_id):
            yield from profile.read_members(member_id)

    def _read_groups(self, profile_id: int, group_id: int) -> Iterator[p4r.Entity]:
        if group_id and not profile_id:
            raise invalid(f"group {group_id} of which action profile? action_profile_id is 0")
        for profile in _wanted(self._profiles, "action profile", profile_id):
            yield from profile.read_groups(group_id)

    # -- resolving P4Info against the program

    @staticmethod
    def _resolve_actions(info: p4i.P4Info, program: Program) -> dict[int, Action]:
        used = {ref.id for table in info.tables for ref in table.action_refs}
        return {
            action.preamble.id: Action(action, _named(program.actions, "action", action.preamble.name))
            for action in info.actions
            if action.preamble.id in used
        }

    @staticmethod
    def _resolve_profiles(
        info: p4i.P4Info, program: Program, state: ProgramState, actions: dict[int, Action]
    ) -> dict[int, ProfileService]:
        profiles = {}
        tables = {table.preamble.id: table for table in info.tables}
        for profile in info.action_profiles:
            if not profile.table_ids:
                continue
            name = profile.preamble.name
            schema = _named(program.action_profiles, "action profile", name)
            if schema.selector != profile.with_selector:
                raise invalid(f"P4Info: {name} has a selector in only one of P4Info and program")
            user = tables.get(profile.table_ids[0])
            if user is None:
                raise invalid(f"P4Info: {name} names table id {profile.table_ids[0]}, which is not there")
            profiles[profile.preamble.id] = ProfileService(
                profile, state.action_profiles[name], _action_set(name, user, actions)
            )
        return profiles

    def _resolve_tables(
        self, info: p4i.P4Info, program: Program, state: ProgramState, actions: dict[int, Action]
    ) -> dict[int, TableService]:
        tables = {}
        specs = {meter.direct_table_id: meter.spec for meter in info.direct_meters}
        for table in info.tables:
            name = table.preamble.name
            schema = _named(program.tables, "table", name)
            profile = None
            if table.implementation_id:
                profile = self._profiles.get(table.implementation_id)
                if profile is None:
                    raise invalid(f"P4Info: {name} names the implementation id {table.implementation_id}, not there")
            if (schema.profile is None) != (profile is None) or (
                profile is not None and profile.name != schema.profile
            ):
                raise invalid(f"P4Info: {name} has another action profile than in the program, {schema.profile}")
            tables[table.preamble.id] = TableService(
                table,
                schema,
                state.tables[name],
                _action_set(name, table, actions),
                profile,
                specs.get(table.preamble.id),
            )
        return tables

    @staticmethod
    def _resolve_register(
        register: p4i.Register, info: p4i.P4Info, program: Program, state: ProgramState
    ) -> RegisterService:
        name = register.preamble.name
        schema = _named(program.registers, "register", name)
        service = RegisterService(register, info.type_info, state.registers[name], schema.size)
        _same_size(name, register.size, program.registers)
        if service.type.width != schema.width:
            raise invalid(f"P4Info: {name} has {service.type.width} bits, in the program {schema.width}")
        return service


def _action_set(owner: str, table: p4i.Table, actions: dict[int, Action]) -> ActionSet:
    missing = [ref.id for ref in table.action_refs if ref.id not in actions]
    if missing:
        raise invalid(f"P4Info: {owner} names action id {missing[0]}, which is not there")
    return ActionSet(
        owner,
        {ref.id: actions[ref.id] for ref in table.action_refs},
        {ref.id: ref.scope for ref in table.action_refs},
    )


def _check_ids(info: p4i.P4Info) -> None:
    """Ids are never 0 and never shared."""
    seen: dict[int, str] = {}
    lists: tuple[Any, ...] = (
        info.tables,
        info.actions,
        info.action_profiles,
        info.counters,
        info.direct_counters,
        info.registers,
        info.meters,
        info.direct_meters,
        info.digests,
        info.value_sets,
    )
    for objects in lists:
        for item in objects:
            preamble = item.preamble
            if not preamble.id:
                raise invalid(f"P4Info: {preamble.name!r} has id 0")
            if preamble.id in seen:
                raise invalid(f"P4Info: {preamble.name!r} and {seen[preamble.id]!r} have the same id {preamble.id}")
            seen[preamble.id] = preamble.name


def _named(things: Mapping[str, _Thing], what: str, name: str) -> _Thing:
    if name not in things:
        raise invalid(f"P4Info: {what} {name!r} is not in the device config: they come from different programs")
    return things[name]


def _same_size(name: str, size: int, schemas: Mapping[str, Any]) -> int:
    expected: int = schemas[name].size
    if size != expected:
        raise invalid(f"P4Info: {name} has {size} cells, in the program {expected}")
    return expected


def _unknown(what: str, given: int) -> Refusal:
    if not given:
        return invalid(f"{what} id is 0, which names nothing")
    return invalid(f"P4Info has no {what} with id {given}")


def _by_id(services: Mapping[int, _Service], what: str, given: int) -> _Service:
    service = services.get(given)
    if service is None:
        raise _unknown(what, given)
    return service


def _wanted(services: Mapping[int, _Service], what: str, given: int) -> list[_Service]:
    return list(services.values()) if not given else [_by_id(services, what, given)]


def _key_of(entity: p4r.Entity) -> p4r.TableEntry:
    """The table entry that an entity is or belongs to; an empty one if there is none."""
    if entity.HasField("direct_counter_entry"):
        return entity.direct_counter_entry.table_entry
    if entity.HasField("direct_meter_entry"):
        return entity.direct_meter_entry.table_entry
    return entity.table_entry


def _updates(kind: p4r.Update.Type.ValueType, entities: Iterable[p4r.Entity]) -> Iterator[p4r.Update]:
    return (p4r.Update(type=kind, entity=entity) for entity in entities)
