"""Options of things that are registered by name: their names and types, as the function or class that takes them says.

Synchronisation modes, optimisers and codecs are checked this way. An option's value is checked by what takes it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from inspect import signature
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from ..errors import PlacedError
from ..errors.values import shown

_WORDS: Final[dict[type, str]] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
}


def checked_options(
    options: Mapping[str, Any],
    take: Callable[..., Any],
    place: str,
    error: type[PlacedError],
    without: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return options with values of Python's own types.

    Args:
        options: Values by name.
        take: Function or class whose parameters are the options.
        place: Place of errors, such as "mode ssp".
        error: Class of errors.
        without: Parameters that are no options.

    Raises:
        PlacedError: `error`, for an unknown option, or a value of another type than the parameter's annotation.
    """
    known = [name for name in signature(take).parameters if name not in without]
    hints = _hints(take)
    checked = {}
    for option, value in options.items():
        if option not in known:
            raise error(f'unknown option "{option}"', place=place, value=option, allowed=known)
        checked[option] = _checked(option, value, hints.get(option), place, error)
    return checked


def _hints(take: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(take)
    except NameError:  # a user's file that imports types for checkers alone
        return {}


def _checked(option: str, value: Any, hint: Any, place: str, error: type[PlacedError]) -> Any:
    """Return a value in Python's own type; options of other types than `_WORDS` has are checked by what takes them."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if any(kind not in _WORDS for kind in kinds):
        return value
    if type(value) in kinds:
        return value
    if not isinstance(value, bool):
        if int in kinds and isinstance(value, Integral):
            return operator.index(value)
        if float in kinds and isinstance(value, Real):
            try:
                number = float(value)
            except OverflowError:
                pass
            else:
                return value if isinstance(value, int) else number
    wanted = " or ".join(_WORDS[kind] for kind in kinds)
    raise error(f"{option} {shown(value)} is not {wanted}", place=place, value=value, allowed=[wanted])
