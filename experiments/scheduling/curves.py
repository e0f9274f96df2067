"""Learning curves of small models on real data: held-out accuracy after each step of synchronous training.

A curve does not depend on when a job's traffic is served, so each is computed once, and the simulated jobs follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...training.optimisers import make_optimiser
from ...training.samples import Samples
from ...training.workloads import make_workload

STEPS: Final = 300
MODELS: Final = (
    *product(("digits", "mnist"), (16, 64), (0.02, 0.1)),
    *product(("svm",), (16,), (0.1, 0.5)),
)
"""Workload, hidden units (the SVM has none), and learning rate of each job that may be drawn."""
BATCH: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class LearningCurve:
    """Accuracy of one job by step."""

    accuracy: NDArray[np.float64]
    """(STEPS,): held-out accuracy after each step."""

    @property
    def converged(self) -> float:
        """Converged accuracy: the mean of the last tenth."""
        return float(self.accuracy[-STEPS // 10 :].mean())

    def steps_to(self, share: float) -> int:
        """Return the number of steps until a share of the converged accuracy."""
        return int(np.argmax(self.accuracy >= share * self.converged)) + 1


@cache
def learning_curve(workload: str, hidden: int, rate: float, seed: int) -> LearningCurve:
    """Train a model and return its curve.

    Args:
        workload: Name of the workload.
        hidden: Units of the hidden layer, for workloads that have one.
        rate: Learning rate.
        seed: Seed of workload and samples.

    Raises:
        TrainingError: The workload is unknown.
    """
    work = make_workload(workload, seed, hidden)
    optimiser = make_optimiser("sgd", work.layers, rate, momentum=0.9)
    samples = Samples(work.rows, (seed, 1))
    weights = work.initial()
    accuracy = np.zeros(STEPS)
    for step in range(STEPS):
        weights = optimiser.step(weights, work.gradient(weights, work.fetch(samples.rows(step * BATCH, BATCH))))
        accuracy[step] = work.accuracy(weights)
    return LearningCurve(accuracy)
