"""The ways to place a job, by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of
the user's own that ends in one, whose path is its name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from ....imports import user_files
from ....topologies.spelling import nearest
from ..model.problem import Placement, PlacementError, Problem
from ..model.strategy import Description, Need, Strategy
from ..reference_schemes import REFERENCE_SCHEMES

__all__ = ["DEFAULT", "STRATEGIES", "Description", "Need", "Strategy", "description", "strategy"]

DEFAULT: Final = "widest"
"""Default placement strategy."""


class _Strategies(Mapping[str, Description]):
    """Those that are registered, and by its path any file of a user's; listed are the former."""

    def __init__(self, registered: Mapping[str, Description]) -> None:
        self._registered = registered

    def __getitem__(self, name: str) -> Description:
        return _own(str(Path(name).resolve())) if name.endswith(user_files.ENDING) else self._registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registered)

    def __len__(self) -> int:
        return len(self._registered)


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


@dataclass(frozen=True, slots=True)
class _UserStrategy:
    """A strategy of a user's file, whose answers are unchecked."""

    path: str
    strategy: Strategy

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        placement = self.strategy.place(problem, rng)
        if not isinstance(placement, Placement):
            raise PlacementError(
                f"place() returned {placement!r}; a strategy returns a Placement", place=self.path, value=placement
            )
        try:
            placement.check(problem)
        except PlacementError as error:
            raise error.within(self.path) from None
        return placement


@cache
def _own(path: str) -> Description:
    """Return a file's DESCRIPTION. Raises PlacementError if there is none; exceptions of the file itself propagate."""
    if not Path(path).is_file():
        raise PlacementError("there is no such file; a user strategy is named by its path", place=path, value=path)
    description = getattr(user_files.run_file(Path(path)), "DESCRIPTION", None)
    if not isinstance(description, Description):
        raise PlacementError("missing; it describes the strategy of a file", place=f"{path}: DESCRIPTION")
    return replace(description, make=lambda: _UserStrategy(path, description.make()))


STRATEGIES: Final[Mapping[str, Description]] = _Strategies(_registered())
"""Descriptions by name. Raises PlacementError for the path of a file without one."""


def description(name: str) -> Description:
    """Return a strategy's description by its name.

    Raises:
        PlacementError: The name is unknown, with the list of names, or is a reference scheme (`reference_schemes`).
    """
    if name in REFERENCE_SCHEMES:
        REFERENCE_SCHEMES[name].make()
    if name not in STRATEGIES:
        near = nearest(name, STRATEGIES)
        raise PlacementError(f'strategy "{name}" is unknown{near}', value=name, allowed=sorted(STRATEGIES))
    return STRATEGIES[name]


def strategy(name: str) -> Strategy:
    """A strategy by its name. Raises PlacementError for an unknown one."""
    return description(name).make()
