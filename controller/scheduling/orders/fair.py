"""No order: all jobs share every link fairly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..demand import Demand
from ..order import Description, Order


def compute(demands: Sequence[Demand]) -> Order:
    """Return one tier with all jobs."""
    return (tuple(demand.job for demand in demands),) if demands else ()


DESCRIPTION: Final = Description("fair", "fair shares", "all jobs share every link fairly", "nothing", compute)
