"""Codes of numbers and their indices, for sparse codecs: one word with their count, k indices, k numbers."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from ..array_types import IntArray
from ..errors import InvalidTensor
from ..numerics.quantization import Float32Array
from .codec import Context, GatheredCodec, kept, number_text


class SparseCodec(GatheredCodec):
    """A codec that keeps at most k = ratio · size numbers, which each worker chooses alone."""

    def __init__(self, name: str, ratio: float) -> None:
        check_ratio(name, ratio)
        self.ratio = ratio
        self.name = f"{name}({number_text(ratio)})"

    @abstractmethod
    def choose(self, values: Float32Array, k: int, context: Context) -> IntArray:
        """Return at most k indices, ascending."""

    def encode(self, values: Float32Array, context: Context) -> NDArray[np.int32]:
        k = kept(context.size, self.ratio)
        indices = self.choose(values, k, context)
        words = np.zeros(1 + 2 * k, np.int32)
        words[0] = len(indices)
        words[1 : 1 + len(indices)] = indices
        words[1 + k : 1 + k + len(indices)] = values[indices].view(np.int32)
        return words

    def decode(self, code: NDArray[np.int32], context: Context) -> Float32Array:
        k, count = len(code) // 2, int(code[0])
        values = np.zeros(context.size, np.float32)
        values[code[1 : 1 + count]] = code[1 + k : 1 + k + count].view(np.float32)
        return values

    def code_bytes(self, size: int) -> int:
        return 4 + 8 * kept(size, self.ratio)


def check_ratio(name: str, ratio: float) -> None:
    """Raise InvalidTensor unless 0 < ratio ≤ 1."""
    if not 0 < ratio <= 1:
        raise InvalidTensor(f"ratio must be above 0 and at most 1, got {ratio}", place=f"codec {name}", value=ratio)


def sampled_threshold(values: Float32Array, share: float, sample: int, words: NDArray[np.uint32]) -> float:
    """Return the magnitude that about `share` of the numbers exceed, from a sample of them.

    Args:
        values: Numbers, (n,).
        share: Share to exceed the threshold, 0 … 1.
        sample: Numbers that are looked at.
        words: Random words, (sample,).
    """
    magnitudes = np.sort(np.abs(values[words[:sample].astype(np.uint64) * np.uint64(values.size) >> np.uint64(32)]))
    return float(magnitudes[max(0, len(magnitudes) - max(1, round(share * len(magnitudes))))])
