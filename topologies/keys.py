"""A mapping of a file, as a pydantic model: the base of all such models."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler

_NUMBERS: Final = frozenset({"int", "float"})
"""pydantic's names of schemas that would take true for 1."""


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is due, which YAML's yes, on and true are not")
    return value


def _without_truth(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_truth(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NUMBERS:
        return {"type": "function-before", "function": {"type": "no-info", "function": _no_truth}, "schema": schema}
    return {key: _without_truth(value) for key, value in schema.items()}


class Keys(BaseModel):
    """A mapping without further keys; YAML's booleans (`yes`, `on`) are not accepted as numbers."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Build pydantic's schema, with a check that refuses true in place of 1."""
        return _without_truth(handler(source))
