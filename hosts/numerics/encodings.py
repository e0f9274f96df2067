"""Layout of a chunk's numbers in its lanes, with the encoding of NaN and infinity.

::

    lanes 0 … v−1   first limb of each of the chunk's v numbers
          v … 2v−1  second limb, and so on: `limbs` · v lanes (`scalars`)
          …         flags, where NaN and infinity may be summed: two counters for each number, k numbers to a lane
          …         zeros

A number's counters say how many workers have it as +∞ and as −∞, a NaN as both. As ∞ − ∞ is NaN, the counters of the
sum say what IEEE addition of the workers' numbers gives: a NaN where both count, else the infinity. They are in the
packet of the number itself, so they share its fate, and the chunk's other numbers do not change.

Or a chunk with a NaN or an infinity is poisoned, which takes no lanes: lane j has 2^(31 − j mod (⌈log₂ n⌉ + 1)) in
place of a limb, in the lanes of first limbs and, if a chunk has fewer numbers than that period, of the others. If k ≥ 1
of the n workers do so, and k = odd · 2^a, the sum of a lane with j mod … = a is 2³¹ modulo 2³², plus the others'
contribution, which is less than 2³⁰: the total is beyond ±2³⁰, which no other sum reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import LANES
from ..array_types import BoolArray, IntArray
from ..errors import InvalidTensor
from .datatypes import LARGEST_EXPONENT, DataType, Exponents, FloatType, Scalars
from .draws import Draws, UintArray
from .quantization import HEADROOM_BITS, Int32Array, reserved_bits
from .scalars import WrappingIntegers

LANE_BITS: Final = 32
_NO_DRAWS: Final = Draws()
_MAX_COUNTED: Final = 0xFFFF
_FIELDS_BITS: Final = 31
"""Bits of a lane of fields, whose sum is not negative."""
_MAX_BOUNDED: Final = 1 << 15
"""Workers that a counter of half a lane holds."""


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Chunks of a tensor, by their numbers, and the seeds of its call: lossy types draw random numbers by them."""

    chunks: UintArray
    """Their numbers, (k,)."""
    draws: Draws = _NO_DRAWS
    sizes: IntArray | None = None
    """Numbers of a chunk that are the tensor's, (k,): zeros fill the rest. None: all."""

    @classmethod
    def first(cls, count: int) -> ChunkPlace:
        """Return the first chunks of a tensor, with seeds of 0."""
        return cls(np.arange(count, dtype=np.uint32))

    def of(self, these: BoolArray) -> ChunkPlace:
        """Return the chunks that a mask (k,) selects."""
        return ChunkPlace(self.chunks[these], self.draws, None if self.sizes is None else self.sizes[these])


