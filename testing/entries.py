"""Table entries by names and in people's notation, as a program's tables take them.

Values are numbers, or text such as `0x1f`, `10.0.1.1`, `fe80::1`, `08:00:00:00:01:11`. A key field takes, by its kind:
*exact* a value; *lpm* `10.0.0.0/8` or [value, length]; *ternary* `v&&&m` or [value, mask]; *range* `1..5` or
[low, high].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..emulator.bmv2.schema import KeyField, TableSchema
from ..emulator.entries import ActionCall, Exact, InvalidEntry, Lpm, Match, Range, Ternary
from ..emulator.program import Program
from ..emulator.stf.names import resolve
from ..topologies.runtime_json import value_number
from ..topologies.spelling import nearest


def named(kind: str, name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    """Return the one of `known` that is called so, wholly or by its last parts. Raises InvalidEntry, which says what
    there is.
    """
    try:
        return resolve(kind, name, known)
    except ValueError as error:
        short = [each.rpartition(".")[2] for each in known]
        raise InvalidEntry(f"{error}{nearest(name, [*known, *short])}") from None


def action_of(program: Program, table: TableSchema, name: str, arguments: Mapping[str, object]) -> ActionCall:
    """Return a call of one of a table's actions.

    Args:
        program: The program, which has the actions' parameters.
        table: The table.
        name: Name of the action, in full or a suffix of it.
        arguments: Value of each parameter by name.

    Raises:
        InvalidEntry: The table has no such action, or the arguments are not its parameters.
    """
    action = named(f"action of {table.name}:", name, table.actions)
    params = [param for param, _ in program.actions[action].params]
    for param in arguments:
        if param not in params:
            raise InvalidEntry(
                f"action {action} has no parameter {param}{nearest(param, params)}; it has {_list(params)}",
                value=action,
            )
    if missing := [param for param in params if param not in arguments]:
        raise InvalidEntry(f"action {action} lacks {_list(missing)}", value=action)
    return ActionCall(action, tuple(_number(f"{action}: {param}", arguments[param]) for param in params))


def matches_of(table: TableSchema, values: Mapping[str, object]) -> tuple[Match, ...]:
    """Return a match for each field of a table's key; one that is not given matches anything, if its kind can.
    Raises InvalidEntry.
    """
    names = [field.name for field in table.key]
    by_field = {}
    for name, value in values.items():
        field = named(f"key field of {table.name}:", name, names)
        if field in by_field:
            raise InvalidEntry(f"key field {field} of {table.name} is given twice", value=field)
        by_field[field] = value
    return tuple(_match(table, field, by_field.get(field.name)) for field in table.key)


def _match(table: TableSchema, field: KeyField, value: object) -> Match:
    where = f"key field {field.name} of {table.name} ({field.match_kind})"
    whole = (1 << field.width) - 1
    match field.match_kind:
        case "exact":
            if value is None:
                raise InvalidEntry(f"{where} is missing; give it a value", value=where)
            if isinstance(value, list | tuple) and len(value) == 1:
                value = value[0]
            return Exact(_number(where, value))
        case "lpm":
            address, length = _pair(where, value, "/", (0, 0), field.width)
            return Lpm(address, length)
        case "ternary":
            return Ternary(*_pair(where, value, "&&&", (0, 0), whole))
        case "range":
            low, high = _pair(where, value, "..", (0, whole), None)
            return Range(low, high)


def _pair(where: str, value: object, sign: str, anything: tuple[int, int], alone: int | None) -> tuple[int, int]:
    """Two numbers, as a list or text; `alone` is the second of a value that has none (None: the value itself)."""
    if value is None:
        return anything
    if isinstance(value, str) and sign in value:
        first, _, second = value.partition(sign)
        value = (first, second)
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise InvalidEntry(f"{value!r} are not two numbers", place=where, value=value)
        return _number(where, value[0]), _number(where, value[1])
    number = _number(where, value)
    return number, number if alone is None else alone


def _number(where: str, value: object) -> int:
    try:
        return value_number(value)
    except ValueError as error:
        raise InvalidEntry(f"{error}", place=where) from None


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
