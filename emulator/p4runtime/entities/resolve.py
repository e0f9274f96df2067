"""A P4Info resolved against the program and the memory that it describes: every id, width and size once.

A mismatch is INVALID_ARGUMENT, with the values of both P4Info and program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from finsy.proto import p4i

from ...program import Program, ProgramState
from ..refusal import Refusal, invalid
from .actions import ActionInfo, ScopedActions
from .arrays import CounterService, RegisterService
from .digests import DigestService
from .meters import MeterService, spec_of
from .packet_io import PacketHeader
from .profiles import ProfileService
from .tables import TableService
from .value_sets import ValueSetService

_Thing = TypeVar("_Thing")


@dataclass(frozen=True, slots=True)
class Services:
    """The services of the objects of one P4Info, by their ids."""

    tables: dict[int, TableService]
    profiles: dict[int, ProfileService]
    counters: dict[int, CounterService]
    registers: dict[int, RegisterService]
    meters: dict[int, MeterService]
    value_sets: dict[int, ValueSetService]
    digests: dict[int, DigestService]
    packet_in: PacketHeader | None
    packet_out: PacketHeader | None
    left_out: dict[int, str]
    """Objects of P4Info that the program lacks, described in words: p4c drops an unreachable table from the JSON
    alone.
    """


def resolve(info: p4i.P4Info, program: Program, state: ProgramState, is_port: Callable[[int], bool]) -> Services:
    """Match a P4Info with a program.

    Args:
        info: The P4Info.
        program: The program.
        state: State of the switch.
        is_port: Returns True for ports that can be watched.

    Raises:
        Refusal: P4Info and program do not belong together.
    """
    _check_ids(info)
    left_out = _left_out(info, program)
    tables = {table.preamble.id: table for table in info.tables if table.preamble.id not in left_out}
    actions = _resolve_actions(info, tables, program)
    profiles = _resolve_profiles(info, tables, left_out, program, state, actions, is_port)
    headers = {header.preamble.name: PacketHeader(header) for header in info.controller_packet_metadata}
    return Services(
        tables=_resolve_tables(info, tables, program, state, actions, profiles),
        profiles=profiles,
        counters={
            counter.preamble.id: CounterService(
                counter,
                _named(state.counters, "counter", counter.preamble.name),
                _same_size(counter.preamble.name, counter.size, program.counters),
            )
            for counter in info.counters
        },
        registers={
            register.preamble.id: _resolve_register(register, info, program, state) for register in info.registers
        },
        meters={
            meter.preamble.id: MeterService(
                meter,
                _named(state.meters, "meter", meter.preamble.name),
                _same_size(meter.preamble.name, meter.size, program.meters),
            )
            for meter in info.meters
        },
        value_sets={
            value_set.preamble.id: ValueSetService(
                value_set,
                _named(program.value_sets, "value set", value_set.preamble.name),
                state.value_sets[value_set.preamble.name],
            )
            for value_set in info.value_sets
        },
        digests={
            digest.preamble.id: DigestService(
                digest,
                info.type_info,
                program.digests.get(name),
                state.digests.get(name),
            )
            for digest, name in zip(info.digests, _digest_names(info, program), strict=True)
        },
        packet_in=headers.get("packet_in"),
        packet_out=headers.get("packet_out"),
        left_out=left_out,
    )


def _left_out(info: p4i.P4Info, program: Program) -> dict[int, str]:
    """Return tables, and profiles used by them alone, that P4Info has and the program lacks, by id.

    Raises:
        Refusal: The program has other tables instead. (Tables that p4c itself creates are named `tbl_` plus a word.)
    """
    gone = {table.preamble.id: table for table in info.tables if table.preamble.name not in program.tables}
    named = {table.preamble.name for table in info.tables}
    own = [name for name in program.tables if not name.startswith("tbl_") or "." in name]
    others = [name for name in own if name not in named]
    if gone and others:
        raise _foreign("table", next(iter(gone.values())).preamble.name)
    left_out = {number: f"table {table.preamble.name}" for number, table in gone.items()}
    for profile in info.action_profiles:
        if profile.table_ids and gone.keys() >= set(profile.table_ids):
            left_out[profile.preamble.id] = f"action profile {profile.preamble.name}"
    return left_out


def _digest_names(info: p4i.P4Info, program: Program) -> list[str]:
    """Return the program's names of the digests of P4Info.

    p4c names digests of a struct after it in both; others are numbered in P4Info and named after their type in the
    program, in the same order.
    """
    given = [digest.preamble.name for digest in info.digests]
    others = (name for name in program.digests if name not in given)
    return [name if name in program.digests else next(others, name) for name in given]


def _resolve_actions(info: p4i.P4Info, tables: Mapping[int, p4i.Table], program: Program) -> dict[int, ActionInfo]:
    used = {ref.id for table in tables.values() for ref in table.action_refs}
    return {
        action.preamble.id: ActionInfo(action, _named(program.actions, "action", action.preamble.name))
        for action in info.actions
        if action.preamble.id in used
    }


def _resolve_profiles(
    info: p4i.P4Info,
    tables: Mapping[int, p4i.Table],
    left_out: Mapping[int, str],
    program: Program,
    state: ProgramState,
    actions: dict[int, ActionInfo],
    is_port: Callable[[int], bool],
) -> dict[int, ProfileService]:
    profiles = {}
    for profile in info.action_profiles:
        if not profile.table_ids or profile.preamble.id in left_out:
            continue
        name = profile.preamble.name
        schema = _named(program.action_profiles, "action profile", name)
        if schema.selector != profile.with_selector:
            raise invalid(f"P4Info: {name} has a selector in only one of P4Info and program")
        user = next((tables[number] for number in profile.table_ids if number in tables), None)
        if user is None:
            raise invalid(f"P4Info: {name} names table id {profile.table_ids[0]}, which is not there")
        profiles[profile.preamble.id] = ProfileService(
            profile, state.action_profiles[name], _action_set(name, user, actions), is_port
        )
    return profiles


def _resolve_tables(
    info: p4i.P4Info,
    tables: Mapping[int, p4i.Table],
    program: Program,
    state: ProgramState,
    actions: dict[int, ActionInfo],
    profiles: dict[int, ProfileService],
) -> dict[int, TableService]:
    services = {}
    specs = {meter.direct_table_id: spec_of(meter) for meter in info.direct_meters}
    for number, table in tables.items():
        name = table.preamble.name
        schema = _named(program.tables, "table", name)
        profile = None
        if table.implementation_id:
            profile = profiles.get(table.implementation_id)
            if profile is None:
                raise invalid(f"P4Info: {name} names the implementation id {table.implementation_id}, not there")
        if (schema.profile is None) != (profile is None) or (profile is not None and profile.name != schema.profile):
            raise invalid(f"P4Info: {name} has another action profile than in the program, {schema.profile}")
        services[number] = TableService(
            table,
            schema,
            state.tables[name],
            _action_set(name, table, actions),
            profile,
            specs.get(number),
        )
    return services


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


def _action_set(owner: str, table: p4i.Table, actions: dict[int, ActionInfo]) -> ScopedActions:
    missing = [ref.id for ref in table.action_refs if ref.id not in actions]
    if missing:
        raise invalid(f"P4Info: {owner} names action id {missing[0]}, which is not there")
    return ScopedActions(
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


def _named(things: Mapping[str, _Thing], kind: str, name: str) -> _Thing:
    if name not in things:
        raise _foreign(kind, name)
    return things[name]


def _foreign(kind: str, name: str) -> Refusal:
    return invalid(f"P4Info: {kind} {name!r} is not in the device config: they come from different programs")


def _same_size(name: str, size: int, schemas: Mapping[str, Any]) -> int:
    expected: int = schemas[name].size
    if size != expected:
        raise invalid(f"P4Info: {name} has {size} cells, in the program {expected}")
    return expected
