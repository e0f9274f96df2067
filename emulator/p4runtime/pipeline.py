"""A forwarding-pipeline config bound to one switch's memory.

`LoadedPipeline.write` and `LoadedPipeline.read` take one entity each and hand it to the service that owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, Final, TypeVar

from finsy.proto import p4i, p4r

from ..datapath import Datapath
from ..program import Program, ProgramState
from .bulk.batch import Batch
from .bulk_writer import BulkWriter
from .entities.arrays import CounterService, RegisterService
from .entities.digests import DigestService, Record
from .entities.meters import MeterService
from .entities.profiles import ProfileService
from .entities.replication import ReplicationService
from .entities.resolve import resolve
from .entities.tables import TableService
from .entities.value_sets import ValueSetService
from .refusal import Code, Refusal, invalid, unimplemented
from .roles import object_id, owners

Wanted = Callable[[int], bool]
"""Predicate that selects objects of P4Info by id for a client."""

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
_Update = p4r.Update

_SHARED: Final = frozenset(
    ("counter_entry", "register_entry", "meter_entry", "direct_counter_entry", "direct_meter_entry")
)
"""Entities that packets write as well: no client's write may fall between a packet's read and its write."""

_OF_TABLES: Final = frozenset(("table_entry", "direct_counter_entry", "direct_meter_entry"))
_OF_PROFILES: Final = frozenset(("action_profile_member", "action_profile_group"))
_OF_ARRAYS: Final = frozenset(("counter_entry", "meter_entry", "register_entry", "value_set_entry", "digest_entry"))


class LoadedPipeline:
    """One config, one program, one state."""

    def __init__(
        self,
        config: p4r.ForwardingPipelineConfig,
        program: Program,
        state: ProgramState,
        replication: ReplicationService,
        datapath: Datapath,
    ) -> None:
        """Bind a config to a switch's program and state.

        Args:
            config: Config of the pipeline, with the P4Info.
            program: The program.
            state: State of the switch.
            replication: Replication engine of the switch.
            datapath: Datapath of the switch.

        Raises:
            Refusal: P4Info and program do not belong together (INVALID_ARGUMENT).
        """
        self.config = config
        self.program = program
        self.replication = replication
        self.state = state
        self._datapath = datapath
        info = config.p4info
        self._info = info
        services = self.services = resolve(info, program, state, self._is_port)
        self._digest_named = {digest.program_name: digest for digest in services.digests.values()}
        self.owners = owners(_objects(info))
        """The role that an annotation gives an object to, by the object's id."""
        self._bulk: BulkWriter | None = None
        self.packet_in, self.packet_out = services.packet_in, services.packet_out

    def replicating_by(self, replication: ReplicationService) -> LoadedPipeline:
        """Return the same pipeline with another replication engine."""
        other = copy(self)
        other.replication = replication
        return other

    def paused(self) -> AbstractContextManager[object]:
        """Return a context in which no packet runs."""
        return self._datapath.paused()

    def held(self) -> AbstractContextManager[None]:
        """Group many writes: packets may see them in between or only at the end."""
        return self.state.held()

    def _is_port(self, port: int) -> bool:
        return port in self._datapath.ports or port == self._datapath.cpu_port

    # -- many plain entries at a time

    def write_plain(self, batch: Batch) -> bool:
        """Apply a batch of plain updates; return False, and change nothing, if it is to be written one by one."""
        if self._bulk is None:
            self._bulk = BulkWriter(self.services.tables.values())
        with self.held():
            return self._bulk.write(batch)

    # -- one entity at a time

    def write(self, update: p4r.Update) -> None:
        """Apply one update. Raises `EmulatorError`; nothing has then changed."""
        kind = update.type
        if not _Update.INSERT <= kind <= _Update.DELETE:
            raise invalid(f"update type {kind} is none of INSERT, MODIFY, DELETE")
        if _is_shared(update):
            with self.paused():
                self._write(kind, update.entity)
        else:
            self._write(kind, update.entity)

    def _write(self, kind: p4r.Update.Type.ValueType, entity: p4r.Entity) -> None:
        services = self.services
        match entity.WhichOneof("entity"):
            case "table_entry":
                self.table(entity.table_entry.table_id).write(kind, entity.table_entry)
            case "action_profile_member":
                member = entity.action_profile_member
                self._profile(member.action_profile_id).write_member(kind, member)
            case "action_profile_group":
                group = entity.action_profile_group
                self._profile(group.action_profile_id).write_group(kind, group)
            case "counter_entry":
                self.counter(entity.counter_entry.counter_id).write(kind, entity.counter_entry)
            case "direct_counter_entry":
                direct = entity.direct_counter_entry
                self.table(direct.table_entry.table_id).write_counter(kind, direct)
            case "meter_entry":
                meter = entity.meter_entry
                self._by_id(services.meters, "meter", meter.meter_id).write(kind, meter)
            case "direct_meter_entry":
                metered = entity.direct_meter_entry
                self.table(metered.table_entry.table_id).write_meter(kind, metered)
            case "value_set_entry":
                value_set = entity.value_set_entry
                self._by_id(services.value_sets, "value set", value_set.value_set_id).write(kind, value_set)
            case "digest_entry":
                digest = self._by_id(services.digests, "digest", entity.digest_entry.digest_id)
                if not self.watches:
                    digest.discard()
                digest.write(kind, entity.digest_entry)
            case "register_entry":
                self.register(entity.register_entry.register_id).write(kind, entity.register_entry)
            case "packet_replication_engine_entry":
                self.replication.write(kind, entity.packet_replication_engine_entry)
            case None:
                raise invalid("the update has no entity")
            case name:
                raise unimplemented(f"this switch has no {name.replace('_', ' ')}")

    def read(self, query: p4r.Entity, wanted: Wanted = lambda _: True) -> Iterator[p4r.Entity]:
        """Yield the entities that one query selects among wanted objects; id 0 means all of the kind.

        Raises:
            EmulatorError: The query is wrong; also raised while iterating.
        """
        name = query.WhichOneof("entity")
        if name is None:
            raise invalid("a query needs an entity; an empty one does not select everything")
        if name in _OF_TABLES:
            yield from self._read_tables(query, wanted)
        elif name in _OF_PROFILES:
            yield from self._read_profiles(query, wanted)
        elif name in _OF_ARRAYS:
            yield from self._read_arrays(query, wanted)
        elif name == "packet_replication_engine_entry":
            yield from self.replication.read(query.packet_replication_engine_entry)
        elif self._info.externs or query.extern_entry.extern_type_id or query.extern_entry.extern_id:
            raise unimplemented(f"this switch has no {name.replace('_', ' ')}")

    def _read_tables(self, query: p4r.Entity, wanted: Wanted) -> Iterator[p4r.Entity]:
        """Yield entries of tables, or their direct counters or meters."""
        name = query.WhichOneof("entity")
        entry = query.table_entry if name == "table_entry" else getattr(query, str(name)).table_entry
        _check_wildcard(entry)
        for table in self._chosen(self.services.tables, "table", entry.table_id, wanted):
            if name == "table_entry":
                yield from table.read(entry)
            elif name == "direct_counter_entry" and (entry.table_id or table.direct.has_counter):
                yield from table.read_counters(query.direct_counter_entry)
            elif name == "direct_meter_entry" and (entry.table_id or table.direct.has_meter):
                yield from table.read_meters(query.direct_meter_entry)

    def _read_profiles(self, query: p4r.Entity, wanted: Wanted) -> Iterator[p4r.Entity]:
        """Yield members or groups of action profiles."""
        profiles = self.services.profiles
        if query.WhichOneof("entity") == "action_profile_member":
            member = query.action_profile_member
            if member.member_id and not member.action_profile_id:
                raise invalid(f"member {member.member_id} of which action profile? action_profile_id is 0")
            for profile in self._chosen(profiles, "action profile", member.action_profile_id, wanted):
                yield from profile.read_members(member.member_id)
            return
        group = query.action_profile_group
        if group.group_id and not group.action_profile_id:
            raise invalid(f"group {group.group_id} of which action profile? action_profile_id is 0")
        for profile in self._chosen(profiles, "action profile", group.action_profile_id, wanted):
            yield from profile.read_groups(group.group_id)

    def _read_arrays(self, query: p4r.Entity, wanted: Wanted) -> Iterator[p4r.Entity]:
        """Yield cells of counters, meters and registers, value sets, and digests."""
        services = self.services
        match query.WhichOneof("entity"):
            case "counter_entry":
                for counter in self._chosen(services.counters, "counter", query.counter_entry.counter_id, wanted):
                    yield from counter.read(query.counter_entry)
            case "meter_entry":
                for meter in self._chosen(services.meters, "meter", query.meter_entry.meter_id, wanted):
                    yield from meter.read(query.meter_entry)
            case "register_entry":
                for register in self._chosen(services.registers, "register", query.register_entry.register_id, wanted):
                    yield from register.read(query.register_entry, self.paused)
            case "value_set_entry":
                value_set_id = query.value_set_entry.value_set_id
                for value_set in self._chosen(services.value_sets, "value set", value_set_id, wanted):
                    yield value_set.read()
            case "digest_entry":
                for digest in self._chosen(services.digests, "digest", query.digest_entry.digest_id, wanted):
                    if query.digest_entry.digest_id or digest.enabled:
                        yield digest.read()

    # -- notifications from the switch

    @property
    def watches(self) -> bool:
        """True if a controller waits for digests or idle entries."""
        return any(digest.enabled for digest in self.services.digests.values()) or any(
            table.ages for table in self.services.tables.values()
        )

    def learn(self, name: str, records: Iterable[Record]) -> list[p4r.DigestList]:
        """Store the records of one digest; return the lists to send."""
        digest = self._digest_named.get(name)
        return [] if digest is None else digest.add(records, self._now_ns)

    def pass_time(self) -> tuple[list[p4r.DigestList], list[p4r.IdleTimeoutNotification]]:
        """Return the messages due now in the switch's time: lists of digests, and tables' idle entries."""
        now_ns = self._now_ns
        lists = [message for digest in self.services.digests.values() for message in digest.tick(now_ns)]
        return lists, [message for table in self.services.tables.values() for message in table.idle(now_ns)]

    def acknowledge(self, ack: p4r.DigestListAck) -> None:
        """Acknowledge a digest list.

        Raises:
            Refusal: There is no such digest.
        """
        self._by_id(self.services.digests, "digest", ack.digest_id).acknowledge(ack.list_id)

    def reset_digests(self, concerned: Wanted) -> None:
        """Mark sent digests as unsent, since their subscribers have changed."""
        for digest in self.services.digests.values():
            if concerned(digest.id):
                digest.reset_sent()

    @property
    def _now_ns(self) -> int:
        return self.state.clock() * 1000

    def table(self, table_id: int) -> TableService:
        """Return a table by its id in P4Info.

        Raises:
            Refusal: There is none.
        """
        return self._by_id(self.services.tables, "table", table_id)

    def meter(self, meter_id: int) -> MeterService:
        """Return a meter by its id in P4Info.

        Raises:
            Refusal: There is none.
        """
        return self._by_id(self.services.meters, "meter", meter_id)

    def counter(self, counter_id: int) -> CounterService:
        """Return a counter by its id in P4Info.

        Raises:
            Refusal: There is none.
        """
        return self._by_id(self.services.counters, "counter", counter_id)

    def register(self, register_id: int) -> RegisterService:
        """Return a register by its id in P4Info.

        Raises:
            Refusal: There is none.
        """
        return self._by_id(self.services.registers, "register", register_id)

    def check_named(self, entity: p4r.Entity) -> None:
        """Raise `Refusal` for the id 0, by which reads alone name all objects of a kind."""
        if object_id(entity) == 0:
            raise invalid(f"{entity.WhichOneof('entity')}: the id is 0, which names nothing that can be written")

    def _profile(self, profile_id: int) -> ProfileService:
        return self._by_id(self.services.profiles, "action profile", profile_id)

    def _by_id(self, services: Mapping[int, _Service], kind: str, object_id: int) -> _Service:
        """Return the service of an id.

        Raises:
            Refusal: The id is unknown; UNKNOWN, as in bmv2, for an object that the program lacks.
        """
        if (service := services.get(object_id)) is not None:
            return service
        if (left_out := self.services.left_out.get(object_id)) is not None:
            raise Refusal(Code.UNKNOWN, f"{left_out} is in P4Info alone: p4c has left it out of the program, as unused")
        raise invalid(
            f"P4Info has no {kind} with id {object_id}" if object_id else f"{kind} id is 0, which names nothing"
        )

    def _chosen(self, services: Mapping[int, _Service], kind: str, object_id: int, wanted: Wanted) -> list[_Service]:
        chosen = list(services.values()) if not object_id else [self._by_id(services, kind, object_id)]
        return [service for service in chosen if wanted(service.id)]


def _check_wildcard(query: p4r.TableEntry) -> None:
    """Refuse all further conditions in a query of all tables: they would have another meaning in each."""
    if not query.table_id and (
        query.match or query.priority or query.HasField("action") or query.controller_metadata or query.metadata
    ):
        raise invalid("a read without a table id selects all entries of all tables: it cannot filter them")


def _is_shared(update: p4r.Update) -> bool:
    kind = update.entity.WhichOneof("entity")
    if kind != "table_entry":
        return kind in _SHARED
    entry = update.entity.table_entry
    return update.type == _Update.MODIFY and (
        entry.HasField("counter_data") or entry.HasField("meter_config") or entry.HasField("meter_counter_data")
    )


def _objects(info: p4i.P4Info) -> Iterator[Any]:
    """Everything that entities name by id."""
    for objects in (
        *(info.tables, info.action_profiles, info.counters, info.registers, info.meters),
        *(info.digests, info.value_sets),
    ):
        yield from objects
