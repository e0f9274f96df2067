"""A workload of one's own for `weir run`: `weir run examples/user_workload.yaml`.

A run makes a worker for each rank, asks it for a gradient in every step, sums those in the fabric, and gives all of
them the mean. Here they fit many lines at once, to have a gradient as long as the run file's `values` says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

POINTS = 20
HELD_OUT = 1.5
"""Position at which the lines are evaluated in the end; the workers' points lie between 0 and 1."""


class Lines:
    """One worker, with points of its own on every line."""

    def __init__(self, rank: int, seed: int, values: int, rate: float) -> None:
        self.truth = np.random.default_rng(seed).normal(size=values).astype(np.float32)
        """The lines' slopes, the same for all workers."""
        rng = np.random.default_rng([seed, rank])
        self.samples = POINTS + rank
        """Number of points in a gradient: workers with more points count for more."""
        self.inputs = rng.uniform(0, 1, self.samples).astype(np.float32)
        self.weights = np.zeros(values, np.float32)
        self.rate = np.float32(rate)

    def gradient(self, step: int) -> Floats:
        """Gradient of half the squared error, summed over this worker's points."""
        gradient: Floats = (self.weights - self.truth) * np.square(self.inputs).sum()
        return gradient

    def apply(self, mean: Floats) -> None:
        self.weights = self.weights - self.rate * mean

    def accuracy(self) -> float:
        """Share of the lines that are off by less than a hundredth at the held-out position."""
        return float(np.mean(np.abs(HELD_OUT * (self.weights - self.truth)) < 0.01))


def worker(rank: int, workers: int, seed: int, *, values: int, rate: float = 2.0) -> Lines:
    """Create the workload of one rank; `weir run` calls this with the run file's `workload.options`."""
    return Lines(rank, seed, values, rate)
