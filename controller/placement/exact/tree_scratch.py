"""Memory that native code of trees works in, and takes from its callers."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

ROWS: Final = 12
FLOAT_ROWS: Final = 3


def scratch(pairs: int, switches: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return rows for lists by switch or by neighbour: int64 (ROWS, width) and float64 (FLOAT_ROWS, width)."""
    width = max(switches + 1, 2 * pairs)
    return np.empty((ROWS, width), np.int64), np.empty((FLOAT_ROWS, width))
