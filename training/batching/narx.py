"""NARX: a small network that predicts a speed from the last ones and from the machine's readings.

Nonlinear autoregression with exogenous inputs: v(k) = F(v(k−1) … v(k−p); c(k) … c(k−p+1); m(k) … m(k−p+1)), where c and
m are the shares of processor and memory that are free. Those of k are read just before the iteration begins. Most of
the gain comes from this: a new tenant is seen before it slows an iteration down.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..machines import Readings
from .predictors import RunningMedian

_LEARNING_RATE: Final = 0.01
_DECAY: Final = (0.9, 0.999)
_TINY: Final = 1e-8
_TINY_SPREAD: Final = 1e-12
_SMOOTHING: Final = 0.02
_HIDDEN: Final = 10
_BATCH: Final = 32
_ERROR_MEMORY: Final = 0.02
"""Weight of the newest in the errors by which network and median are compared."""

Floats = NDArray[np.float64]


class Narx:
    """One hidden layer (tanh) in parallel with a linear part, trained by a few steps of Adam in every iteration.

    Until it has seen `warm_up` iterations, and whenever its recent errors exceed a running median's, the median is used
    instead. Predictions stay within the range of observed speeds.
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
        """Create an untrained predictor.

        Args:
            order: p, the number of past iterations among the inputs.
            memory: Number of last iterations that it is trained with.
            warm_up: Number of iterations before its predictions are used.
            updates: Batches of training in each iteration.
            past_only: True if readings of the predicted iteration are not among the inputs.
            seed: Seed of weights and batches.
        """
        self._rng = np.random.default_rng(seed)
        self._network = _Network(3 * order, self._rng)
        self._history = NarxHistory(order, memory, past_only=past_only)
        self._order = order
        self._warm_up = warm_up
        self._updates = updates
        self._median = RunningMedian()
        self._predicted: tuple[float | None, float | None] = None, None
        """Predictions of the network and of the median for the current iteration."""
        self._errors = [0.0, 0.0]

    def predict(self, readings: Readings) -> float | None:
        history = self._history
        history.read(readings)
        steady = self._median.predict(readings)
        network = None
        if len(history) >= self._warm_up:
            said = self._network.foretold(history.scaled(history.next_inputs))
            network = history.within(said * history.spread_of_speed + history.mean_speed)
        self._predicted = network, steady
        return network if network is not None and self._errors[0] <= self._errors[1] else steady

    def observe(self, speed: float) -> None:
        for index, predicted in enumerate(self._predicted):
            if predicted is not None and self._predicted[0] is not None:
                self._errors[index] += _ERROR_MEMORY * (abs(speed - predicted) - self._errors[index])
        self._median.observe(speed)
        history = self._history
        history.append(speed)
        if len(history) >= max(self._warm_up // 2, 2 * self._order + 1):
            chosen = self._rng.integers(self._order, len(history), (self._updates, _BATCH))
            for inputs, wanted in zip(*history.batches(chosen), strict=True):
                self._network.train(inputs, wanted)


class NarxHistory:
    """The last iterations with the network's inputs for each: the p speeds before it, and readings."""

    def __init__(self, order: int, memory: int, *, past_only: bool) -> None:
        self._order = order
        self._memory = memory
        self._newest = 1 if past_only else 0
        self._seen = np.empty((3, 2 * memory))
        """Speed and readings of each iteration; room for twice as many as are kept, so that they seldom move."""
        self._inputs = np.zeros((2 * memory, 3 * order))
        """Inputs per iteration. The first `order` iterations have no predecessors, and zeros here."""
        self._first = self._end = 0
        self._readings = Readings(1.0, 1.0)
        self._begun = False
        """True if the machine was read for the last iteration; otherwise it counts as in the one before."""
        self._mean, self._spread = np.zeros(3), np.ones(3)

    def __len__(self) -> int:
        return self._end - self._first

    def read(self, readings: Readings) -> None:
        """Begin an iteration with these readings of the machine."""
        self._readings, self._begun = readings, True
        if self._end == len(self._inputs):
            kept = slice(self._first, self._end)
            self._first, self._end = 0, self._end - self._first
            self._seen[:, : self._end] = self._seen[:, kept].copy()
            self._inputs[: self._end] = self._inputs[kept].copy()
        end, order = self._end, self._order
        self._seen[:, end] = 0.0, readings.cpu, readings.memory
        if end >= order:
            told, newest = self._inputs[end].reshape(3, order), end - self._newest
            told[0] = self._seen[0, end - order : end][::-1]
            told[1:] = self._seen[1:, newest - order + 1 : newest + 1][:, ::-1]

    def append(self, speed: float) -> None:
        """Append the speed that the present iteration had."""
        if not self._begun:
            self.read(self._readings)
        self._begun = False
        self._seen[0, self._end] = speed
        self._end += 1
        self._first = max(self._first, self._end - self._memory)
        kept = self._seen[:, self._first : self._end]
        self._mean = np.add.reduce(kept, 1) / len(self)
        apart = kept - self._mean[:, None]
        spread = np.sqrt(np.einsum("ij,ij->i", apart, apart) / len(self))
        self._spread = np.where(spread > _TINY_SPREAD, spread, 1.0)

    @property
    def mean_speed(self) -> float:
        """Mean of the speeds in the history, in samples per second."""
        return float(self._mean[0])

    @property
    def spread_of_speed(self) -> float:
        """Standard deviation of the speeds in the history."""
        return float(self._spread[0])

    def within(self, speed: float) -> float:
        """Return the nearest speed that is not beyond those that were seen."""
        seen = self._seen[0, self._first : self._end]
        return min(max(speed, float(seen.min())), float(seen.max()))

    @property
    def next_inputs(self) -> Floats:
        """Inputs of the iteration that has begun."""
        inputs: Floats = self._inputs[self._end]
        return inputs

    def scaled(self, inputs: Floats) -> Floats:
        """Return inputs as a network has them: less their means, in units of their spreads."""
        scaled: Floats = (inputs - self._mean.repeat(self._order)) / self._spread.repeat(self._order)
        return scaled

    def batches(self, chosen: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the scaled inputs (batches, size, 3 · order) and speeds (batches, size) of the chosen iterations,
        which are counted from the oldest that is kept.
        """
        places = chosen + self._first
        return self.scaled(self._inputs[places]), (self._seen[0, places] - self._mean[0]) / self._spread[0]


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
