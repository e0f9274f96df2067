"""One tensor on its way through the fabric: its rounds, what a worker knows of it, its sum (docs/design.md §3.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hosts.messages import IntArray
from hosts.quantization import Float32Array, Int32Array, block_exponents, dequantize, quantize, to_chunks
from wire.aggregation import LANES


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The sum of one tensor over the workers."""

    name: str
    array: Float32Array
    """The sum, of the submitted tensor's shape."""
    weights: NDArray[np.uint32]
    """(C,) summed weight of each chunk. They differ only where a worker was lost in the middle of the tensor."""

    def mean(self) -> Float32Array:
        """The sum divided by the summed weight, chunk by chunk: the weighted mean, if workers submit weight · gradient.

        Right also where a worker is missing from some chunks. Raises ZeroDivisionError when a chunk's weights sum to 0.
        """
        if not self.weights.all():
            raise ZeroDivisionError(f"tensor {self.name!r}: a chunk's weights sum to 0; submit positive weights")
        divisor = np.repeat(self.weights, LANES)[: self.array.size].astype(np.float32)
        mean: Float32Array = (self.array.reshape(-1) / divisor).reshape(self.array.shape)
        return mean


class Tensor:
    """A submitted tensor: P scale rounds, then C rounds with lanes. `local` rounds count from the tensor's first one.

    Local round l carries the exponent of chunk l (0 where there is none) and, from P on, the lanes of chunk l − P.
    """

    def __init__(self, array: ArrayLike, *, handle: int, name: str, weight: int, start: int, lead: int) -> None:
        shape = np.shape(array)
        chunks = to_chunks(array, name)
        exponents = block_exponents(chunks, name, shape)
        count = len(chunks)
        self.handle = handle
        self.name = name
        self.weight = weight
        self.start = start
        self.scale_rounds = min(lead, count)
        """P."""
        self.end = start + self.scale_rounds + count
        self.remaining = self.end - start
        """Rounds that are not complete here."""
        self._shape = shape
        self._chunks = chunks
        self._exponents = np.zeros(self.remaining, np.uint8)
        self._exponents[:count] = exponents
        self._agreed = np.zeros(count, np.uint8)
        self._sums = np.empty((count, LANES), np.int32)
        self._weights = np.zeros(count, np.uint32)

    def exponents(self, local: IntArray) -> NDArray[np.uint8]:
        """This worker's biased exponents that the local rounds carry."""
        return self._exponents[local]

    def lanes(self, local: IntArray, scales: NDArray[np.float64]) -> Int32Array:
        """What this worker adds in local rounds ≥ P whose exponent was agreed P rounds earlier: int32 (k, LANES)."""
        chunks = local - self.scale_rounds
        return quantize(self._chunks[chunks], self._agreed[chunks], scales)

    def take_exponents(self, local: IntArray, exponents: IntArray) -> None:
        """Note the agreed exponents that the results of local rounds carry."""
        carries = local < len(self._agreed)
        self._agreed[local[carries]] = exponents[carries]

    def take_lanes(self, local: IntArray, lanes: Int32Array, weights: IntArray) -> None:
        """Note the results of local rounds ≥ P."""
        chunks = local - self.scale_rounds
        self._sums[chunks] = lanes
        self._weights[chunks] = weights

    def reduced(self, scales: NDArray[np.float64]) -> Reduced:
        """The finished sum; the tensor's own buffers are not needed any more."""
        values = dequantize(self._sums, self._agreed, scales).reshape(-1)
        return Reduced(self.name, values[: math.prod(self._shape)].reshape(self._shape), self._weights)
