"""Optimisers by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of the user's
that ends in one, whose path is its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...imports.registry import Registry
from ..errors import TrainingError
from ..optimiser import Description, Optimiser

__all__ = ["OPTIMISERS", "make_optimiser"]

OPTIMISERS: Final = Registry(__name__, __path__, Description, "optimiser", TrainingError, first="sgd")


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
    if unknown := sorted(options.keys() - set(description.option_names)):
        supported = ", ".join(description.option_names) or "none"
        raise TrainingError(f'unknown option "{unknown[0]}" of optimiser {name}; supported: {supported}')
    return description.make(layers, description.options(learning_rate, **options))
