"""The common form of every package's errors: parts as attributes, and text made from them where a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from .texts import printable

_LONGEST_LINE: Final = 4_000
"""Characters of a line of an error: values and names in it may come from strangers' files."""


class PlacedError(Exception):
    """An error that a person can act on: `place: what is wrong; supported: what is allowed`.

    Each package has one root error that derives from this class. Programs and tests read the attributes; the text
    may be reworded at any time.

    Attributes:
        place: Where the wrong value stands: a file and its keys, a node, a link, a tensor. Empty if there is one place.
        value: The wrong value as the program has it, None if the error is about no single value.
        allowed: What would be accepted, if that is a list of names.
    """

    def __init__(
        self, *problem: object, place: str = "", value: object = None, allowed: Sequence[object] | None = None
    ) -> None:
        super().__init__(*problem)
        self.place = place
        self.value = value
        self.allowed = None if allowed is None else tuple(allowed)

    def __str__(self) -> str:
        text = super().__str__()
        if self.allowed is not None:
            text = f"{text}; supported: {', '.join(map(str, self.allowed)) or 'none'}"
        lines = (f"{self.place}: {text}" if self.place else text).split("\n")
        return "\n".join(printable(line, _LONGEST_LINE) for line in lines)

    def within(self, place: str) -> Self:
        """Return the same error with an outer place, such as the file that a link stands in, before its own."""
        placed = type(self).__new__(type(self), *self.args)  # some classes' __init__ takes other arguments
        vars(placed).update(vars(self))
        placed.place = f"{place}: {self.place}" if self.place else place
        return placed

    @classmethod
    def of(cls, error: PlacedError) -> Self:
        """Return another package's error as one of this kind, with the same parts."""
        return cls(*error.args, place=error.place, value=error.value, allowed=error.allowed)
