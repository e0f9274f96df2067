"""NARX: a small network that foretells a speed from the last ones and from what the machine shows of itself.

Nonlinear autoregression with exogenous inputs: v(k) = F(v(k−1) … v(k−p); c(k) … c(k−p+1); m(k) … m(k−p+1)), where
c and m are the shares of processor and memory that are free. Those of k are read just before the iteration begins,
which most of the gain comes from: a tenant that has come is seen before it slows an iteration down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..machines import Readings
from .predictors import RunningMedian

_LEARNING_RATE: Final = 0.01
_DECAY: Final = (0.9, 0.999)
_TINY: Final = 1e-8
_SMOOTHING: Final = 0.02
_HIDDEN: Final = 10
_BATCH: Final = 32
_ERROR_MEMORY: Final = 0.02
"""Weight of the newest in the errors by which network and median are compared."""


class Narx:
    """One hidden layer (tanh) beside a linear part, trained by Adam a little in every iteration.

    Until it has seen `warm_up` iterations, and whenever its errors have lately been above a running median's, that is
    asked instead. What it says stays within the speeds that were seen.
    """

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
        """`order` is p; the last `memory` iterations are trained with, `updates` batches of them in each iteration.
        `past_only`: readings of the iteration itself are left out.
        """
        self._rng = np.random.default_rng(seed)
        inputs = 3 * order
        self._weights: list[NDArray[np.float64]] = [
            self._rng.normal(0, 1 / np.sqrt(inputs), (inputs, _HIDDEN)),
            np.zeros(_HIDDEN),
            self._rng.normal(0, 0.1, _HIDDEN),
            np.zeros(inputs),
            np.zeros(1),
        ]
        self._moments = [(np.zeros_like(weight), np.zeros_like(weight)) for weight in self._weights]
        self._smooth = [weight.copy() for weight in self._weights]
        """The weights' moving averages, which predictions are made with: those of single steps follow the noise."""
        self._trained = 0
        self._order = order
        self._warm_up = warm_up
        self._updates = updates
        self._past_only = past_only
        self._memory = memory
        self._series = np.empty((0, 3))
        """Speed and readings of each iteration, oldest first."""
        self._readings = Readings(1.0, 1.0)
        self._median = RunningMedian()
        self._predicted: tuple[float | None, float | None] = None, None
        """What the network and the median have said of the iteration that is under way."""
        self._errors = [0.0, 0.0]

    def predict(self, readings: Readings) -> float | None:
        self._readings = readings
        steady = self._median.predict(readings)
        network = None
        if len(self._series) >= self._warm_up:
            mean, spread = self._scales()
            rows = np.vstack([self._series[-self._order :], [[0.0, readings.cpu, readings.memory]]])
            inputs = self._inputs((rows - mean) / spread, np.array([self._order]))
            said = float(self._forward(self._smooth, inputs)[0][0] * spread[0] + mean[0])
            seen = self._series[:, 0]
            network = min(max(said, float(seen.min())), float(seen.max()))
        self._predicted = network, steady
        return network if network is not None and self._errors[0] <= self._errors[1] else steady

    def observe(self, speed: float) -> None:
        for index, predicted in enumerate(self._predicted):
            if predicted is not None and self._predicted[0] is not None:
                self._errors[index] += _ERROR_MEMORY * (abs(speed - predicted) - self._errors[index])
        self._median.observe(speed)
        row = [[speed, self._readings.cpu, self._readings.memory]]
        self._series = np.vstack([self._series, row])[-self._memory :]
        if len(self._series) >= max(self._warm_up // 2, 2 * self._order + 1):
            self._train()

    def _scales(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        spread = self._series.std(axis=0)
        return self._series.mean(axis=0), np.where(spread > 1e-12, spread, 1.0)

    def _inputs(self, rows: NDArray[np.float64], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of the chosen iterations, each with at least `order` before it: (chosen, 3 · order)."""
        lags = np.arange(self._order)
        speeds = rows[chosen[:, None] - 1 - lags, 0]
        seen = np.maximum(chosen[:, None] - self._past_only - lags, 0)
        return np.concatenate([speeds, rows[seen, 1], rows[seen, 2]], axis=1)

    def _forward(
        self, weights: Sequence[NDArray[np.float64]], inputs: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first, bias, second, straight, offset = weights
        hidden = np.tanh(inputs @ first + bias)
        return hidden @ second + inputs @ straight + offset, hidden

    def _train(self) -> None:
        mean, spread = self._scales()
        rows = (self._series - mean) / spread
        for _ in range(self._updates):
            chosen = self._rng.integers(self._order, len(rows), _BATCH)
            self._update(self._inputs(rows, chosen), rows[chosen, 0])

    def _update(self, inputs: NDArray[np.float64], wanted: NDArray[np.float64]) -> None:
        """A step of Adam on the mean squared error of a batch."""
        said, hidden = self._forward(self._weights, inputs)
        error = (said - wanted) / len(wanted)
        back = np.outer(error, self._weights[2]) * (1 - hidden**2)
        gradients = [inputs.T @ back, back.sum(axis=0), hidden.T @ error, inputs.T @ error, error.sum(keepdims=True)]
        self._trained += 1
        for weight, smooth, gradient, (first, second) in zip(
            self._weights, self._smooth, gradients, self._moments, strict=True
        ):
            first += (1 - _DECAY[0]) * (gradient - first)
            second += (1 - _DECAY[1]) * (gradient**2 - second)
            corrected = first / (1 - _DECAY[0] ** self._trained)
            weight -= _LEARNING_RATE * corrected / (np.sqrt(second / (1 - _DECAY[1] ** self._trained)) + _TINY)
            smooth += max(_SMOOTHING, 1 / self._trained) * (weight - smooth)
