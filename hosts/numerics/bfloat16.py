"""bfloat16, the upper half of a float32: 8 bits of exponent, 7 of fraction.

NumPy has no such type. Its numbers come as arrays of `ml_dtypes`, as PyTorch's tensors, or as their bits in uint16 with
the type given separately; here they are always uint16.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..array_types import BoolArray
from .datatypes import FloatScalars, FloatType, register
from .scalars import ShortFloats

_BEYOND_FLOAT32: Final = np.uint64((1 << 29) - 1)
"""The digits of a float64 that a float32 has not."""
_MIN_NORMAL: Final = 2.0**-126
_NAN: Final = np.uint32(0x7FC0)


class _Bfloat16(FloatType):
    def scalars(self, workers: int, *, mean: bool) -> FloatScalars:
        return ShortFloats(self, workers)

    def widen(self, values: NDArray[Any]) -> NDArray[Any]:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)

    def narrow(self, values: NDArray[np.float64]) -> NDArray[Any]:
        # By way of float32, rounded to odd: cut off, and the last digit set where something was cut off. As that has
        # two digits more than bfloat16, to round it to nearest is to round the original (Boldo, Melquiond, "Emulation
        # of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
        bits = values.view(np.uint64)
        odd = (bits & ~_BEYOND_FLOAT32) | (bits & _BEYOND_FLOAT32 != 0).astype(np.uint64) << np.uint64(29)
        small = (np.abs(values) < _MIN_NORMAL) & (values != 0)
        if small.any():  # float32 has fewer digits for them
            units = np.abs(values[small]) * 2.0**149
            whole = np.floor(units)
            whole += (whole % 2 == 0) & (units != whole)
            odd[small] = np.copysign(whole * 2.0**-149, values[small]).view(np.uint64)
        with np.errstate(over="ignore"):
            single = odd.view(np.float64).astype(np.float32).view(np.uint32)
        rounded = single + (single >> np.uint32(16) & np.uint32(1)) + np.uint32(0x7FFF) >> np.uint32(16)
        return np.where(np.isnan(values), _NAN, rounded).astype(np.uint16)

    def is_finite(self, values: NDArray[Any]) -> BoolArray:
        finite: BoolArray = values & np.uint16(0x7F80) != 0x7F80
        return finite


BFLOAT16: Final = register(_Bfloat16("bfloat16", np.uint16, digits=8, least=-133))
