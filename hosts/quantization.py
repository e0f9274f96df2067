"""From float32 gradients to int32 lanes and back: block exponents, scaling, the error bound (docs/design.md §3.3).

A tensor of any shape is cut, in C order, into C chunks of `LANES` values; the last chunk is padded with zeros. A
chunk's block exponent e is the least integer with |x| < 2^e for all of its values, kept biased in 8 bits. The workers
of a job agree on the largest one by a max-reduction, scale by a power of two (exactly, in float64), round once, and sum
integers. As |q| ≤ 2^(30 − ⌈log₂ n⌉) for each of n workers, |Σq| ≤ 2³⁰: no sum of any subset of the workers can
overflow, in any order or tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hosts.errors import InvalidTensor
from wire.aggregation import LANES

EXPONENT_BIAS: Final = 127
HEADROOM_BITS: Final = 30
"""The sum over all workers stays within ±2³⁰: one bit below int32's sign, so that a lane never wraps."""

_INFINITY_BITS: Final = 0x7F80_0000
_HALF_LEAST_NORMAL_BITS: Final = 1 << 22
"""2⁻¹²⁷ as float32: a magnitude below it has biased exponent 0."""
_BLOCK_CHUNKS: Final = 512
"""Chunks that are dequantised at once: 1 MiB of float64, so that the temporary stays in cache."""

Float32Array = NDArray[np.float32]
Int32Array = NDArray[np.int32]


