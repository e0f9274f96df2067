"""The types of numbers that can be summed: one object each, registered once under its name.

Such an object says how arrays hold its numbers, how they become lanes for a sum or a mean, and, of floating ones, how
they widen to a type that NumPy computes with and are rounded back. All else asks the object: a new type is an entry of
its own (`native_types`, `bfloat16`), imported by the package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors.values import shown
from ..array_types import BoolArray
from ..errors import InvalidTensor
from .quantization import Int32Array

LARGEST_EXPONENT: Final = 255

Exponents = NDArray[np.int64]
"""Biased, and not yet bounded: above `LARGEST_EXPONENT` a chunk cannot be summed."""


class Scalars(Protocol):
    """Numbers of one type, as limbs."""

    limbs: int

    def exponents(self, values: NDArray[Any], weight: int) -> Exponents:
        """Return the biased exponents (k,) that this worker's chunks ask for; above 255: an element cannot be
        summed.
        """

    def encode(self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int) -> Int32Array:
        """Return the limbs (k, limbs, v) of weight · x, by the agreed exponents."""

    def decode(
        self, sums: Int32Array, exponents: NDArray[np.uint8], divisors: NDArray[np.int64] | None
    ) -> NDArray[Any]:
        """Return the sums (k, v) of the workers' numbers, divided by `divisors` (k,) for a mean. Those are not 0."""


class FloatScalars(Scalars, Protocol):
    """Floating numbers, which are rounded to a quantum of their chunk."""

    def half_quantum(self, exponents: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the exponent of 2 (k,) of the most that one worker's number is off by, for agreed biased exponents
        (k,).
        """


class DataType(ABC):
    """A type of numbers. There is one object of each: a copy is the object itself."""

    lossy: ClassVar[bool] = False
    """True for a type that keeps a few levels of each number, without a bound relative to it."""

    def __init__(self, name: str, storage: type[np.generic]) -> None:
        self.name = name
        """NumPy's name of it, or ml_dtypes' and PyTorch's where NumPy has none."""
        self.storage: np.dtype[Any] = np.dtype(storage)
        """Storage type of arrays: the type itself, or an unsigned integer with the bits of its numbers."""
        self.stored_as_bits = name != self.storage.name

    def __repr__(self) -> str:
        return f"data_type({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return data_type, (self.name,)

    @abstractmethod
    def scalars(self, workers: int, *, mean: bool) -> Scalars:
        """Return the summation, or averaging, of its numbers over a job of `workers` workers at its start.

        Raises:
            InvalidTensor: The job has too many workers.
        """

    def is_finite(self, values: NDArray[Any]) -> BoolArray:
        """True for each number that is neither a NaN nor an infinity."""
        return np.ones(values.shape, np.bool_)

    def number(self, values: NDArray[Any], index: int) -> object:
        """Return the number at an index of a row, for messages."""
        return values[index]


class FloatType(DataType):
    """A type of floating numbers."""

    def __init__(self, name: str, storage: type[np.generic], *, digits: int, least: int) -> None:
        """Create the type.

        Args:
            name: NumPy's name of it, or that of ml_dtypes and PyTorch.
            storage: Type of arrays: its own, or an unsigned integer of as many bits.
            digits: Binary digits of the significand, the implicit one included.
            least: Exponent of 2 of the smallest subnormal number.
        """
        super().__init__(name, storage)
        self.digits = digits
        """Binary digits of the significand."""
        self.least = least
        """Exponent of 2 of the smallest subnormal number."""

    @abstractmethod
    def scalars(self, workers: int, *, mean: bool) -> FloatScalars: ...

    @abstractmethod
    def widen(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return its numbers as float32 where that holds all of them, else as float64: exactly."""

    @abstractmethod
    def narrow(self, values: NDArray[np.float64]) -> NDArray[Any]:
        """Return float64 numbers rounded to the type once, to nearest, ties to even; beyond its range to ±∞."""

    def special(self, number: str) -> Any:
        """Return "inf", "-inf" or the only "nan" that is made, as an array element."""
        return self.narrow(np.array([float(number)]))[0]

    def is_finite(self, values: NDArray[Any]) -> BoolArray:
        finite: BoolArray = np.isfinite(self.widen(values))
        return finite

    def is_nan(self, values: NDArray[Any]) -> BoolArray:
        nan: BoolArray = np.isnan(self.widen(values))
        return nan

    def is_negative(self, values: NDArray[Any]) -> BoolArray:
        """True for each number, −0 and NaN included, with its sign set."""
        negative: BoolArray = np.signbit(self.widen(values))
        return negative

    def number(self, values: NDArray[Any], index: int) -> object:
        number: object = self.widen(values[index : index + 1])[0]
        return number


Type = TypeVar("Type", bound=DataType)

_REGISTERED: Final[dict[str, DataType]] = {}


def register(kind: Type) -> Type:
    """Make a type known, so that arrays of it can be summed. Raises ValueError if its name is taken."""
    if kind.name in _REGISTERED:
        raise ValueError(f"data type {kind.name!r} is registered already")
    _REGISTERED[kind.name] = kind
    return kind


def data_types() -> tuple[DataType, ...]:
    """Return the registered types whose sums are exact, or have an error bound; lossy ones are asked for by name
    alone.
    """
    return tuple(kind for kind in _REGISTERED.values() if not kind.lossy)


def find_data_type(name: str) -> DataType | None:
    """Return the type of this name; None where numbers of it cannot be summed."""
    return _REGISTERED.get(name)


def data_type(name: str) -> DataType:
    """Return the type of this name. Raises `InvalidTensor` for one whose numbers cannot be summed."""
    kind = find_data_type(name) if isinstance(name, str) else None
    if kind is None:
        exact = ", ".join(kind.name for kind in data_types())
        raise InvalidTensor(f"dtype {shown(name)} cannot be summed; convert it to one of {exact}", value=name)
    return kind


def as_numbers(array: ArrayLike, name: str, dtype: str | DataType | None = None) -> tuple[NDArray[Any], DataType]:
    """Return an array in its type's storage, copied only if needed, and the type.

    Args:
        array: Array of any shape.
        name: Name in errors.
        dtype: The type or its name, if the array's own does not express it: "bfloat16" for uint16.

    Raises:
        InvalidTensor: The type cannot be summed: a silent conversion would violate the error bounds.
    """
    values = np.asarray(array)
    stored = values.dtype.name
    wanted = stored if dtype is None else dtype.name if isinstance(dtype, DataType) else dtype
    try:
        kind = dtype if isinstance(dtype, DataType) else data_type(wanted)
    except InvalidTensor as error:
        raise error.within(f"tensor {name!r}") from None
    if stored == kind.storage.name:
        return values.astype(kind.storage, copy=False), kind  # a copy where the bytes lie in another order
    if stored != wanted:
        raise InvalidTensor(
            f"dtype {wanted} was named, but the array holds {stored}", place=f"tensor {name!r}", value=wanted
        )
    return values.view(kind.storage), kind
