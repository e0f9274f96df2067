"""Stochastic gradient descent with heavy-ball momentum: v ← m·v + g, w ← w − γ·v."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..optimiser import Floats, OptimiserDescription, OptimiserOptions, check_share


@dataclass(frozen=True)
class SgdOptions(OptimiserOptions):
    """Options of SGD."""

    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("momentum", self.momentum)


class Sgd:
    """The update of torch.optim.SGD without dampening."""

    def __init__(self, layers: Sequence[int], options: SgdOptions) -> None:
        self._rate = np.float32(options.learning_rate)
        self._momentum = np.float32(options.momentum)
        self._velocity: Floats = np.zeros(sum(layers), np.float32)

    def step(self, weights: Floats, gradient: Floats, share: float = 1.0) -> Floats:
        self._velocity = self._momentum * self._velocity + gradient
        return weights - np.float32(share) * self._rate * self._velocity


DESCRIPTION: Final = OptimiserDescription("sgd", "SGD", "gradient descent with momentum", SgdOptions, Sgd)
