"""Synchronisation modes by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of
the user's that ends in one, whose path is its name.
"""

from __future__ import annotations

from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from ...imports.registry import Registry
from ..errors import TrainingError
from ..mode import Description, Mode, PeerMode, ServedMode, SummedMode

__all__ = ["MODES", "Description", "label", "make_mode"]

_WORDS: Final[dict[type, str]] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
}
MODES: Final = Registry(__name__, __path__, Description, "mode", TrainingError, first="bsp")


def make_mode(name: str, **options: Any) -> SummedMode | ServedMode | PeerMode:
    """Return a mode by name or path, with its options.

    Raises:
        TrainingError: The mode is unknown, or an option is, or has a value that is not allowed.
    """
    description = MODES.describe(name)
    if unknown := sorted(options.keys() - set(description.options)):
        supported = ", ".join(description.options) or "none"
        raise TrainingError(f'unknown option "{unknown[0]}" of mode {name}; supported: {supported}')
    try:
        hints = get_type_hints(description.make)
    except NameError:  # a user's file that imports types for checkers alone
        hints = {}
    for option, value in options.items():
        if not _fits(value, hints.get(option)):
            wanted = " or ".join(_WORDS[kind] for kind in _kinds(hints[option]))
            raise TrainingError(f"option {option} of mode {name}: {value!r} is not {wanted}", value=value)
    made: SummedMode | ServedMode | PeerMode = description.make(name=name, **options)
    return made


def _kinds(hint: Any) -> list[Any]:
    """The alternatives that an option's type has."""
    return list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]


def _fits(value: object, hint: Any) -> bool:
    """Return whether an option's value has its type; options of other types than `_WORDS` has check themselves."""
    kinds = _kinds(hint)
    if any(kind not in _WORDS for kind in kinds):
        return True
    taken = (*kinds, int) if float in kinds else tuple(kinds)
    return isinstance(value, taken) and (bool in kinds or not isinstance(value, bool))


def label(mode: Mode) -> str:
    """Name of a mode in tables and plots, with the option that it shows; of a user's file, the file's name."""
    name = MODES[mode.name].label if mode.name in set(MODES) else Path(mode.name).stem
    return f"{name} {mode.detail}".rstrip()
