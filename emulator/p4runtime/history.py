"""Undo of updates, and a switch's whole forwarding state as a list of updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

from finsy.proto import p4r

from .entities.profiles import ProfileService
from .entities.tables import TableService
from .pipeline import LoadedPipeline

_Service = TypeVar("_Service", TableService, ProfileService)
_Update = p4r.Update

_INGRESS: Final = frozenset((False,))


def stages(pipeline: LoadedPipeline, entity: p4r.Entity) -> frozenset[bool]:
    """Return the pipeline stages in which packets match an entity: False for ingress, True for egress."""
    tables: list[TableService] = []
    match entity.WhichOneof("entity"):
        case "table_entry":
            tables += _found(pipeline.services.tables, entity.table_entry.table_id)
        case "direct_counter_entry":
            tables += _found(pipeline.services.tables, entity.direct_counter_entry.table_entry.table_id)
        case "direct_meter_entry":
            tables += _found(pipeline.services.tables, entity.direct_meter_entry.table_entry.table_id)
        case "action_profile_member" | "action_profile_group" as kind:
            for profile in _found(pipeline.services.profiles, getattr(entity, kind).action_profile_id):
                tables += (table for table in pipeline.services.tables.values() if table.profile is profile)
        case "value_set_entry" | "packet_replication_engine_entry":
            return _INGRESS
    return frozenset(table.egress for table in tables)


def undo(pipeline: LoadedPipeline, update: p4r.Update) -> Callable[[], None]:
    """Return a function that reverts this update; call before the update is applied. Raises `EmulatorError`.

    Only what the update touches is copied, and nothing for an update that names no object.
    """
    entity = update.entity
    pipeline.check_named(entity)
    match entity.WhichOneof("entity"):
        case "register_entry":
            register = pipeline.register(entity.register_entry.register_id)
            return register.remember(update.type, entity.register_entry)
        case "counter_entry":
            return pipeline.counter(entity.counter_entry.counter_id).remember(update.type, entity.counter_entry)
    if update.type == _Update.INSERT:
        return partial(pipeline.write, _Update(type=_Update.DELETE, entity=update.entity))
    steps: list[Callable[[], None]] = [partial(pipeline.write, step) for step in _inverse(pipeline, update)]
    match entity.WhichOneof("entity"):
        case "table_entry":
            steps.append(pipeline.table(entity.table_entry.table_id).remember(update.type, entity.table_entry))
        case "direct_counter_entry":
            direct = entity.direct_counter_entry
            steps.append(pipeline.table(direct.table_entry.table_id).remember(update.type, direct.table_entry))
        case "direct_meter_entry":
            metered = entity.direct_meter_entry
            steps.append(pipeline.table(metered.table_entry.table_id).remember(update.type, metered.table_entry))
        case "meter_entry":
            meter = pipeline.meter(entity.meter_entry.meter_id)
            steps.append(meter.remember(entity.meter_entry))

    def take_back() -> None:
        for step in steps:
            step()

    return take_back


def _inverse(pipeline: LoadedPipeline, update: p4r.Update) -> Iterator[p4r.Update]:
    kind = _Update.INSERT if update.type == _Update.DELETE else _Update.MODIFY
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
        if kind == _Update.INSERT or key.HasField("counter_data"):
            query.table_entry.counter_data.SetInParent()
    if query.HasField("meter_entry"):  # counts by color cannot be written
        query.meter_entry.ClearField("counter_data")
    if query.HasField("direct_meter_entry"):
        query.direct_meter_entry.ClearField("counter_data")
    wanted = _key_of(query)
    before = [entity for entity in pipeline.read(query) if wanted.match or not _key_of(entity).match]
    for entity in before:
        if entity.table_entry.is_const:  # only its direct resources can have changed
            entity.table_entry.ClearField("is_const")
            entity.table_entry.ClearField("action")
    return _updates(kind, before)


def snapshot(pipeline: LoadedPipeline) -> Iterator[p4r.Update]:
    """Yield the updates that make a fresh switch with the same program equal to this one, in an order that works."""
    services = pipeline.services
    for profile in services.profiles.values():
        yield from _updates(_Update.INSERT, profile.read_members(0))
        yield from _updates(_Update.INSERT, profile.read_groups(0))
    for table in services.tables.values():
        yield from table.entries_to_keep()
        yield from table.default_to_keep()
    yield from _updates(_Update.INSERT, pipeline.replication.read_all())
    for counter in services.counters.values():
        yield from _updates(_Update.MODIFY, counter.counted())
    for register in services.registers.values():
        yield from _updates(_Update.MODIFY, register.written())
    for meter in services.meters.values():
        yield from _updates(_Update.MODIFY, meter.configured())
    for value_set in services.value_sets.values():
        yield from _updates(_Update.MODIFY, value_set.filled())
    for digest in services.digests.values():
        if digest.enabled:
            yield from _updates(_Update.INSERT, (digest.read(),))


def restore(pipeline: LoadedPipeline, updates: Iterable[p4r.Update]) -> None:
    """Apply a snapshot to a switch that has just loaded its program. Raises `EmulatorError`."""
    with pipeline.held():
        for table in pipeline.services.tables.values():
            table.clear()
        for update in updates:
            pipeline.write(update)


def _found(services: Mapping[int, _Service], object_id: int) -> list[_Service]:
    return [services[object_id]] if object_id in services else []


def _key_of(entity: p4r.Entity) -> p4r.TableEntry:
    """Return the table entry that an entity is or belongs to; an empty one if there is none."""
    if entity.HasField("direct_counter_entry"):
        return entity.direct_counter_entry.table_entry
    if entity.HasField("direct_meter_entry"):
        return entity.direct_meter_entry.table_entry
    return entity.table_entry


def _updates(kind: p4r.Update.Type.ValueType, entities: Iterable[p4r.Entity]) -> Iterator[p4r.Update]:
    return (p4r.Update(type=kind, entity=entity) for entity in entities)
