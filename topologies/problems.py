"""Problems of a user's file, all reported at once; and the shapes that JSON files must have.

A problem names its place by the file's own keys, the value there and the allowed values.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import PlacedError
from ..errors.texts import printable
from .spelling import closest, nearest

LARGEST_FILE_BYTES: Final = 16 * 2**20
_TOLD: Final = 20
"""Maximum number of problems of one file that are reported at once."""
_LONGEST_VALUE: Final = 60
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One thing that is wrong with a file."""

    text: str
    line: int | None = None
    """Line in the file, counted from 1; None if unknown."""

    def __str__(self) -> str:
        text = printable(self.text)
        return text if self.line is None else f"line {self.line}: {text}"


class BadFile(PlacedError):
    """An invalid file. Its reader raises an error of its own package with this text."""


def listed(where: str, problems: Sequence[FileProblem]) -> str:
    """Return one problem in one line; several in a line each, in the file's order, below a line that names the file."""
    distinct = list(dict.fromkeys(problems))
    if len(distinct) == 1:
        return f"{where}: {distinct[0]}"
    distinct.sort(key=lambda problem: problem.line or 0)
    lines = [f"{where}: {len(distinct)} things are wrong:", *(f"  {problem}" for problem in distinct[:_TOLD])]
    return "\n".join([*lines, f"  and {len(distinct) - _TOLD} more"] if len(distinct) > _TOLD else lines)


def shown(value: object) -> str:
    """Return a value as the file has it, if it is short."""
    match value:
        case str():
            text = json.dumps(value, ensure_ascii=False)
        case bool():
            text = str(value).lower()
        case None:
            text = "nothing"
        case dict() if len(value) > 4 or any(isinstance(part, dict | list) for part in value.values()):
            text = "a mapping"
        case list() if len(value) > 4 or any(isinstance(part, dict | list) for part in value):
            text = "a list"
        case _:
            text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def kind_of(value: object) -> str:
    """Return the description of a value found in place of a mapping."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return "text"
        case _:
            return shown(value)


def wrong(where: str, value: object, right: str) -> str:
    """Return the message about a wrong value and the allowed ones."""
    if value is None:
        return _placed(where, f"has no value; write {right}")
    return _placed(where, f"{shown(value)} is not right; write {right}")


def unknown_key(key: object, known: Sequence[str]) -> str:
    """Return a key that nothing reads, with those that are read."""
    near, listed = nearest(str(key), known), ", ".join(known)
    return f"unknown key {shown(str(key))}{near}{' There are' if near else '; there are'} {listed}"


def missing_key(key: str, known: Sequence[str]) -> str:
    """Return a key that has to be there, with the others that may be."""
    others = ", ".join(name for name in known if name != key)
    return f'key "{key}" is missing' + (f"; beside it there may be {others}" if others else "")


def read_text(path: Path) -> str:
    """Return a file's text. Raises BadFile."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)  # a device may have no end
        if len(content) > LARGEST_FILE_BYTES:
            raise BadFile("is too large; 16 MiB are the most", place=str(path))
        return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig").read()
    except OSError as error:
        raise BadFile(f"cannot be read ({error.strerror})", place=str(path)) from None
    except UnicodeDecodeError as error:
        raise BadFile(f"is not text: byte {error.start} is {error.object[error.start]:#04x}", place=str(path)) from None
    except ValueError:  # a name with a byte of 0
        raise BadFile("is no file's name", place=f"{str(path)!r}") from None


# --- JSON -------------------------------------------------------------------------------------------------------------

Shape = Callable[[object, str], Iterator[str]]
"""Check that yields the problems of a value at a place in a file, such as `links[0]`."""


def read_json(path: Path, kind: str, shape: Shape) -> dict[str, Any]:
    """Return the JSON object of a file that has this shape. Raises BadFile; also where a key is there twice."""
    twice: list[str] = []

    def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice.extend(f"key {shown(key)} is there twice in one object" for key in made if counts[key] > 1)
        return made

    text = read_text(path)
    if not text.strip():
        raise BadFile(f"is empty; {kind} is a JSON object", place=str(path))
    try:
        data = json.loads(text, object_pairs_hook=once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise BadFile(
            f"line {error.lineno}: is not JSON: {uncapitalised(error.msg)}, column {error.colno}", place=str(path)
        ) from None
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadFile(f"is not JSON: {said}", place=str(path)) from None
    if not isinstance(data, dict):
        raise BadFile(f"{kind} is a JSON object with keys; this is {kind_of(data)}", place=str(path))
    if problems := [FileProblem(text) for text in (*twice, *shape(data, ""))]:
        raise BadFile(listed(str(path), problems))
    return data


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def uncapitalised(text: str) -> str:
    """Return a library's sentence, for the middle of one of ours."""
    return text[:1].lower() + text[1:]


def _placed(place: str, said: str) -> str:
    return f"{place}: {said}" if place else said


def any_value(value: object, place: str) -> Iterator[str]:
    """Shape that accepts any value."""
    yield from ()


def text_value(value: object, place: str) -> Iterator[str]:
    """Yield the problem of a value that is not text."""
    if not isinstance(value, str):
        yield wrong(place, value, "text, in quotes")


def truth(value: object, place: str) -> Iterator[str]:
    """Yield the problem of a value that is not true or false."""
    if not isinstance(value, bool):
        yield wrong(place, value, "true or false")


def whole_number(value: object, place: str) -> Iterator[str]:
    """Yield the problem of a value that is not an integer of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        yield wrong(place, value, "a whole number of 0 or more")


def or_nothing(shape: Shape) -> Shape:
    """Return a shape that also accepts null."""

    def check(value: object, place: str) -> Iterator[str]:
        if value is not None:
            yield from shape(value, place)

    return check


def list_of(item_shape: Shape) -> Shape:
    """Return a check of lists, whose items are checked by `item_shape`."""

    def check(value: object, place: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield wrong(place, value, "a list")
            return
        for index, item in enumerate(value):
            yield from item_shape(item, f"{place}[{index}]")

    return check


def by_name(value_shape: Shape) -> Shape:
    """Return a mapping with keys of the user's."""

    def check(value: object, place: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield wrong(place, value, "a mapping, by names")
            return
        for name, item in value.items():
            yield from value_shape(item, f"{place}.{name}" if place else name)

    return check


def keys(required: Mapping[str, Shape], optional: Mapping[str, Shape]) -> Shape:
    """Return a mapping with these keys and no others."""
    known = {**required, **optional}

    def check(value: object, place: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield wrong(place, value, f"a mapping with {', '.join(known)}")
            return
        for key, item in value.items():
            if key not in known:
                yield _placed(place, unknown_key(key, list(known)))
            else:
                yield from known[key](item, f"{place}.{key}" if place else key)
        meant = {closest(key, list(known)) for key in value if key not in known}
        for key in required:
            if key not in value and key not in meant:
                yield _placed(place, missing_key(key, list(known)))

    return check
