"""LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017, algorithm 1).

For each layer: λ = η·‖w‖ / (‖g‖ + β·‖w‖), v ← m·v + γ·λ·(g + β·w), w ← w − v. A layer with ‖w‖ = 0 or ‖g‖ = 0, such as
biases at the start, has λ = 1: by the formula it would never move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..optimiser import Floats, Layers, OptimiserDescription, OptimiserOptions, check_not_negative, check_share


@dataclass(frozen=True)
class LarsOptions(OptimiserOptions):
    """Options of LARS, with the paper's defaults."""

    momentum: float = 0.9
    trust: float = 0.001
    """η: how far a layer moves in a step, relative to its weights."""
    weight_decay: float = 0.0005
    """β."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("momentum", self.momentum)
        check_not_negative("trust", self.trust)
        check_not_negative("weight_decay", self.weight_decay)


class Lars:
    """Momentum SGD whose learning rate follows each layer's ratio of weights to gradients."""

    def __init__(self, layers: Sequence[int], options: LarsOptions, divided: Layers | None = None) -> None:
        self._options = options
        self._layers = divided or Layers(layers)
        self._velocity: Floats = np.zeros(sum(layers), np.float32)

    def step(self, weights: Floats, gradient: Floats, share: float = 1.0) -> Floats:
        options = self._options
        decay = np.float32(options.weight_decay)
        local = self._layers.factors(self._local_rates, weights, gradient)
        rate = np.float32(options.learning_rate) * self._layers.spread(local)
        self._velocity = np.float32(options.momentum) * self._velocity + rate * (gradient + decay * weights)
        return weights - np.float32(share) * self._velocity

    def _local_rates(self, of_weights: NDArray[np.float32], of_gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        options = self._options
        some = (of_weights > 0) & (of_gradient > 0)
        below = np.where(some, of_gradient + np.float32(options.weight_decay) * of_weights, np.float32(1))
        return np.where(some, np.float32(options.trust) * of_weights / below, np.float32(1))


DESCRIPTION: Final = OptimiserDescription(
    "lars", "LARS", "momentum with a learning rate for each layer, for large batches", LarsOptions, Lars, divides=True
)
