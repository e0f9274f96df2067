"""Packed numbers: uniform levels of a rotated chunk, in fields of 6, 7, 8, 10 or 15 bits.

With few levels the scale is a clipped one: τ times the root mean square, where τ balances what clipping and what
rounding lose of normal numbers. With many it is the largest magnitude, and nothing is clipped.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors.values import shown
from ..errors import InvalidTensor
from .datatypes import register
from .encodings import ChunkPlace
from .lane_codes import LaneLayout, LaneType, UniformCode, clipped_range, fixed_field, native_code
from .quantization import Float32Array
from .rotation import block_size, rotate, rotate_back

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

    def spread(self, chunks: Float32Array, place: ChunkPlace) -> Float32Array:
        if not self.rotated:
            return chunks
        if (fast := native_code()) is not None:
            turned = np.array(chunks, np.float32, order="C")
            fast.rotate(turned, place.draws.common_keys(place.chunks), *_blocks(chunks))
            return turned
        return rotate(chunks, place.draws.common_signs(place.chunks, chunks.shape[1]))

    def gather(self, chunks: Float32Array, place: ChunkPlace) -> Float32Array:
        if not self.rotated:
            return chunks
        if (fast := native_code()) is not None:
            fast.rotate_back(chunks, place.draws.common_keys(place.chunks), *_blocks(chunks))
            return chunks
        return rotate_back(chunks, place.draws.common_signs(place.chunks, chunks.shape[1]))

    def scale(self, chunks: Float32Array, levels: int) -> NDArray[np.float64]:
        return clipped_range(chunks, _CLIP if self.rotated and levels < _MIN_UNCLIPPED else None)


def _blocks(chunks: Float32Array) -> tuple[int, np.float32]:
    """Numbers in a block of these chunks, and the factor that keeps norms."""
    size = block_size(chunks.shape[1])
    return size, np.float32(size**-0.5)


PACKED: Final = {bits: register(LaneType(Packed(bits))) for bits in FIELD_BITS}
"""Registered packed types by the bits of a field, named "packed6" and so on."""
