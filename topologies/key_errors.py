"""pydantic's errors about a file's data, as problems in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from .problems import FileProblem, missing_key, shown, uncapitalised, unknown_key, wrong
from .spelling import closest, nearest

Location = Sequence[str | int]

_EXAMINED: Final = 200
"""Errors of one file that are put into words; a few are told."""

_RIGHT: Final = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text, in quotes if it looks like a number",
    "string_unicode": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""Allowed values, by the type of pydantic's error, if its context says no more."""


def dotted(location: Location) -> str:
    """Return a place in a file: `background.0.rate`."""
    return ".".join(str(part) for part in location)


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    data: object,
    *,
    place: Callable[[Location], str] = dotted,
    line: Callable[[Location], int | None] = lambda _: None,
) -> list[FileProblem]:
    """Return all that is wrong with data that a model refused.

    Args:
        error: Refusal of the data by pydantic.
        model: The model.
        data: The data, as YAML gives it.
        place: Returns the words for a location; a location with empty words is left out.
        line: Returns the line of a location in the file; None: not known.
    """
    grouped: dict[tuple[str | int, ...], list[tuple[Any, _Walk]]] = {}
    for detail in error.errors(include_url=False)[:_EXAMINED]:
        walk = _Walk.along(detail["loc"], model, data, to_a_key=detail["type"] in ("missing", "invalid_key"))
        grouped.setdefault(walk.location, []).append((detail, walk))
    for location, problems in list(grouped.items()):  # a misspelt key is not also reported as missing
        for detail, walk in problems:
            if detail["type"] == "extra_forbidden":
                meant = closest(str(location[-1]), walk.keys)
                place_of_it = location if meant is None else (*location[:-1], meant)
                if any(problem["type"] == "missing" for problem, _ in grouped.get(place_of_it, ())):
                    del grouped[place_of_it]
    return [
        FileProblem(text, line(location))
        for location, problems in grouped.items()
        for text in _texts(location, problems, place)
    ]


@dataclass(frozen=True, slots=True)
class _Walk:
    """The object that an error's location leads to."""

    location: tuple[str | int, ...]
    """The keys and indexes of it that a file has; not pydantic's names for members of unions."""
    keys: Sequence[str]
    """Those that the mapping around it may have."""

    @classmethod
    def along(cls, parts: Location, model: type[BaseModel], data: object, *, to_a_key: bool) -> _Walk:
        """`to_a_key`: the last part is one, also where the data have none that is written so."""
        hints: list[Any] = [model]
        location: list[str | int] = []
        known: list[str] = []
        for number, part in enumerate(parts):
            models = [hint for hint in hints if isinstance(hint, type) and issubclass(hint, BaseModel)]
            fields = [each.model_fields[part].annotation for each in models if part in each.model_fields]
            if fields or (isinstance(data, dict) and part in data):
                known = [key for each in models for key in each.model_fields]
                hints = list(_members(fields or [arg for hint in hints for arg in _inner(hint, dict)]))
                data = data.get(part) if isinstance(data, dict) else None
            elif isinstance(part, int) and isinstance(data, list) and part < len(data):
                hints = list(_members([arg for hint in hints for arg in _inner(hint, list, tuple)]))
                data = data[part]
            elif to_a_key and number == len(parts) - 1:
                known = [key for each in models for key in each.model_fields]
            else:
                hints = [each for each in models if _is_called(each, part)] or hints
                continue
            location.append(part)
        return cls(tuple(location), known)


def _members(hints: Sequence[Any]) -> Iterator[Any]:
    """Types, with those that unions and annotations hold in their place."""
    for hint in hints:
        if isinstance(hint, type) or get_origin(hint) in (dict, list, tuple, Literal):
            yield hint
        elif get_origin(hint) is Annotated:
            yield from _members(get_args(hint)[:1])
        else:
            yield from _members(get_args(hint))


def _inner(hint: Any, *kinds: type) -> Sequence[Any]:
    """Element types of a container of one of these kinds."""
    return get_args(hint)[-1:] if get_origin(hint) in kinds else ()


