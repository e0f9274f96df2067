"""The types of numbers that NumPy has itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..array_types import BoolArray
from .datatypes import DataType, FloatScalars, FloatType, Scalars, register
from .scalars import LongFloats, LongIntegers, ShortFloats, WrappingIntegers


class _NativeFloat(FloatType):
    """A floating type whose numbers NumPy rounds as IEEE 754 says."""

    def narrow(self, values: NDArray[np.float64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return values.astype(self.storage)

    def is_finite(self, values: NDArray[Any]) -> BoolArray:
        finite: BoolArray = np.isfinite(values)
        return finite


class _ShortFloat(_NativeFloat):
    def scalars(self, workers: int, *, mean: bool) -> FloatScalars:
        return ShortFloats(self, workers)

    def widen(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.astype(np.float32, copy=False)


class _LongFloat(_NativeFloat):
    def scalars(self, workers: int, *, mean: bool) -> FloatScalars:
        return LongFloats(workers)

    def widen(self, values: NDArray[Any]) -> NDArray[Any]:
        return values


class _Int32(DataType):
    """Sums wrap in one lane; a mean needs the whole sum."""

    def scalars(self, workers: int, *, mean: bool) -> Scalars:
        return LongIntegers(self, workers, mean=True) if mean else WrappingIntegers()


class _Int64(DataType):
    def scalars(self, workers: int, *, mean: bool) -> Scalars:
        return LongIntegers(self, workers, mean=mean)


FLOAT32: Final = register(_ShortFloat("float32", np.float32, digits=24, least=-149))
FLOAT64: Final = register(_LongFloat("float64", np.float64, digits=53, least=-1074))
FLOAT16: Final = register(_ShortFloat("float16", np.float16, digits=11, least=-24))
INT32: Final = register(_Int32("int32", np.int32))
INT64: Final = register(_Int64("int64", np.int64))
