"""The ways to place a job, by name. A new one is a module here that ends in its DESCRIPTION, and its test."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from ..problem import PlacementError
from ..strategy import Description, Need, Strategy

__all__ = ["DEFAULT", "STRATEGIES", "Description", "Need", "Strategy", "strategy"]

DEFAULT: Final = "widest"
"""What places jobs where nobody says otherwise."""


def _registered() -> Mapping[str, Description]:
    found: dict[str, Description] = {}
    for module in sorted(module.name for module in iter_modules(__path__)):
        description: Description = import_module(f"{__name__}.{module}").DESCRIPTION
        if description.name in found:
            raise PlacementError(
                f'two strategies are called "{description.name}"; the one in {module}.py needs another'
            )
        found[description.name] = description
    return found


STRATEGIES: Final[Mapping[str, Description]] = _registered()


def strategy(name: str) -> Strategy:
    """A strategy by its name. Raises PlacementError, which lists the right ones, for an unknown one."""
    if name not in STRATEGIES:
        raise PlacementError(f'strategy "{name}" is unknown; there are {", ".join(sorted(STRATEGIES))}')
    return STRATEGIES[name].make()
