"""An order of jobs: tiers that are served one after the other; jobs of one tier share links fairly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .demand import Demand, Stage

Order = tuple[tuple[str, ...], ...]
"""Names of jobs by tier, the first tier before all others."""

Compute = Callable[[Sequence[Demand]], Order]
"""Compute an order of all jobs. It is deterministic: equal jobs keep the order in which they are given."""


@dataclass(frozen=True, slots=True)
class OrderDescription:
    """An order as it is registered: one in each module of `orders`, as DESCRIPTION."""

    name: str
    """Name in run files and commands."""
    label: str
    """Name in tables and plots."""
    summary: str
    knows: str
    """Knowledge that the order uses: "stages", "steps", "progress", "nothing"."""
    compute: Compute


def of_stages(stages: Iterable[Stage]) -> Order:
    """Return the order in which each stage is a tier of its own."""
    return tuple(stage.jobs for stage in stages)


def of_jobs(demands: Iterable[Demand]) -> Order:
    """Return the order in which each job is a tier of its own."""
    return tuple((demand.job,) for demand in demands)
