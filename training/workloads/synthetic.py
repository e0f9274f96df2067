"""A convex problem of any size whose gradient costs next to nothing: computing takes what the machine says alone."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import TrainingError
from ..samples import Rows
from ..workload import Batch, Floats, Workload, WorkloadDescription


class LeastSquares(Workload):
    """Noisy linear measurements of hidden weights; the loss is the mean squared error, held out."""

    def __init__(self, parameters: int, rows: int, *, noise: float = 0.1, held_out: int = 256, seed: int = 1) -> None:
        if parameters < 1 or rows < 1:
            raise TrainingError(f"{parameters} parameters and {rows} rows; there is at least one of each")
        rng = np.random.default_rng(seed)
        self.hidden: Floats = rng.normal(0, 1, parameters).astype(np.float32)
        """The true weights, which training should find."""
        inputs = rng.normal(0, 1 / np.sqrt(parameters), (rows + held_out, parameters)).astype(np.float32)
        outputs = inputs @ self.hidden + rng.normal(0, noise, rows + held_out).astype(np.float32)
        self._inputs, self._outputs = inputs[:rows], outputs[:rows]
        self._held_out = inputs[rows:], outputs[rows:]

    @property
    def layers(self) -> list[int]:
        return [len(self.hidden)]

    @property
    def rows(self) -> int:
        return len(self._outputs)

    def initial(self) -> Floats:
        return np.zeros(self.parameters, np.float32)

    def fetch(self, rows: Rows) -> Batch:
        return self._inputs[rows], self._outputs[rows]

    def gradient(self, weights: Floats, batch: Batch) -> Floats:
        inputs, outputs = batch
        gradient: Floats = (inputs @ weights - outputs) @ inputs * np.float32(2 / len(outputs))
        return gradient

    def batch_loss(self, weights: Floats, batch: Batch) -> float:
        inputs, outputs = batch
        return float(np.mean((inputs @ weights - outputs) ** 2))

    def held_out(self) -> Batch:
        return self._held_out

    def batch_accuracy(self, weights: Floats, batch: Batch) -> float:
        """Share of the outputs' variance that the weights explain, at least 0."""
        return max(0.0, 1 - self.batch_loss(weights, batch) / float(np.var(batch[1])))

    def torch_loss(self, weights: Any, batch: Batch) -> Any:
        import torch

        inputs, outputs = (torch.from_numpy(array) for array in batch)
        return ((inputs @ weights - outputs) ** 2).mean()


DESCRIPTION: Final = WorkloadDescription(
    "synthetic",
    "least squares with 1,000 parameters: gradients that cost next to nothing",
    lambda seed, _: LeastSquares(1000, 4096, seed=seed),
)
