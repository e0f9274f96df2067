"""A plain recurrent network over the last ten speeds, in PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..predictor import PredictorDescription
from ..recurrent import Recurrent

DESCRIPTION: Final = PredictorDescription(
    "rnn", "a plain recurrent network over the last ten speeds; needs PyTorch", partial(Recurrent, "rnn")
)
