"""Steps to a held-out loss with many workers: gradients combined in several ways, at one rate and at each one's best.

Replicas make the same steps, so one copy of the weights stands for all; gradients are those of every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from ...hosts.collectives.halving import combined, products_of
from ...hosts.collectives.operations.adacons import coefficients
from ...training.optimisers import make_optimiser
from ...training.samples import Samples
from ...training.workload import Floats, Workload
from ...training.workloads import make_workload
from .paper import Paper, Quantity, Sample

SAME_RATE: Final = Quantity("steps to the loss at one rate", "steps")
BEST_RATE: Final = Quantity("steps to the loss at each one's best rate", "steps")
RATE: Final = 0.4
"""Learning rate of the first figure."""
STEP_LIMIT: Final = 200
SAMPLES: Final = 32
"""Samples of each worker in a step."""
RACK: Final = 4
"""Workers of a rack."""


@dataclass(frozen=True, slots=True)
class BatchCondition:
    """One condition."""

    workload: str
    loss: float
    """Held-out loss that ends a curve."""
    workers: int

    @property
    def name(self) -> str:
        """Workload, loss rate and number of workers."""
        return f"{self.workload}, loss {self.loss:g}, {self.workers} workers"


SETTINGS: Final = (
    *(BatchCondition("digits", 0.2, workers) for workers in (8, 16, 32, 64)),
    *(BatchCondition("mnist", 0.4, workers) for workers in (8, 32, 64)),
)

Gradients = Sequence[Floats]
Combining = Callable[[Gradients], Floats]


def adasum(vectors: Gradients, layers: Sequence[int]) -> Floats:
    """Return Adasum of 2^k vectors, layer by layer, as `op="adasum"` does."""
    ends = [0, *accumulate(layers)]
    left = list(vectors)
    while len(left) > 1:
        pairs = zip(left[::2], left[1::2], strict=True)
        left = [combined(a, b, 0, ends, products_of(a, b, 0, ends)) for a, b in pairs]
    return left[0]


def combining(contender: str, layers: Sequence[int]) -> Combining:
    """Return the function that combines the workers' gradients, at its start."""
    memory: dict[str, Any] = {}

    def racks(gradients: Gradients) -> Floats:
        means = [_mean(gradients[first : first + RACK]) for first in range(0, len(gradients), RACK)]
        return adasum(means, layers)

    def adacons(gradients: Gradients) -> Floats:
        rows = np.stack(gradients).astype(np.float64)
        norms = np.linalg.norm(rows, axis=1)
        alphas = rows @ rows.sum(axis=0) / (len(rows) * norms)
        return np.asarray(coefficients(alphas, norms, memory) @ rows, np.float32)

    ways: dict[str, Combining] = {
        "sum": _sum,
        "adasum": lambda gradients: adasum(gradients, layers),
        "racks": racks,
        "adacons": adacons,
    }
    return ways.get(contender, _mean)


def _sum(gradients: Gradients) -> Floats:
    total: Floats = np.sum(gradients, axis=0, dtype=np.float32)
    return total


def _mean(gradients: Gradients) -> Floats:
    mean: Floats = np.mean(gradients, axis=0, dtype=np.float32)
    return mean


def rates_of(contender: str) -> tuple[float, ...]:
    """Return the learning rates that are tried for the best one: powers of 2 around where the contender trains."""
    middle = {"lars": 5, "lamb": -5, "sum": -4}.get(contender, 1)
    return tuple(RATE * 2.0**power for power in range(middle - 3, middle + 4))


def steps_to_loss(
    setting: BatchCondition, contender: str, rate: float, seed: int, limit: int = STEP_LIMIT
) -> int | None:
    """Return the first step after which the held-out loss is reached; None if it is not reached.

    Args:
        setting: Workload, number of workers and loss.
        contender: Name of the rule that combines gradients, or of the optimiser.
        rate: Learning rate.
        seed: Seed of workload and samples.
        limit: Maximum number of steps.
    """
    workload = make_workload(setting.workload, seed)
    samples = Samples(workload.rows, (seed, 0))
    sizes = [SAMPLES] * setting.workers
    combine = combining(contender, workload.layers)
    optimiser = make_optimiser(contender if contender in ("lars", "lamb") else "sgd", workload.layers, rate)
    weights = workload.initial()
    for step in range(limit):
        gradients = [_gradient(workload, weights, samples.share(step, sizes, rank)) for rank in range(setting.workers)]
        with np.errstate(over="ignore", invalid="ignore"):
            weights = optimiser.step(weights, combine(gradients))
            loss = workload.batch_loss(weights, workload.held_out())
        if loss <= setting.loss:
            return step + 1
        if not loss < 20:
            return None
    return None


def _gradient(workload: Workload, weights: Floats, rows: Any) -> Floats:
    return workload.gradient(weights, workload.fetch(rows))


def batch_courses(paper: Paper) -> Iterator[Sample]:
    """Measure every contender at one rate, and at the rate of `rates_of` at which each seed needs fewest steps.

    Raises:
        MissingExtra: A data set is not installed.
    """
    for workload in {setting.workload for setting in SETTINGS}:
        make_workload(workload, 0)  # raises before minutes of measurement
    for setting in SETTINGS:
        for contender in paper.contenders:
            for seed in range(paper.seeds):
                steps = steps_to_loss(setting, contender.name, RATE, seed)
                yield _sample(SAME_RATE, setting, contender.name, seed, steps)
                rates = rates_of(contender.name)
                best = steps if RATE in rates else None
                for rate in rates:
                    if rate == RATE:
                        continue
                    limit = STEP_LIMIT if best is None else best - 1
                    best = steps_to_loss(setting, contender.name, rate, seed, limit) or best
                yield _sample(BEST_RATE, setting, contender.name, seed, best)


def _sample(figure: Quantity, setting: BatchCondition, contender: str, seed: int, steps: int | None) -> Sample:
    value = STEP_LIMIT if steps is None else steps
    return Sample(figure.name, setting.name, contender, seed, float(value), limited=steps is None)
