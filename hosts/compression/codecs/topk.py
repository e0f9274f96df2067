"""Top-k: the largest magnitudes and their indices, chosen by MSTopK, by all-gather."""

from typing import Final

from ...array_types import IntArray
from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, Context
from ..mstopk import largest
from ..sparse import SparseCodec


class TopK(SparseCodec):
    """The k largest magnitudes of each worker."""

    def choose(self, values: Float32Array, k: int, context: Context) -> IntArray:
        return largest(values, k)


def make(ratio: float = 0.01) -> Codec:
    """Create top-k, which keeps `ratio` of the numbers."""
    return TopK("topk", ratio)


DESCRIPTION: Final = CodecDescription("topk", "the largest magnitudes by MSTopK, by all-gather", make)
