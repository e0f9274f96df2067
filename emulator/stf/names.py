"""Resolution of a test's names and values against the program: short names, and matches from a key's digits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ..bmv2.schema import KeyField, TableSchema
from ..entries import ActionCall, Exact, Lpm, Match, Range, Ternary
from ..program import Program
from .reader import number
from .statements import Call

_DIGIT_BITS: Final = {"0x": 4, "0o": 3, "0b": 1}


def resolve(kind: str, name: str, candidates: Iterable[str]) -> str:
    """Return the candidate called `name`, else the only one whose last parts are, else the only one that ends so.

    Raises `ValueError` for none or several.
    """
    known = sorted(set(candidates))
    for fits in (
        [other for other in known if other == name],
        [other for other in known if other.endswith(f".{name}")],
        [other for other in known if other.endswith(name)],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise ValueError(f"{kind} {name} may be any of {', '.join(fits)}")
    raise ValueError(f"no {kind} {name}; there are {', '.join(known) or 'none'}")


def action_call(program: Program, table: TableSchema, call: Call) -> ActionCall:
    """Make the action call that a statement names.

    Raises:
        ValueError: The action is unknown, or parameters are missing, unknown or given twice.
    """
    name = resolve(f"action of {table.name}:", call.name, table.actions)
    names = [param for param, _ in program.actions[name].params]
    given = dict(call.arguments)
    if sorted(names) != sorted(param for param, _ in call.arguments):
        raise ValueError(f"action {name} takes ({', '.join(names)}), not ({', '.join(p for p, _ in call.arguments)})")
    return ActionCall(name, tuple(given[param] for param in names))


def matches(table: TableSchema, key: Sequence[tuple[str, str]]) -> tuple[Match, ...]:
    """Return one match for each field of the table's key; a field that is not given is 0, and matches anything if it
    may.

    Raises `ValueError`.
    """
    texts: dict[str, str] = {}
    for name, value in key:
        field = _field(table, name)
        if field in texts:
            raise ValueError(f"key field {field} of {table.name} is given twice")
        texts[field] = value
    return tuple(_match(field, texts.get(field.name)) for field in table.key)


def _field(table: TableSchema, name: str) -> str:
    """A key field by its name; `x$1` is `x[1]`, and a header's validity is `x`, `x.valid` or `x.$valid$`."""
    fields = [field.name for field in table.key]
    name = re.sub(r"\$(\d+)", r"[\1]", name)
    spellings = (name, f"{name}$", f"{name}.$valid$", re.sub(r"\bvalid$", "$valid$", name))
    for spelled in spellings:
        if spelled in fields:
            return spelled
    fits = {field for field in fields for spelled in spellings if field.endswith(f".{spelled}")}
    if len(fits) == 1:
        return fits.pop()
    if fits:
        raise ValueError(f"key field {name} of {table.name} may be any of {', '.join(sorted(fits))}")
    raise ValueError(f"no key field {name} in {table.name}; there are {', '.join(fields) or 'none'}")


def _match(field: KeyField, text: str | None) -> Match:
    whole = (1 << field.width) - 1
    try:
        match field.match_kind:
            case "exact":
                return Exact(number(text or "0"))
            case "range":
                low, dots, high = (text or f"0..{whole}").partition("..")
                return Range(number(low), number(high if dots else low))
            case "lpm":
                return _lpm(text or "0/0", field.width)
            case "ternary":
                return _ternary(text or "0&&&0", whole)
    except ValueError:
        raise ValueError(f"key field {field.name} ({field.match_kind}): '{text}' is not a value for it") from None


def _lpm(text: str, width: int) -> Lpm:
    """`value/length`, or digits whose number gives the length, `*` at the end not counted."""
    value, slash, length = text.partition("/")
    if slash:
        return Lpm(number(value), number(length))
    bits = _DIGIT_BITS.get(text[:2].lower())
    if bits is None:
        return Lpm(number(text), width)
    return Lpm(number(text.replace("*", "0")), min(width, bits * (len(text) - 2 - text.count("*"))))


def _ternary(text: str, whole: int) -> Ternary:
    """`value&&&mask`, or digits: the mask covers those that are written and are not `*`; of a decimal number, all."""
    value, sign, mask = text.partition("&&&")
    if sign:
        return Ternary(number(value), number(mask))
    bits = _DIGIT_BITS.get(text[:2].lower())
    if bits is None:
        return Ternary(number(text), whole)
    digits = text[2:]
    covered = 0
    for digit in digits:
        covered = covered << bits | (0 if digit == "*" else (1 << bits) - 1)
    return Ternary(number(text.replace("*", "0")), covered & whole)
