"""Packed numbers: uniform levels of a rotated chunk, in fields of 6, 7, 8, 10 or 15 bits.

With few levels the scale is a clipped one: τ times the root mean square, where τ balances what clipping and what
rounding lose of normal numbers. With many it is the largest magnitude, and nothing is clipped.
"""

from __future__ import annotations

from typing import Final

from ...errors.values import shown
from ..errors import InvalidTensor
from .datatypes import register
from .lane_codes import LaneLayout, LaneType, UniformCode, fixed_field

FIELD_BITS: Final = (6, 7, 8, 10, 15)
"""Bits of a field, of which 5, 4, 4, 3 and 2 fill a lane."""
_MIN_UNCLIPPED: Final = 128
"""Levels from which numbers are not clipped."""
_CLIP: Final = 2.154
"""τ: 1 of 32 normal numbers is beyond it."""


class Packed(UniformCode):
    """Uniform levels by stochastic rounding, as many as a field holds for the job's workers."""

    def __init__(self, bits: int, *, rotated: bool = True) -> None:
        """Create the code of fields of `bits` bits; `rotated`: chunks are rotated before they are quantised."""
        if bits not in FIELD_BITS:
            raise InvalidTensor(
                f"no packed numbers of {shown(bits)} bits", place="bits", value=bits, allowed=FIELD_BITS
            )
        self.bits = bits
        self.rotated = rotated
        self.name = f"packed{bits}" if rotated else f"packed{bits}-unrotated"

    def layout(self, workers: int) -> LaneLayout:
        return fixed_field(self.bits, workers, self.name)

    def clip(self, levels: int) -> float:
        return _CLIP if self.rotated and levels < _MIN_UNCLIPPED else 0.0


PACKED: Final = {bits: register(LaneType(Packed(bits))) for bits in FIELD_BITS}
"""Registered packed types by the bits of a field, named "packed6" and so on."""
