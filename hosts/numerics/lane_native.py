"""Native code of packed numbers: rotation, rounding and fields of a chunk in one pass, with the bits of NumPy's.

It is used where Numba is installed. Each function computes in the order of `rotation`, `lane_codes` and `draws`, in
float32 and uint32, so results are equal bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...wire.native_code import allocating, native


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
def _transform(chunk: Any, size: Any, factor: Any) -> None:
    """Hadamard transform of each block of a chunk, in place; the first three steps are made in registers."""
    for start in range(0, chunk.size, size):
        width = 1
        if size >= 8:
            for index in range(start, start + size, 8):
                a, b, c, d = chunk[index], chunk[index + 1], chunk[index + 2], chunk[index + 3]
                e, f, g, h = chunk[index + 4], chunk[index + 5], chunk[index + 6], chunk[index + 7]
                a, b, c, d, e, f, g, h = a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h
                a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
                chunk[index], chunk[index + 1], chunk[index + 2], chunk[index + 3] = a + e, b + f, c + g, d + h
                chunk[index + 4], chunk[index + 5], chunk[index + 6], chunk[index + 7] = a - e, b - f, c - g, d - h
            width = 8
        while width < size:
            for pair in range(start, start + size, 2 * width):
                for i in range(pair, pair + width):
                    first, second = chunk[i], chunk[i + width]
                    chunk[i] = first + second
                    chunk[i + width] = first - second
            width *= 2
    for i in range(chunk.size):
        chunk[i] *= factor


@native
def _change_signs(chunk: Any, key: Any) -> None:
    for i in range(chunk.size):
        word = draw(i, key)
        chunk[i] = -chunk[i] if word >> np.uint32(31) else chunk[i]


@allocating
def rotate(chunks: Any, keys: Any, size: Any, factor: Any) -> None:
    """Rotate chunks (k, v) in place, by the keys (k,) of their signs, in blocks of `size`; `factor` is size^−½."""
    for row in range(chunks.shape[0]):
        _change_signs(chunks[row], keys[row])
        _transform(chunks[row], size, factor)


@allocating
def rotate_back(chunks: Any, keys: Any, size: Any, factor: Any) -> None:
    """Undo `rotate`."""
    for row in range(chunks.shape[0]):
        _transform(chunks[row], size, factor)
        _change_signs(chunks[row], keys[row])


@allocating
def encode(chunks: Any, limits: Any, steps: Any, keys: Any, bits: Any, levels: Any, lanes: Any) -> None:
    """Round chunks (k, v) at random to `levels` levels within ±limits (k,), in fields of `lanes` (k, l), from zeros.

    A limit of 0 leaves lanes as they are. `keys` (k,) make the random numbers; `steps` (k,) are levels in a unit.
    """
    count = lanes.shape[1]
    top = np.float32(levels - 1)
    for row in range(chunks.shape[0]):
        limit, step, key = limits[row], steps[row], keys[row]
        if limit == 0:
            continue
        for field in range(chunks.shape[1] // count):
            shift = np.uint32(field * bits)
            first = field * count
            for lane in range(count):
                number = first + lane
                value = chunks[row, number]
                value = min(max(value, -limit), limit)
                place = min(np.float32(np.float32(value + limit) * step), top)
                low = np.floor(place)
                word = draw(number, key)
                uniform = np.float32(word >> np.uint32(8)) * np.float32(2.0**-24)
                code = np.uint32(low) + np.uint32(uniform < np.float32(place - low))
                lanes[row, lane] |= np.uint32(code << shift)


@allocating
def decode(lanes: Any, units: Any, offsets: Any, divisors: Any, bits: Any, values: Any) -> None:
    """Write (2 · code − offset) · unit / divisor of all fields of lanes (k, l) to values (k, v), by chunk."""
    count = lanes.shape[1]
    mask = np.uint32((1 << bits) - 1)
    for row in range(lanes.shape[0]):
        unit, offset, divisor = units[row], offsets[row], divisors[row]
        for field in range(values.shape[1] // count):
            shift = np.uint32(field * bits)
            first = field * count
            for lane in range(count):
                code = np.int64(np.uint32(lanes[row, lane] >> shift) & mask)
                number = np.float32(np.float64(2 * code - offset) * unit)
                values[row, first + lane] = number / divisor
