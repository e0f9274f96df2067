"""Synchronisation modes by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of
the user's that ends in one, whose path is its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ...imports.options import checked_options
from ...imports.registry import Registry
from ..errors import TrainingError
from ..mode import Mode, ModeDescription, PeerMode, ServedMode, SummedMode

__all__ = ["MODES", "ModeDescription", "label", "make_mode"]

MODES: Final = Registry(__name__, __path__, ModeDescription, "mode", TrainingError, first="bsp")


def make_mode(name: str, **options: Any) -> SummedMode | ServedMode | PeerMode:
    """Return a mode by name or path, with its options.

    Raises:
        TrainingError: The mode is unknown, or an option is, or has a value that is not allowed.
    """
    description = MODES.describe(name)
    taken = checked_options(options, description.make, f"mode {name}", TrainingError, without=("name",))
    made: SummedMode | ServedMode | PeerMode = description.make(name=name, **taken)
    return made


def label(mode: Mode) -> str:
    """Name of a mode in tables and plots, with the option that it shows; of a user's file, the file's name."""
    name = MODES[mode.name].label if mode.name in set(MODES) else Path(mode.name).stem
    return f"{name} {mode.detail}".rstrip()
