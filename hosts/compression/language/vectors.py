"""Vectors of a program that are computed when they are used, so that loops of operators join into one.

A map that is packed into a code, a filter that is summed, and a code's field that is mapped are one loop of native code
without a vector in memory. NumPy computes every vector at once. Values of a program never change, so the time does not
matter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.lane_codes import SUM_PARTS
from ...numerics.quantization import Float32Array
from .kernels import Kernel

Keys = NDArray[np.uint32]


class Deferred(ABC):
    """A vector that is not computed yet."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of elements."""

    @cached_property
    @abstractmethod
    def array(self) -> NDArray[Any]:
        """The elements (n,)."""


class Counted(Deferred):
    """The numbers 0 … n − 1."""

    def __init__(self, count: int) -> None:
        self._count = count

    @property
    def size(self) -> int:
        return self._count

    @cached_property
    def array(self) -> NDArray[Any]:
        return np.arange(self._count)


class Field(Deferred):
    """Unsigned numbers of 1, 2, 4 or 8 bits in bytes of a code."""

    def __init__(self, data: NDArray[np.uint8], bits: int, count: int) -> None:
        self.data = data
        self.bits = bits
        self._count = count

    @property
    def size(self) -> int:
        return self._count

    @cached_property
    def array(self) -> NDArray[Any]:
        return unpacked(self.data, self.bits, self._count)


class _Applied(Deferred):
    """A kernel and all that it takes."""

    def __init__(self, kernel: Kernel, elements: Any, captures: Sequence[Any], keys: Keys) -> None:
        values = dict(zip(kernel.captures, captures, strict=True))
        dense = isinstance(elements, Counted) and all(values[name].size >= elements.size for name in kernel.indexed)
        self._kernel = kernel
        self._loops = kernel.dense if dense else kernel.loops
        self._elements = elements
        self._captures = tuple(captures)
        self._keys = keys

    @property
    def _given(self) -> Any:
        """Elements as the loops take them: n for 0 … n − 1."""
        if self._loops is self._kernel.dense:
            return self._elements.size
        return np.ascontiguousarray(as_array(self._elements))


class Mapped(_Applied):
    """Results of map."""

    @property
    def size(self) -> int:
        size: int = self._elements.size
        return size

    @cached_property
    def array(self) -> NDArray[Any]:
        out = np.empty(self.size, self._kernel.stored)
        if isinstance(self._elements, Field) and "array" not in vars(self._elements):
            self._loops.unpacked(out, self._elements.data, self._keys, self._captures, self._elements.bits)
        else:
            self._loops.mapped(out, self._given, self._keys, self._captures)
        return out

    @property
    def is_float(self) -> bool:
        """True if results are float32."""
        return self._kernel.stored is np.float32

    def packed(self, bits: int) -> NDArray[np.uint8]:
        """Return the results, unsigned numbers of so many bits, as bytes."""
        if "array" in vars(self):
            return packed(self.array, bits)
        out = np.empty(-(-self.size * bits // 8), np.uint8)
        self._loops.packed(out, self._given, self._keys, self._captures, bits)
        return out

    def largest(self) -> Any:
        """Return the largest of float results; 0 of none."""
        if "array" in vars(self) or not self.size:
            return self.array.max() if self.size else np.float32(0)
        result = np.float32(self._loops.largest(self._given, self._keys, self._captures))
        return result if result else self.array.max()  # which of the zeros


class Filtered(_Applied):
    """Elements that filter keeps."""

    @cached_property
    def _summed(self) -> tuple[int, Any]:
        parts = np.zeros(SUM_PARTS)
        count = self._loops.kept_sum(self._given, self._keys, self._captures, parts)
        return int(count), total(parts)

    @property
    def size(self) -> int:
        if "array" not in vars(self) and self.is_float:
            return self._summed[0]
        return len(self.array)

    @property
    def is_float(self) -> bool:
        """True if elements are float32."""
        return _is_float(self._elements)

    @cached_property
    def array(self) -> NDArray[Any]:
        given = self._given
        out = np.empty(self._elements.size, np.int64 if isinstance(given, int) else given.dtype)
        count = self._loops.kept(out, given, self._keys, self._captures)
        return out[:count].copy()

    def sum(self) -> Any:
        """Return the sum of float elements."""
        return self._summed[1]


class Chosen(Deferred):
    """Elements that filter keeps, by NumPy."""

    def __init__(self, elements: NDArray[Any], mask: NDArray[np.bool_]) -> None:
        self._elements = elements
        self._mask = mask

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self._mask))

    @cached_property
    def array(self) -> NDArray[Any]:
        return self._elements[self._mask]

    @property
    def is_float(self) -> bool:
        """True if elements are float32."""
        return _is_float(self._elements)

    def sum(self) -> Any:
        """Return the sum of float elements."""
        return float_sum(np.where(self._mask, self._elements, np.float32(0)))


def _is_float(elements: Any) -> bool:
    return elements.is_float if isinstance(elements, Mapped) else getattr(elements, "dtype", None) == np.float32


def as_array(value: Any) -> Any:
    """Return a value, with its elements computed if it is a deferred vector."""
    return value.array if isinstance(value, Deferred) else value


def float_sum(vector: Float32Array) -> Any:
    """Return the sum of float32 numbers, made in float64: element i in part i mod SUM_PARTS."""
    whole = vector.size - vector.size % SUM_PARTS
    parts = np.zeros(SUM_PARTS)
    if whole:
        parts += np.add.reduce(vector[:whole].reshape(-1, SUM_PARTS), axis=0, dtype=np.float64)
    parts[: vector.size - whole] += vector[whole:]
    return total(parts)


def total(parts: NDArray[np.float64]) -> Any:
    """Return the sum of parts, added one after the other."""
    return np.float32(np.cumsum(parts)[-1])


def packed(values: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Put several values into a byte, the first into its highest bits."""
    if bits == 8:
        return np.ascontiguousarray(values)
    if bits == 1:
        return np.packbits(values)
    per_byte = 8 // bits
    rows = np.zeros((-(-values.size // per_byte), per_byte), np.uint8)
    rows.ravel()[: values.size] = values
    out = rows[:, 0].copy()
    for column in range(1, per_byte):
        out = out << np.uint8(bits) | rows[:, column]
    return out


def unpacked(data: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """Undo `packed` for so many values."""
    if bits == 8:
        return data
    if bits == 1:
        return np.unpackbits(data, count=count)
    per_byte = 8 // bits
    shifts = (np.arange(per_byte - 1, -1, -1) * bits).astype(np.uint8)
    fields: NDArray[np.uint8] = data[:, None] >> shifts & np.uint8((1 << bits) - 1)
    return fields.ravel()[:count]
