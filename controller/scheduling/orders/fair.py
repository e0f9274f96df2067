"""No order: all jobs share every link fairly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..demand import Demand
from ..order import Order, OrderDescription


def compute(demands: Sequence[Demand]) -> Order:
    """Return one tier with all jobs."""
    return (tuple(demand.job for demand in demands),) if demands else ()


DESCRIPTION: Final = OrderDescription("fair", "fair shares", "all jobs share every link fairly", "nothing", compute)
