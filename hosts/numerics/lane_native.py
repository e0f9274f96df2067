"""Native code of packed numbers: rotation, rounding and fields of a chunk in one pass, with the bits of NumPy's.

It is used where Numba is installed. Each function computes in the order of `rotation`, `lane_codes` and `draws`, in
float32 and uint32, so results are equal bit for bit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...wire.native_code import allocating, native
from .lane_codes import SQUARE_PARTS
from .vectors import WIDTH, add_squares, transform_eights, transform_fours, transform_pairs, transform_within

_SIGN: Final = np.uint32(0x8000_0000)
_MAGNITUDE: Final = np.uint32(0x7FFF_FFFF)
_INFINITY: Final = np.uint32(0x7F80_0000)


@native
def hashed(word: Any) -> Any:
    """Mix a word of 32 bits, as `draws` does."""
    word ^= word >> np.uint32(16)
    word = np.uint32(word * np.uint32(0x7FEB352D))
    word ^= word >> np.uint32(15)
    word = np.uint32(word * np.uint32(0x846CA68B))
    word ^= word >> np.uint32(16)
    return word


@native
def draw(number: Any, key: Any) -> Any:
    """Return 32 random bits for the n-th number under a key, as `draws` does."""
    return hashed(np.uint32(np.uint32(np.uint32(number) * np.uint32(0x9E3779B1)) + key))


@native
def _key(seed: Any, number: Any) -> Any:
    """Return the key of a chunk's random numbers, as `draws` does."""
    return hashed(np.uint32(hashed(np.uint32(number * np.uint32(0x9E3779B1))) ^ np.uint32(seed)))


@native
def _transform(chunk: Any, size: Any) -> None:
    """Hadamard transform of each block of `size` numbers of a contiguous chunk, in place and not divided."""
    width = 1
    if size >= WIDTH:
        for start in range(0, chunk.size, WIDTH):
            transform_within(chunk, start)
        width = WIDTH
    while width < size:
        steps = 1
        if size < WIDTH:
            for pair in range(0, chunk.size, 2 * width):
                for i in range(pair, pair + width):
                    first, second = chunk[i], chunk[i + width]
                    chunk[i] = first + second
                    chunk[i + width] = first - second
        elif size == 2 * width:
            for block in range(0, chunk.size, 2 * width):
                for start in range(block, block + width, WIDTH):
                    transform_pairs(chunk, start, width)
        elif size == 4 * width:
            steps = 2
            for block in range(0, chunk.size, 4 * width):
                for start in range(block, block + width, WIDTH):
                    transform_fours(chunk, start, width)
        else:
            steps = 3
            for block in range(0, chunk.size, 8 * width):
                for start in range(block, block + width, WIDTH):
                    transform_eights(chunk, start, width)
        width <<= steps


@native
def _change_signs(words: Any, key: Any) -> None:
    for i in range(words.size):
        words[i] ^= np.uint32(draw(i, key) & _SIGN)


@native
def _copy(source: Any, target: Any) -> None:
    for i in range(source.size):
        target[i] = source[i]


@native
def _scaled(chunk: Any, factor: Any) -> None:
    for i in range(chunk.size):
        chunk[i] *= factor


@native
def _largest(words: Any) -> Any:
    """Return the word of the largest magnitude of float32 numbers."""
    largest = np.uint32(0)
    for i in range(words.size):
        largest = max(largest, np.uint32(words[i] & _MAGNITUDE))
    return largest


@native
def _squares(chunk: Any, parts: Any) -> Any:
    """Return the sum of squares in float64, by parts (SQUARE_PARTS,)."""
    whole = chunk.size - chunk.size % SQUARE_PARTS
    for part in range(SQUARE_PARTS):
        parts[part] = 0.0
    for start in range(0, whole, SQUARE_PARTS):
        add_squares(chunk, start, parts)
    for part in range(chunk.size - whole):
        number = np.float64(chunk[whole + part])
        parts[part] += number * number
    half = SQUARE_PARTS // 2
    while half:
        for part in range(half):
            parts[part] += parts[part + half]
        half //= 2
    return parts[0]


@allocating
def draw_uniform(numbers: Any, seed: Any, out: Any) -> None:
    """Write random numbers (k, v) of the chunks of these numbers (k,), as `Draws.own_uniform` returns them."""
    for row in range(out.shape[0]):
        key = _key(seed, numbers[row])
        for i in range(out.shape[1]):
            out[row, i] = np.float32(np.int32(draw(i, key) >> np.uint32(8))) * np.float32(2.0**-24)


