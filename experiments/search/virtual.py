"""Searches in virtual time: each is trained once, and the traffic of all is played once per order of jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...controller.scheduling.orders import ORDERS
from ...topologies import Routes
from ...training.search import StagedSearch, Trial
from ..scheduling.play import Play, search_bound
from .course import Course, trained
from .search_file import SearchFile


@dataclass(frozen=True, slots=True)
class OrderResult:
    """Times under one order."""

    order: str
    stage_seconds: float
    """Mean stage completion time."""
    search_seconds: dict[str, float]
    """Time of each search from its start to the end of its last stage."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a file's searches."""

    courses: Sequence[Course]
    orders: Sequence[OrderResult]
    bound_seconds: float
    """Lower bound on the mean stage completion time, which no order beats."""

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON data; times in s."""
        return {
            "searches": [search_json(course.config.name, course.search) for course in self.courses],
            "orders": [
                {
                    "order": order.order,
                    "mean_stage_seconds": order.stage_seconds,
                    "search_seconds": order.search_seconds,
                }
                for order in self.orders
            ],
            "bound_seconds": self.bound_seconds,
        }


def run_searches(file: SearchFile, progressed: Callable[[str], object] = lambda _: None) -> Outcome:
    """Run all searches of a file.

    Args:
        file: The searches, their fabric and the orders.
        progressed: Called with a line whenever a configuration's stage or an order is done.

    Raises:
        TrainingError: A parameter has a value that is not allowed.
        MissingExtra: A package is not installed.
    """
    routes = Routes(file.topology)
    courses = [trained(search, routes, file.seed, progressed) for search in file.searches]
    jobs = [course.jobs for course in courses]
    results = []
    for name in file.orders:
        play = Play(routes, jobs, ORDERS.describe(name).compute, classes=file.classes)
        mean = play.run()
        results.append(OrderResult(name, mean, dict(play.search_seconds)))
        progressed(f"order {name}")
    return Outcome(courses, results, search_bound(routes, jobs))


def search_json(name: str, search: StagedSearch) -> dict[str, Any]:
    """Return a search that is over as JSON data."""
    return {
        "name": name,
        "best": _trial(search.best),
        "stages": [[trial.number for trial in stage] for stage in search.stages],
        "configurations": [_trial(trial) for trial in search.ranking],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "parameters": dict(trial.parameters),
        "first_stage": trial.begun_stage + 1,
        "steps": trial.steps,
        "accuracies": trial.values,
        "stopped": trial.stopped,
    }
