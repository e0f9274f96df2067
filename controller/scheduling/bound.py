"""Lower bound on the mean stage completion time of any schedule, by a linear program.

Whatever the order, and however rates are divided, link e serves the set S of stages no faster than one after the
other. So the completion times C_c, with r the earliest start in S, satisfy

    Σ_{c∈S} d_c(e) C_c ≥ r Σ_{c∈S} d_c(e) + ½ [(Σ_{c∈S} d_c(e))² + Σ_{c∈S} d_c(e)²],     C_c ≥ r_c + f_c

(Queyranne, Mathematical Programming 58, 1993). The sets are exponentially many; the program starts without them and
adds the violated ones. For a link and a start r the most violated set among stages that start at r or later is a prefix
of their order by C_c.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import scipy  # type: ignore[import-untyped]

from .demand import Floats, Stage
from .errors import SchedulingError

_TOLERANCE: Final = 1e-7
_ROUNDS: Final = 500


def completion_bound(stages: Sequence[Stage]) -> float:
    """Return a lower bound on the weighted mean of the stages' completion times, from each one's start, in s.

    Raises:
        SchedulingError: There is no stage, or all weights are 0.
    """
    weights = np.array([stage.weight for stage in stages], np.float64)
    if not weights.sum():
        raise SchedulingError("a bound needs a stage with weight", place="stages", value=len(stages))
    starts = np.array([stage.begun_seconds for stage in stages])
    starts -= starts.min()
    seconds = np.array([stage.seconds for stage in stages])
    scale = float(max(seconds.max(initial=0.0), 1e-12))
    seconds, starts = seconds / scale, starts / scale
    floors = starts + np.array([stage.floor_seconds for stage in stages]) / scale
    links = seconds[:, seconds.any(axis=0)].T
    rows: list[Floats] = []
    right: list[float] = []
    times = floors
    for _ in range(_ROUNDS):
        cuts = list(_violated(links, starts, times))
        if not cuts:
            break
        rows.extend(row for row, _ in cuts)
        right.extend(value for _, value in cuts)
        solved = scipy.optimize.linprog(
            weights, A_ub=-np.array(rows), b_ub=-np.array(right), bounds=[(low, None) for low in floors]
        )
        times = solved.x
    return float(scale * (weights @ (times - starts)) / weights.sum())


def _violated(links: Floats, starts: Floats, times: Floats) -> Iterator[tuple[Floats, float]]:
    """Yield the most violated constraint of each link and start, as (coefficients, right side)."""
    if not len(links):
        return
    order = np.argsort(times, kind="stable")
    for start in np.unique(starts):
        late = order[starts[order] >= start]
        demand = links[:, late]
        total = demand.cumsum(axis=1)
        right = start * total + (total**2 + (demand**2).cumsum(axis=1)) / 2
        lack = right - (demand * times[late]).cumsum(axis=1)
        worst = lack.argmax(axis=1)
        for link in np.flatnonzero(lack[np.arange(len(links)), worst] > _TOLERANCE * (1 + np.abs(right).max())):
            row = np.zeros(len(times))
            row[late[: worst[link] + 1]] = demand[link, : worst[link] + 1]
            yield row, float(right[link, worst[link]])
