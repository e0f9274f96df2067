"""Median of the last speeds."""

from __future__ import annotations

from typing import Final

from ..learned import RunningMedian
from ..predictor import PredictorDescription

DESCRIPTION: Final = PredictorDescription("median", "median of the last five speeds", RunningMedian)
