"""Several small codes in one 32-bit lane: lossy types of numbers that switches sum as they sum int32.

::

    numbers of a chunk ─ spread ─▶ quantise by the agreed scale ─▶ codes 0 … L−1 ─ k fields of f bits ─▶ lanes
    sums of lanes ─▶ sums of codes, n workers ─ restore by the scale and the number of contributors ─▶ numbers

A field of f bits holds the sum of n codes, n · (L − 1) < 2^f, so fields never carry into each other, in any order or
tree. Number i of a chunk is in field i // lanes of lane i mod lanes, field 0 in the lowest bits.

The scale is agreed by the exponent rounds: the 8-bit code c stands for 2^((c − 160)/4), a quarter of an octave a step;
0 for a chunk of zeros; 255, the maximum, for a chunk with a NaN or an infinity, all of whose numbers become NaN. The
summed weight of a chunk is the number of its contributors, by which codes that are offsets are decoded: it is right
also where a worker was lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..array_types import IntArray
from ..errors import InvalidTensor
from .datatypes import LARGEST_EXPONENT, Exponents, FloatScalars, FloatType
from .draws import UintArray
from .encodings import LANE_BITS, ChunkPlace, Encoding
from .quantization import Float32Array, Int32Array
from .rotation import block_size, rotate, rotate_back
from .scalars import ShortFloats

NAN_CODE: Final = LARGEST_EXPONENT
_BIAS: Final = 160
_STEPS: Final = 4
"""Scale codes in an octave."""


def _scale_table() -> NDArray[np.float64]:
    codes = np.arange(LARGEST_EXPONENT + 1) - _BIAS
    table = np.ldexp(np.array([2.0 ** (step / _STEPS) for step in range(_STEPS)])[codes % _STEPS], codes // _STEPS)
    table[0] = 0
    table[NAN_CODE] = np.nan
    rounded: NDArray[np.float64] = table.astype(np.float32).astype(np.float64)
    return rounded


SCALES: Final = _scale_table()
"""Scale by its code, (256,): multiples of float32, so that computing with float32 or float64 starts alike."""
LARGEST_SCALE: Final = float(SCALES[NAN_CODE - 1])
SQUARE_PARTS: Final = 32
"""Float64 parts of a sum of squares: number i is added to part i mod 32, and halves of the parts to each other."""
_LIMITS: Final = np.where(np.isnan(SCALES), 0, SCALES).astype(np.float32)
"""Scale by its code as native code takes it; 0 where there are no numbers."""
SUM_PARTS: Final = 64
"""Float64 parts of a sum of numbers: number i is added to part i mod 64, and all parts to each other in their order."""


@cache
def _steps(levels: int) -> Float32Array:
    """Return the levels in a unit by the scale's code, (256,)."""
    there = _LIMITS > 0
    steps: Float32Array = ((levels - 1) / (2 * np.where(there, SCALES, 1.0))).astype(np.float32)
    return steps


@cache
def native_code() -> Any:
    """Return the module `lane_native`; None where Numba is not installed."""
    return import_module(".lane_native", __package__) if find_spec("numba") is not None else None


def scale_codes(scales: NDArray[np.float64]) -> Exponents:
    """Return the least code (k,) whose scale is not below the one asked for; 256 where there is none."""
    codes: Exponents = np.searchsorted(SCALES[:NAN_CODE], scales, side="left").astype(np.int64)
    codes[codes == NAN_CODE] = LARGEST_EXPONENT + 1
    return codes


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """Fields of a lane."""

    bits: int
    """f: bits of a field."""
    levels: int
    """L: a worker's code is 0 … L − 1."""

    @property
    def per_lane(self) -> int:
        """k: fields of a lane."""
        return LANE_BITS // self.bits


def fixed_field(bits: int, workers: int, name: str) -> LaneLayout:
    """Return the layout of fields of `bits` bits, with as many levels as the sum of so many workers leaves.

    Raises:
        InvalidTensor: There would be less than two levels.
    """
    levels = ((1 << bits) - 1) // workers + 1
    if levels < 2:
        raise InvalidTensor(
            f"{workers} workers; a field of {bits} bits holds the sum of {(1 << bits) - 1} at most",
            place=f"dtype {name}",
            value=workers,
        )
    return LaneLayout(bits, levels)


def fixed_levels(levels: int, workers: int) -> LaneLayout:
    """Return the layout of the narrowest fields that hold the sum of so many workers' codes."""
    return LaneLayout((workers * (levels - 1)).bit_length(), levels)


