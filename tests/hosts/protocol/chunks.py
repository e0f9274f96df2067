"""Float32 tensors as chunks, for tests that sum them by hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weir.hosts.numerics.quantization import Float32Array, biased_exponents, chunk_count, magnitude_bits
from weir.wire.aggregation import LANES


def to_chunks(array: ArrayLike) -> Float32Array:
    """float32 (C, LANES), the last chunk padded with zeros."""
    values = np.asarray(array, np.float32)
    chunks = np.zeros((chunk_count(values.size), LANES), np.float32)
    chunks.reshape(-1)[: values.size] = values.reshape(-1)
    return chunks


def block_exponents(chunks: Float32Array) -> NDArray[np.uint8]:
    """Biased, (C,)."""
    return biased_exponents(magnitude_bits(chunks)).astype(np.uint8)