@allocating
def prepare(
    chunks: Any,
    numbers: Any,
    sizes: Any,
    seed: Any,
    size: Any,
    factor: Any,
    clip: Any,
    bound: Any,
    scales: Any,
) -> None:
    """Rotate contiguous chunks (k, v) in place, and write the scales (k,) that they ask for.

    Args:
        chunks: The numbers. A chunk whose scale is not a number or above `bound` stays as it is.
        numbers: Numbers of the chunks in their tensor, uint32 (k,).
        sizes: Numbers that are not padding once they are rotated, (k,).
        seed: Seed of the rotations' signs.
        size: Numbers of a block that is rotated; 0: chunks are not rotated.
        factor: size^−½.
        clip: Bound of a scale in root mean squares; 0: there is none.
        bound: Largest scale.
        scales: Written: NaN for a chunk with a NaN or an infinity.
    """
    words = np.empty(chunks.shape[1], np.uint32)
    spread = words.view(np.float32)
    parts = np.empty(SQUARE_PARTS)
    for row in range(chunks.shape[0]):
        largest = _largest(chunks[row].view(np.uint32))
        if largest >= _INFINITY:
            scales[row] = np.nan
            continue
        _copy(chunks[row], spread)
        if size:
            _change_signs(words, _key(seed, numbers[row]))
            _transform(spread, size)
            _scaled(spread, factor)
            largest = _largest(words)
            if largest >= _INFINITY:
                scales[row] = np.inf
                continue
        parts.view(np.uint32)[0] = largest
        scale = np.float64(parts.view(np.float32)[0])
        if clip > 0:
            scale = min(scale, clip * np.sqrt(_squares(spread, parts) / sizes[row]))
        scales[row] = scale
        if size and scale <= bound:
            _copy(spread, chunks[row])


@allocating
def encode(chunks: Any, limits: Any, steps: Any, numbers: Any, seed: Any, bits: Any, levels: Any, lanes: Any) -> None:
    """Round contiguous chunks at random to uniform levels, and write the codes to fields of lanes.

    Args:
        chunks: Numbers, float32 (k, v).
        limits: Scales, float32 (k,): levels are in ±limit. A limit of 0 makes lanes of 0.
        steps: Levels in a unit, float32 (k,): (levels − 1) / (2 · limit).
        numbers: Numbers of the chunks in their tensor, uint32 (k,), from which random numbers are made.
        seed: Seed of this worker's random numbers, 32 bits.
        bits: Bits of a field.
        levels: Number of levels.
        lanes: Written, uint32 (k, l); v is a multiple of l.
    """
    count = lanes.shape[1]
    top = np.float32(levels - 1)
    for row in range(chunks.shape[0]):
        limit, step, key = limits[row], steps[row], _key(seed, numbers[row])
        if limit == 0:
            for lane in range(count):
                lanes[row, lane] = 0
            continue
        for field in range(chunks.shape[1] // count):
            shift = np.uint32(field * bits)
            first = field * count
            for lane in range(count):
                number = first + lane
                value = min(max(chunks[row, number], -limit), limit)
                place = min(np.float32(np.float32(value + limit) * step), top)
                low = np.int32(place)
                uniform = np.float32(np.int32(draw(number, key) >> np.uint32(8))) * np.float32(2.0**-24)
                code = np.uint32(low) + np.uint32(uniform < np.float32(place - np.float32(low)))
                lanes[row, lane] = np.uint32(code << shift) | (lanes[row, lane] if field else np.uint32(0))


@allocating
def decode(
    lanes: Any,
    units: Any,
    offsets: Any,
    divisors: Any,
    bits: Any,
    numbers: Any,
    seed: Any,
    size: Any,
    factor: Any,
    values: Any,
) -> None:
    """Write (2 · code − offset) · unit / divisor of all fields of lanes, and undo the rotation of `prepare`.

    Args:
        lanes: Summed lanes, uint32 (k, l).
        units: Half the distance of two levels, float64 (k,); 0 makes zeros.
        offsets: Contributors · (levels − 1), (k,).
        divisors: Divisors of the numbers, float32 (k,).
        bits: Bits of a field.
        numbers: Numbers of the chunks in their tensor, uint32 (k,).
        seed: Seed of the rotations' signs.
        size: Numbers of a block that was rotated; 0: chunks were not rotated.
        factor: size^−½.
        values: Written, float32 (k, v); v is a multiple of l.
    """
    count = lanes.shape[1]
    mask = np.uint32((1 << bits) - 1)
    for row in range(lanes.shape[0]):
        unit, offset, divisor = units[row], np.float64(offsets[row]), divisors[row]
        for field in range(values.shape[1] // count):
            shift = np.uint32(field * bits)
            first = field * count
            for lane in range(count):
                code = np.float64(np.uint32(lanes[row, lane] >> shift) & mask)
                number = np.float32((2.0 * code - offset) * unit) if unit else np.float32(0)
                values[row, first + lane] = number / divisor
        if size:
            chunk = values[row]
            _transform(chunk, size)
            _scaled(chunk, factor)
            _change_signs(chunk.view(np.uint32), _key(seed, numbers[row]))
