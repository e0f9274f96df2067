"""Real small models of a search: configurations of a workload that train stage by stage.

A configuration continues where its last stage has ended. The mean gradient of n synchronous workers is that of one
process with their whole batch, so values do not depend on how workers share it, or on when their traffic is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .errors import TrainingError
from .optimiser import Floats, Optimiser
from .optimisers import OPTIMISERS, make_optimiser
from .samples import Samples
from .search import Trial
from .workload import Workload
from .workloads import make_workload

DEFAULTS: Final[Mapping[str, Any]] = {"learning_rate": 0.05, "hidden": 32, "batch": 32, "optimiser": "sgd"}
"""Parameters that every configuration has, and their values where a space says nothing."""
Mean = Callable[[Floats, int], Floats]
BYTES: Final = 4
"""Bytes of a number of the gradient."""


def check_parameters(names: Iterable[str]) -> None:
    """Raise TrainingError for a parameter that no model or optimiser has."""
    known = {*DEFAULTS, *(name for optimiser in OPTIMISERS.values() for name in optimiser.option_names)}
    for name in names:
        if name not in known:
            raise TrainingError(f"unknown parameter {name}", place="space", value=name, allowed=sorted(known))


@dataclass(slots=True)
class _Model:
    work: Workload
    optimiser: Optimiser
    weights: Floats
    samples: Samples
    position: int = 0


class SearchModels:
    """All models of one search."""

    def __init__(self, workload: str = "digits", seed: int = 1) -> None:
        """Prepare the models.

        Args:
            workload: Name of a workload, or the path of a user's file.
            seed: Seed of the data's split, of the initial weights and of the order of samples.

        Raises:
            TrainingError: The workload is unknown.
            MissingExtra: A package with its data is not installed.
        """
        self._workload, self._seed = workload, seed
        self._works: dict[int, Workload] = {}
        self._models: dict[int, _Model] = {}
        self._work(DEFAULTS["hidden"])

    def train(self, trial: Trial, steps: int) -> float:
        """Train a configuration for so many more steps and return its held-out accuracy; NaN if it has diverged.

        Raises:
            TrainingError: A parameter has a value that is not allowed.
        """
        return self.train_share(trial, steps, [batch_of(trial.parameters)], 0, lambda gradient, step: gradient)

    def train_share(self, trial: Trial, steps: int, shares: Sequence[int], rank: int, mean: Mean) -> float:
        """Train as one of several workers. All of them end with the same weights.

        Args:
            trial: The configuration.
            steps: Number of steps.
            shares: Samples of each worker in a step, by rank; their sum is the batch.
            rank: This worker's rank.
            mean: Returns the mean gradient of all workers, weighted by their samples, from this one's and the step.

        Returns:
            As `train`.

        Raises:
            TrainingError: A parameter has a value that is not allowed.
        """
        if trial.number not in self._models:
            self._models[trial.number] = self._made(trial.parameters)
        if min(shares) < 1:
            raise TrainingError(
                f"batch {sum(shares)} for {len(shares)} workers; each has a sample at least",
                place="batch",
                value=sum(shares),
            )
        model, before, batch = self._models[trial.number], sum(shares[:rank]), sum(shares)
        with np.errstate(over="ignore", invalid="ignore"):
            for step in range(steps):
                rows = model.samples.rows(model.position + before, shares[rank])
                own = model.work.gradient(model.weights, model.work.fetch(rows))
                model.weights = model.optimiser.step(model.weights, mean(own, step))
                model.position += batch
            value = model.work.accuracy(model.weights)
        return value if np.isfinite(model.weights).all() else float("nan")

    def forget(self, trial: Trial) -> None:
        """Drop the model of a configuration that trains no further."""
        self._models.pop(trial.number, None)

    def gradient_bytes(self, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of a worker's gradient."""
        return BYTES * self._work(int({**DEFAULTS, **parameters}["hidden"])).parameters

    def _work(self, hidden: int) -> Workload:
        if hidden not in self._works:
            self._works[hidden] = make_workload(self._workload, self._seed, hidden)
        return self._works[hidden]

    def _made(self, parameters: Mapping[str, Any]) -> _Model:
        given = {**DEFAULTS, **parameters}
        work = self._work(int(given["hidden"]))
        options = {
            name: value for name, value in given.items() if name in OPTIMISERS.describe(given["optimiser"]).option_names
        }
        optimiser = make_optimiser(given["optimiser"], work.layers, float(given["learning_rate"]), **options)
        return _Model(work, optimiser, work.initial(), Samples(work.rows, (self._seed, 1)))


def batch_of(parameters: Mapping[str, Any]) -> int:
    """Return the samples of one step of all workers. Raises TrainingError for fewer than 1."""
    batch = int({**DEFAULTS, **parameters}["batch"])
    if batch < 1:
        raise TrainingError(f"batch must be >= 1, got {batch}", place="batch", value=batch)
    return batch
