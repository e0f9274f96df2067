"""Random rotation of chunks: common random signs, then a Hadamard transform, which spreads each number over a block.

After it the numbers of a block are about normal with one standard deviation, whatever they were, so a few uniform
levels represent them well (Suresh et al., "Distributed mean estimation with limited communication", 2017).
"""

from __future__ import annotations

import numpy as np

from .draws import UintArray
from .quantization import Float32Array


def block_size(values: int) -> int:
    """Return numbers that are mixed with each other: the largest power of two that divides a chunk's `values`."""
    return values & -values


def rotate(chunks: Float32Array, signs: UintArray) -> Float32Array:
    """Rotate chunks (k, v) with sign bits (k, v); norms stay."""
    return _transformed((np.ascontiguousarray(chunks).view(np.uint32) ^ signs).view(np.float32))


def rotate_back(chunks: Float32Array, signs: UintArray) -> Float32Array:
    """Undo `rotate` with the same signs."""
    return (_transformed(chunks.copy()).view(np.uint32) ^ signs).view(np.float32)


def _transformed(chunks: Float32Array) -> Float32Array:
    """Hadamard transform of each block, divided by the root of its size, in the memory of `chunks`.

    The order of additions is fixed, so the bits are the same on every machine.
    """
    size = block_size(chunks.shape[1])
    blocks = chunks.reshape(-1, size)
    width = 1
    while width < size:
        pairs = blocks.reshape(-1, size // (2 * width), 2, width)
        first, second = pairs[:, :, 0], pairs[:, :, 1]
        difference = first - second
        first += second
        second[...] = difference
        width *= 2
    blocks *= np.float32(size**-0.5)
    return chunks
