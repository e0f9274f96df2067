"""TernGrad: −1, 0 or 1 times the common range of a chunk, by stochastic rounding (Wen et al., 2017)."""

import math
from typing import Final

from ...errors import InvalidTensor
from ...numerics.lane_codes import LaneType
from ..codec import Codec, CodecDescription, LaneCodec, number_text
from .uniform import Levels


def make(clip: float = 2.5) -> Codec:
    """Create TernGrad, which clips a chunk's numbers at `clip` root mean squares."""
    if not 0 < clip < math.inf:
        raise InvalidTensor(f"clip must be above 0 and finite, got {clip}", place="codec terngrad", value=clip)
    return LaneCodec(LaneType(Levels(f"terngrad({number_text(clip)})", 3, clip)))


DESCRIPTION: Final = CodecDescription(
    "terngrad", "-1, 0 or 1 times the clipped range of a chunk, by stochastic rounding", make, feedback=False
)
