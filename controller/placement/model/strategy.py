"""What a way to place jobs is to everybody else: its name, what it needs, and how it is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from .problem import Placement, Problem


class Need(Enum):
    """What a strategy cannot do without, or makes no use of otherwise."""

    SERVER = "a parameter server"
    """Without one it refuses."""
    TELEMETRY = "loads of the links"
    """Without them it takes all links for idle."""
    ROOM = "switches with room"
    """Without any it sums at the server alone."""


class Strategy(Protocol):
    """A way to place a job; it may keep what it has compiled from one job to the next."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """A placement that passes `Placement.check`. Raises PlacementError where this way finds none."""


@dataclass(frozen=True, slots=True)
class Description:
    """A strategy as it is registered: one in each module of `strategies`, under the name DESCRIPTION."""

    name: str
    """What files and commands call it."""
    label: str
    """What tables and plots call it."""
    summary: str
    """What it does, in one line."""
    make: Callable[[], Strategy]
    needs: frozenset[Need] = frozenset({Need.ROOM})
    resolves: bool = False
    """Whether it is asked again while the job runs: its answer changes with the links."""
    jointly: bool = False
    """Whether running jobs are then also evaluated jointly (`multi_job.joint`)."""
