"""The error of this package's inputs."""

from __future__ import annotations

from ..errors import ControllerError


class GossipError(ControllerError):
    """Iteration times or a policy that cannot be."""
