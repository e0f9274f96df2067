"""Limit of a search by the work that it does.

It counts work and not time, so that a decision is the same on any machine, however busy it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class SearchLimit:
    """Number of links that a search may still visit."""

    left: float = math.inf

    def spend(self, visits: float) -> None:
        """Count visits; the search ends at its next step if more are spent than were left."""
        self.left -= visits

    @property
    def is_reached(self) -> bool:
        """True if nothing is left."""
        return self.left <= 0
