"""Optimisers by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of the user's
that ends in one, whose path is its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...imports.options import checked_options
from ...imports.registry import Registry
from ..divided_layers import DividedLayers, Gatherer
from ..errors import TrainingError
from ..optimiser import Optimiser, OptimiserDescription, OptimiserOptions

__all__ = ["OPTIMISERS", "make_divided_optimiser", "make_optimiser"]

OPTIMISERS: Final = Registry(__name__, __path__, OptimiserDescription, "optimiser", TrainingError, first="sgd")


def make_optimiser(name: str, layers: Sequence[int], learning_rate: float, **options: Any) -> Optimiser:
    """Return an optimiser at its start.

    Args:
        name: Name or path.
        layers: Lengths of the layers, which are consecutive parts of the weights.
        learning_rate: Learning rate.
        **options: Other options of the optimiser; the rest have their defaults.

    Raises:
        TrainingError: The optimiser is unknown, or an option is, or has a value that is not allowed.
    """
    description = OPTIMISERS.describe(name)
    return description.make(layers, _options(description, learning_rate, options))


def make_divided_optimiser(
    name: str, layers: Sequence[int], learning_rate: float, ranks: Gatherer, **options: Any
) -> Optimiser:
    """Return an optimiser whose rates by layer are divided among ranks, which all make the same steps.

    Its weights have the bits of `make_optimiser`'s.

    Args:
        name: Name or path.
        layers: Lengths of the layers, which are consecutive parts of the weights.
        learning_rate: Learning rate.
        ranks: Communicator of the ranks, such as `weir.join` returns.
        **options: Other options of the optimiser; the rest have their defaults.

    Raises:
        TrainingError: As of `make_optimiser`; or the optimiser has no rates by layer.
    """
    description = OPTIMISERS.describe(name)
    if not description.divides:
        dividing = tuple(optimiser.name for optimiser in OPTIMISERS.values() if optimiser.divides)
        raise TrainingError(f"optimiser {name} has no rates by layer", place="ranks", value=name, allowed=dividing)
    return description.make(layers, _options(description, learning_rate, options), DividedLayers(layers, ranks))


def _options(description: OptimiserDescription, learning_rate: float, options: dict[str, Any]) -> OptimiserOptions:
    """Return the options of an optimiser. Raises TrainingError for an unknown one, or one of another type."""
    taken = checked_options(
        options, description.options, f"optimiser {description.name}", TrainingError, without=("learning_rate",)
    )
    return description.options(learning_rate, **taken)
