"""TableEntry, DirectCounterEntry and DirectMeterEntry: one `TableService` per table, its schema resolved once per
pipeline.

What the switch does not hold is kept here: the controller's opaque metadata of entries, and the default action that the
program came with (a MODIFY of the default entry without an action goes back to it).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from finsy.proto import p4i, p4r

from emulator.entries import ActionCall, EntryNotFound, GroupRef, Match, MemberRef, TableAction, TableEntry
from emulator.entries import ActionSet as OneShot
from emulator.p4runtime.actions import ActionSet
from emulator.p4runtime.arrays import COUNT_MASK, check_count
from emulator.p4runtime.matches import MatchKey
from emulator.p4runtime.meters import decode_config, encode_config, no_colors
from emulator.p4runtime.profiles import ProfileService
from emulator.p4runtime.refusal import Code, Refusal, invalid, unimplemented
from emulator.program import MeterRates, Table
from emulator.schema import TableSchema

INSERT: Final = p4r.Update.INSERT
MODIFY: Final = p4r.Update.MODIFY
DELETE: Final = p4r.Update.DELETE

_MOST_TOLD: Final = 1024
"""Entries of one idle notification."""

Key = tuple[tuple[Match, ...], int]
"""Match and priority: what identifies an entry in its table."""


class TableService:
    """One table of the P4Info, bound to one switch's memory."""

    def __init__(
        self,
        info: p4i.Table,
        schema: TableSchema,
        state: Table,
        actions: ActionSet,
        profile: ProfileService | None,
        meter: p4i.MeterSpec | None,
    ) -> None:
        """`meter`: of its direct meter. Raises `Refusal` when P4Info and program disagree."""
        self.id = info.preamble.id
        self.name = info.preamble.name
        self._state = state
        self._key = MatchKey(self.name, info.match_fields, schema.key)
        self._actions = actions
        self._profile = profile
        self._const = info.is_const_table
        self._const_default = bool(info.const_default_action_id) or schema.const_default
        self._idle_timeout = info.idle_timeout_behavior != p4i.Table.NO_TIMEOUT
        if self._idle_timeout and not schema.support_timeout:
            raise invalid(f"P4Info: {self.name} supports idle timeouts, in the program it does not")
        self.has_counter = schema.direct_counter is not None
        if (meter is None) != (schema.direct_meter is None):
            raise invalid(f"P4Info: {self.name} has a direct meter in only one of P4Info and program")
        self._meter = meter
        self._initial_default = state.default
        self._metadata: dict[Key, tuple[int, bytes]] = {}
        self._default_metadata: tuple[int, bytes] = (0, b"")
        self._aging: dict[Key, int] = {}
        """Entries with an idle timeout, and when they were last told idle, in the switch's time."""

    # -- writing

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> None:
        """INSERT, MODIFY or DELETE one entry. Raises `EmulatorError`."""
        if entry.is_default_action:
            self._write_default(kind, entry)
        elif kind == DELETE:
            self._delete(entry)
        elif self._const:
            self._write_const(kind, entry)
        else:
            self._upsert(kind, entry)

    def _upsert(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> None:
        match, priority = key = self._decode_key(entry)
        self._check_attributes(entry)
        rates = self._decode_rates(entry)
        idle = entry.idle_timeout_ns
        if kind == INSERT:
            if not len(self._key):
                raise invalid(f"{self.name} has no key: only its default entry can be written")
            if not entry.HasField("action"):
                raise invalid(f"{self.name}: an INSERT needs an action")
            action = self._decode_action(entry.action)
            self._state.insert(TableEntry(match, action, priority, idle))
        elif entry.HasField("action"):
            action = self._decode_action(entry.action)
            self._state.modify(TableEntry(match, action, priority, idle))
        else:
            stored = self._state.get(match, priority)
            action = stored.action
            if stored.idle_timeout_ns != idle:
                self._state.modify(replace(stored, idle_timeout_ns=idle))
        if self._profile is not None:
            self._profile.note_entry(self.name, key, action)
        if entry.controller_metadata or entry.metadata:
            self._metadata[key] = (entry.controller_metadata, entry.metadata)
        elif kind == MODIFY:
            self._metadata.pop(key, None)
        if entry.HasField("counter_data"):
            self._set_counter(match, priority, entry.counter_data)
        if idle:
            self._aging.setdefault(key, 0)
        else:
            self._aging.pop(key, None)
        if rates is not None or (kind == MODIFY and self.has_meter):
            self._state.set_meter(match, rates, priority)

    def _delete(self, entry: p4r.TableEntry) -> None:
        if self._const:
            raise self._const_refusal()
        match, priority = key = self._decode_key(entry)
        self._state.delete(match, priority)
        self._metadata.pop(key, None)
        self._aging.pop(key, None)
        if self._profile is not None:
            self._profile.forget_entry(self.name, key)

    def _write_const(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> None:
        if kind != MODIFY or entry.HasField("action"):
            raise self._const_refusal()
        match, priority = self._decode_key(entry)
        self._check_attributes(entry)
        rates = self._decode_rates(entry)
        if entry.idle_timeout_ns:
            raise unimplemented(f"{self.name}: constant entries have no idle timeouts on this switch")
        self._state.get(match, priority)
        if entry.HasField("counter_data"):
            self._set_counter(match, priority, entry.counter_data)
        if self.has_meter:
            self._state.set_meter(match, rates, priority)

    def _write_default(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> None:
        if kind != MODIFY:
            raise invalid(f"{self.name}: the default entry is always there; only MODIFY applies to it")
        if entry.match or entry.priority:
            raise invalid(f"{self.name}: the default entry has neither match fields nor a priority")
        if self._const_default or self._profile is not None:
            raise Refusal(Code.PERMISSION_DENIED, f"{self.name}: the default entry is constant")
        self._check_attributes(entry)
        if entry.HasField("counter_data"):
            raise unimplemented(f"{self.name}: this switch does not count hits of the default entry")
        if entry.HasField("meter_config"):
            raise self._no_default_meter()
        if entry.HasField("action"):
            self._state.set_default(self._decode_default(entry.action))
            self._default_metadata = (entry.controller_metadata, entry.metadata)
        else:
            self._state.set_default(None)
            self._default_metadata = (0, b"")

    def _decode_default(self, message: p4r.TableAction) -> ActionCall:
        if message.WhichOneof("type") != "action":
            raise invalid(f"{self.name}: the default entry needs a plain action")
        call = self._actions.decode(message.action)
        if self._actions.scope(message.action.action_id) == p4i.ActionRef.TABLE_ONLY:
            raise Refusal(Code.PERMISSION_DENIED, f"{self.name}: {call.name} cannot be the default action")
        return call

    def _const_refusal(self) -> Refusal:
        return Refusal(Code.PERMISSION_DENIED, f"{self.name}: its entries are constant (`const entries`)")

    def _check_attributes(self, entry: p4r.TableEntry) -> None:
        if entry.is_const:
            raise invalid(f"{self.name}: is_const is the switch's to set")
        if entry.HasField("counter_data"):
            self._check_counter()
            check_count(entry.counter_data, self.name)
        if entry.HasField("meter_config") or entry.HasField("meter_counter_data"):
            self._check_meter()
        if entry.HasField("meter_counter_data"):
            raise no_colors(self.name)
        if entry.HasField("time_since_last_hit"):
            raise invalid(f"{self.name}: time_since_last_hit is the switch's to tell")
        if entry.idle_timeout_ns < 0:
            raise invalid(f"{self.name}: an idle timeout of {entry.idle_timeout_ns} ns is negative")
        if entry.idle_timeout_ns and (entry.is_default_action or not self._idle_timeout):
            raise invalid(
                f"{self.name}: {'its default entry' if entry.is_default_action else 'it'} is never idle: "
                "no idle timeouts are supported there"
            )

    def _decode_key(self, entry: p4r.TableEntry) -> Key:
        priority = entry.priority
        if self._key.needs_priority:
            if priority <= 0:
                raise invalid(f"{self.name}: its entries need a priority above 0, not {priority}")
        elif priority:
            raise invalid(f"{self.name}: priority {priority} given, but no field is ternary, range or optional")
        return self._key.decode(entry.match), priority

    def _decode_action(self, message: p4r.TableAction) -> TableAction:
        kind = message.WhichOneof("type")
        if self._profile is not None:
            return self._profile.decode_reference(self.name, message)
        if kind != "action":
            raise invalid(f"{self.name} has no action profile: its entries need a plain action, not {kind}")
        call = self._actions.decode(message.action)
        if self._actions.scope(message.action.action_id) == p4i.ActionRef.DEFAULT_ONLY:
            raise Refusal(Code.PERMISSION_DENIED, f"{self.name}: {call.name} can only be the default action")
        return call

    def write_counter(self, kind: p4r.Update.Type.ValueType, entry: p4r.DirectCounterEntry) -> None:
        """A DirectCounterEntry: MODIFY only."""
        if kind != MODIFY:
            raise invalid(f"{self.name}: a direct counter lives and dies with its entry; only MODIFY applies to it")
        self._check_counter()
        if entry.table_entry.is_default_action:
            raise unimplemented(f"{self.name}: this switch does not count hits of the default entry")
        match, priority = self._decode_key(entry.table_entry)
        self._state.get(match, priority)
        if entry.HasField("data"):
            check_count(entry.data, self.name)
            self._set_counter(match, priority, entry.data)

    def _check_counter(self) -> None:
        if not self.has_counter:
            raise invalid(f"{self.name} has no direct counter")

    def _set_counter(self, match: tuple[Match, ...], priority: int, data: p4r.CounterData) -> None:
        self._state.set_counter(match, data.packet_count, data.byte_count, priority)

    def write_meter(self, kind: p4r.Update.Type.ValueType, entry: p4r.DirectMeterEntry) -> None:
        """A DirectMeterEntry: MODIFY only; without a config back to green."""
        if kind != MODIFY:
            raise invalid(f"{self.name}: a direct meter lives and dies with its entry; only MODIFY applies to it")
        spec = self._check_meter()
        if entry.table_entry.is_default_action:
            raise self._no_default_meter()
        if entry.HasField("counter_data"):
            raise no_colors(self.name)
        match, priority = self._decode_key(entry.table_entry)
        self._state.get(match, priority)
        rates = decode_config(entry.config, spec, self.name) if entry.HasField("config") else None
        self._state.set_meter(match, rates, priority)

    @property
    def has_meter(self) -> bool:
        return self._meter is not None

    def _check_meter(self) -> p4i.MeterSpec:
        if self._meter is None:
            raise invalid(f"{self.name} has no direct meter")
        return self._meter

    def _decode_rates(self, entry: p4r.TableEntry) -> MeterRates | None:
        if not entry.HasField("meter_config"):
            return None
        return decode_config(entry.meter_config, self._check_meter(), self.name)

    def _no_default_meter(self) -> Refusal:
        return unimplemented(f"{self.name}: this switch does not meter hits of the default entry")

    # -- reading

    def read(self, query: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """The entries that a query selects. Raises `Refusal` for one that makes no sense."""
        if query.is_default_action:
            if query.match or query.priority:
                raise invalid(f"{self.name}: the default entry has neither match fields nor a priority")
            if query.HasField("time_since_last_hit"):
                raise invalid(f"{self.name}: no time since the last hit is told of the default entry")
            yield self._encode_default()
            return
        wanted_action = self._wanted_action(query)
        self._check_query(query)
        for entry in self._select(query):
            if wanted_action is not None and not (
                isinstance(entry.action, ActionCall) and entry.action.name == wanted_action
            ):
                continue
            entity = self._encode(entry, query)
            found = entity.table_entry
            if query.controller_metadata and query.controller_metadata != found.controller_metadata:
                continue
            if query.metadata and query.metadata != found.metadata:
                continue
            yield entity

    def read_counters(self, query: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """Direct counters of the entries that a query names; NOT_FOUND when it names one that is not there."""
        self._check_counter()
        entries = list(self._select(query))
        if query.match and not entries:
            raise Refusal(Code.NOT_FOUND, f"{self.name} has no such entry")
        for entry in entries:
            entity = p4r.Entity()
            target = entity.direct_counter_entry.table_entry
            self._encode_key(entry, target)
            self._encode_counter(entry, entity.direct_counter_entry.data)
            yield entity

    def read_meters(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.Entity]:
        """Direct meters of the entries that a query names; NOT_FOUND when it names one that is not there."""
        self._check_meter()
        if query.HasField("counter_data"):
            raise no_colors(self.name)
        if query.table_entry.is_default_action:
            raise self._no_default_meter()
        entries = list(self._select(query.table_entry))
        if query.table_entry.match and not entries:
            raise Refusal(Code.NOT_FOUND, f"{self.name} has no such entry")
        for entry in entries:
            entity = p4r.Entity()
            self._encode_key(entry, entity.direct_meter_entry.table_entry)
            encode_config(self._state.meter(entry.match, entry.priority), entity.direct_meter_entry.config)
            yield entity

    @property
    def ages(self) -> bool:
        """Whether some entry has an idle timeout."""
        return bool(self._aging)

    def idle(self, now_ns: int) -> Iterator[p4r.IdleTimeoutNotification]:
        """The entries without a hit for their timeout, since the last hit and since they were last told.

        It may run while entries are written.
        """
        if not self._aging:
            return
        due = []
        for entry in self._state.idle_entries():
            told_ns = self._aging.get((entry.match, entry.priority))
            if told_ns is not None and (not told_ns or now_ns - told_ns >= entry.idle_timeout_ns):
                due.append(entry)
        for first in range(0, len(due), _MOST_TOLD):
            message = p4r.IdleTimeoutNotification(timestamp=now_ns)
            for entry in due[first : first + _MOST_TOLD]:
                key = entry.match, entry.priority
                if key in self._aging:
                    self._aging[key] = now_ns
                message.table_entry.append(self._encode(entry, p4r.TableEntry()).table_entry)
            yield message

    def writable_entries(self) -> Iterator[p4r.Entity]:
        """Every entry that a controller may have written, as it would write it."""
        if not self._const:
            everything = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
            yield from (self._encode(entry, everything) for entry in self._state.entries())

    def changed_default(self) -> Iterator[p4r.Entity]:
        """The default entry, when it is not the program's own."""
        if self._state.default != self._initial_default:
            yield self._encode_default()

    def clear(self) -> None:
        """Remove every entry that is not constant."""
        if not self._const:
            for entry in list(self._state.entries()):
                self._state.delete(entry.match, entry.priority)

    def _select(self, query: p4r.TableEntry) -> Iterator[TableEntry]:
        if not query.match:
            for entry in self._state.entries():
                if not query.priority or entry.priority == query.priority:
                    yield entry
            return
        match = self._key.decode(query.match)
        if self._key.needs_priority and not query.priority:
            yield from (entry for entry in self._state.entries() if entry.match == match)
            return
        with suppress(EntryNotFound):
            yield self._state.get(match, query.priority)

    def _wanted_action(self, query: p4r.TableEntry) -> str | None:
        if not query.HasField("action"):
            return None
        if query.action.WhichOneof("type") != "action":
            raise invalid(f"{self.name}: a read can select by action id only")
        return self._actions.name_of(query.action.action.action_id)

    def _check_query(self, query: p4r.TableEntry) -> None:
        """A query for all tables asks each for what it has; one for this table must fit it."""
        if query.HasField("time_since_last_hit") and query.table_id and not self._idle_timeout:
            raise invalid(f"{self.name} does not support idle timeouts: it tells no time since the last hit")
        if query.HasField("meter_counter_data") and self.has_meter:
            raise no_colors(self.name)

    def _encode(self, entry: TableEntry, query: p4r.TableEntry) -> p4r.Entity:
        """An entry with the direct resources that a query has set."""
        entity = p4r.Entity()
        message = entity.table_entry
        self._encode_key(entry, message)
        self._encode_action(entry.action, message)
        message.is_const = self._const
        kept = self._metadata.get((entry.match, entry.priority))
        if kept is not None:
            message.controller_metadata, message.metadata = kept
        message.idle_timeout_ns = entry.idle_timeout_ns
        if self.has_counter and query.HasField("counter_data"):
            self._encode_counter(entry, message.counter_data)
        if self.has_meter and query.HasField("meter_config"):
            encode_config(self._state.meter(entry.match, entry.priority), message.meter_config)
        if self._idle_timeout and query.HasField("time_since_last_hit"):
            message.time_since_last_hit.elapsed_ns = self._state.idle_ns(entry.match, entry.priority)
            message.time_since_last_hit.SetInParent()
        return entity

    def _encode_default(self) -> p4r.Entity:
        entity = p4r.Entity()
        message = entity.table_entry
        message.table_id = self.id
        message.is_default_action = True
        message.is_const = self._const_default
        message.controller_metadata, message.metadata = self._default_metadata
        self._encode_action(self._state.default, message)
        return entity

    def _encode_key(self, entry: TableEntry, message: p4r.TableEntry) -> None:
        message.table_id = self.id
        message.priority = entry.priority
        self._key.encode(entry.match, message)

    def _encode_action(self, action: TableAction, message: p4r.TableEntry) -> None:
        match action:
            case ActionCall():
                call = self._actions.encode(action)
                if call is not None:
                    message.action.action.CopyFrom(call)
            case MemberRef(member_id):
                message.action.action_profile_member_id = member_id
            case GroupRef(group_id):
                message.action.action_profile_group_id = group_id
            case OneShot():
                assert self._profile is not None
                message.action.action_profile_action_set.CopyFrom(self._profile.encode_one_shot(action))

    def _encode_counter(self, entry: TableEntry, data: p4r.CounterData) -> None:
        packets, octets = self._state.counter(entry.match, entry.priority)
        data.packet_count = packets & COUNT_MASK
        data.byte_count = octets & COUNT_MASK
        data.SetInParent()
