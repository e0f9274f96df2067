"""Errors in a training job's configuration or progress."""

from __future__ import annotations

from ..errors import PlacedError


class TrainingError(PlacedError):
    """Root of this package's errors: the message names place, value, and allowed values."""