class LaneCode(ABC):
    """Rule by which numbers become codes of a few levels, and sums of codes numbers.

    All methods work on whole chunks, float32 (k, v). Equal names mean equal rules: they are part of a call's signature.
    """

    name: str

    @abstractmethod
    def layout(self, workers: int) -> LaneLayout:
        """Return fields and levels for a job of `workers` workers.

        Raises:
            InvalidTensor: The job has too many workers.
        """

    def spread(self, chunks: Float32Array, place: ChunkPlace) -> Float32Array:
        """Return the numbers that are quantised in place of a chunk's own, such as rotated ones."""
        return chunks

    def gather(self, chunks: Float32Array, place: ChunkPlace) -> Float32Array:
        """Undo `spread` on chunks (k, v)."""
        return chunks

    @abstractmethod
    def scale(self, chunks: Float32Array, levels: int, sizes: IntArray) -> NDArray[np.float64]:
        """Return the scales (k,) that this worker asks for; workers agree on the largest one of each chunk.

        Args:
            chunks: Numbers (k, v), as `spread` returned them.
            levels: Number of levels L.
            sizes: How many of a chunk's numbers are there, (k,) > 0. The zeros after them are in no mean.
        """

    @abstractmethod
    def quantise(
        self, chunks: Float32Array, scales: NDArray[np.float64], levels: int, uniform: Float32Array
    ) -> UintArray:
        """Return the codes of numbers.

        Args:
            chunks: Numbers (k, v), as `spread` returned them.
            scales: Agreed scales (k,) > 0.
            levels: Number of levels L.
            uniform: Random numbers of this worker, in [0, 1), (k, v).

        Returns:
            Codes in 0…L − 1, uint32 (k, v).
        """

    @abstractmethod
    def restore(
        self, sums: IntArray, scales: NDArray[np.float64], levels: int, contributors: NDArray[np.int64]
    ) -> Float32Array:
        """Return the sums of numbers that belong to sums of codes.

        Args:
            sums: Sums of codes (k, v).
            scales: Agreed scales (k,) > 0.
            levels: Number of levels L.
            contributors: Number of workers whose codes were added, (k,).

        Returns:
            Sums of numbers, float32 (k, v), before `gather`.
        """


def centred(sums: IntArray, scales: NDArray[np.float64], levels: int, contributors: NDArray[np.int64]) -> Float32Array:
    """Restore sums of codes whose level l stands for scale · (2l/(L − 1) − 1), rounded to float32 once.

    Same contract as `LaneCode.restore`.
    """
    offset = 2 * sums - (contributors * (levels - 1))[:, None]
    return (offset * (scales / (levels - 1))[:, None]).astype(np.float32)


