"""Masks of a ternary table that share a hash, as in TupleMerge (Daly et al., IEEE/ACM Transactions on Networking 2019).

Tuple space search hashes a packet's key once for each mask. Masks with many bits in common need one hash for all of
them: rows are filed under the bits that all their masks have, and a row's own mask is compared afterwards. The price is
that several rows may have the same filed bits, so that a probe compares them all. Masks are merged only while that
stays rare.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .slots import hash_many

MOST_TOGETHER: Final = 16
"""Maximum number of rows of one group with the same filed bits."""
_MEAN_TOGETHER: Final = 0.25
"""Maximum number of other rows with the same filed bits, in the mean over a group's rows when masks are merged."""
_TRIES: Final = 3
"""Groups that are tried for a mask, those with the most bits in common."""
_SAMPLE: Final = 2048
"""Rows of a group, at least, by which a merge is judged if it has more."""


@dataclass(slots=True)
class _Merged:
    bits: int
    """Bits that all masks of the group have."""
    numbers: list[int]
    """Its masks, as positions."""
    keys: NDArray[np.uint64]
    """Masked keys of its rows, shape (rows, words)."""


def merge_masks(masks: Sequence[int], keys: Sequence[NDArray[np.uint64]]) -> list[list[int]]:
    """Divide masks into groups that share a hash.

    Args:
        masks: Different masks.
        keys: Masked keys of each mask's rows, shape (rows, words) each.

    Returns:
        For each group the positions of its masks.
    """
    groups: list[_Merged] = []
    for number in sorted(range(len(masks)), key=lambda number: masks[number].bit_count()):
        mask, mine = masks[number], keys[number]
        chosen = next((group for group in _nearest(groups, mask) if _fits(group.bits & mask, group.keys, mine)), None)
        if chosen is None:
            groups.append(_Merged(mask, [number], mine))
        else:
            chosen.bits &= mask
            chosen.numbers.append(number)
            chosen.keys = np.concatenate([chosen.keys, mine])
    return [group.numbers for group in groups]


def _nearest(groups: Sequence[_Merged], mask: int) -> list[_Merged]:
    """Return the groups that have the most bits in common with a mask."""
    return heapq.nlargest(_TRIES, groups, key=lambda group: (group.bits & mask).bit_count())


def _fits(bits: int, *keys: NDArray[np.uint64]) -> bool:
    """Return True if few of the rows with these keys would have the same values of `bits`."""
    rows = sum(map(len, keys))
    if rows > _MEAN_TOGETHER * 2.0 ** bits.bit_count():
        return False
    mask = np.frombuffer(bits.to_bytes(8 * keys[0].shape[1], "little"), np.uint64)
    hashes = np.concatenate([hash_many(part & mask) for part in keys])
    if rows > 2 * _SAMPLE:  # all rows of some values, so that the share of rows with the same ones is kept
        hashes = hashes[hashes % np.uint64(rows // _SAMPLE) == 0]
    _, together = np.unique(hashes, return_counts=True)
    if not len(together):
        return False
    others = float((together * (together - 1)).sum() / together.sum())
    return others <= _MEAN_TOGETHER and int(together.max()) <= MOST_TOGETHER
