"""The back end by Numba: loops over elements, and sums in the order that NumPy's back end has."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
from numba import njit

from ...numerics.lane_codes import SUM_PARTS
from ...numerics.lane_native import draw
from ...numerics.vectors import add_numbers


@njit(nogil=True)
def uniform(keys: Any, out: Any) -> None:
    """Write random numbers (sites, n) by their keys (sites,): those of `Draws.own_uniform`."""
    for site in range(keys.size):
        key = keys[site]
        for i in range(out.shape[1]):
            word = draw(i, key)
            out[site, i] = np.float32(word >> np.uint32(8)) * np.float32(2.0**-24)


@njit(nogil=True)
def _at(vector: Any, index: Any) -> Any:
    if vector.size == 0:
        return np.zeros(1, vector.dtype)[0]
    return vector[np.uint64(min(max(index, 0), vector.size - 1))]


@njit(nogil=True)
def _drawn(key: Any, number: Any) -> Any:
    """Return the random number of an element: that of `Draws.own_uniform`."""
    return np.float32(np.int32(draw(number, key) >> np.uint32(8))) * np.float32(2.0**-24)


@njit(nogil=True)
def _to_uint(value: Any, top: Any) -> Any:
    if value > 0 and value < top:
        return np.uint8(np.int32(value))
    return np.uint8(top) if value >= top else np.uint8(0)


@njit(nogil=True)
def _least(a: Any, b: Any) -> Any:
    return a if a < b else b


@njit(nogil=True)
def _greatest(a: Any, b: Any) -> Any:
    return a if a > b else b


@njit(nogil=True)
def _floor(value: Any) -> Any:
    return np.floor(value)


@njit(nogil=True)
def _root(value: Any) -> Any:
    return np.sqrt(value)


_NAMES: Final[dict[str, Any]] = {
    "np": np,
    "f32": np.float32,
    "i64": np.int64,
    "at": _at,
    "to_uint": _to_uint,
    "abs_": abs,
    "floor_": _floor,
    "sqrt_": _root,
    "min_": _least,
    "max_": _greatest,
    "drawn": _drawn,
}
_BLOCK: Final = 1 << 12
"""Elements whose results are in cache until they are used: a multiple of SUM_PARTS and of 8."""


@lru_cache(maxsize=256)
def compiled(text: str) -> Any:
    """Compile the source of a function `kernel` that `kernels` has written."""
    space = dict(_NAMES)
    exec(text, space)
    return njit(nogil=True, error_model="numpy")(space["kernel"])


@njit(nogil=True)
def _length(elements: Any) -> Any:
    return elements.size


@njit(nogil=True)
def _item(elements: Any, i: Any) -> Any:
    return elements[np.uint64(i)]  # so that no negative index is looked for, which keeps loops scalar


@njit(nogil=True)
def _count(elements: Any) -> Any:
    return elements


@njit(nogil=True)
def _number(elements: Any, i: Any) -> Any:
    return np.int64(i)


@lru_cache(maxsize=256)
def loops_of(text: str, *, counted: bool = False) -> Loops:
    """Return the loops of a source, the same ones for all codecs of this process that have it.

    Args:
        text: Source of `element(i, element, keys, *captures)`.
        counted: Elements are 0 … n − 1; loops take n in place of them.
    """
    return Loops(text, counted=counted)


class Loops:
    """Loops around one function of an element, each compiled when it is first used.

    A loop takes elements, keys of random numbers (sites,), and captured values. Operators that follow a map or a filter
    are inside its loop, so that there are no vectors between them.
    """

    def __init__(self, text: str, *, counted: bool) -> None:
        """Keep the source; the arguments are those of `loops_of`."""
        self._text = text
        self._size, self._at = (_count, _number) if counted else (_length, _item)

    @cached_property
    def _element(self) -> Any:
        space = dict(_NAMES)
        exec(self._text, space)
        return njit(nogil=True, error_model="numpy", forceinline=True)(space["element"])

    @cached_property
    def mapped(self) -> Any:
        """Write results to `out` (n,)."""
        element, at = self._element, self._at

        @njit(nogil=True, error_model="numpy")
        def loop(out: Any, elements: Any, keys: Any, captures: Any) -> None:
            for i in range(out.size):
                out[i] = element(i, at(elements, i), keys, *captures)

        return loop

    @cached_property
    def packed(self) -> Any:
        """Write unsigned results of 1, 2, 4 or 8 bits to bytes, the first of a byte in its highest bits."""
        element, size, at = self._element, self._size, self._at

        @njit(nogil=True, error_model="numpy")
        def loop(out: Any, elements: Any, keys: Any, captures: Any, bits: Any) -> None:
            block = np.zeros(_BLOCK, np.uint8)
            for start in range(0, size(elements), _BLOCK):
                count = min(_BLOCK, size(elements) - start)
                for j in range(count):
                    block[j] = element(start + j, at(elements, start + j), keys, *captures)
                for j in range(count, min(count + 8, _BLOCK)):
                    block[j] = 0
                _pack(block, count, bits, out[start * bits // 8 :])

        return loop

    @cached_property
    def unpacked(self) -> Any:
        """Write results for unsigned elements in bytes to `out` (n,)."""
        element = self._element

        @njit(nogil=True, error_model="numpy")
        def loop(out: Any, packed: Any, keys: Any, captures: Any, bits: Any) -> None:
            block = np.zeros(_BLOCK, np.uint8)
            for start in range(0, out.size, _BLOCK):
                count = min(_BLOCK, out.size - start)
                _unpack(packed[start * bits // 8 :], count, bits, block)
                for j in range(count):
                    out[np.uint64(start + j)] = element(start + j, block[j], keys, *captures)

        return loop

    @cached_property
    def largest(self) -> Any:
        """Return the largest of float results, NaN if one is; of n > 0 elements."""
        element, size, at = self._element, self._size, self._at

        @njit(nogil=True, error_model="numpy")
        def loop(elements: Any, keys: Any, captures: Any) -> Any:
            parts = np.full(SUM_PARTS, -np.inf, np.float32)
            odd = np.zeros(SUM_PARTS, np.bool_)
            whole = size(elements) - size(elements) % SUM_PARTS
            for start in range(0, whole, SUM_PARTS):
                for j in range(SUM_PARTS):
                    result = element(start + j, at(elements, start + j), keys, *captures)
                    parts[j] = result if result > parts[j] else parts[j]
                    odd[j] |= result != result
            for i in range(whole, size(elements)):
                result = element(i, at(elements, i), keys, *captures)
                parts[0] = result if result > parts[0] else parts[0]
                odd[0] |= result != result
            return np.float32(np.nan) if odd.any() else parts.max()

        return loop

    @cached_property
    def kept_sum(self) -> Any:
        """Add the float elements that the function keeps to `parts` (SUM_PARTS,), by their places before the filter."""
        element, size, at = self._element, self._size, self._at

        @njit(nogil=True, error_model="numpy")
        def loop(elements: Any, keys: Any, captures: Any, parts: Any) -> Any:
            block = np.zeros(_BLOCK, np.float32)
            total = 0
            for start in range(0, size(elements), _BLOCK):
                here = min(_BLOCK, size(elements) - start)
                count: Any = np.int32(0)
                for j in range(here):
                    kept = element(start + j, at(elements, start + j), keys, *captures)
                    block[j] = at(elements, start + j) if kept else np.float32(0)
                    count += np.int32(kept)
                total += count
                for j in range(here, _BLOCK):
                    block[j] = 0
                for j in range(0, here, SUM_PARTS):
                    add_numbers(block, j, parts)
            return total

        return loop

    @cached_property
    def kept(self) -> Any:
        """Write the elements that the function keeps to the start of `out` (n,); return how many."""
        element, size, at = self._element, self._size, self._at

        @njit(nogil=True, error_model="numpy")
        def loop(out: Any, elements: Any, keys: Any, captures: Any) -> Any:
            # few elements are kept, so that branches on them are mispredicted: places move by the mask instead
            mask = np.zeros(_BLOCK, np.uint8)
            words = mask.view(np.uint64)
            found = np.zeros(_BLOCK // 8, np.int64)
            count: Any = 0
            for start in range(0, size(elements), _BLOCK):
                here = min(_BLOCK, size(elements) - start)
                for j in range(here):
                    mask[j] = np.uint8(element(start + j, at(elements, start + j), keys, *captures))
                for j in range(here, _BLOCK):
                    mask[j] = 0
                filled: Any = 0
                for word in range(-(-here // 8)):
                    found[np.uint64(filled)] = word
                    filled += np.int64(words[word] != 0)
                for place in range(filled):
                    first = 8 * found[np.uint64(place)]
                    for j in range(first, min(first + 8, here)):
                        out[np.uint64(count)] = at(elements, start + j)
                        count += np.int64(mask[np.uint64(j)])
            return count

        return loop


@njit(nogil=True)
def _pack(block: Any, count: Any, bits: Any, out: Any) -> None:
    """Put `count` numbers of a block, with zeros behind them, into bytes."""
    length = -(-count * bits // 8)
    if bits == 1:
        words = block.view(np.uint64)
        for j in range(length):
            out[j] = np.uint8(np.uint64(words[j] * np.uint64(0x8040201008040201)) >> np.uint64(56))
    elif bits == 2:
        fours = block.view(np.uint32)
        for j in range(length):
            word = fours[j]
            first = np.uint32(np.uint32(word << np.uint32(6)) | np.uint32(word >> np.uint32(4)))
            out[j] = np.uint8(first | np.uint32(word >> np.uint32(14)) | np.uint32(word >> np.uint32(24)))
    elif bits == 4:
        pairs = block.view(np.uint16)
        for j in range(length):
            out[j] = np.uint8(np.uint32(pairs[j]) << np.uint32(4) | np.uint32(pairs[j]) >> np.uint32(8))
    else:
        for j in range(length):
            out[j] = block[j]


@njit(nogil=True)
def _unpack(packed: Any, count: Any, bits: Any, block: Any) -> None:
    """Write `count` numbers of bytes to a block."""
    if bits == 8:
        for j in range(count):
            block[j] = packed[j]
        return
    if bits == 1:
        eights = block.view(np.uint64)
        for j in range(-(-count // 8)):
            bit = np.uint64(np.uint64(packed[j]) * np.uint64(0x0101010101010101)) & np.uint64(0x0102040810204080)
            eights[j] = np.uint64(bit + np.uint64(0x7F7F7F7F7F7F7F7F)) >> np.uint64(7) & np.uint64(0x0101010101010101)
    elif bits == 2:
        fours = block.view(np.uint32)
        for j in range(-(-count // 4)):
            byte = np.uint32(packed[j])
            spread = byte >> np.uint32(6) | byte << np.uint32(4) | byte << np.uint32(14) | byte << np.uint32(24)
            fours[j] = np.uint32(spread) & np.uint32(0x03030303)
    else:
        pairs = block.view(np.uint16)
        for j in range(-(-count // 2)):
            byte = np.uint32(packed[j])
            pairs[j] = np.uint16((byte >> np.uint32(4) | byte << np.uint32(8)) & np.uint32(0x0F0F))
