"""What is trained: weights as one flat array, data as numbered rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .samples import Rows

Floats = NDArray[np.float32]


class Workload(Protocol):
    """What is trained: weights as one flat float32 array, data as numbered rows."""

    @property
    def parameters(self) -> int:
        """Length of the weights."""

    @property
    def layers(self) -> Sequence[int]:
        """Lengths of the layers, which are consecutive parts of the weights."""

    @property
    def rows(self) -> int:
        """Samples that are trained with."""

    def initial(self) -> Floats:
        """The weights at the start, the same at every worker."""

    def gradient(self, weights: Floats, rows: Rows) -> Floats:
        """The mean gradient over some rows."""

    def loss(self, weights: Floats) -> float:
        """On data that is not trained with."""

    def accuracy(self, weights: Floats) -> float:
        """Share of that data which the weights get right, 0…1; a problem without right and wrong says how."""
