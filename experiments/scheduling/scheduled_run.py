"""Runs of scheduling files: figures of each order, or of each way to share devices, as means over draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...controller.scheduling.order import OrderDescription
from ...controller.scheduling.orders import ORDERS
from ...topologies import Routes
from .crossing import WAYS, Crossing, cross
from .learning import Learning, drawn_learners
from .play import Play, search_bound
from .scheduling_file import ORACLE, SchedulingFile, TurnsConfig
from .searches import drawn_searches

Progressed = Callable[[str], object]


@dataclass(slots=True)
class Figures:
    """Figures by row (order, or way) and column; one value per draw."""

    columns: tuple[str, ...]
    """Figures, with units; the smaller, the better."""
    rows: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    bound: list[float] = field(default_factory=list)
    """Lower bound on the first figure in each draw; empty: none is computed."""
    formula: float | None = None
    """The first figure by the formula of `pairs`, for jobs in turns."""

    def mean(self, row: str) -> tuple[float, ...]:
        """Return the mean over draws of each figure."""
        return tuple(float(value) for value in np.mean(self.rows[row], axis=0))

    def as_json(self) -> dict[str, object]:
        """Return all values as JSON data."""
        return {
            "columns": self.columns,
            "rows": {name: {"mean": self.mean(name), "draws": draws} for name, draws in self.rows.items()},
            "bound": self.bound,
            "formula": self.formula,
        }


def trials(file: SchedulingFile) -> int:
    """Return how many times `run_scheduling` reports progress."""
    section = file.scheduling
    return len(WAYS) if section.turns is not None else section.seeds * len(section.compared)


def run_scheduling(file: SchedulingFile, progressed: Progressed = lambda _: None) -> Figures:
    """Run a file.

    Args:
        file: The file.
        progressed: Called with a line after each order and draw.

    Raises:
        MissingExtra: A package with a model's data is not installed.
    """
    section = file.scheduling
    if section.turns is not None:
        return _in_turns(section.turns, progressed)
    routes = Routes(file.topology)
    if section.searches is not None:
        return _searches(file, routes, progressed)
    return _learners(file, routes, progressed)


def _searches(file: SchedulingFile, routes: Routes, progressed: Progressed) -> Figures:
    section = file.scheduling
    assert section.searches is not None
    figures = Figures(("mean stage completion time, s",))
    for seed in range(file.seed, file.seed + section.seeds):
        searches = drawn_searches(routes, section.searches.count, seed, sigma=section.searches.sigma)
        for name in section.compared:
            mean = Play(routes, searches, ORDERS.describe(name).compute).run()
            figures.rows.setdefault(name, []).append((mean,))
            progressed(f"seed {seed}: {name}")
        if section.searches.bound:
            figures.bound.append(search_bound(routes, searches))
    return figures


def _learners(file: SchedulingFile, routes: Routes, progressed: Progressed) -> Figures:
    section = file.scheduling
    assert section.learners is not None
    figures = Figures(("time to 90 %, s", "time to 95 %, s", "last end, s"))
    for seed in range(file.seed, file.seed + section.seeds):
        learners = drawn_learners(routes, seed, section.learners.count)
        for name in section.compared:
            oracle = name == ORACLE
            order: OrderDescription = ORDERS.describe("jpas" if oracle else name)
            times = Learning(routes, learners, order, oracle=oracle).run()
            figures.rows.setdefault(name, []).append((times.to_share[0.9], times.to_share[0.95], times.last_end))
            progressed(f"seed {seed}: {name}")
    return figures


def _in_turns(section: TurnsConfig, progressed: Progressed) -> Figures:
    def seconds(values: list[int]) -> tuple[float, ...]:
        return tuple(value / 1e9 for value in values)

    crossing = Crossing(seconds(section.compute), seconds(section.exposed), section.shared_link)
    figures = Figures(("period, s",), formula=crossing.formula_seconds)
    for way in WAYS:
        figures.rows[way] = [(float(np.mean(cross(crossing, way, section.steps).seconds)),)]
        progressed(way)
    return figures
