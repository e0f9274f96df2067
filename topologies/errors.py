"""The one root of this package's errors."""

from __future__ import annotations


class TopologyError(Exception):
    """A fabric that cannot be: the message names where (file, node or link), the value, and what would be right."""

    def within(self, place: str) -> TopologyError:
        """The same error with `place` (a file, a node, a link) put in front of it."""
        return TopologyError(f"{place}: {self}")
