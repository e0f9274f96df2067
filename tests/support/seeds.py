"""Values of a drawn test's parameter: a few for `make test`, the others for `make test-long`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def few_of(values: Iterable[object], quick: int) -> list[object]:
    """Mark all values as long except the first ones.

    Args:
        values: Values of a test's parameter, such as seeds; tuples for several parameters.
        quick: Number of values that `make test` takes.

    Returns:
        Values for `pytest.mark.parametrize`.
    """
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=() if at < quick else pytest.mark.long) for at, row in enumerate(rows)]
