"""Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..optimiser import Floats, OptimiserDescription, OptimiserOptions, check_not_negative, check_share


@dataclass(frozen=True)
class AdamOptions(OptimiserOptions):
    """Options of Adam, with the defaults of torch.optim.Adam."""

    beta1: float = 0.9
    """Decay rate of the mean of gradients."""
    beta2: float = 0.999
    """Decay rate of the mean of squared gradients."""
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)
        check_not_negative("epsilon", self.epsilon)


class Moments:
    """Running means of gradients and of their squares, corrected for their start at zero."""

    def __init__(self, parameters: int, beta1: float, beta2: float, epsilon: float) -> None:
        self._betas = beta1, beta2
        self._epsilon = np.float32(epsilon)
        self._mean: Floats = np.zeros(parameters, np.float32)
        self._square: Floats = np.zeros(parameters, np.float32)
        self._steps = 0

    def ratio(self, gradient: Floats) -> Floats:
        """Take in a gradient and return m̂ / (√v̂ + ε), (parameters,)."""
        (beta1, beta2), self._steps = self._betas, self._steps + 1
        self._mean = np.float32(beta1) * self._mean + np.float32(1 - beta1) * gradient
        self._square = np.float32(beta2) * self._square + np.float32(1 - beta2) * (gradient * gradient)
        mean = self._mean / np.float32(1 - beta1**self._steps)
        root = np.sqrt(self._square / np.float32(1 - beta2**self._steps))
        ratio: Floats = mean / (root + self._epsilon)
        return ratio


class Adam:
    """w ← w − γ · m̂ / (√v̂ + ε)."""

    def __init__(self, layers: Sequence[int], options: AdamOptions) -> None:
        self._rate = np.float32(options.learning_rate)
        self._moments = Moments(sum(layers), options.beta1, options.beta2, options.epsilon)

    def step(self, weights: Floats, gradient: Floats, share: float = 1.0) -> Floats:
        return weights - np.float32(share) * self._rate * self._moments.ratio(gradient)


DESCRIPTION: Final = OptimiserDescription(
    "adam", "Adam", "steps scaled by the gradients' running moments", AdamOptions, Adam
)
