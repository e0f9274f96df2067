"""Workloads to train: weights as one flat array, data as numbered rows.

An iteration has three phases: *fetch* brings a batch's samples (`Workload.fetch`), *compute* makes their gradient
(`Workload.gradient`), *exchange* is the synchronisation mode's. In virtual time only compute and exchange take time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import TrainingError
from .samples import Rows

Floats = NDArray[np.float32]
Batch = tuple[NDArray[Any], ...]
"""Arrays with one sample along the first axis; the last array has the labels or targets."""


class Workload(ABC):
    """A problem without state of its own: weights come in, gradients and losses go out."""

    @property
    @abstractmethod
    def layers(self) -> Sequence[int]:
        """Lengths of the layers, which are consecutive parts of the weights."""

    @property
    def parameters(self) -> int:
        """Length of the weights."""
        return sum(self.layers)

    @property
    @abstractmethod
    def rows(self) -> int:
        """Samples that are trained with."""

    @abstractmethod
    def initial(self) -> Floats:
        """Return weights at the start, the same at every worker: float32 (parameters,)."""

    @abstractmethod
    def fetch(self, rows: Rows) -> Batch:
        """Phase *fetch*: the samples of some rows of the training data."""

    @abstractmethod
    def gradient(self, weights: Floats, batch: Batch) -> Floats:
        """Phase *compute*: mean gradient over a batch, float32 (parameters,)."""

    @abstractmethod
    def batch_loss(self, weights: Floats, batch: Batch) -> float:
        """Return the mean loss over a batch."""

    @abstractmethod
    def held_out(self) -> Batch:
        """Return data that is not trained with."""

    @abstractmethod
    def batch_accuracy(self, weights: Floats, batch: Batch) -> float:
        """Share of a batch that the weights get right, 0…1; a workload without right and wrong documents its own."""

    def loss(self, weights: Floats) -> float:
        """Return the mean loss on the held-out data."""
        return self.batch_loss(weights, self.held_out())

    def accuracy(self, weights: Floats) -> float:
        """Return the accuracy on the held-out data, 0…1."""
        return self.batch_accuracy(weights, self.held_out())

    def torch_loss(self, weights: Any, batch: Batch) -> Any:
        """Return the mean loss over a batch in PyTorch, differentiable in the weights.

        Args:
            weights: Flat tensor (parameters,).
            batch: As `fetch` returns it.

        Returns:
            Tensor without dimensions.
        """
        raise TrainingError(f"{type(self).__name__} has no PyTorch version")


@dataclass(frozen=True, slots=True)
class WorkloadDescription:
    """A workload as it is registered: one in each module of `workloads`, as DESCRIPTION."""

    name: str
    """Name in run files."""
    summary: str
    make: Callable[[int, int], Workload]
    """Make it from a seed, by which data is split and weights are drawn, and the units of a hidden layer; workloads
    without such a layer ignore the units.
    """