def square_sums(chunks: Float32Array) -> NDArray[np.float64]:
    """Return the sum of squares of each chunk (k,), added in the order of native code."""
    size = chunks.shape[1]
    squares = np.zeros((len(chunks), -(-size // SQUARE_PARTS) * SQUARE_PARTS))
    np.square(chunks, dtype=np.float64, out=squares[:, :size])
    parts = np.add.reduce(squares.reshape(len(chunks), -1, SQUARE_PARTS), axis=1)
    while parts.shape[1] > 1:
        parts = parts[:, : parts.shape[1] // 2] + parts[:, parts.shape[1] // 2 :]
    sums: NDArray[np.float64] = parts[:, 0]
    return sums


def stochastic(chunks: Float32Array, scales: NDArray[np.float64], levels: int, uniform: Float32Array) -> UintArray:
    """Round each number to one of the two nearest uniform levels in ±scale, at random so that the mean is the number.

    Numbers beyond ±scale become the outermost level. Same contract as `LaneCode.quantise`.
    """
    limit = scales.astype(np.float32)[:, None]
    steps = ((levels - 1) / (2 * scales)).astype(np.float32)[:, None]
    place = np.clip(chunks, -limit, limit)
    place += limit
    place *= steps
    np.minimum(place, np.float32(levels - 1), out=place)
    low = np.floor(place)
    place -= low
    codes = low.astype(np.uint32)
    codes += uniform < place
    return codes


class UniformCode(LaneCode):
    """Uniform levels in ±scale by stochastic rounding, of rotated chunks or not. Native code computes the same."""

    rotated = False

    def clip(self, levels: int) -> float:
        """Return the bound of a scale in root mean squares of its chunk; 0: scales are largest magnitudes."""
        return 0.0

    def rotation(self, values: int) -> tuple[int, np.float32]:
        """Return the numbers of a block of a chunk of `values`, 0 if not rotated, and the factor that keeps norms."""
        size = block_size(values) if self.rotated else 0
        return size, np.float32(max(size, 1) ** -0.5)

    def spread_sizes(self, sizes: IntArray, values: int) -> IntArray:
        """Return how many numbers (k,) of chunks of `values` are not padding once they are spread: whole blocks."""
        block = self.rotation(values)[0]
        return -(-sizes // block) * block if block else sizes

    def spread(self, chunks: Float32Array, place: ChunkPlace) -> Float32Array:
        if not self.rotated:
            return chunks
        return rotate(chunks, place.draws.common_signs(place.chunks, chunks.shape[1]))

    def gather(self, chunks: Float32Array, place: ChunkPlace) -> Float32Array:
        if not self.rotated:
            return chunks
        return rotate_back(chunks, place.draws.common_signs(place.chunks, chunks.shape[1]))

    def scale(self, chunks: Float32Array, levels: int, sizes: IntArray) -> NDArray[np.float64]:
        scales: NDArray[np.float64] = np.abs(chunks).max(axis=1).astype(np.float64)
        if clip := self.clip(levels):
            there = self.spread_sizes(sizes, chunks.shape[1])
            scales = np.minimum(scales, clip * np.sqrt(square_sums(chunks) / there))
        return scales

    def quantise(
        self, chunks: Float32Array, scales: NDArray[np.float64], levels: int, uniform: Float32Array
    ) -> UintArray:
        return stochastic(chunks, scales, levels, uniform)

    def restore(
        self, sums: IntArray, scales: NDArray[np.float64], levels: int, contributors: NDArray[np.int64]
    ) -> Float32Array:
        return centred(sums, scales, levels, contributors)


class LaneType(FloatType):
    """A lossy type of numbers: float32 arrays whose sums are sums of a lane code."""

    lossy = True

    def __init__(self, code: LaneCode) -> None:
        super().__init__(code.name, np.float32, digits=24, least=-149)
        self.stored_as_bits = False
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return LaneType, (self.code,)

    def scalars(self, workers: int, *, mean: bool) -> FloatScalars:
        """Return float32's, for bounds that a lossy type does not have."""
        return ShortFloats(self, workers)

    def widen(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.astype(np.float32, copy=False)

    def narrow(self, values: NDArray[np.float64]) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return values.astype(np.float32)

    def encoding(self, workers: int, lanes: int, *, mean: bool, propagate: bool, poison: bool) -> Encoding:
        """Same contract as `encodings.encoding_of`. Raises InvalidTensor for `propagate`, too."""
        if propagate:
            raise InvalidTensor(
                'NaN and infinity cannot be propagated; take nonfinite="error" or "poison"',
                place=f"dtype {self.name}",
                value="propagate",
            )
        layout = self.code.layout(workers)
        return LaneEncoding(
            self,
            self.scalars(workers, mean=mean),
            mean,
            lanes * layout.per_lane,
            lanes=lanes,
            code=self.code,
            layout=layout,
            poisons=poison,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LaneEncoding(Encoding):
    """Summation of codes of several numbers in each lane."""

    code: LaneCode
    layout: LaneLayout
    poisons: bool
    """True if a NaN makes its chunk NaN; false if it is refused."""

    @property
    def may_wrap(self) -> bool:
        """True: fields take all bits of a lane."""
        return True

    def check_weight(self, weight: int) -> None:
        if weight != 1:
            raise InvalidTensor(
                f"weight {weight}; contributors are counted by their weights, so it must be 1",
                place=f"dtype {self.kind.name}",
                value=weight,
            )

    def prepare(self, values: NDArray[Any], weight: int, place: ChunkPlace) -> Exponents:
        """Spread the chunks in place and return the scale codes that they ask for; 256: one cannot be summed."""
        sizes = np.full(len(values), self.values) if place.sizes is None else place.sizes
        if isinstance(self.code, UniformCode) and (fast := native_code()) is not None and values.flags.c_contiguous:
            asked = np.empty(len(values))
            clip, seed = float(self.code.clip(self.layout.levels)), place.draws.common_seed
            rotation, there = self.code.rotation(self.values), self.code.spread_sizes(sizes, self.values)
            fast.prepare(values, place.chunks, there, seed, *rotation, clip, LARGEST_SCALE, asked)
            bad = np.isnan(asked)
            codes = scale_codes(np.where(bad, np.inf, asked))
            if self.poisons and bad.any():
                codes[bad] = NAN_CODE
                values[bad] = 0
            return codes
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            if not self.poisons:
                return np.where(finite, 0, LARGEST_EXPONENT + 1)
            codes = np.full(len(values), NAN_CODE, np.int64)
            codes[finite] = self.prepare(rest := values[finite], weight, place.of(finite))
            values[finite] = rest
            values[~finite] = 0
            return codes
        with np.errstate(over="ignore", invalid="ignore"):
            spread = self.code.spread(values, place)
            scales = self.code.scale(spread, self.layout.levels, sizes)
        codes = scale_codes(np.where(np.isnan(scales), np.inf, scales))
        fit = codes <= LARGEST_EXPONENT  # others stay as they are, to be named in an error
        values[fit] = spread[fit]
        return codes

    def encode(
        self, values: NDArray[Any], exponents: NDArray[np.uint8], weight: int, place: ChunkPlace | None = None
    ) -> Int32Array:
        """Same contract as `Encoding.encode`; `exponents` are codes of scales, and the weight has no effect."""
        place = place or ChunkPlace.first(len(values))
        if isinstance(self.code, UniformCode) and (fast := native_code()) is not None:
            lanes = np.empty((len(values), self.lanes), np.uint32)
            limits, steps = _LIMITS[exponents], _steps(self.layout.levels)[exponents]
            draws = place.chunks, place.draws.own_seed
            fast.encode(
                np.ascontiguousarray(values), limits, steps, *draws, self.layout.bits, self.layout.levels, lanes
            )
            return lanes.view(np.int32)
        scales = SCALES[exponents]
        there = (exponents > 0) & (exponents < NAN_CODE)
        if (fast := native_code()) is not None:
            uniform = np.empty((len(values), self.values), np.float32)
            fast.draw_uniform(place.chunks, place.draws.own_seed, uniform)
        else:
            uniform = place.draws.own_uniform(place.chunks, self.values)
        codes = self.code.quantise(values, np.where(there, scales, 1.0), self.layout.levels, uniform)
        codes[~there] = 0
        fields = codes.reshape(len(values), self.layout.per_lane, self.lanes)
        lanes = fields[:, 0].copy()
        for field in range(1, self.layout.per_lane):
            lanes |= fields[:, field] << np.uint32(field * self.layout.bits)
        return lanes.view(np.int32)

    def decode(
        self,
        sums: Int32Array,
        exponents: NDArray[np.uint8],
        weights: NDArray[np.int64],
        place: ChunkPlace | None = None,
    ) -> NDArray[Any]:
        """Same contract as `Encoding.decode`; `exponents` are codes of scales, `weights` numbers of contributors."""
        place = place or ChunkPlace.first(len(sums))
        contributors = np.asarray(weights, np.int64)
        nan = exponents == NAN_CODE
        scales = np.where(nan | (contributors == 0), 0.0, SCALES[exponents])
        divisors = np.maximum(contributors if self.mean else 1, np.ones_like(contributors)).astype(np.float32)
        if isinstance(self.code, UniformCode) and (fast := native_code()) is not None:
            steps = self.layout.levels - 1
            values = np.empty((len(sums), self.values), np.float32)
            lanes = np.ascontiguousarray(sums).view(np.uint32)
            rotation = place.chunks, place.draws.common_seed, *self.code.rotation(self.values)
            fast.decode(lanes, scales / steps, contributors * steps, divisors, self.layout.bits, *rotation, values)
        else:
            values = self._restored(sums, np.where(scales == 0, 1.0, scales), contributors)
            values[scales == 0] = 0
            values /= divisors[:, None]
            values = self.code.gather(values, place)
        values[nan] = np.nan
        return values

    def _restored(self, sums: Int32Array, scales: NDArray[np.float64], contributors: NDArray[np.int64]) -> Float32Array:
        """Sums of numbers as they were before they were spread back."""
        shifts = np.arange(self.layout.per_lane, dtype=np.uint32) * np.uint32(self.layout.bits)
        fields = sums.view(np.uint32)[:, None, :] >> shifts[:, None] & np.uint32((1 << self.layout.bits) - 1)
        codes = fields.reshape(len(sums), self.values).astype(np.int64)
        return self.code.restore(codes, scales, self.layout.levels, contributors)

    def refused(self, values: NDArray[Any], weight: int) -> int:
        """Return the number of a chunk's element that cannot be summed."""
        return int(np.abs(values).argmax())
