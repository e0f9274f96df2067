"""The k largest magnitudes by counting, without sorting: MSTopK with its failure cases mended.

MSTopK (Shi et al., MLSys 2021) bisects a threshold between the mean and the maximum of |x|. It misses where the k-th
magnitude is below the mean (a dense choice, or one outlier that lifts the mean), and has no answer for zeros. Here the
bisection is over the bit patterns of magnitudes, which are ordered as magnitudes are: after at most 31 counts the
threshold is the k-th magnitude itself, whatever the distribution. The mean of |x| is the first pivot.
"""

from __future__ import annotations

import numpy as np

from ..array_types import IntArray
from ..numerics.quantization import Float32Array


def kth_magnitude_bits(values: Float32Array, k: int) -> tuple[int, int]:
    """Return the bits of the k-th largest magnitude, and how many magnitudes are larger.

    Args:
        values: Finite numbers, (n,).
        k: 1 … n.
    """
    candidates = values.view(np.uint32) & np.uint32(0x7FFF_FFFF)
    low, high, larger = 0, int(candidates.max()) + 1, 0  # low <= k-th < high
    pivot = int(np.abs(values).mean(dtype=np.float64).astype(np.float32).view(np.uint32))
    while high - low > 1:
        if not low < pivot < high:
            pivot = (low + high) // 2
        above = candidates >= pivot
        count = int(np.count_nonzero(above))
        if larger + count >= k:
            low = pivot
            candidates = candidates[above]
        else:
            high = pivot
            larger += count
            candidates = candidates[~above]
        pivot = (low + high) // 2
    return low, larger


def largest(values: Float32Array, k: int) -> IntArray:
    """Return the indices (k,) of the k largest magnitudes, ascending; of equal ones those with lower indices."""
    if k >= values.size:
        return np.arange(values.size)
    threshold, larger = kth_magnitude_bits(values, k)
    bits = values.view(np.uint32) & np.uint32(0x7FFF_FFFF)
    chosen = bits > threshold
    ties = np.flatnonzero(bits == threshold)[: k - larger]
    chosen[ties] = True
    return np.flatnonzero(chosen)
