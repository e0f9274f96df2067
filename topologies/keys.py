"""A mapping of a file, as a pydantic model: the base of all such models."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler

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

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Build pydantic's schema, with a check that refuses true in place of 1."""
        return _without_truth(handler(source))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the keys by the docstrings under their attributes. pydantic's own way, `use_attribute_docstrings`,
        reads the sources at every start.
        """
        made = handler(schema)
        properties = handler.resolve_ref_schema(made).get("properties", {})
        for parent in reversed(cls.__mro__):
            if issubclass(parent, Keys):
                for name, text in _docstrings(parent).items():
                    properties[name]["description"] = text
        return made


def _docstrings(of: type) -> dict[str, str]:
    """Docstrings under a class's own attributes."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for attribute, text in itertools.pairwise(body.body):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                found[name] = inspect.cleandoc(said)
    return found
