"""Encoding of numbers of each type as int32 lanes, whose sum over the workers gives the sum of the numbers.

One number takes one to four lanes, its limbs, all in one packet, so that under any loss the limbs of a sum are of the
same workers. Arrays are (k, v) for k chunks of v numbers, and (k, limbs, v) for their limbs; the chunks' biased
exponents, which the workers agree on first, are (k,). With r = ⌈log₂ n⌉ for n workers:

    type                       limbs  a worker's limbs                                            exact
    float32, float16, bfloat16 1      rint(x · 2^(30 − r − e))                                    no
    float64                    3      x · 2^(30 − r − e), the remainders by 2^(31 − r), rint last no
    int32                      1      x, and the sum wraps                                        mod 2³²
    int64, and means of int32  3 or 4 22, 22 and 20 bits of x; 16 each for more than 2¹⁰ workers    mod 2⁶⁴
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidTensor
from .datatypes import LARGEST_EXPONENT, DataType, Exponents, FloatType
from .quantization import (
    EXPONENT_BIAS,
    HEADROOM_BITS,
    INFINITY_BITS,
    Int32Array,
    biased_exponents,
    dequantize,
    magnitude_bits,
    quantize,
    reserved_bits,
    scale_table,
)

_BEYOND: Final = LARGEST_EXPONENT + 1
"""Biased exponent of a chunk that cannot be summed."""
_STEP: Final = 8
_MIN_EXPONENT: Final = -1016
"""A float64 chunk's biased exponent b stands for |x| < 2^(8b − 1016), up to 2¹⁰²⁴."""
_MAX_SHIFTED: Final = 1000
"""Maximum exponent of one scaling step; the result is normal either way."""
_PART_BITS: Final = 31
_PART: Final = (1 << _PART_BITS) - 1
_LIMB_BITS: Final = 16
_MAX_WORKERS: Final = 1 << _LIMB_BITS
_WIDE_LIMB_BITS: Final = 22
_MAX_WORKERS_OF_WIDE: Final = 1 << (32 - _WIDE_LIMB_BITS)
"""Workers whose wide limbs add up without wrapping."""
_DIGITS: Final = 53
"""Binary digits of a float64's significand."""
_SPLITTER: Final = float((1 << 27) + 1)
"""Veltkamp's: splits a float64 into two numbers of at most 26 digits."""


class ShortFloats:
    """float32, float16 and bfloat16: fixed-point numbers of 31 − ⌈log₂ n⌉ bits and sign, below the chunk's largest.

    A weight is part of the scale, so its product with x is rounded once, with the quantum. Sums and means are float64
    first, in which a sum is exact, and then rounded to the type once.
    """

    limbs = 1

    def __init__(self, kind: FloatType, workers: int) -> None:
        self._kind = kind
        self._is_float32 = kind.storage == np.float32
        self._workers = workers
        self._scales = scale_table(workers)

    def exponents(self, values: NDArray[Any], weight: int) -> Exponents:
        bits = magnitude_bits(self._kind.widen(values))
        exponents = biased_exponents(bits, _weight_bits(weight))
        exponents *= weight > 0  # a worker that does not count scales nobody's numbers
        exponents[bits >= INFINITY_BITS] = _BEYOND
        return exponents

    def encode(self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int) -> Int32Array:
        single = self._kind.widen(values)
        if weight == 1:
            return quantize(single, exponents, self._scales)[:, None]
        if weight.bit_length() + self._kind.digits > _DIGITS:
            scaled, rest = _product(single * self._scales[exponents][:, None], weight)
            return _nearest(scaled, rest).astype(np.int32)[:, None]
        scaled = single * (weight * self._scales[exponents])[:, None]
        np.rint(scaled, out=scaled)
        return scaled.astype(np.int32)[:, None]

    def decode(
        self, sums: Int32Array, exponents: NDArray[np.uint8], divisors: NDArray[np.int64] | None
    ) -> NDArray[Any]:
        totals = sums[:, 0]
        if divisors is None and self._is_float32:
            return dequantize(totals, exponents, self._scales)
        exact = totals * (1.0 / self._scales[exponents])[:, None]
        if divisors is not None:
            exact /= divisors[:, None]
        return self._kind.narrow(exact)

    def half_quantum(self, exponents: NDArray[np.uint8]) -> NDArray[np.int64]:
        return exponents.astype(np.int64) - EXPONENT_BIAS + reserved_bits(self._workers) - (HEADROOM_BITS + 1)


