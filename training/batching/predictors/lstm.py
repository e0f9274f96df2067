"""A network of long short-term memory over the last ten speeds, in PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..predictor import PredictorDescription
from ..recurrent import Recurrent

DESCRIPTION: Final = PredictorDescription(
    "lstm", "a network of long short-term memory over the last ten speeds; needs PyTorch", partial(Recurrent, "lstm")
)
