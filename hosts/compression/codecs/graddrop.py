"""GradDrop: what exceeds a sampled threshold, by all-gather (Aji and Heafield, 2017)."""

from typing import Final

import numpy as np

from ...array_types import IntArray
from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, Context
from ..mstopk import largest
from ..sparse import SparseCodec, sampled_threshold

_MIN_SAMPLE: Final = 1024
_SAMPLE_SHARE: Final = 0.01


class GradDrop(SparseCodec):
    """Numbers above the threshold of a sample; the largest k where there are more."""

    def choose(self, values: Float32Array, k: int, context: Context) -> IntArray:
        if not values.size:
            return np.arange(0)
        sample = min(max(_MIN_SAMPLE, round(values.size * _SAMPLE_SHARE)), values.size)
        threshold = sampled_threshold(values, k / values.size, sample, context.draws.common_words(sample))
        above = np.flatnonzero(np.abs(values) >= threshold)
        if len(above) > k:
            above = above[largest(values[above], k)]
        return above


def make(ratio: float = 0.01) -> Codec:
    """Create GradDrop, which keeps about `ratio` of the numbers and never more."""
    return GradDrop("graddrop", ratio)


DESCRIPTION: Final = CodecDescription("graddrop", "magnitudes above a sampled threshold, by all-gather", make)