class LongFloats:
    """float64: 92 − 3⌈log₂ n⌉ bits and sign below the chunk's bound, in three limbs; a bound is a power of 2⁸.

    The bound of chunk exponents is below x · 2⁸, so 85 − 3⌈log₂ n⌉ bits are left of the largest x: at least its own 53
    up to 1,024 workers. A sum is rounded to float64 once, subnormal or not; a mean divides that, rounding again.
    """

    limbs = 3

    def __init__(self, workers: int) -> None:
        self._reserved = reserved_bits(workers)
        self._limb_bits = HEADROOM_BITS + 1 - self._reserved

    def exponents(self, values: NDArray[Any], weight: int) -> Exponents:
        largest = np.abs(values).max(axis=1)
        _, exponents = np.frexp(largest)  # |x| < 2^exponent, or x = 0 and 0
        bound = exponents.astype(np.int64) + _weight_bits(weight) - _MIN_EXPONENT
        biased: Exponents = np.maximum(-(-bound // _STEP), 0)
        biased[(largest == 0) | (weight == 0)] = 0
        biased[~np.isfinite(largest)] = _BEYOND
        return biased

    def encode(self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int) -> Int32Array:
        shift = HEADROOM_BITS - self._reserved - self._bound(exponents)
        limbs = np.empty((len(values), 3, values.shape[1]), np.int32)
        if weight > 1:
            self._encode_products(values, shift, weight, limbs)
            return limbs
        rest = _shifted(values if weight else np.zeros_like(values), shift)
        limb = np.rint(rest)
        limbs[:, 0] = limb
        for place in (1, 2):
            rest -= limb  # exact
            rest *= 1 << self._limb_bits
            limbs[:, place] = np.rint(rest, out=limb)
        return limbs

    def _encode_products(self, values: NDArray[Any], shift: NDArray[np.int64], weight: int, limbs: Int32Array) -> None:
        """Write the limbs of weight · x, which has up to 85 digits: two float64 hold it exactly."""
        rest, low = _product(_shifted(values, shift), weight)
        for place in range(3):
            if place:
                rest *= 1 << self._limb_bits
                low *= 1 << self._limb_bits
                rest, low = _two_sum(rest, low)
            limb = np.rint(rest) if place < 2 else _nearest(rest, low)
            limbs[:, place] = limb
            rest -= limb  # exact

    def decode(
        self, sums: Int32Array, exponents: NDArray[np.uint8], divisors: NDArray[np.int64] | None
    ) -> NDArray[Any]:
        unit = self._bound(exponents) - HEADROOM_BITS + self._reserved - 2 * self._limb_bits
        # The total is high · 2^(31 + bits) + middle · 2^bits + low, each of 31 digits and the last two not negative. It
        # rounds once: the error of the first sum is exact (Dekker's fast two-sum), so is the value added to it, and
        # only the second sum rounds.
        high, low = self._carried(sums)
        top = (high >> _PART_BITS) * math.ldexp(1.0, _PART_BITS + self._limb_bits)
        middle = (high & _PART) * math.ldexp(1.0, self._limb_bits)
        values = top + middle
        top -= values
        top += middle
        top += low
        values += top
        # Quanta may be finer than any of float64's; yet all that the workers have are whole numbers of its least one,
        # so that a sum of which it keeps fewer digits than 53 has no others either.
        early = unit > 0  # a sum beyond float64's range may have a mean within; a power of two changes no digit here
        if divisors is not None and early.any():
            values /= np.where(early, divisors, 1)[:, None]
            divisors = np.where(early, 1, divisors)
        with np.errstate(over="ignore"):
            values = _shifted(values, unit)
        if divisors is not None:
            values /= divisors[:, None]
        return values

    def half_quantum(self, exponents: NDArray[np.uint8]) -> NDArray[np.int64]:
        return self._bound(exponents) + 3 * self._reserved - (3 * HEADROOM_BITS + 3)

    def _carried(self, sums: Int32Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Σ of the limbs as high · 2^bits + low, 0 ≤ low < 2^bits."""
        high = (sums[:, 0].astype(np.int64) << self._limb_bits) + sums[:, 1] + (sums[:, 2] >> self._limb_bits)
        return high, sums[:, 2].astype(np.int64) & ((1 << self._limb_bits) - 1)

    def _bound(self, exponents: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The e of |x| < 2^e."""
        return exponents.astype(np.int64) * _STEP + _MIN_EXPONENT


class WrappingIntegers:
    """int32, whose sum wraps as it does in NumPy: exact modulo 2³²."""

    limbs = 1

    def exponents(self, values: NDArray[Any], weight: int) -> Exponents:
        return np.zeros(len(values), np.int64)

    def encode(self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int) -> Int32Array:
        return values[:, None]

    def decode(
        self, sums: Int32Array, exponents: NDArray[np.uint8], divisors: NDArray[np.int64] | None
    ) -> NDArray[Any]:
        return sums[:, 0]


class LongIntegers:
    """int64, whose sum is exact modulo 2⁶⁴, and means of int32 and int64, to nearest, ties to even.

    Limbs are digits from −2^(b − 1) to 2^(b − 1) − 1, so that sums over 2^(32 − b) workers cannot wrap: b = 22, or 16
    for more than 2¹⁰ workers. For a mean the sum itself must be right: each worker's |x| · weight must be below 2^(63 −
    ⌈log₂ n⌉).
    """

    def __init__(self, kind: DataType, workers: int, *, mean: bool) -> None:
        if workers > _MAX_WORKERS:
            raise InvalidTensor(
                f"{workers} workers; it can be summed over {_MAX_WORKERS} at most",
                place=f"dtype {kind.name}",
                value=workers,
            )
        self._limb_bits = _WIDE_LIMB_BITS if workers <= _MAX_WORKERS_OF_WIDE else _LIMB_BITS
        self.limbs = -(-64 // self._limb_bits)
        self._storage = kind.storage.name
        self._bits = 63 - reserved_bits(workers) if mean else None

    def exponents(self, values: NDArray[Any], weight: int) -> Exponents:
        exponents = np.zeros(len(values), np.int64)
        if self._bits is not None and weight:
            bound = ((1 << self._bits) - 1) // weight
            beyond = (values > bound) | (values < -bound)
            exponents[beyond.any(axis=1)] = _BEYOND
        return exponents

    def encode(self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int) -> Int32Array:
        half, mask = 1 << (self._limb_bits - 1), (1 << self._limb_bits) - 1
        lower = sum(half << (place * self._limb_bits) for place in range(self.limbs - 1))
        rest = values.astype(np.int64) * weight + np.int64(lower)  # wraps, as the sum does
        limbs = np.empty((len(values), self.limbs, values.shape[1]), np.int32)
        for place in range(self.limbs - 1):
            limbs[:, place] = (rest & mask) - half
            rest >>= self._limb_bits
        limbs[:, -1] = rest
        return limbs

    def decode(
        self, sums: Int32Array, exponents: NDArray[np.uint8], divisors: NDArray[np.int64] | None
    ) -> NDArray[Any]:
        total = sums[:, 0].astype(np.int64)
        for place in range(1, self.limbs):
            total += sums[:, place].astype(np.int64) << (place * self._limb_bits)
        if divisors is not None:
            total = _divided(total, divisors[:, None])
        return np.asarray(total, self._storage)


def error_bound(
    kind: FloatType, result: NDArray[Any], exponents: NDArray[np.uint8], workers: int
) -> NDArray[np.float64]:
    """Return the largest |x̂ − Σx| of a finite sum of floating numbers.

    n times half a quantum, and half an ulp of x̂. The quantum is 2^(e + r − 30), for float64 2^(e + 3r − 92)
    (docs/design.md §3.3).

    Args:
        kind: Type of the numbers.
        result: The sum x̂, (k, v), as stored.
        exponents: Agreed biased exponents, (k,).
        workers: Number n of workers at the job's start.

    Returns:
        Bounds, float64 (k, v).
    """
    half_quantum = kind.scalars(workers, mean=False).half_quantum(exponents)
    wide = np.abs(kind.widen(result))
    _, exponent = np.frexp(wide)
    half_ulp = np.ldexp(0.5, np.where(wide > 0, np.maximum(exponent - kind.digits, kind.least), kind.least))
    bound: NDArray[np.float64] = np.ldexp(float(workers), half_quantum)[:, None] + half_ulp
    return bound


def _shifted(values: NDArray[Any], exponents: NDArray[np.int64]) -> NDArray[Any]:
    """Return x · 2^exponent per chunk.

    If the power is beyond float64 there are two steps, of which only the second one rounds, for whole numbers and
    results of 2⁻⁶³ or more.
    """
    first = np.clip(exponents, -_MAX_SHIFTED, _MAX_SHIFTED)
    shifted: NDArray[Any] = values * np.ldexp(1.0, first)[:, None]
    if np.count_nonzero(first != exponents):
        shifted *= np.ldexp(1.0, exponents - first)[:, None]
    return shifted


def _product(values: NDArray[Any], weight: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x · weight exactly: the float64 product and its rounding error.

    Exact for x = 0 and for |x| from 2^−900 to 2^900 (Dekker, "A floating-point technique for extending the available
    precision", 1971).
    """
    product: NDArray[np.float64] = values * float(weight)
    high, low = _split(values.astype(np.float64, copy=False))
    weight_high, weight_low = _split(np.array(float(weight)))
    error: NDArray[np.float64] = high * weight_high - product
    error += high * weight_low
    error += low * weight_high
    error += low * weight_low
    return product, error


def _split(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each number as the sum of two of at most 26 digits."""
    scaled = values * _SPLITTER
    high: NDArray[np.float64] = scaled - (scaled - values)
    return high, values - high


def _two_sum(
    values: NDArray[np.float64], others: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the exact sums: the float64 sums and their rounding errors (Knuth's two-sum)."""
    total = values + others
    shadow = total - values
    return total, (values - (total - shadow)) + (others - shadow)


def _nearest(values: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.float64]:
    """The whole number nearest to values + rest, |rest| at most half an ulp of the value; ties to even."""
    whole: NDArray[np.float64] = np.rint(values)
    side = values - whole  # exact
    whole += np.where((np.abs(side) == 0.5) & (side * rest > 0), 2 * side, 0)
    return whole


def _weight_bits(weight: int) -> int:
    """The least k with weight ≤ 2^k."""
    return max(weight - 1, 0).bit_length()


def _divided(totals: NDArray[np.int64], divisors: NDArray[np.int64]) -> NDArray[np.int64]:
    """totals / divisors (below 2³²) to nearest, ties to even."""
    quotient, rest = np.divmod(totals, divisors)
    rounded: NDArray[np.int64] = quotient + (2 * rest + (quotient & 1) > divisors)
    return rounded
