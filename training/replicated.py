"""A job in steps: every worker has a replica of the weights, hands out gradients, and applies their mean."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class ReplicatedJob(ABC):
    """The replicas of all workers. Workers are numbered by rank, steps from 0."""

    def __init__(self, workers: int, steps: int) -> None:
        self.workers = workers
        self.steps = steps

    @abstractmethod
    def gradient(self, worker: int, step: int) -> Floats:
        """Return one worker's gradient of this step, summed over its samples; flat, always of the same length."""

    @abstractmethod
    def samples(self, worker: int) -> int:
        """Return the number of samples behind this worker's gradient: its weight in the mean."""

    @abstractmethod
    def apply_to(self, worker: int, mean: Floats) -> None:
        """Apply the mean gradient that reached one worker."""

    @abstractmethod
    def weights(self, worker: int) -> Floats:
        """Return one worker's replica of the weights."""

    @abstractmethod
    def accuracy(self, worker: int = 0) -> float | None:
        """Return the accuracy of one worker's replica on held-out data, 0…1; None if the workload measures none."""

    def gradients(self, step: int) -> list[Floats]:
        """Return all workers' gradients of this step, by rank."""
        return [self.gradient(worker, step) for worker in range(self.workers)]

    def apply(self, means: Sequence[Floats]) -> None:
        """Apply to worker i the mean gradient that reached worker i."""
        for worker, mean in enumerate(means):
            self.apply_to(worker, mean)

    def digests(self) -> list[str]:
        """Return the SHA-256 of each worker's weights: equal strings are equal bits."""
        return [digest(self.weights(worker)) for worker in range(self.workers)]


def digest(values: Floats) -> str:
    """Return the SHA-256 of an array's bits."""
    return hashlib.sha256(values.tobytes()).hexdigest()


def train_without_network(job: ReplicatedJob, total: Callable[[list[Floats]], Floats]) -> None:
    """Run the whole job with `total` in the place of the fabric."""
    samples = sum(job.samples(worker) for worker in range(job.workers))
    for step in range(job.steps):
        sums = total(job.gradients(step))
        mean = np.divide(sums, samples, dtype=np.float64).astype(sums.dtype)  # rounded once, as workers' means are
        job.apply([mean] * job.workers)
