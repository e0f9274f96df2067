"""Sign vote: the majority of the workers' signs, counted by the switches (Bernstein et al., 2018)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...array_types import IntArray
from ...numerics.draws import UintArray
from ...numerics.lane_codes import LaneCode, LaneLayout, LaneType, fixed_levels
from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, LaneCodec


class Signs(LaneCode):
    """Level 1 for a number ≥ 0, level 0 for one below; the scale is the mean magnitude of a chunk."""

    name = "vote"

    def layout(self, workers: int) -> LaneLayout:
        return fixed_levels(2, workers)

    def scale(self, chunks: Float32Array, levels: int, sizes: IntArray) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = np.abs(chunks).sum(axis=1, dtype=np.float64) / sizes
        return mean

    def quantise(
        self, chunks: Float32Array, scales: NDArray[np.float64], levels: int, uniform: Float32Array
    ) -> UintArray:
        return (chunks >= 0).astype(np.uint32)

    def restore(
        self, sums: IntArray, scales: NDArray[np.float64], levels: int, contributors: NDArray[np.int64]
    ) -> Float32Array:
        """Return the majority's sign times the scale, as if all contributors had it; 0 for a tie."""
        majority = np.sign(2 * sums - contributors[:, None])
        voted: Float32Array = (majority * (contributors * scales)[:, None]).astype(np.float32)
        return voted


def make() -> Codec:
    """Create the sign vote."""
    return LaneCodec(LaneType(Signs()))


DESCRIPTION: Final = CodecDescription(
    "vote", "majority of signs times the mean magnitude of a chunk", make, feedback=False
)
