"""Periods of jobs that share devices, by the ways to share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ..scheduling.crossing import WAYS, Crossing, Way, cross
from .paper import Paper, Quantity, Sample

PERIOD: Final = Quantity("mean time of a step of every job", "s")
FORMULA: Final = "formula"
"""Contender that is the predicted period in turns."""
OVERLAPPED: Final = "overlapped"
"""Contender whose jobs run one after the other and hide all but a sixteenth of their communication."""
_BUCKETS: Final = 16
CONDITIONS: Final = tuple(
    (jobs, share, shared) for shared in (False, True) for jobs in (2, 4) for share in (0.2, 0.5, 1.0)
)
"""Jobs, communication as a share of computation, and whether all cross one link."""


def periods(paper: Paper) -> Iterator[Sample]:
    """Measure `PERIOD` of all contenders: ways of `crossing`, the formula, and overlap alone. It is deterministic."""
    for jobs, share, shared in CONDITIONS:
        crossing = Crossing((1.0,) * jobs, (share,) * jobs, shared)
        name = f"{jobs} jobs, m = {share:g} c, {'one link' if shared else 'links of their own'}"
        for contender in paper.contenders:
            if contender.name == FORMULA:
                value = crossing.formula_seconds
            elif contender.name == OVERLAPPED:
                hidden = Crossing((1.0,) * jobs, (share / _BUCKETS,) * jobs, shared)
                value = float(np.mean(cross(hidden, "one after the other").seconds))
            else:
                value = float(np.mean(cross(crossing, _way(contender.name)).seconds))
            yield Sample(PERIOD.name, name, contender.name, 0, value)


def _way(name: str) -> Way:
    return next(way for way in WAYS if way == name)
