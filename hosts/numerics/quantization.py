"""Quantization of float32 gradients to int32 lanes and back: block exponents and scaling (docs/design.md §3.3).

A tensor of any shape is cut, in C order, into C chunks of `LANES` values; the last chunk is padded with zeros. A
chunk's block exponent e is the least integer with |x| < 2^e for all of its values, kept biased in 8 bits. The workers
of a job agree on the largest one by a max-reduction, scale by a power of two (exactly), round once, and sum integers.
As |q| ≤ 2^(30 − ⌈log₂ n⌉) for each of n workers, |Σq| ≤ 2³⁰: no sum of any subset of the workers can overflow, in any
order or tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import LANES
from ..errors import InvalidTensor

EXPONENT_BIAS: Final = 127
HEADROOM_BITS: Final = 30
"""The sum over all workers stays within ±2³⁰: one bit below int32's sign, so that a lane never wraps."""

INFINITY_BITS: Final = 0x7F80_0000
_LARGEST_SCALE: Final = 2.0**127
_MIN_FOR_FLOAT32: Final = 31
"""Smallest biased exponent from which scales and quanta are normal float32 numbers, for any n."""

Float32Array = NDArray[np.float32]
Int32Array = NDArray[np.int32]


def chunk_count(size: int, lanes: int = LANES) -> int:
    """Return the number of chunks that a tensor of `size` values takes; 0 for an empty one."""
    return -(-size // lanes)


def not_finite(name: str, flat: int, shape: Sequence[int], value: object) -> InvalidTensor:
    """Return the error for an element that is a NaN or an infinity.

    Args:
        name: Name of the tensor.
        flat: Number of the element in C order.
        shape: Shape of the tensor.
        value: The element.
    """
    return InvalidTensor(
        f"element {flat} (index {index_of(flat, shape)}) is {value}; only finite values can be summed",
        place=f"tensor {name!r}",
        value=flat,
    )


def index_of(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of the element that is number `flat` in C order."""
    return tuple(int(i) for i in np.unravel_index(flat, tuple(shape)))


def magnitude_bits(chunks: Float32Array) -> Int32Array:
    """Return the bits of the largest |x| of each chunk, (k, n) → (k,): bits of magnitudes are ordered as the
    magnitudes are.

    `INFINITY_BITS` or more means that the chunk holds an infinity or a NaN.
    """
    largest: Int32Array = np.max(chunks.view(np.int32) & 0x7FFF_FFFF, axis=1)
    return largest


def biased_exponents(bits: Int32Array, weight_bits: int = 0) -> NDArray[np.int64]:
    """Return the biased block exponents of finite chunks, for numbers that are multiplied by up to 2^weight_bits.

    Args:
        bits: the bits of the chunks' largest magnitudes, (k,), as `magnitude_bits` returns them.
        weight_bits: the weight as a power of two, rounded up.

    Returns:
        e + 127 for the least e with |x| · 2^weight_bits < 2^e, at least 0, (k,); 0 for chunks of zeros.
    """
    _, exponents = np.frexp(bits.view(np.float32))
    biased: NDArray[np.int64] = np.maximum(exponents.astype(np.int64) + (EXPONENT_BIAS + weight_bits), 0)
    biased[bits == 0] = 0
    return biased


def reserved_bits(workers: int) -> int:
    """Return ⌈log₂ n⌉, the bits of a lane that the sum over n workers may need."""
    return (workers - 1).bit_length()


def scale_table(workers: int) -> NDArray[np.float64]:
    """Return 2^(30 − ⌈log₂ n⌉ − e) by biased exponent, float64 (256,): factor of a value before it is rounded."""
    biased = np.arange(256)
    return np.ldexp(1.0, HEADROOM_BITS - reserved_bits(workers) - (biased - EXPONENT_BIAS))


def quantize(chunks: Float32Array, exponents: NDArray[np.uint8], scales: NDArray[np.float64]) -> Int32Array:
    """Compute q = rint(x · scale).

    `scales` is `scale_table(n)`. The product is exact (a power of two), so q is off by at most half a unit. It is
    computed in float32 if that can hold the scale; values that underflow there are rounded to 0 in any case.

    Args:
        chunks: float32 (k, n).
        exponents: agreed biased exponents, uint8 (k,).
        scales: scale per biased exponent, float64.

    Returns:
        int32 (k, n).
    """
    scaled = chunks * np.minimum(scales, _LARGEST_SCALE)[exponents].astype(np.float32)[:, None]
    np.rint(scaled, out=scaled)
    q = scaled.astype(np.int32)
    low = exponents < _MIN_FOR_FLOAT32
    if np.count_nonzero(low):
        q[low] = np.rint(chunks[low] * scales[exponents[low]][:, None]).astype(np.int32)
    return q


def dequantize(sums: Int32Array, exponents: NDArray[np.uint8], scales: NDArray[np.float64]) -> Float32Array:
    """Σq / scale, int32 (k, n) with the agreed biased exponents (k,) → float32 (k, n), rounded once.

    `scalars.error_bound` says how far it is from the exact sum of the workers' numbers. A sum beyond float32's range
    becomes an infinity, as it would in a float32 sum. Making it a float32 rounds it; scaling it then is exact where no
    result is subnormal.
    """
    with np.errstate(over="ignore"):
        values = sums.astype(np.float32)
        values *= (1.0 / scales[exponents]).astype(np.float32)[:, None]
        low = exponents < _MIN_FOR_FLOAT32
        if np.count_nonzero(low):
            values[low] = (sums[low] / scales[exponents[low]][:, None]).astype(np.float32)
    return values
