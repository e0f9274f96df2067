"""TableEntry, DirectCounterEntry and DirectMeterEntry: one `TableService` per table, its schema resolved once per
pipeline.

This module keeps the parts that the switch does not hold: the controller's opaque metadata of entries, and the
program's initial default action (restored by a MODIFY of the default entry without an action).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from finsy.proto import p4i, p4r

from ...bmv2.schema import TableSchema
from ...entries import ActionCall, EntryNotFound, GroupRef, Match, MemberRef, TableAction, TableEntry
from ...entries import ActionSet as OneShot
from ...program import Table
from ..bulk.schema import PlainAction, PlainTable
from ..refusal import Code, Refusal, invalid, unimplemented
from .actions import ScopedActions
from .aging import Aging, Key
from .direct import DirectResources
from .keys import EntryKeys
from .profiles import ProfileService

INSERT: Final = p4r.Update.INSERT
MODIFY: Final = p4r.Update.MODIFY
DELETE: Final = p4r.Update.DELETE

_MAX_TOLD: Final = 1024
"""Entries of one idle notification."""
_WITH_RESOURCES: Final = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
"""A query for entries with their direct resources."""


class TableService:
    """One table of the P4Info, bound to one switch's memory."""

    def __init__(
        self,
        info: p4i.Table,
        schema: TableSchema,
        state: Table,
        actions: ScopedActions,
        profile: ProfileService | None,
        meter: p4i.MeterSpec | None,
    ) -> None:
        """Create the service. P4Info says whether the program's initial entries are constant; this sets it in `state`.

        Args:
            info: Table of the P4Info.
            schema: Schema of the table in the program.
            state: Table of the switch.
            actions: Actions that entries may have.
            profile: Action profile of the table; None: entries have their own actions.
            meter: Spec of the table's direct meter; None: it has none.

        Raises:
            Refusal: P4Info and program disagree.
        """
        self.id = info.preamble.id
        self.name = info.preamble.name
        self.state = state
        """The table in the switch."""
        self._keys = EntryKeys(info, state)
        self._actions = actions
        self.egress = schema.egress
        self.profile = profile
        self._const = state.constant = info.is_const_table
        self._const_default = bool(info.const_default_action_id) or schema.const_default
        self._idle_timeout = info.idle_timeout_behavior != p4i.Table.NO_TIMEOUT
        if self._idle_timeout and not schema.support_timeout:
            raise invalid(f"P4Info: {self.name} supports idle timeouts, in the program it does not")
        self.direct = DirectResources(self.name, state, meter)
        self._initial_default = state.default
        self._metadata: dict[Key, tuple[int, bytes]] = {}
        self._default_metadata: tuple[int, bytes] = (0, b"")
        self._aging = Aging()

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
        match, priority = key = self._keys.decode(entry)
        self._check_attributes(entry)
        counts, rates = wanted = self.direct.decode(entry)
        idle = entry.idle_timeout_ns
        if kind == INSERT:
            if not len(self._keys):
                raise invalid(f"{self.name} has no key: only its default entry can be written")
            if not entry.HasField("action"):
                raise invalid(f"{self.name}: an INSERT needs an action")
            action = self._decode_action(entry.action)
            self.state.insert(TableEntry(match, action, priority, idle), counts or (0, 0), rates)
        elif entry.HasField("action"):
            action = self._decode_action(entry.action)
            self.state.modify(TableEntry(match, action, priority, idle))
        else:
            stored = self.state.get(match, priority)
            action = stored.action
            if stored.idle_timeout_ns != idle:
                self.state.modify(replace(stored, idle_timeout_ns=idle))
        if kind == MODIFY:
            self.direct.modify(match, priority, entry, wanted)
            self._metadata.pop(key, None)
        if self.profile is not None:
            self.profile.note_entry(self.name, key, action)
        if entry.controller_metadata or entry.metadata:
            self._metadata[key] = (entry.controller_metadata, entry.metadata)
        if self._idle_timeout:
            self._aging.note(key, idle)

    def _delete(self, entry: p4r.TableEntry) -> None:
        if self._const:
            raise self._const_refusal()
        match, priority = key = self._keys.decode(entry)
        self.state.delete(match, priority)
        self._metadata.pop(key, None)
        self._aging.discard(key)
        if self.profile is not None:
            self.profile.remove_entry(self.name, key)

    def _write_const(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> None:
        if kind != MODIFY or entry.HasField("action"):
            raise self._const_refusal()
        match, priority = self._keys.decode(entry)
        self._check_attributes(entry)
        wanted = self.direct.decode(entry)
        if entry.idle_timeout_ns:
            raise unimplemented(f"{self.name}: constant entries have no idle timeouts on this switch")
        self.state.get(match, priority)
        self.direct.modify(match, priority, entry, wanted)

    def _write_default(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> None:
        if kind != MODIFY:
            raise invalid(f"{self.name}: the default entry is always there; only MODIFY applies to it")
        self._keys.check_default(entry)
        if self._const_default or self.profile is not None:
            raise Refusal(Code.PERMISSION_DENIED, f"{self.name}: the default entry is constant")
        self._check_attributes(entry)
        wanted = self.direct.decode(entry)
        if entry.HasField("action"):
            self.state.set_default(self._decode_default(entry.action))
            self._default_metadata = (entry.controller_metadata, entry.metadata)
        else:
            self.state.set_default(None)
            self._default_metadata = (0, b"")
        self.direct.modify(None, 0, entry, wanted)

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
        if entry.HasField("time_since_last_hit"):
            raise invalid(f"{self.name}: time_since_last_hit is the switch's to tell")
        if entry.idle_timeout_ns < 0:
            raise invalid(f"{self.name}: an idle timeout of {entry.idle_timeout_ns} ns is negative")
        if entry.idle_timeout_ns and (entry.is_default_action or not self._idle_timeout):
            raise invalid(
                f"{self.name}: {'its default entry' if entry.is_default_action else 'it'} is never idle: "
                "no idle timeouts are supported there"
            )

    def _decode_action(self, message: p4r.TableAction) -> TableAction:
        kind = message.WhichOneof("type")
        if self.profile is not None:
            return self.profile.decode_reference(self.name, message)
        if kind != "action":
            raise invalid(f"{self.name} has no action profile: its entries need a plain action, not {kind}")
        call = self._actions.decode(message.action)
        if self._actions.scope(message.action.action_id) == p4i.ActionRef.DEFAULT_ONLY:
            raise Refusal(Code.PERMISSION_DENIED, f"{self.name}: {call.name} can only be the default action")
        return call

    def write_counter(self, kind: p4r.Update.Type.ValueType, entry: p4r.DirectCounterEntry) -> None:
        """Write a DirectCounterEntry: MODIFY only. Raises `EmulatorError`."""
        if kind != MODIFY:
            raise invalid(f"{self.name}: a direct counter lives and dies with its entry; only MODIFY applies to it")
        self.direct.check_counter()
        self.direct.write_counter(*self._keys.decode_target(entry.table_entry), entry)

    def write_meter(self, kind: p4r.Update.Type.ValueType, entry: p4r.DirectMeterEntry) -> None:
        """Write a DirectMeterEntry: MODIFY only. Raises `EmulatorError`."""
        if kind != MODIFY:
            raise invalid(f"{self.name}: a direct meter lives and dies with its entry; only MODIFY applies to it")
        self.direct.check_meter()
        self.direct.write_meter(*self._keys.decode_target(entry.table_entry), entry)

    def remember(self, kind: p4r.Update.Type.ValueType, entry: p4r.TableEntry) -> Callable[[], None]:
        """Return a function that restores the direct resources of an entry after a MODIFY or DELETE of it.

        Raises:
            EmulatorError: There is no such entry.
        """
        match, priority = self._keys.decode_target(entry)
        content = self.state.notes(match, priority)
        gone = kind == DELETE
        counts = gone or entry.HasField("counter_data")
        return lambda: self.state.set_notes(match, content, priority, counts=counts, hit=gone)

    # -- many entries at a time

    def plain(self) -> PlainTable | None:
        """Describe the entries that `takes` is asked about: a key, an action, and nothing else. None: it takes none."""
        if self._const or self.profile is not None:
            return None
        actions = (
            PlainAction(given, self.state.code(name), params) for name, given, params in self._actions.of_entries()
        )
        table = PlainTable(self.id, self._keys.fields, self.state.layout, tuple(actions))
        return table if table.readable else None

    def takes(self, inserted: Sequence[bytes], modified: Sequence[bytes], deleted: Sequence[bytes]) -> bool:
        """Return True if these plain updates, given by identity, concern the table alone, all succeed, and
        have the same effect in any order.
        """
        kept = self._metadata or self._aging or (modified and self.direct.has_meter)
        return not ((modified or deleted) and kept) and self.state.takes(inserted, (*modified, *deleted))

    # -- reading

    def read(self, query: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """Yield the entries that a query selects. Raises `Refusal` for one that makes no sense."""
        if query.is_default_action:
            self._keys.check_default(query)
            if query.HasField("time_since_last_hit"):
                raise invalid(f"{self.name}: no time since the last hit is told of the default entry")
            yield self._encode_default(query)
            return
        wanted_action = self._wanted_action(query)
        self._check_query(query)
        for entry in self._keys.select(query):
            if wanted_action is not None and not (
                isinstance(entry.action, ActionCall) and entry.action.name == wanted_action
            ):
                continue
            controller_metadata, metadata = self._metadata.get((entry.match, entry.priority), (0, b""))
            if query.controller_metadata and query.controller_metadata != controller_metadata:
                continue
            if query.metadata and query.metadata != metadata:
                continue
            try:
                entity = self._encode(entry, query)
            except EntryNotFound:
                continue  # deleted since the read came to this table
            yield entity

    def read_counters(self, query: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
        """Yield direct counters of the entries that a query names; NOT_FOUND when it names one that is not there."""
        self.direct.check_counter()
        for match, priority in self._keys.targets(query.table_entry):
            entity = p4r.Entity()
            self._keys.encode(match, priority, entity.direct_counter_entry.table_entry)
            with suppress(EntryNotFound):  # deleted since the read came to this table
                self.direct.encode_counter(match, priority, entity.direct_counter_entry.data)
                yield entity

    def read_meters(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.Entity]:
        """Yield direct meters of the entries that a query names; NOT_FOUND when it names one that is not there."""
        self.direct.check_meter()
        for match, priority in self._keys.targets(query.table_entry):
            entity = p4r.Entity()
            self._keys.encode(match, priority, entity.direct_meter_entry.table_entry)
            with suppress(EntryNotFound):
                self.direct.encode_meter(match, priority, query, entity.direct_meter_entry)
                yield entity

    @property
    def ages(self) -> bool:
        """True if some entry has an idle timeout."""
        return bool(self._aging)

    def idle(self, now_ns: int) -> Iterator[p4r.IdleTimeoutNotification]:
        """Yield the entries without a hit for their timeout, since the last hit and since they were last told.

        It may run while entries are written.
        """
        if not self._aging:
            return
        due = self._aging.due(self.state.idle_entries(), now_ns)
        for first in range(0, len(due), _MAX_TOLD):
            message = p4r.IdleTimeoutNotification(timestamp=now_ns)
            for entry in due[first : first + _MAX_TOLD]:
                message.table_entry.append(self._encode(entry, p4r.TableEntry()).table_entry)
            yield message

    def entries_to_keep(self) -> Iterator[p4r.Update]:
        """Yield the updates that recreate this table's entries, counters included, in a table after `clear`.

        Only the direct resources of constant entries may differ.
        """
        for entry in self.state.entries():
            if self._const:
                yield from self._direct_to_keep(entry.match, entry.priority)
            else:
                yield p4r.Update(type=INSERT, entity=self._encode(entry, _WITH_RESOURCES))

    def default_to_keep(self) -> Iterator[p4r.Update]:
        """Yield the updates that recreate this table's default entry in a fresh table, if it differs."""
        if self.state.default != self._initial_default or self._default_metadata != (0, b""):
            yield p4r.Update(type=MODIFY, entity=self._encode_default(p4r.TableEntry()))
        yield from self._direct_to_keep(None, 0)

    def _direct_to_keep(self, match: tuple[Match, ...] | None, priority: int) -> Iterator[p4r.Update]:
        entity = p4r.Entity()
        self._keys.encode(match, priority, entity.table_entry)
        yield from self.direct.to_keep(match, priority, entity.table_entry)

    def clear(self) -> None:
        """Remove every entry that is not constant."""
        if not self._const:
            for entry in list(self.state.entries()):
                self.state.delete(entry.match, entry.priority)

    def _wanted_action(self, query: p4r.TableEntry) -> str | None:
        if not query.HasField("action"):
            return None
        if query.action.WhichOneof("type") != "action":
            raise invalid(f"{self.name}: a read can select by action id only")
        return self._actions.name_of(query.action.action.action_id)

    def _check_query(self, query: p4r.TableEntry) -> None:
        """Check a query of this one table; a query of all tables needs no check."""
        if query.HasField("time_since_last_hit") and query.table_id and not self._idle_timeout:
            raise invalid(f"{self.name} does not support idle timeouts: it tells no time since the last hit")

    def _encode(self, entry: TableEntry, query: p4r.TableEntry) -> p4r.Entity:
        """An entry with the direct resources that a query has set."""
        entity = p4r.Entity()
        message = entity.table_entry
        self._keys.encode(entry.match, entry.priority, message)
        self._encode_action(entry.action, message)
        message.is_const = self._const
        kept = self._metadata.get((entry.match, entry.priority))
        if kept is not None:
            message.controller_metadata, message.metadata = kept
        message.idle_timeout_ns = entry.idle_timeout_ns
        self.direct.encode(entry.match, entry.priority, query, message)
        if self._idle_timeout and query.HasField("time_since_last_hit"):
            message.time_since_last_hit.elapsed_ns = self.state.idle_ns(entry.match, entry.priority)
            message.time_since_last_hit.SetInParent()
        return entity

    def _encode_default(self, query: p4r.TableEntry) -> p4r.Entity:
        entity = p4r.Entity()
        message = entity.table_entry
        message.table_id = self.id
        message.is_default_action = True
        message.is_const = self._const_default
        message.controller_metadata, message.metadata = self._default_metadata
        self._encode_action(self.state.default, message)
        self.direct.encode(None, 0, query, message)
        return entity

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
                assert self.profile is not None
                message.action.action_profile_action_set.CopyFrom(self.profile.encode_one_shot(action))
