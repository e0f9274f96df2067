"""Uniform levels in a common range: 2^bits of them within the largest magnitude of a chunk."""

from typing import Final

from ....errors.values import shown
from ...errors import InvalidTensor
from ...numerics.encodings import LANE_BITS
from ...numerics.lane_codes import LaneLayout, LaneType, UniformCode, fixed_levels
from ..codec import Codec, CodecDescription, LaneCodec

_MAX_BITS: Final = 8


class Levels(UniformCode):
    """A fixed number of uniform levels; the field grows with the number of workers."""

    def __init__(self, name: str, levels: int, clip: float = 0.0) -> None:
        """`clip`: standard deviations beyond which numbers of a chunk are clipped; 0: no clipping."""
        self.name = name
        self._levels = levels
        self._clip = clip

    def layout(self, workers: int) -> LaneLayout:
        layout = fixed_levels(self._levels, workers)
        if layout.bits > LANE_BITS:
            raise InvalidTensor(f"too many workers: {workers}", place=f"dtype {self.name}", value=workers)
        return layout

    def clip(self, levels: int) -> float:
        return self._clip


def make(bits: int = 4) -> Codec:
    """Create uniform quantisation to 2^bits levels, 1 to 8 bits."""
    if bits not in range(1, _MAX_BITS + 1):
        raise InvalidTensor(f"bits must be 1 to {_MAX_BITS}, got {shown(bits)}", place="codec uniform", value=bits)
    return LaneCodec(LaneType(Levels(f"uniform({bits})", 1 << bits)))


DESCRIPTION: Final = CodecDescription(
    "uniform", "2^bits uniform levels in the range of a chunk, by stochastic rounding", make
)
