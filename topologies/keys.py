"""A mapping of a file, as a pydantic model: what all such models have in common."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError, core_schema


def _without_truth(schema: Any) -> Any:
    match schema:
        case {"type": "int" | "float" as kind}:
            return core_schema.no_info_before_validator_function(partial(_no_truth, f"{kind}_type"), schema)
        case dict():
            return {key: _without_truth(value) for key, value in schema.items()}
        case list():
            return [_without_truth(each) for each in schema]
        case _:
            return schema


def _no_truth(error: Any, value: object) -> object:
    if isinstance(value, bool):
        raise PydanticKnownError(error)
    return value


class Keys(BaseModel):
    """These keys and no others; what YAML takes for true or false (`yes`, `on`) is no number."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic makes it, which would take true for 1."""
        made: CoreSchema = _without_truth(handler(source))
        return made
