"""Order of numbers of any registered type, for operations that select the largest or the smallest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.datatypes import DataType, FloatType


def extreme(numbers: NDArray[Any], there: NDArray[np.bool_], kind: DataType, *, largest: bool) -> NDArray[Any]:
    """Select the largest or the smallest number of each column.

    −0 is below +0. A NaN takes precedence over all numbers and is returned as the type's canonical NaN, so the result
    has the same bits wherever it is computed.

    Args:
        numbers: The workers' numbers, (n, size), in the storage of `kind`.
        there: Mask (n, size) of those that count.
        kind: Their type.
        largest: Maximum rather than minimum.

    Returns:
        Array (size,) in the storage of `kind`.
    """
    keys = _ordered(numbers, kind)
    limits = np.iinfo(keys.dtype)
    keys = np.where(there, keys, limits.min if largest else limits.max)
    best = keys.max(axis=0) if largest else keys.min(axis=0)
    result = _ordered(best, kind).view(kind.storage)
    if isinstance(kind, FloatType):
        result[(kind.is_nan(numbers) & there).any(axis=0)] = kind.special("nan")
    return result


def _ordered(numbers: NDArray[Any], kind: DataType) -> NDArray[Any]:
    """Signed integers in the order of the numbers; applied to such integers, the numbers' bits again."""
    bits = numbers.view(np.dtype(f"i{kind.storage.itemsize}"))
    if not isinstance(kind, FloatType):
        return bits
    ordered: NDArray[Any] = bits ^ (bits >> (8 * bits.itemsize - 1) & np.iinfo(bits.dtype).max)
    return ordered
