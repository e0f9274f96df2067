"""One bit a number, and the means of those from 0 on and of those below (Seide et al., 2014), by all-gather."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, Context, GatheredCodec

_MEANS_BYTES: Final = 8


class OneBit(GatheredCodec):
    """Signs, and two means of this worker's own; so codes of two workers cannot be summed."""

    name = "onebit"

    def encode(self, values: Float32Array, context: Context) -> NDArray[Any]:
        positive = values >= 0
        means = np.zeros(2, np.float32)
        for place, those in enumerate((values[positive], values[~positive])):
            if those.size:
                means[place] = those.mean(dtype=np.float64)
        return np.concatenate([means.view(np.uint8), np.packbits(positive)])

    def decode(self, code: NDArray[Any], context: Context) -> Float32Array:
        means = code[:_MEANS_BYTES].copy().view(np.float32)
        positive = np.unpackbits(code[_MEANS_BYTES:], count=context.size).astype(np.bool_)
        values: Float32Array = np.where(positive, means[0], means[1])
        return values

    def code_bytes(self, size: int) -> int:
        return _MEANS_BYTES + -(-size // 8)


def make() -> Codec:
    """Create one-bit quantisation."""
    return OneBit()


DESCRIPTION: Final = CodecDescription("onebit", "signs, and the means of both signs, by all-gather", make)
