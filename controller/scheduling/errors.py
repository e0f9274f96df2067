"""The error of this package's inputs."""

from __future__ import annotations

from ..errors import ControllerError


class SchedulingError(ControllerError):
    """Demand, curve, group or turn that cannot be."""
