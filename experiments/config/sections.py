"""Common parts of YAML sections: strict keys, and quantities and names in their written form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)

from ...errors import PlacedError
from ...errors.texts import printable
from ...imports import user_files
from ...imports.registry import Named, Registry
from ...topologies import Topology, TopologyError
from ...topologies.key_errors import Location, dotted, problems_of
from ...topologies.keys import Keys
from ...topologies.problems import FileProblem, listed, shown
from ...topologies.spelling import nearest
from ...topologies.units import DELAY_PATTERN, RATE_PATTERN, parse_delay, parse_rate
from ...topologies.yaml_file import YamlFile
from ..errors import ExperimentError


def _quantity(parse: Callable[[object], int]) -> BeforeValidator:
    """Accept `200Mbit` as people write it, and the plain integer that a record holds."""

    def read(value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            return parse(value)
        except TopologyError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


def _either(number: dict[str, Any], pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "string", "pattern": pattern}, {"type": "integer", **number}]})


Rate = Annotated[int, _quantity(parse_rate), Field(gt=0), _either({"exclusiveMinimum": 0}, RATE_PATTERN)]
"""Bits per second."""
_LONGEST_NS: Final = 10**18
"""Longest time, 31 years: sums of several are 64-bit numbers, too."""
Duration = Annotated[
    int,
    _quantity(parse_delay),
    Field(ge=0, le=_LONGEST_NS),
    _either({"minimum": 0, "maximum": _LONGEST_NS}, DELAY_PATTERN),
]
"""Nanoseconds."""
LongDuration = Annotated[
    int,
    _quantity(parse_delay),
    Field(gt=0, le=_LONGEST_NS),
    _either({"exclusiveMinimum": 0, "maximum": _LONGEST_NS}, DELAY_PATTERN),
]
"""Nanoseconds, not 0."""


_FILE_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_TITLE: Final = r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$"


def _named(pattern: str, letters: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.search(pattern, text):
            raise ValueError(
                f"name {shown(text)} is not right; write up to 64 {letters}, dots, dashes and underscores, first a "
                "letter or digit"
            )
        return text

    return AfterValidator(check)


FileName = Annotated[
    str, _named(_FILE_NAME, "letters, digits"), WithJsonSchema({"type": "string", "pattern": _FILE_NAME})
]
"""Name of files and folders."""

Title = Annotated[str, _named(_TITLE, "letters, digits, blanks"), WithJsonSchema({"type": "string", "pattern": _TITLE})]
"""A name for people: as a file's, but blanks may be in it."""


def one_of_or_user_file(names: Iterable[str]) -> WithJsonSchema:
    """Return the JSON schema of a name: one of these, or the path of a user's Python file."""
    own = {"type": "string", "pattern": rf"{re.escape(user_files.ENDING)}$"}
    return WithJsonSchema({"anyOf": [{"enum": sorted(names)}, own]})


def found_user_file(file: Path, name: object) -> object:
    """Return the full path of a user's Python file, relative to the file that names it; any other name as it is."""
    return full_path(file, name) if isinstance(name, str) and name.endswith(user_files.ENDING) else name


def full_path(file: Path, name: str) -> str:
    """Return the full path of a file that another one names. Raises ExperimentError for what is no file's name."""
    try:
        return str((file.parent / name).resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a byte of 0, a loop of links
        raise ExperimentError(f"{file}: {shown(name)} is no file's name ({printable(str(error))})") from None


NOTHING_EXECUTED: Final = {"execute": False}
"""Context of a validation that executes no Python file of a user's."""


def is_left_alone(name: str, info: ValidationInfo) -> bool:
    """Return True for a user's Python file in a validation that executes none. Raises ValueError if there is none."""
    if not name.endswith(user_files.ENDING) or info.context != NOTHING_EXECUTED:
        return False
    try:
        is_file = Path(name).is_file()
    except OSError as error:  # of a name that is too long, say
        raise ValueError(f"{shown(name)}: cannot be read ({error.strerror})") from None
    if not is_file:
        raise ValueError(f"{printable(name)}: no such file")
    return True


Described = TypeVar("Described", bound=Named)


def described(registry: Registry[Described], name: str, info: ValidationInfo) -> Described | None:
    """Return the description of a name; None for a user's Python file in a validation that executes none.

    Raises:
        ValueError: The name is unknown, or its file is not there or describes nothing.
    """
    if is_left_alone(name, info):
        return None
    try:
        return registry.describe(name)
    except PlacedError as error:
        raise ValueError(str(error)) from None


class Section(Keys):
    """A mapping with these keys and no others, which never changes."""

    model_config = ConfigDict(frozen=True)

    def replaced(self, option: str, *, execute: bool = True, **values: object) -> Self:
        """Return the same section with some keys changed.

        Args:
            option: Origin of the values, for messages. An option of the command, such as `--seed`, stands for its key.
            execute: False to leave the Python files that the section names unexecuted.
            **values: New values by key.

        Raises:
            ExperimentError: A value is invalid.
        """

        def place(location: Location) -> str:
            named = option.startswith("--") and len(location) == 1 and location[0] in values
            return "" if named else dotted(location)

        data = {**self.model_dump(), **values}
        try:
            return self.model_validate(data, context=None if execute else NOTHING_EXECUTED)
        except ValidationError as error:
            raise ExperimentError(listed(option, problems_of(error, type(self), data, place=place))) from None


Model = TypeVar("Model", bound=BaseModel)


def read_section(
    model: type[Model], written: YamlFile, data: dict[Any, Any] | None = None, *, execute: bool = True
) -> Model:
    """Validate a file's data, or data derived from it.

    Args:
        model: Model of the data.
        written: The file.
        data: Data to validate in place of the file's; None: the file's.
        execute: False to leave the Python files that the data names unexecuted.

    Raises:
        ExperimentError: The data is invalid; the error lists all problems of the file.
    """
    given = written.data if data is None else data
    try:
        made = model.model_validate(given, context=None if execute else NOTHING_EXECUTED)
    except ValidationError as error:
        problems = problems_of(error, model, given, line=written.line)
        raise ExperimentError(listed(str(written.path), [*written.problems, *problems])) from None
    if written.problems:
        raise ExperimentError(listed(str(written.path), written.problems))
    return made


def strange_hosts(
    topology: Topology, named: Iterable[tuple[str, str]], written: YamlFile | None = None
) -> list[FileProblem]:
    """Return the problems of names, with keys such as `background.0.source`, that are not hosts of the fabric."""
    hosts = [host.name for host in topology.hosts]
    return [
        FileProblem(
            f'{key}: fabric {topology.name} has no host "{name}"{nearest(name, hosts)}; there are {", ".join(hosts)}',
            None if written is None else written.line([int(p) if p.isdigit() else p for p in key.split(".")]),
        )
        for key, name in named
        if name not in hosts
    ]
