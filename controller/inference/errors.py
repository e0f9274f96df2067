"""Errors of models."""

from __future__ import annotations

from ..errors import ControllerError


class ModelError(ControllerError):
    """A model, or a file, that no switch can have. The message names the limit."""


class ModelTooLarge(ModelError):
    """A model beyond a limit of the switch program."""

    def __init__(self, limit: str, value: int, most: int) -> None:
        super().__init__(f"{value} {limit}, a switch has room for {most}", place="model", value=value)
        self.limit = limit
        """Name of the limit: "features", "classes", "trees", "leaves of tree 0" and so on."""
        self.most = most
