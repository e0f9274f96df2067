"""Uniform levels in a common range: 2^bits of them within the largest magnitude of a chunk."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...array_types import IntArray
from ...errors import InvalidTensor
from ...numerics.draws import UintArray
from ...numerics.lane_codes import LANE_BITS, LaneCode, LaneType, Layout, centred, fixed_levels, stochastic
from ...numerics.quantization import Float32Array
from ..codec import Codec, Description, LaneCodec

_MAX_BITS: Final = 8


class Levels(LaneCode):
    """A fixed number of uniform levels; the field grows with the number of workers."""

    uniform_levels = True

    def __init__(self, name: str, levels: int, clip: float | None = None) -> None:
        """`clip`: standard deviations beyond which numbers of a chunk are clipped; None: no clipping."""
        self.name = name
        self._levels = levels
        self._clip = clip

    def layout(self, workers: int) -> Layout:
        layout = fixed_levels(self._levels, workers)
        if layout.bits > LANE_BITS:
            raise InvalidTensor(f"too many workers: {workers}", place=f"dtype {self.name}", value=workers)
        return layout

    def scale(self, chunks: Float32Array, levels: int) -> NDArray[np.float64]:
        largest: NDArray[np.float64] = np.abs(chunks).max(axis=1).astype(np.float64)
        if self._clip is not None:
            largest = np.minimum(largest, self._clip * np.sqrt(np.square(chunks, dtype=np.float64).mean(axis=1)))
        return largest

    def quantise(
        self, chunks: Float32Array, scales: NDArray[np.float64], levels: int, uniform: Float32Array
    ) -> UintArray:
        return stochastic(chunks, scales, levels, uniform)

    def restore(
        self, sums: IntArray, scales: NDArray[np.float64], levels: int, contributors: NDArray[np.int64]
    ) -> Float32Array:
        return centred(sums, scales, levels, contributors)


def make(bits: int = 4) -> Codec:
    """Create uniform quantisation to 2^bits levels, 1 to 8 bits."""
    if bits not in range(1, _MAX_BITS + 1):
        raise InvalidTensor(f"bits must be 1 to {_MAX_BITS}, got {bits!r}", place="codec uniform", value=bits)
    return LaneCodec(LaneType(Levels(f"uniform({bits})", 1 << bits)))


DESCRIPTION: Final = Description(
    "uniform", "2^bits uniform levels in the range of a chunk, by stochastic rounding", make
)
