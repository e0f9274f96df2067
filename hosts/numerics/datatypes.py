"""The types of numbers that can be summed, and how arrays hold them.

NumPy has no bfloat16 of its own. Such numbers come as arrays of `ml_dtypes`, or as their bits in uint16 with the type
named beside them; here they are always uint16.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidTensor


class DataType(Enum):
    """A type of numbers; the value is its name."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT32 = "int32"
    INT64 = "int64"

    @property
    def storage(self) -> np.dtype[Any]:
        """How arrays hold it: as itself, or bfloat16 as the bits of its numbers in uint16."""
        return _STORAGE[self]

    @property
    def is_float(self) -> bool:
        return self not in (DataType.INT32, DataType.INT64)


_STORAGE: Final = {
    kind: np.dtype(np.uint16) if kind is DataType.BFLOAT16 else np.dtype(kind.value) for kind in DataType
}
_NAMES: Final = ", ".join(kind.value for kind in DataType)


def as_numbers(array: ArrayLike, name: str, dtype: str | None = None) -> tuple[NDArray[Any], DataType]:
    """An array as its type stores it, without a copy where there is none to make, and the type.

    `dtype` names the type where the array's own cannot: "bfloat16" for uint16. Raises `InvalidTensor` for types that
    cannot be summed: silently converting them would lose what the error bounds promise.
    """
    values = np.asarray(array)
    own = values.dtype.name
    wanted = own if dtype is None else dtype
    try:
        kind = DataType(wanted)
    except ValueError:
        raise InvalidTensor(
            f"tensor {name!r}: dtype {wanted} cannot be summed; convert it to one of {_NAMES}"
        ) from None
    if own != wanted and not (kind is DataType.BFLOAT16 and values.dtype == np.uint16):
        raise InvalidTensor(f"tensor {name!r}: dtype {wanted} was named, but the array holds {own}")
    if kind is DataType.BFLOAT16:
        values = values.view(np.uint16)
    return values, kind


def widen(values: NDArray[Any], kind: DataType) -> NDArray[np.float32]:
    """float16, bfloat16 or float32 numbers as float32, exactly."""
    if kind is DataType.BFLOAT16:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32, copy=False)


def narrow(values: NDArray[np.float64], kind: DataType) -> NDArray[Any]:
    """float64 numbers as another floating type, rounded once, to nearest, ties to even; beyond its range to ±∞."""
    with np.errstate(over="ignore"):
        if kind is not DataType.BFLOAT16:
            return values.astype(kind.storage)
        # By way of float32, rounded to odd: cut off, and the last digit set where something was cut off. As that has
        # two digits more than bfloat16, to round it to nearest is to round the original (Boldo, Melquiond, "Emulation
        # of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
        bits = values.view(np.uint64)
        odd = (bits & ~_BEYOND_FLOAT32) | (bits & _BEYOND_FLOAT32 != 0).astype(np.uint64) << np.uint64(29)
        small = (np.abs(values) < _LEAST_NORMAL) & (values != 0)
        if small.any():  # float32 has fewer digits for them
            units = np.abs(values[small]) * 2.0**149
            whole = np.floor(units)
            whole += (whole % 2 == 0) & (units != whole)
            odd[small] = np.copysign(whole * 2.0**-149, values[small]).view(np.uint64)
        single = odd.view(np.float64).astype(np.float32).view(np.uint32)
    rounded = single + (single >> np.uint32(16) & np.uint32(1)) + np.uint32(0x7FFF) >> np.uint32(16)
    return np.where(np.isnan(values), _NAN, rounded).astype(np.uint16)


_BEYOND_FLOAT32: Final = np.uint64((1 << 29) - 1)
"""The digits of a float64 that a float32 has not."""
_LEAST_NORMAL: Final = 2.0**-126
_NAN: Final = np.uint32(0x7FC0)