def chunk_count(size: int) -> int:
    """Number of chunks that a tensor of `size` values takes; 0 for an empty one."""
    return -(-size // LANES)


def to_chunks(array: ArrayLike, name: str) -> Float32Array:
    """A private copy of a float32 tensor as chunks, float32 (C, LANES), the last one padded with zeros.

    Raises `InvalidTensor` for another dtype: silently narrowing float64 would lose what the error bound promises.
    """
    values = np.asarray(array)
    if values.dtype != np.float32:
        raise InvalidTensor(
            f"tensor {name!r}: dtype {values.dtype} is not float32; convert it with .astype(np.float32)"
        )
    chunks = np.zeros((chunk_count(values.size), LANES), np.float32)
    chunks.reshape(-1)[: values.size] = values.reshape(-1)
    return chunks


def block_exponents(chunks: Float32Array, name: str, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Biased block exponents (e + 127) of chunks, float32 (C, LANES) → uint8 (C,).

    e is the least integer ≥ −127 with |x| < 2^e, at most 128; a chunk of zeros has −127. `shape` is the tensor's own,
    for the error: raises `InvalidTensor`, naming tensor and element, at the first NaN or infinity.
    """
    if not len(chunks):
        return np.zeros(0, np.uint8)
    magnitude = np.maximum(chunks.max(axis=1), -chunks.min(axis=1))  # NaN propagates through both
    bits = magnitude.view(np.uint32) & np.uint32(0x7FFF_FFFF)
    if (bits >= _INFINITY_BITS).any():
        flat = int(np.flatnonzero(~np.isfinite(chunks.reshape(-1)))[0])
        index = tuple(int(i) for i in np.unravel_index(flat, tuple(shape))) if len(shape) else ()
        raise InvalidTensor(
            f"tensor {name!r}: element {flat} (index {index}) is {chunks.reshape(-1)[flat]}; "
            "only finite values can be summed"
        )
    biased: NDArray[np.uint8] = np.where(bits < _HALF_LEAST_NORMAL_BITS, 0, (bits >> np.uint32(23)) + 1).astype(
        np.uint8
    )
    return biased


def _reserved_bits(workers: int) -> int:
    """⌈log₂ n⌉."""
    return (workers - 1).bit_length()


def scale_table(workers: int) -> NDArray[np.float64]:
    """2^(30 − ⌈log₂ n⌉ − e) by biased exponent, float64 (256,): what a value is multiplied by before it is rounded."""
    biased = np.arange(256)
    return np.ldexp(1.0, HEADROOM_BITS - _reserved_bits(workers) - (biased - EXPONENT_BIAS))


def quantize(chunks: Float32Array, exponents: NDArray[np.uint8], scales: NDArray[np.float64]) -> Int32Array:
    """q = rint(x · scale), float32 (k, LANES) with agreed biased exponents (k,) → int32 (k, LANES).

    `scales` is `scale_table(n)`. The product is exact (a power of two in float64), so q is off by at most half a unit.
    """
    scaled = chunks * scales[exponents][:, None]
    np.rint(scaled, out=scaled)
    return scaled.astype(np.int32)


def dequantize(sums: Int32Array, exponents: NDArray[np.uint8], scales: NDArray[np.float64]) -> Float32Array:
    """Σq / scale, int32 (C, LANES) with the agreed biased exponents (C,) → float32 (C, LANES), rounded once.

    Its distance from the exact sum of the workers' float32 values is at most `error_bound`: n · 2^(e + ⌈log₂ n⌉ − 31),
    which is half a quantum per worker, and half an ulp of the result. A sum beyond float32's range becomes an infinity,
    as it would in a float32 sum.
    """
    result = np.empty(sums.shape, np.float32)
    inverse = 1.0 / scales[exponents]
    with np.errstate(over="ignore"):
        for start in range(0, len(sums), _BLOCK_CHUNKS):
            block = slice(start, start + _BLOCK_CHUNKS)
            result[block] = sums[block] * inverse[block, None]
    return result


def error_bound(result: ArrayLike, exponents: ArrayLike, workers: int) -> NDArray[np.float64]:
    """Largest |x̂ − Σx| for chunks of a finite result: n · 2^(e + ⌈log₂ n⌉ − 31) + half an ulp of x̂.

    `result` is float32 (C, LANES), `exponents` the agreed biased ones (C,); returns float64 (C, LANES).
    (docs/design.md §3.3)
    """
    e = np.asarray(exponents, np.int64) - EXPONENT_BIAS
    quanta = np.ldexp(float(workers), e + _reserved_bits(workers) - (HEADROOM_BITS + 1))
    half_ulp = 0.5 * np.spacing(np.abs(np.asarray(result, np.float32))).astype(np.float64)
    bound: NDArray[np.float64] = quanta[:, None] + half_ulp
    return bound


def reference_sum(arrays: Sequence[ArrayLike], *, workers: int | None = None, name: str = "tensor") -> Float32Array:
    """What every fabric must return, bit for bit, for these workers' float32 arrays of one shape.

    `workers` is the job's size at its start, which sets the scale; by default the number of arrays (after a worker was
    lost, it is larger than that). Raises `InvalidTensor` for arrays that cannot be summed.
    """
    if not arrays:
        raise InvalidTensor(f"tensor {name!r}: no arrays to sum")
    count = len(arrays) if workers is None else workers
    if count < len(arrays):
        raise InvalidTensor(f"tensor {name!r}: {len(arrays)} arrays for a job of {count} workers")
    shape = np.shape(arrays[0])
    for rank, array in enumerate(arrays):
        if np.shape(array) != shape:
            raise InvalidTensor(f"tensor {name!r}: array {rank} has shape {np.shape(array)}, array 0 has {shape}")
    agreed = np.zeros(chunk_count(math.prod(shape)), np.uint8)
    for rank, chunks in enumerate(_chunked(arrays, name)):
        np.maximum(agreed, block_exponents(chunks, f"{name} of worker {rank}", shape), out=agreed)
    scales = scale_table(count)
    sums = np.zeros((len(agreed), LANES), np.int32)
    for chunks in _chunked(arrays, name):
        sums += quantize(chunks, agreed, scales)
    return dequantize(sums, agreed, scales).reshape(-1)[: math.prod(shape)].reshape(shape)


def _chunked(arrays: Sequence[ArrayLike], name: str) -> Iterator[Float32Array]:
    return (to_chunks(array, name) for array in arrays)
