"""Interface of an optimiser: steps of flat weights, of one replica or of a server's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import TrainingError

Floats = NDArray[np.float32]


class Optimiser(Protocol):
    """State of one replica's optimiser."""

    def step(self, weights: Floats, gradient: Floats, share: float = 1.0) -> Floats:
        """Return the weights after a step.

        Args:
            weights: Flat weights, float32 (parameters,); they are not changed.
            gradient: Mean gradient, of the same shape.
            share: Samples of the gradient as a share of a whole batch; the step is as large a part of a whole one.
        """


@dataclass(frozen=True)
class OptimiserOptions:
    """Options that every optimiser has; its own are fields of a subclass."""

    learning_rate: float

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise TrainingError(f"learning_rate must be > 0, got {self.learning_rate}")


@dataclass(frozen=True, slots=True)
class OptimiserDescription:
    """An optimiser as it is registered: one in each module of `optimisers`, as DESCRIPTION."""

    name: str
    """Name in run files."""
    label: str
    """Name in tables and plots."""
    summary: str
    options: type[OptimiserOptions]
    make: Callable[..., Optimiser]
    """Make one at its start from the sizes of the layers, which are consecutive parts of the weights, and options; and
    from `Layers`, if it divides them.
    """
    divides: bool = False
    """True if it has rates by layer, which ranks can divide among them."""

    @property
    def option_names(self) -> tuple[str, ...]:
        """Names of the options besides the learning rate."""
        return tuple(field.name for field in fields(self.options) if field.name != "learning_rate")


def check_share(name: str, value: float) -> None:
    """Raise TrainingError for a decay rate outside [0, 1)."""
    if not 0 <= value < 1:
        raise TrainingError(f"{name} must be >= 0 and < 1, got {value}")


def check_not_negative(name: str, value: float) -> None:
    """Raise TrainingError for a negative value."""
    if not value >= 0:
        raise TrainingError(f"{name} must be >= 0, got {value}")


Rule = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]
"""Factors of layers, (k,), by the norms of two vectors, (k,) each."""


class Layers:
    """Norms of the layers of flat weights, and factors that follow from them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """`sizes` are the layers' lengths, each at least 1."""
        if not sizes or min(sizes) < 1:
            raise TrainingError(f"layers of {list(sizes)} parameters; allowed: one layer at least, of 1 or more each")
        self._sizes = np.asarray(sizes)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def factors(self, rule: Rule, first: Floats, second: Floats) -> NDArray[np.float32]:
        """Return the factor of each layer, (layers,).

        Args:
            rule: Factors by the layers' norms.
            first: Vector whose norms are the first argument of the rule, (parameters,).
            second: Vector whose norms are the second.
        """
        return rule(norms(first, self._starts), norms(second, self._starts))

    def spread(self, factors: NDArray[np.float32]) -> Floats:
        """Repeat one factor per layer for each of its parameters: (layers,) to (parameters,)."""
        return np.repeat(factors, self._sizes)


def norms(values: Floats, starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the Euclidean norms of the layers that begin at `starts`, (layers,), from squares and sums in float64."""
    squares = np.square(values, dtype=np.float64)
    return np.sqrt(np.add.reduceat(squares, starts)).astype(np.float32)
