"""ARIMA(2, 1, 1) by statsmodels: autoregression of the speeds' differences with a moving average of the errors."""

from __future__ import annotations

import warnings
from collections import deque
from typing import Any, Final

import numpy as np

from ....imports.extras import explained
from ...errors import TrainingError
from ...machines import Readings
from ..predictor import PredictorDescription

_TINY_SPREAD: Final = 1e-9


class Arima:
    """Last speed until the first fit, then the filter's forecast, within the range of the speeds in its memory."""

    def __init__(self, order: tuple[int, int, int] = (2, 1, 1), memory: int = 300, refit: int = 100) -> None:
        """Begin without speeds.

        Args:
            order: Autoregressive terms, differences and terms of the moving average.
            memory: Last iterations that a fit is over.
            refit: Iterations from one fit to the next.

        Raises:
            TrainingError: No iteration is between two fits, or fewer are remembered.
            MissingExtra: statsmodels is not installed.
        """
        if not 0 < refit <= memory:
            raise TrainingError(f"a fit every {refit} iterations over the last {memory}; allowed: 0 < refit <= memory")
        try:
            from statsmodels.tsa.arima.model import ARIMA
        except ImportError as missing:
            raise explained(missing, "the predictor arima", "predictors") from None
        self._model = ARIMA
        self._order = order
        self._refit = refit
        self._speeds: deque[float] = deque(maxlen=memory)
        self._fitted: Any = None
        """Results of statsmodels, whose filter has seen all speeds."""
        self._observed = 0

    def predict(self, readings: Readings) -> float | None:
        if self._fitted is None:
            return self._speeds[-1] if self._speeds else None
        forecast = float(self._fitted.forecast()[0])
        low, high = min(self._speeds), max(self._speeds)
        return min(max(forecast, low), high) if np.isfinite(forecast) else self._speeds[-1]

    def observe(self, speed: float) -> None:
        self._speeds.append(speed)
        self._observed += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that do not converge: the forecast is judged by its errors
            if self._observed % self._refit == 0:
                self._fit()
            elif self._fitted is not None:
                self._fitted = self._fitted.extend([speed])

    def _fit(self) -> None:
        """Fit the speeds in the memory; equal speeds have no fit, and the last one is the forecast."""
        speeds = np.array(self._speeds)
        varied = speeds.std() > _TINY_SPREAD * speeds.mean()
        self._fitted = self._model(speeds, order=self._order).fit() if varied else None


DESCRIPTION: Final = PredictorDescription("arima", "ARIMA(2, 1, 1); needs statsmodels", Arima)
