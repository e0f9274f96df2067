"""What sections of YAML files have in common: strict keys, quantities as people write them, errors in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from ..topologies import TopologyError
from ..topologies.spelling import nearest
from ..topologies.units import DELAY_PATTERN, RATE_PATTERN, parse_delay, parse_rate


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
Duration = Annotated[int, _quantity(parse_delay), Field(ge=0), _either({"minimum": 0}, DELAY_PATTERN)]
"""Nanoseconds."""
LongDuration = Annotated[int, _quantity(parse_delay), Field(gt=0), _either({"exclusiveMinimum": 0}, DELAY_PATTERN)]
"""Nanoseconds, not 0."""


class Section(BaseModel):
    """A mapping with these keys and no others, which never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def explain(model: type[BaseModel], detail: Any, what: str) -> str:
    """One of pydantic's errors about a `what`, such as a run: the key, what is wrong, and what was given."""
    key = ".".join(str(part) for part in detail["loc"]) or what
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        message = f"is not a key of a {what}{nearest(str(detail['loc'][-1]), _keys_at(model, detail['loc'][:-1]))}"
    given = f" (given: {detail['input']!r})" if isinstance(detail["input"], str | int | float) else ""
    return f"{key}: {message}{given}"


def _keys_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys that a section may have."""
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            hint = model.model_fields[part].annotation
            inner = [each for each in (hint, *get_args(hint)) if isinstance(each, type) and issubclass(each, BaseModel)]
            if not inner:
                return []
            model = inner[0]
    return list(model.model_fields)
