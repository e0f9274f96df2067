"""NARX: a small network that predicts a speed from the last ones and from the machine's readings.

Nonlinear autoregression with exogenous inputs: v(k) = F(v(k−1) … v(k−p); c(k) … c(k−p+1); m(k) … m(k−p+1)), where c and
m are the shares of processor and memory that are free. Those of k are read just before the iteration begins. Most of
the gain comes from this: a new tenant is seen before it slows an iteration down.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..history import Floats
from ..learned import Learned
from ..predictor import PredictorDescription

_LEARNING_RATE: Final = 0.01
_DECAY: Final = (0.9, 0.999)
_TINY: Final = 1e-8
_SMOOTHING: Final = 0.02
_HIDDEN: Final = 10


class Narx(Learned):
    """One hidden layer (tanh) in parallel with a linear part, trained by a few steps of Adam in every iteration."""

    def __init__(
        self,
        order: int = 2,
        *,
        memory: int = 1000,
        warm_up: int = 100,
        updates: int = 2,
        past_only: bool = False,
        seed: int = 0,
    ) -> None:
        """Draw the network's numbers.

        Args:
            order: p, speeds and readings that it predicts from.
            memory: Last iterations that it learns from.
            warm_up: Iterations before its first prediction.
            updates: Batches of an iteration.
            past_only: True to leave out the readings of the iteration itself.
            seed: Seed of the network's numbers and of the batches.
        """
        rng = np.random.default_rng(seed)
        super().__init__(
            _Network(3 * order, rng), order, rng, memory=memory, warm_up=warm_up, updates=updates, past_only=past_only
        )


class _Network:
    """Its numbers lie in one vector, so that a step of Adam is one expression."""

    def __init__(self, inputs: int, rng: np.random.Generator) -> None:
        self._inputs = inputs
        self._numbers = np.concatenate(
            [
                rng.normal(0, 1 / np.sqrt(inputs), (inputs, _HIDDEN)).reshape(-1),
                np.zeros(_HIDDEN),
                rng.normal(0, 0.1, _HIDDEN),
                np.zeros(inputs + 1),
            ]
        )
        self._smooth = self._numbers.copy()
        """The numbers' moving averages, which predictions are made with: those of single steps follow the noise."""
        self._gradient = np.empty_like(self._numbers)
        self._moments = np.zeros_like(self._numbers), np.zeros_like(self._numbers)
        self._trained = 0
        self._parts, self._smooth_parts, self._gradients = map(self._cut, (self._numbers, self._smooth, self._gradient))

    def _cut(self, numbers: Floats) -> tuple[Floats, ...]:
        """Views: the hidden layer's weights and biases, its weights in the output, the linear part, the offset."""
        first, bias, second, straight, offset = np.split(
            numbers, np.cumsum([self._inputs * _HIDDEN, _HIDDEN, _HIDDEN, self._inputs])
        )
        return first.reshape(self._inputs, _HIDDEN), bias, second, straight, offset

    def foretold(self, inputs: Floats) -> float:
        """Predict the speed of one iteration from its inputs."""
        return float(_forward(self._smooth_parts, inputs[None])[0][0])

    def train(self, inputs: Floats, wanted: Floats) -> None:
        """Train by a step of Adam on the mean squared error of a batch."""
        said, hidden = _forward(self._parts, inputs)
        error = (said - wanted) / len(wanted)
        back = error[:, None] * self._parts[2] * (1 - hidden**2)
        first, bias, second, straight, offset = self._gradients
        np.matmul(inputs.T, back, out=first)
        np.add.reduce(back, 0, out=bias)
        np.matmul(hidden.T, error, out=second)
        np.matmul(inputs.T, error, out=straight)
        np.add.reduce(error, 0, out=offset, keepdims=True)
        self._trained += 1
        mean, square = self._moments
        mean += (1 - _DECAY[0]) * (self._gradient - mean)
        square += (1 - _DECAY[1]) * (self._gradient**2 - square)
        corrected = mean / (1 - _DECAY[0] ** self._trained)
        self._numbers -= _LEARNING_RATE * corrected / (np.sqrt(square / (1 - _DECAY[1] ** self._trained)) + _TINY)
        self._smooth += max(_SMOOTHING, 1 / self._trained) * (self._numbers - self._smooth)


def _forward(parts: tuple[Floats, ...], inputs: Floats) -> tuple[Floats, Floats]:
    """Return outputs and the hidden layer's activations."""
    first, bias, second, straight, offset = parts
    hidden = np.tanh(inputs @ first + bias)
    return hidden @ second + inputs @ straight + offset, hidden


DESCRIPTION: Final = PredictorDescription(
    "narx", "a small network over the last two speeds and readings; a running median beside it", Narx
)
