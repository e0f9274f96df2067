"""The one root of this package's errors."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import PlacedError


class TopologyError(PlacedError):
    """An invalid fabric. Attributes name the place (file, node or link), the value, and the allowed values."""


class UnsoundFabric(TopologyError):
    """All that is wrong with a fabric, each with its place."""

    def __init__(self, problems: Sequence[tuple[Sequence[str | int], str]]) -> None:
        """Create the error; each problem is its place by the file's keys, such as `("links", 3)`, and a sentence."""
        super().__init__("; ".join(text for _, text in problems))
        self.problems = tuple(problems)