def _is_called(model: type[BaseModel], tag: object) -> bool:
    """Return True if a union's discriminator chooses this member by `tag`."""
    return any(
        tag in get_args(field.annotation)
        for field in model.model_fields.values()
        if get_origin(field.annotation) is Literal
    )


def _texts(
    location: tuple[str | int, ...], found: Sequence[tuple[Any, _Walk]], place: Callable[[Location], str]
) -> list[str]:
    """Texts of the problems at one place; the alternatives of a union form one problem."""
    texts: list[str] = []
    rights: list[str] = []
    for detail, walk in found:
        within = f"{outer}: " if (outer := place(location[:-1])) else ""
        match detail["type"]:
            case "extra_forbidden":
                texts.append(f"{within}{unknown_key(location[-1], walk.keys)}")
            case "missing":
                texts.append(f"{within}{missing_key(str(location[-1]), walk.keys)}")
            case "value_error" | "assertion_error":
                texts.append(_wording(detail, location, place))
            case "union_tag_invalid":
                key, tag = detail["ctx"]["discriminator"].strip("'"), detail["ctx"]["tag"]
                known = _listed(detail["ctx"]["expected_tags"])
                texts.append(f"{place(location)}: {key} {shown(tag)} is unknown{_one_of(tag, known)}")
            case "union_tag_not_found":
                texts.append(f"{place(location)}: key {detail['ctx']['discriminator']} is missing".replace("'", '"'))
            case "literal_error" | "enum":
                known = _listed(detail["ctx"]["expected"])
                given = detail["input"]
                texts.append(f"{place(location)}: {shown(given)} is not right{_one_of(given, known)}")
            case "invalid_key":
                texts.append(f"{within}key {shown(detail['input'])} is not text; write it in quotes")
            case _ if detail["loc"] and detail["loc"][-1] == "[key]":
                texts.append(f"{place(location)}: is named by {shown(detail['input'])}; write it in quotes")
            case _:
                rights.append(_right(detail))
    if rights:
        value = next(detail["input"] for detail, _ in found if detail["type"] not in ("extra_forbidden", "missing"))
        where = place(location) if location else place(location) or "the file"
        texts.append(wrong(where, value, " or ".join(dict.fromkeys(rights))))
    return texts


def _wording(detail: Any, location: Location, place: Callable[[Location], str]) -> str:
    """Message of one of this project's own checks: it begins with the key, or gets the key in front."""
    said = str(detail["ctx"]["error"])
    given = detail["input"]
    if isinstance(given, str | int | float) and shown(given).strip('"') not in said:
        said = f"{said} (given: {shown(given)})"
    own = location[:-1] if location and said.startswith((f"{location[-1]} ", f"{location[-1]}:")) else location
    return f"{where}: {said}" if (where := place(own)) else said


def _right(detail: Any) -> str:
    """Allowed values in place of a wrong one."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "greater_than":
            return f"more than {_plain(context['gt'])}"
        case "greater_than_equal":
            return f"{_plain(context['ge'])} or more"
        case "less_than":
            return f"less than {_plain(context['lt'])}"
        case "less_than_equal":
            return f"{_plain(context['le'])} or less"
        case "too_short":
            return f"a list of {context['min_length']} or more"
        case "too_long":
            return f"a list of at most {context['max_length']}"
        case "string_too_short":
            return f"text of {context['min_length']} letters or more"
        case "string_pattern_mismatch":
            return f"text of the form {context['pattern']}"
        case other if other in _RIGHT:
            return _RIGHT[other]
        case _:
            return f"something else: {uncapitalised(detail['msg'])}"


def _plain(bound: float) -> str:
    return str(int(bound) if bound == int(bound) else bound)


def _listed(expected: str) -> list[str]:
    """The words of pydantic's `'a', 'b' or 'c'`."""
    return expected.split("'")[1::2]


def _one_of(value: object, known: Sequence[str]) -> str:
    near = nearest(value, known) if isinstance(value, str) else ""
    listed = " or ".join(filter(None, [", ".join(known[:-1]), known[-1]]))
    return f"{near} Write {listed}" if near else f"; write {listed}"
