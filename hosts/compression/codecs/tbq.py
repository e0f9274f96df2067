"""TBQ: +τ, 0 or −τ, by a threshold τ that all workers have in common (Strom, 2015)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...array_types import IntArray
from ...errors import InvalidTensor
from ...numerics.draws import UintArray
from ...numerics.lane_codes import LARGEST_SCALE, LaneCode, LaneLayout, LaneType, fixed_levels
from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, LaneCodec, number_text


class Threshold(LaneCode):
    """Level 0, 1 or 2 for a number at or below −τ, between, at or above τ."""

    def __init__(self, threshold: float) -> None:
        self.name = f"tbq({number_text(threshold)})"
        self._threshold = np.float32(threshold)

    def layout(self, workers: int) -> LaneLayout:
        return fixed_levels(3, workers)

    def scale(self, chunks: Float32Array, levels: int, sizes: IntArray) -> NDArray[np.float64]:
        largest: NDArray[np.float64] = np.abs(chunks).max(axis=1).astype(np.float64)
        return np.where(largest >= self._threshold, np.minimum(largest, LARGEST_SCALE), 0)  # τ itself is known

    def quantise(
        self, chunks: Float32Array, scales: NDArray[np.float64], levels: int, uniform: Float32Array
    ) -> UintArray:
        codes = np.ones(chunks.shape, np.uint32)
        codes += chunks >= self._threshold
        codes -= chunks <= -self._threshold
        return codes

    def restore(
        self, sums: IntArray, scales: NDArray[np.float64], levels: int, contributors: NDArray[np.int64]
    ) -> Float32Array:
        return ((sums - contributors[:, None]) * float(self._threshold)).astype(np.float32)


def make(threshold: float = 0.01) -> Codec:
    """Create threshold quantisation; a useful threshold is a few times the standard deviation of the gradient."""
    if not 0 < threshold <= LARGEST_SCALE:
        raise InvalidTensor(f"threshold must be above 0, got {threshold}", place="codec tbq", value=threshold)
    return LaneCodec(LaneType(Threshold(threshold)))


DESCRIPTION: Final = CodecDescription("tbq", "+t, 0 or -t by a common threshold t", make)
