"""Random-k: the same random numbers of the array at every worker, summed by the switches without indices."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...array_types import IntArray
from ...numerics.datatypes import DataType
from ...numerics.native_types import FLOAT32
from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, Context, kept, number_text
from ..sparse import check_ratio


class RandomK(Codec):
    """One number of each of k runs of the array, drawn in common. Unscaled: for use with error feedback."""

    def __init__(self, ratio: float) -> None:
        check_ratio("randomk", ratio)
        self.name = f"randomk({number_text(ratio)})"
        self._ratio = ratio

    @property
    def kind(self) -> DataType:
        return FLOAT32

    def indices(self, context: Context) -> IntArray:
        """Return the indices (k,), ascending."""
        k = kept(context.size, self._ratio)
        ends = np.arange(k + 1) * context.size // max(k, 1)
        words = context.draws.common_words(k).astype(np.int64)
        return ends[:-1] + (words * np.diff(ends) >> 32)

    def encode(self, values: Float32Array, context: Context) -> NDArray[Any]:
        return values[self.indices(context)]

    def decode(self, code: NDArray[Any], context: Context) -> Float32Array:
        values = np.zeros(context.size, np.float32)
        values[self.indices(context)] = code
        return values

    def bytes_on_wire(self, size: int, workers: int) -> int:
        return 4 * kept(size, self._ratio)


def make(ratio: float = 0.01) -> Codec:
    """Create random-k, which keeps `ratio` of the numbers."""
    return RandomK(ratio)


DESCRIPTION: Final = CodecDescription(
    "randomk", "numbers drawn in common, without indices, summed by the switches", make
)
