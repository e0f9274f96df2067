"""Shortest remaining stage first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..demand import Demand, stages
from ..order import Order, OrderDescription, of_stages


def compute(demands: Sequence[Demand]) -> Order:
    """Return the stages by the time that their rest takes without other cojobs, divided by their weight."""
    return of_stages(sorted(stages(demands), key=lambda stage: stage.alone_seconds / max(stage.weight, 1e-12)))


DESCRIPTION: Final = OrderDescription(
    "stage-srpt", "stage SRPT", "stages by their remaining time without others, the shortest first", "stages", compute
)
