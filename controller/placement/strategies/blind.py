"""The best method without telemetry: its gap to the same method with telemetry is the value of telemetry."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from ..model.problem import Placement, Problem
from ..model.strategy import StrategyDescription
from .widest import WidestTree


class Blind:
    """The widest tree of the fabric as if it were idle."""

    def __init__(self) -> None:
        self._widest = WidestTree()

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Same contract as `Strategy.place`."""
        return self._widest.place(replace(problem, loads={}), rng)


DESCRIPTION: Final = StrategyDescription(
    "blind",
    "blind",
    "the widest tree of the fabric as if it were idle",
    Blind,
    advice="to measure what telemetry is worth",
)
