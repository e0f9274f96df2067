"""A P4 program of one's own in the switches of a fabric, and the entries that their runtime JSON has (P4Runtime)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import finsy as fy
from finsy.p4schema import P4MatchType, P4Schema
from google.protobuf import json_format, text_format

from ...controller.p4runtime.finsy_switch import FinsySwitch, quiet_finsy, switch_error
from ...topologies.problems import FileProblem, listed
from ...topologies.runtime_json import RuntimeFile, RuntimeReplica, RuntimeRow, RuntimeSession, value_number
from ..errors import ExperimentError
from .sessions import CONNECT_S

_NO_P4INFO: Final = (
    *(text_format.ParseError, json_format.ParseError, ValueError),
    *(LookupError, TypeError, AttributeError, RecursionError),
)
"""Exceptions that finsy raises for a P4Info of any content."""


@dataclass(frozen=True, slots=True)
class UserProgram:
    """Program of one switch, with its initial entries."""

    json: Path
    p4info: Path
    entries: Sequence[RuntimeFile] = ()


async def load_program(name: str, address: str, device_id: int, program: UserProgram) -> int:
    """Load a switch's program and write its entries.

    Args:
        name: Name of the switch, for errors.
        address: Address of its P4Runtime server.
        device_id: Device id of the switch.
        program: Program and entries.

    Returns:
        Number of entries written.

    Raises:
        ExperimentError: The switch refuses; the error names the switch, the file and the switch's message.
    """
    quiet_finsy()
    options = fy.SwitchOptions(p4info=program.p4info, p4blob=program.json, device_id=device_id)
    try:
        switch = _OwnSwitch(name, address, options)
    except (OSError, *_NO_P4INFO) as error:
        reason = " ".join(str(error).split())
        raise ExperimentError(f"is no P4Info: {reason}", place=f"{name}: {program.p4info}") from None
    written = 0
    try:
        async with asyncio.timeout(CONNECT_S), switch:
            for file in program.entries:
                entities = _entities(file, switch.p4info)
                try:
                    await switch.write(entities)
                except fy.P4ClientError as error:
                    raise ExperimentError(f"{name}: {file.path}: {error.message}{_details(error, file)}") from None
                written += len(entities)
    except TimeoutError:
        raise ExperimentError(f"{name} at {address}: no answer within {CONNECT_S:g} s") from None
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise switch_error(switch.failure, name, address, f"run {program.json} with {program.p4info}") from None
    except fy.P4ClientError as error:
        raise switch_error(error, name, address, f"run {program.json}") from None
    return written


class _OwnSwitch(FinsySwitch):  # type: ignore[misc]  # as that one is, and for its failure
    """A switch that loads its program unchanged: no owner's mark in its registers is expected."""

    async def _set_pipeline(self) -> None:
        await fy.Switch._set_pipeline(self)  # type: ignore[no-untyped-call]


def _details(error: fy.P4ClientError, file: RuntimeFile) -> str:
    """Return the switch's errors about single entries."""
    listed = [
        f"table_entries[{at}]: {detail.message}" if at < len(file.rows) else detail.message
        for at, detail in sorted(error.details.items())
    ]
    return "".join(f"; {detail}" for detail in listed)


def _entities(file: RuntimeFile, schema: P4Schema) -> list[Any]:
    """Updates in the order of the file. Raises ExperimentError for what the P4Info or P4Runtime does not have."""
    made = [
        *((f"table_entries[{index}]", partial(_update, row, schema)) for index, row in enumerate(file.rows)),
        *((f"multicast_group_id {number}", partial(_group, number, group)) for number, group in file.groups.items()),
        *((f"clone_session_id {number}", partial(_session, number, each)) for number, each in file.sessions.items()),
    ]
    entities: list[Any] = []
    problems: list[FileProblem] = []
    for place, make in made:
        try:
            update = make()
            update.encode_update(schema)  # which says what the P4Info does not have, or is too wide for it
            entities.append(update)
        except (ValueError, LookupError) as error:
            problems.append(FileProblem(f"{place}: {' '.join(str(error).split())}"))
    if problems:
        raise ExperimentError(listed(str(file.path), problems))
    return entities


