"""States of codecs in checkpoints: entries by "kind of state/name of the tensor", and their checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors.values import Checks, shown
from ..errors import InvalidTensor
from ..numerics.quantization import Float32Array

State = dict[str, NDArray[Any]]
"""State of a codec by "kind of state/name of the tensor"."""


def owned(state: object, owner: str, key: str) -> State:
    """Return the entries of a state except the name of its owner.

    Args:
        state: State that is loaded.
        owner: Codec, options and seed of the object that loads it.
        key: Entry with those of the object that it was saved from.

    Raises:
        InvalidTensor: It is no mapping by text, or of another owner.
    """
    place = f"state of {owner}"
    if not isinstance(state, Mapping) or not all(isinstance(each, str) for each in state):
        raise InvalidTensor(
            f"{shown(state)} is not a state", place=place, value=state, allowed=("what state_dict returned",)
        )
    if key not in state:
        raise InvalidTensor(f'the entry "{key}" is missing', place=place, value=sorted(state)[:4], allowed=(owner,))
    saved = str(state[key])
    if saved != owner:
        raise InvalidTensor(f"it was saved from {shown(saved)}", place=place, value=saved, allowed=(owner,))
    return {name: value for name, value in state.items() if name != key}


def split(state: Mapping[str, NDArray[Any]], prefix: str) -> tuple[State, State]:
    """Return the entries of a kind of state by the names of tensors, and all other entries by their keys."""
    own = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    return own, {key: value for key, value in state.items() if not key.startswith(prefix)}


def checked_numbers(entries: Mapping[str, object], prefix: str, owner: str) -> dict[str, Float32Array]:
    """Return copies of arrays of numbers (size,) by the names of tensors.

    Raises:
        InvalidTensor: An entry is no array of finite float32 numbers with one axis.
    """
    found = {}
    for name, value in entries.items():
        if not isinstance(value, np.ndarray):
            problem = f"is {shown(value)}"
        elif value.dtype != np.float32 or value.ndim != 1:
            problem = f"has type {value.dtype} and shape {value.shape}"
        elif not np.isfinite(value).all():
            problem = f"has {value[~np.isfinite(value)][0]} at index {int((~np.isfinite(value)).argmax())}"
        else:
            found[name] = value.copy()
            continue
        raise InvalidTensor(
            f'the entry "{prefix}{name}" {problem}',
            place=f"state of {owner}",
            value=value,
            allowed=("an array of finite float32 numbers with one axis",),
        )
    return found


def check_numbered(state: Mapping[str, object], owner: str) -> None:
    """Raise InvalidTensor unless all entries are of tensors whose names are numbers, as those of hooks are."""
    for key in state:
        if not re.fullmatch("[a-z]+/[0-9]+", key):
            raise InvalidTensor(
                f"unknown entry {shown(key)}",
                place=f"state of {owner}",
                value=key,
                allowed=("KIND/NUMBER, of a parameter or a bucket",),
            )


def checked_calls(entries: Mapping[str, object], prefix: str, owner: str) -> dict[str, int]:
    """Return numbers of calls by their names. Raises InvalidTensor for what is no number of calls."""
    checks = Checks(InvalidTensor, f"state of {owner}")
    return {name: checks.integer(f'the entry "{prefix}{name}"', value) for name, value in entries.items()}


def check_size(kept: Float32Array, values: Float32Array, what: str, name: str) -> None:
    """Raise InvalidTensor unless a tensor has as many numbers as what is kept of it."""
    if kept.shape != values.shape:
        raise InvalidTensor(
            f"{values.size} numbers; the {what} of this name has {kept.size}. Tensors of several sizes need several "
            "names, and a state is loaded for the model that it was saved from",
            place=f"tensor {name!r}",
            value=values.size,
        )
