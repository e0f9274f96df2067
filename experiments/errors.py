"""The one root of this package's errors."""

from __future__ import annotations

from ..errors import PlacedError


class ExperimentError(PlacedError):
    """A run cannot start or go on; the message is one line that a user can act on, or a line for each thing
    that is wrong with a file.
    """


class Interrupted(ExperimentError):
    """Somebody ended what was under way, by Ctrl-C or another signal; says what of it is kept."""
