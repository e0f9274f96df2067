"""Predictors of a worker's speed by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a
file of the user's that ends in one, whose path is its name.
"""

from __future__ import annotations

from typing import Final

from ....imports.registry import Registry
from ...errors import TrainingError
from ..predictor import PredictorDescription

PREDICTORS: Final = Registry(
    __name__, __path__, PredictorDescription, "predictor of speeds", TrainingError, first="narx"
)
