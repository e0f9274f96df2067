"""Stochastic gradient descent with momentum on one flat array of weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Optimiser:
    """Of one replica of the weights, or of the server's."""

    def __init__(self, parameters: int, learning_rate: float, momentum: float = 0.0) -> None:
        self._rate = np.float32(learning_rate)
        self._momentum = np.float32(momentum)
        self._velocity: Floats = np.zeros(parameters, np.float32)

    def step(self, weights: Floats, gradient: Floats, share: float = 1.0) -> Floats:
        """The weights after a step with a mean gradient; `share` is what its samples are of a whole batch."""
        self._velocity = self._momentum * self._velocity + gradient
        return weights - np.float32(share) * self._rate * self._velocity
