"""A convex problem of any size whose gradient costs next to nothing: computing takes what the machine says alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import TrainingError

Floats = NDArray[np.float32]


class LeastSquares:
    """Noisy linear measurements of hidden weights; the loss is the mean squared error, held out."""

    def __init__(self, parameters: int, rows: int, *, noise: float = 0.1, held_out: int = 256, seed: int = 1) -> None:
        if parameters < 1 or rows < 1:
            raise TrainingError(f"{parameters} parameters and {rows} rows; there is at least one of each")
        rng = np.random.default_rng(seed)
        self.hidden: Floats = rng.normal(0, 1, parameters).astype(np.float32)
        """What the weights should become."""
        inputs = rng.normal(0, 1 / np.sqrt(parameters), (rows + held_out, parameters)).astype(np.float32)
        outputs = inputs @ self.hidden + rng.normal(0, noise, rows + held_out).astype(np.float32)
        self._inputs, self._outputs = inputs[:rows], outputs[:rows]
        self._held_out = inputs[rows:], outputs[rows:]

    @property
    def parameters(self) -> int:
        return len(self.hidden)

    @property
    def layers(self) -> list[int]:
        return [self.parameters]

    @property
    def rows(self) -> int:
        return len(self._outputs)

    def initial(self) -> Floats:
        return np.zeros(self.parameters, np.float32)

    def gradient(self, weights: Floats, rows: NDArray[np.int64]) -> Floats:
        inputs = self._inputs[rows]
        gradient: Floats = (inputs @ weights - self._outputs[rows]) @ inputs * np.float32(2 / len(rows))
        return gradient

    def loss(self, weights: Floats) -> float:
        inputs, outputs = self._held_out
        return float(np.mean((inputs @ weights - outputs) ** 2))

    def accuracy(self, weights: Floats) -> float:
        """Share of the held-out outputs' variance that the weights explain, at least 0."""
        return max(0.0, 1 - self.loss(weights) / float(np.var(self._held_out[1])))
