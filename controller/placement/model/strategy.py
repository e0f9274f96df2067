"""Interface of a placement strategy: its name, its needs, and how it is called."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from .problem import Placement, Problem


class Need(Enum):
    """Requirement of a strategy, or an input that it uses."""

    SERVER = "a parameter server"
    """Requirement of a parameter server: the strategy refuses jobs without one."""
    TELEMETRY = "loads of the links"
    """Use of telemetry: the strategy assumes idle links without it."""
    ROOM = "switches with room"
    """Use of switches with slots: without any, the strategy sums at the server alone."""


class Strategy(Protocol):
    """A way to place a job; it may keep what it has compiled from one job to the next."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """Return a placement that passes `Placement.check`. Raises PlacementError where this way finds none."""


@dataclass(frozen=True, slots=True)
class StrategyDescription:
    """A strategy as it is registered: one in each module of `strategies`, under the name DESCRIPTION."""

    name: str
    """Name in files and commands."""
    label: str
    """Name in tables and plots."""
    summary: str
    """Description in one line."""
    make: Callable[..., Strategy]
    """Makes one; its parameters are the strategy's options."""
    needs: frozenset[Need] = frozenset({Need.ROOM})
    resolves: bool = False
    """True if it is called again while the job runs: its answer changes with the links."""
    jointly: bool = False
    """True if running jobs are also evaluated jointly (`multi_job.joint`)."""
    advice: str = ""
    """Situation in which to choose it, in one line."""