@dataclass(frozen=True, slots=True)
class _Fields:
    """Layout of small numbers in lanes: several fields of as many bits in each, which the sums of these numbers fit."""

    bits: int
    """Bits of a field."""
    per_lane: int

    def values(self, lanes: int, limbs: int) -> int:
        """Return how many numbers of so many limbs and a field each fit into a message."""
        return lanes * self.per_lane // (limbs * self.per_lane + 1)

    def packed(self, numbers: UintArray) -> Int32Array:
        """Return the numbers (k, v) of v fields in lanes, int32 (k, ⌈v / per_lane⌉)."""
        count = numbers.shape[1]
        first = np.arange(0, count, self.per_lane)
        return np.bitwise_or.reduceat(numbers << self._shifts(count), first, axis=1).view(np.int32)

    def unpacked(self, lanes: Int32Array, count: int) -> UintArray:
        """Return the numbers (k, count) of summed lanes, which may be followed by others."""
        fields = np.repeat(lanes.view(np.uint32), self.per_lane, axis=1)[:, :count] >> self._shifts(count)
        return fields & np.uint32((1 << self.bits) - 1)

    def _shifts(self, count: int) -> UintArray:
        """Return the shift of each field in its lane, (count,)."""
        return np.arange(count, dtype=np.uint32) % np.uint32(self.per_lane) * np.uint32(self.bits)


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """Summation of the tensors of one type, operation and policy over a job."""

    kind: DataType
    scalars: Scalars
    mean: bool
    """The sum of weight · x divided by the summed weight, instead of the sum of x."""
    values: int
    """Numbers in a chunk."""
    counters: _Fields | None = None
    """Fields of each number's two counters; None: NaN and infinity are refused, or poison their chunk."""
    lanes: int = LANES
    """Lanes of a message."""
    poison: Int32Array | None = None
    """The first lanes of a chunk with a NaN or an infinity, at least (v,); None: it is not poisoned."""
    poison_period: int = 0
    """Number of lanes after which `poison` repeats: among as many, one shows whether a sum is poisoned."""
    alone: bool = False
    """True if each number is one worker's, to which all others add zeros."""

    @property
    def _used(self) -> int:
        """Lanes that the numbers take."""
        return self.scalars.limbs * self.values

    @property
    def _takes_all(self) -> bool:
        """True if NaN and infinity are summed, in either way."""
        return self.counters is not None or self.poison is not None

    @property
    def may_wrap(self) -> bool:
        """True if a lane's sum over the workers may exceed 32 bits."""
        return self._takes_all or (isinstance(self.scalars, WrappingIntegers) and not self.alone)

    def exponents(self, values: NDArray[Any], weight: int) -> Exponents:
        """Return the biased exponents (k,) of this worker's chunks (k, v); above 255: an element cannot be summed."""
        factor = weight if self.mean else 1
        exponents = self.scalars.exponents(values, factor)
        if self._takes_all and (beyond := exponents > LARGEST_EXPONENT).any():
            exponents[beyond] = self.scalars.exponents(self._finite(values[beyond]), factor)
        return exponents

    def check_weight(self, weight: int) -> None:
        """Raise InvalidTensor for a weight that this type cannot have."""

    def prepare(self, values: NDArray[Any], weight: int, place: ChunkPlace) -> Exponents:
        """Return `exponents` of this worker's chunks (k, v), and change the chunks to what `encode` takes."""
        return self.exponents(values, weight)

    def encode(
        self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int, place: ChunkPlace | None = None
    ) -> Int32Array:
        """Return chunks as this worker's lanes.

        Args:
            values: Chunks (k, v), as `prepare` left them.
            exponents: Agreed biased exponents, or codes of scales, (k,).
            weight: Weight of this worker, by which a mean multiplies the numbers.
            place: Numbers of the chunks and seeds of the call; None: the first chunks, seeds of 0.

        Returns:
            Lanes, int32 (k, lanes).
        """
        factor = weight if self.mean else 1
        finite = self._finite(values) if self._takes_all else values
        lanes = self._padded(self.scalars.encode(finite, exponents, factor))
        if not factor or finite is values:
            return lanes
        if self.poison is not None:
            lanes[~self.kind.is_finite(values).all(axis=1), : len(self.poison)] = self.poison
        elif self.counters is not None:
            flags = self._flags(values, self.counters)
            lanes[:, self._used : self._used + flags.shape[1]] = flags
        return lanes

    def decode(
        self,
        sums: Int32Array,
        exponents: NDArray[np.uint8],
        weights: NDArray[np.int64],
        place: ChunkPlace | None = None,
    ) -> NDArray[Any]:
        """Return summed lanes as numbers.

        Args:
            sums: Summed lanes (k, lanes).
            exponents: Agreed biased exponents, or codes of scales, (k,).
            weights: Summed weights (k,), by which a mean divides unless they are 0.
            place: Numbers of the chunks and seeds of the call; None: the first chunks, seeds of 0.

        Returns:
            Numbers (k, v), of the type's storage.
        """
        limbs = sums[:, : self._used].reshape(len(sums), self.scalars.limbs, self.values)
        values = self.scalars.decode(limbs, exponents, np.maximum(weights, 1) if self.mean else None)
        if isinstance(self.kind, FloatType) and self.poison is not None:
            bound, first = 1 << HEADROOM_BITS, sums[:, : self.poison_period]
            values[(first.max(axis=1) > bound) | (first.min(axis=1) < -bound)] = self.kind.special("nan")
        if isinstance(self.kind, FloatType) and self.counters is not None:
            flags = sums[:, self._used :]
            if flags.any():
                codes, half = self.counters.unpacked(flags, self.values), np.uint32(self.counters.bits // 2)
                positive = (codes & (np.uint32(1) << half) - np.uint32(1)).astype(np.bool_)
                negative = (codes >> half).astype(np.bool_)
                for where, number in ((positive, "+inf"), (negative, "-inf"), (positive & negative, "nan")):
                    values[where] = self.kind.special(number)
        return values

    def refused(self, values: NDArray[Any], weight: int) -> int:
        """Return the number of the first element of a finite chunk (v,) that cannot be summed."""
        return int((self.exponents(values[:, None], weight) > LARGEST_EXPONENT).argmax())

    def _finite(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers with 0 for NaN and infinity; without a copy if there are none."""
        finite = self.kind.is_finite(values)
        return values if finite.all() else np.where(finite, values, values.dtype.type(0))

    def _flags(self, values: NDArray[Any], counters: _Fields) -> Int32Array:
        """Contribution to the counters of +∞ and −∞, 1 or 0, in lanes."""
        assert isinstance(self.kind, FloatType)
        odd, nan, below = ~self.kind.is_finite(values), self.kind.is_nan(values), self.kind.is_negative(values)
        positive = (odd & (nan | ~below)).astype(np.uint32)
        negative = (odd & (nan | below)).astype(np.uint32)
        return counters.packed(positive | negative << np.uint32(counters.bits // 2))

    def _padded(self, limbs: Int32Array) -> Int32Array:
        """(k, limbs, v) as lanes (k, lanes)."""
        flat = limbs.reshape(len(limbs), self._used)
        if self._used == self.lanes:
            return flat
        lanes = np.zeros((len(limbs), self.lanes), np.int32)
        lanes[:, : self._used] = flat
        return lanes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BoundedIntegers(Encoding):
    """Summation of int32 modulo 2³² in lanes whose sums cannot wrap, as the check of jobs with a key needs.

    A number is low + high · 2^(32 − r) modulo 2³², for n workers and r = max(1, ⌈log₂ n⌉), with −2^(31 − r) ≤ low <
    2^(31 − r) and 0 ≤ high < 2^r::

        lanes 0 … v−1   low of each of the chunk's v numbers
              v …       high, in fields of 2r bits, which the sum of n of them fits into: ⌊31 / 2r⌋ to a lane
              …         zeros

    The sums of lows and of highs determine the sum of the numbers. Lanes that it takes more, per number: 1/15 for 2
    workers, 1/5 for 8, 1/3 for 32, 1 for 256 or more.
    """

    high: _Fields
    """Fields of 2r bits."""

    @classmethod
    def of(cls, kind: DataType, workers: int, lanes: int) -> Self:
        """Return the encoding for a job of `workers` workers. Raises InvalidTensor for too many."""
        if workers > _MAX_BOUNDED:
            raise InvalidTensor(
                f"{workers} workers; with a key it can be summed over {_MAX_BOUNDED} at most",
                place=f"dtype {kind.name}",
                value=workers,
            )
        bits = 2 * max(1, reserved_bits(workers))
        high, scalars = _Fields(bits, _FIELDS_BITS // bits), kind.scalars(workers, mean=False)
        return cls(kind, scalars, False, high.values(lanes, 1), lanes=lanes, high=high)

    @property
    def may_wrap(self) -> bool:
        """False: that is its purpose."""
        return False

    @property
    def _low_bits(self) -> int:
        return LANE_BITS - self.high.bits // 2

    def encode(
        self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int, place: ChunkPlace | None = None
    ) -> Int32Array:
        """Same contract as `Encoding.encode`; exponent, weight and place have no effect."""
        half = 1 << (self._low_bits - 1)
        numbers = values.astype(np.int64)
        low = (numbers + half & (1 << self._low_bits) - 1) - half
        high = (numbers - low).astype(np.uint32) >> np.uint32(self._low_bits)
        fields = self.high.packed(high)
        lanes = np.zeros((len(values), self.lanes), np.int32)
        lanes[:, : self.values] = low
        lanes[:, self.values : self.values + fields.shape[1]] = fields
        return lanes

    def decode(
        self,
        sums: Int32Array,
        exponents: NDArray[np.uint8],
        weights: NDArray[np.int64],
        place: ChunkPlace | None = None,
    ) -> NDArray[Any]:
        """Same contract as `Encoding.decode`: sums modulo 2³². Exponents, weights and place have no effect."""
        high = self.high.unpacked(sums[:, self.values :], self.values) << np.uint32(self._low_bits)
        return (sums[:, : self.values].view(np.uint32) + high).view(np.int32)


@runtime_checkable
class Encoded(Protocol):
    """A type of numbers that has an encoding of its own."""

    def encoding(self, workers: int, lanes: int, *, mean: bool, propagate: bool, poison: bool) -> Encoding:
        """Same contract as `encoding_of`."""


@lru_cache(maxsize=64)
def encoding_of(
    kind: DataType,
    workers: int,
    lanes: int = LANES,
    *,
    mean: bool = False,
    propagate: bool = False,
    poison: bool = False,
    keyed: bool = False,
    alone: bool = False,
) -> Encoding:
    """Return the encoding of this type's tensors in a job of `workers` workers at its start, in messages of `lanes`
    lanes.

    Args:
        kind: Type of the tensors.
        workers: Number of workers at the start.
        lanes: Lanes of a message.
        mean: Encode means in place of sums.
        propagate: Sum NaN and infinity as IEEE addition does, in place of refusing them.
        poison: Make the whole chunk NaN for a NaN or an infinity. Integers have none.
        keyed: Encode int32 in lanes whose sums cannot wrap, for the check of jobs with a key.
        alone: Each number is one worker's, to which all others add zeros, so that int32 does not wrap either.

    Raises:
        InvalidTensor: This number of workers cannot sum the type.
    """
    if isinstance(kind, Encoded):
        return kind.encoding(workers, lanes, mean=mean, propagate=propagate, poison=poison)
    scalars = kind.scalars(workers, mean=mean)
    if isinstance(scalars, WrappingIntegers):
        if keyed and not alone:
            return BoundedIntegers.of(kind, workers, lanes)
        return Encoding(kind, scalars, mean, lanes, lanes=lanes, alone=alone)
    if not isinstance(kind, FloatType) or not (propagate or poison):
        return Encoding(kind, scalars, mean, lanes // scalars.limbs, lanes=lanes)
    if poison:
        values = lanes // scalars.limbs
        period = reserved_bits(workers) + 1
        if period > values * scalars.limbs:
            most = 1 << values * scalars.limbs - 1
            raise InvalidTensor(
                f"{workers} workers; in messages of {lanes} lanes NaN and infinity can poison chunks of {most} at most",
                place=f"dtype {kind.name}",
                value=workers,
            )
        marks = np.uint32(1 << 31) >> (np.arange(max(values, period), dtype=np.uint32) % np.uint32(period))
        return Encoding(kind, scalars, mean, values, lanes=lanes, poison=marks.view(np.int32), poison_period=period)
    if workers > _MAX_COUNTED:
        raise InvalidTensor(
            f"{workers} workers; NaN and infinity can be summed over {_MAX_COUNTED} at most",
            place=f"dtype {kind.name}",
            value=workers,
        )
    bits = 2 * workers.bit_length()
    counters = _Fields(bits, LANE_BITS // bits)
    return Encoding(kind, scalars, mean, counters.values(lanes, scalars.limbs), counters, lanes)