def _group(number: int, replicas: Sequence[RuntimeReplica]) -> Any:
    return +fy.P4MulticastGroupEntry(number, replicas=_pairs(replicas))


def _session(number: int, session: RuntimeSession) -> Any:
    pairs = _pairs(session.replicas)
    return +fy.P4CloneSessionEntry(number, replicas=pairs, packet_length_bytes=session.packet_length_bytes)


def _update(row: RuntimeRow, schema: P4Schema) -> Any:
    table = schema.tables[row.table]
    action = fy.P4TableAction(row.action, **{name: value_number(value) for name, value in row.params.items()})
    if row.default:
        return ~fy.P4TableEntry(row.table, action=action, is_default_action=True)
    match = {}
    for name, value in row.match.items():
        field = table.match_fields[name]
        if (given := _match(field.match_type, value, name)) is not None:
            match[field.alias] = given
    return +fy.P4TableEntry(row.table, match=fy.P4TableMatch(match), action=action, priority=row.priority)


def _match(kind: P4MatchType | str, value: object, name: str) -> object:
    """A field's value as finsy takes it; None for one that matches anything."""
    if isinstance(value, list):
        numbers = [value_number(number) for number in value]
        if len(numbers) == 1:
            return numbers[0]
        if len(numbers) == 2:
            anything = kind in (P4MatchType.LPM, P4MatchType.TERNARY) and numbers[1] == 0
            return None if anything else tuple(numbers)
        raise ValueError(f"key field {name}: {value} are not one or two numbers")
    if kind == P4MatchType.LPM and isinstance(value, str):
        return value
    return value_number(value)


def _pairs(replicas: Sequence[RuntimeReplica]) -> list[tuple[int, int]]:
    return [(replica.port, replica.instance) for replica in replicas]


def user_programs(
    names: Sequence[str],
    program: Path | None,
    p4info: Path | None,
    entries: Mapping[str, Sequence[RuntimeFile]],
    programs: Mapping[str, Path],
) -> dict[str, UserProgram]:
    """Choose each switch's program: from the command line, or else from its own files.

    Args:
        names: Names of the switches.
        program: BMv2 JSON for all switches; None: each has its own.
        p4info: P4Info for all switches; None: that of the program's files.
        entries: Runtime files of each switch, by name.
        programs: BMv2 JSON of each switch, by name.

    Raises:
        ExperimentError: A switch has no program, or a file does not exist.
    """
    chosen = {}
    for name in names:
        files = entries.get(name, ())
        json = program or programs.get(name) or next((file.program for file in files if file.program), None)
        if json is None:
            raise ExperimentError(
                "no program; give --program FILE.json, or a runtime JSON that names bmv2_json", place=name
            )
        named = next((file.p4info for file in files if file.p4info and file.program in (None, json)), None)
        chosen[name] = own = UserProgram(json, p4info or named or _beside(json), files)
        for path in (own.json, own.p4info):
            if path.is_dir():
                raise ExperimentError(
                    f"is a folder; name a file in it, like {path / 'program.json'}", place=f"{name}: {path}", value=path
                )
            if not path.is_file():
                raise ExperimentError(
                    "there is no such file; p4c writes both: BMv2 JSON and P4Info", place=f"{name}: {path}", value=path
                )
    return chosen


def _beside(json: Path) -> Path:
    """p4c's P4Info of a program, by the names that people give it."""
    names = [f"{json.stem}{end}" for end in (".p4info.txtpb", ".p4.p4info.txtpb", ".p4info.txt", ".p4.p4info.txt")]
    return next((json.with_name(name) for name in names if json.with_name(name).exists()), json.with_name(names[0]))
