"""First in, first out, with limited multiplexing (Baraat: Dogar et al., SIGCOMM 2014).

The task is a cojob's stage, by its start. A stage is heavy if it needs more seconds of its busiest link than 80 % of
the present stages; the next one then shares with it, so that a heavy stage at the head does not hold all others back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..demand import Demand, stages
from ..order import Order, OrderDescription

HEAVY_PERCENTILE: Final = 80.0


def compute(demands: Sequence[Demand]) -> Order:
    """Return the stages by their start; a heavy one is in the tier of its successor."""
    ordered = sorted(stages(demands), key=lambda stage: stage.begun_seconds)
    if not ordered:
        return ()
    sizes = [float(stage.seconds.max(initial=0.0)) for stage in ordered]
    limit = float(np.percentile(sizes, HEAVY_PERCENTILE))
    tiers: list[tuple[str, ...]] = [()]
    for stage, size in zip(ordered, sizes, strict=True):
        tiers[-1] += stage.jobs
        if size <= limit:
            tiers.append(())
    return tuple(tier for tier in tiers if tier)


DESCRIPTION: Final = OrderDescription(
    "fifo-lm", "FIFO-LM (Baraat)", "stages by their start; a heavy one shares with the next", "stages", compute
)
