"""The one root of this package's errors."""

from __future__ import annotations


class WireError(ValueError):
    """A caller asked for a frame or message that the format cannot carry.

    Received bytes never raise: what is wrong with them is counted.
    """
