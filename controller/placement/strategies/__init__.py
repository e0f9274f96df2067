"""The ways to place a job, by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of
the user's own that ends in one, whose path is its name.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ....imports.options import checked_options
from ....imports.registry import Registry
from ....topologies.spelling import nearest
from ..model.problem import Placement, PlacementError, Problem
from ..model.strategy import Need, Strategy, StrategyDescription
from ..reference_schemes import REFERENCE_SCHEMES

__all__ = ["DEFAULT", "STRATEGIES", "Need", "Strategy", "StrategyDescription", "description", "strategy"]

DEFAULT: Final = "widest"
"""Default placement strategy."""


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


def _checked(description: StrategyDescription, path: str) -> StrategyDescription:
    """The description of a user's file, whose strategy's placements are checked."""

    def make(**options: Any) -> _UserStrategy:
        return _UserStrategy(path, made(description, options))

    return replace(description, make=make)


STRATEGIES: Final = Registry(__name__, __path__, StrategyDescription, "strategy", PlacementError, adopt=_checked)
"""Descriptions by name. Raises PlacementError for the path of a file without one."""


def description(name: str) -> StrategyDescription:
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


def strategy(name: str, options: Mapping[str, Any] | None = None) -> Strategy:
    """Return a strategy by its name.

    Args:
        name: Its name, or a user file's path.
        options: Values of its options by name.

    Raises:
        PlacementError: The name or an option is unknown, or a value is wrong.
    """
    return made(description(name), options or {})


def made(described: StrategyDescription, options: Mapping[str, Any]) -> Strategy:
    """Make a strategy with these options; raises PlacementError like `strategy`."""
    if not options:
        return described.make()
    place = f"strategy {described.name}"
    return described.make(**checked_options(options, described.make, place, PlacementError))
