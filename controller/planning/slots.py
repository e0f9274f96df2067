"""First-fit allotment of a switch's numbered memory: aggregation slots, and the rids of its multicast copies.

A `NumberPool` is one such memory. It never hands out a number twice, and takes back what it gave: the allotments are
ranges [base, base + size), kept sorted by base, and a request takes the first gap that is long enough.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Mapping

from ..errors import OutOfMemory


class NumberPool:
    """Numbers [first, first + size), allotted in ranges to named owners, one range each."""

    def __init__(self, name: str, size: int, first: int = 0) -> None:
        self.name = name
        """Name for error messages: "s1: aggregation slots"."""
        self.size = size
        self.first = first
        self._ranges: list[tuple[int, int, Hashable]] = []  # (base, size, owner), by base
        self._base_of: dict[Hashable, tuple[int, int]] = {}

    def allot(self, owner: Hashable, size: int) -> int:
        """Return the base of the owner's range. An owner that has a range of this size already keeps it.

        Raises OutOfMemory when no gap is long enough, ValueError when the owner holds another size or `size` is below
        1.
        """
        if size < 1:
            raise ValueError(f"{self.name}: {owner} asks for {size}; ask for one or more")
        if (held := self._base_of.get(owner)) is not None:
            if held[1] != size:
                raise ValueError(f"{self.name}: {owner} holds {held[1]} and asks for {size}; free the old range first")
            return held[0]
        base = self.first
        for index, (used, length, _) in enumerate(self._ranges):
            if used - base >= size:
                return self._occupy(index, base, size, owner)
            base = used + length
        if self.first + self.size - base >= size:
            return self._occupy(len(self._ranges), base, size, owner)
        raise OutOfMemory(
            f"{owner} asks for {size} in one piece; {self.free} of {self.size} are free, the longest piece has "
            f"{self.largest_gap}",
            place=self.name,
            value=size,
        )

    def reoccupy(self, owner: Hashable, base: int, size: int) -> None:
        """Allot the owner the range of `size` numbers from `base`, which it had before.

        Raises:
            OutOfMemory: The range is not free.
        """
        index = bisect.bisect_left(self._ranges, base, key=lambda r: r[0])
        end = self._ranges[index][0] if index < len(self._ranges) else self.first + self.size
        start = sum(self._ranges[index - 1][:2]) if index else self.first
        if owner in self._base_of or size < 1 or not start <= base <= end - size:
            raise OutOfMemory(
                f"{owner} had {size} at {base}, which is not free any more", place=self.name, value=(base, size)
            )
        self._occupy(index, base, size, owner)

    def release(self, owner: Hashable) -> None:
        """Free the owner's range, if it has one."""
        held = self._base_of.pop(owner, None)
        if held is not None:
            del self._ranges[bisect.bisect_left(self._ranges, held[0], key=lambda r: r[0])]

    @property
    def free(self) -> int:
        """Count of numbers that no owner has."""
        return self.size - sum(length for _, length, _ in self._ranges)

    @property
    def largest_gap(self) -> int:
        """The largest size that `allot` would grant now."""
        return max(self._gaps())

    def pieces(self, size: int) -> int:
        """Return the number of ranges of `size` that could be allotted now."""
        return sum(gap // size for gap in self._gaps())

    @property
    def allotments(self) -> Mapping[Hashable, tuple[int, int]]:
        """(base, size) by owner, to be read."""
        return self._base_of

    def _gaps(self) -> list[int]:
        gaps, base = [], self.first
        for used, length, _ in self._ranges:
            gaps.append(used - base)
            base = used + length
        return [*gaps, self.first + self.size - base]

    def _occupy(self, index: int, base: int, size: int, owner: Hashable) -> int:
        self._ranges.insert(index, (base, size, owner))
        self._base_of[owner] = (base, size)
        return base
