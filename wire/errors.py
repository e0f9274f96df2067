"""The one root of this package's errors."""

from __future__ import annotations

from ..errors import PlacedError


class WireError(PlacedError, ValueError):
    """A caller requested a frame or message that the format cannot carry.

    Received bytes never raise: malformed ones are counted.
    """
