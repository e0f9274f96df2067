"""LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020, algorithm 2).

For each layer: u = m̂ / (√v̂ + ε) + λ·w, w ← w − γ · (‖w‖ / ‖u‖) · u. The ratio is 1 where one of the norms is 0. The
paper's φ is the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..optimiser import Floats, Layers, OptimiserDescription, check_not_negative
from .adam import AdamOptions, Moments


@dataclass(frozen=True)
class LambOptions(AdamOptions):
    """Options of LAMB, with the paper's defaults."""

    epsilon: float = 1e-6
    weight_decay: float = 0.01
    """λ."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("weight_decay", self.weight_decay)


class Lamb:
    """Adam whose steps have each layer's norm."""

    def __init__(self, layers: Sequence[int], options: LambOptions, divided: Layers | None = None) -> None:
        self._rate = np.float32(options.learning_rate)
        self._decay = np.float32(options.weight_decay)
        self._layers = divided or Layers(layers)
        self._moments = Moments(sum(layers), options.beta1, options.beta2, options.epsilon)

    def step(self, weights: Floats, gradient: Floats, share: float = 1.0) -> Floats:
        update = self._moments.ratio(gradient) + self._decay * weights
        trust = self._layers.factors(_trust, weights, update)
        return weights - np.float32(share) * self._rate * self._layers.spread(trust) * update


def _trust(of_weights: NDArray[np.float32], of_update: NDArray[np.float32]) -> NDArray[np.float32]:
    some = (of_weights > 0) & (of_update > 0)
    return np.where(some, of_weights / np.where(some, of_update, np.float32(1)), np.float32(1))


DESCRIPTION: Final = OptimiserDescription(
    "lamb",
    "LAMB",
    "Adam with steps as long as each layer's weights, for large batches",
    LambOptions,
    Lamb,
    divides=True,
)
