"""Random numbers by position: the same numbers for the same seed, chunk and place, in any order of computation.

A chunk that is sent again, after a loss or on another tree, is encoded with the same numbers, so its lanes are the
same. The generator is a hash of a counter: 32 bits mixed by two multiplications (Wellons, "lowbias32").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

UintArray = NDArray[np.uint32]

_WORD: Final = 0xFFFF_FFFF
_STRIDE: Final = np.uint32(0x9E37_79B1)
_FIRST: Final = np.uint32(0x7FEB_352D)
_SECOND: Final = np.uint32(0x846C_A68B)
_OWN_STREAM: Final = 0x5EED_0001
"""Separates what workers draw alone from what they draw in common."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Seeds of one call: one that all workers have in common, and the rank that makes a worker's own numbers."""

    seed: int = 0
    """The same at every worker, another one for each call; taken modulo 2³²."""
    rank: int = 0

    def own_uniform(self, chunks: UintArray, size: int) -> NDArray[np.float32]:
        """Return this worker's numbers in [0, 1), multiples of 2⁻²⁴, float32 (k, size), for chunks (k,)."""
        bits = _bits(self.own_keys(chunks), size)
        bits >>= np.uint32(8)
        uniform = bits.astype(np.float32)
        uniform *= np.float32(2.0**-24)
        return uniform

    def own_keys(self, chunks: UintArray) -> UintArray:
        """Return the keys (k,) by which this worker's numbers of chunks are made, for native code."""
        return _keys(self.own_seed, chunks)

    @property
    def own_seed(self) -> int:
        """Seed of this worker's own numbers, 32 bits."""
        return (self.seed + _OWN_STREAM * (self.rank + 1)) & _WORD

    @property
    def common_seed(self) -> int:
        """Seed of what workers draw in common, 32 bits."""
        return self.seed & _WORD

    def common_signs(self, chunks: UintArray, size: int) -> UintArray:
        """Return sign bits of float32 numbers, 0 or 2³¹, (k, size), the same at every worker."""
        return _bits(_keys(self.common_seed, chunks), size) & np.uint32(1 << 31)

    def common_words(self, size: int) -> UintArray:
        """Return words (size,) of 32 random bits, the same at every worker."""
        words: UintArray = _bits(_keys(self.common_seed, np.zeros(1, np.uint32)), size)[0]
        return words


def mixed(seed: int, *words: int) -> int:
    """Return a seed of 32 bits from another one and more words."""
    state = np.array([seed & _WORD], np.uint32)
    for word in words:
        state = _hashed(state ^ np.uint32(word & _WORD)) + _STRIDE
    return int(_hashed(state)[0])


def _bits(keys: UintArray, size: int) -> UintArray:
    """Random words (k, size) by the keys (k,) of chunks."""
    return _hashed(np.arange(size, dtype=np.uint32) * _STRIDE + keys[:, None])


def _keys(seed: int, chunks: UintArray) -> UintArray:
    """Keys of chunks (k,)."""
    return _hashed(_hashed(chunks.astype(np.uint32) * _STRIDE) ^ np.uint32(seed))


def _hashed(words: UintArray) -> UintArray:
    """Mix words of a new array in place: x ← (x ⊕ x≫16)·a, (x ⊕ x≫15)·b, x ⊕ x≫16."""
    words ^= words >> np.uint32(16)
    words *= _FIRST
    words ^= words >> np.uint32(15)
    words *= _SECOND
    words ^= words >> np.uint32(16)
    return words
