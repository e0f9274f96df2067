"""Packed numbers: rotated chunks in uniform levels, several to a lane, summed by the switches."""

from typing import Final

from ...numerics.lane_codes import LaneType
from ...numerics.packed import Packed
from ..codec import Codec, CodecDescription, LaneCodec


def make(bits: int = 8, rotated: bool = True) -> Codec:
    """Create packed numbers in fields of `bits` bits: 6, 7, 8, 10 or 15."""
    return LaneCodec(LaneType(Packed(bits, rotated=rotated)))


DESCRIPTION: Final = CodecDescription(
    "packed", "uniform levels of rotated chunks, in fields of 6, 7, 8, 10 or 15 bits", make
)
