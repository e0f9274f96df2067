"""Cost of load-balanced batch sizes per worker and step: speed predicted, all shares decided, the step's time recorded.

This is the whole cost without a controller, when every worker decides.

Aim: less than 1.1 % of a step of 200 ms, the figure that the authors of LB-BSP report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from weir.bench.measure import RUNS, Aim, Figure, cpu_seconds
from weir.training.batching.manager import BatchSizeManager, RuleName
from weir.training.batching.reporter import SpeedReporter
from weir.training.machines import Readings

STEP_S: Final = 0.2
AIM: Final = Aim(0.011 * STEP_S)
_STEPS: Final = 200
"""Steps of each run; NARX predicts after the first 100."""
SAMPLES: Final = 64
"""Samples per worker."""

_NAMES: Final[dict[RuleName, str]] = {"analytic": "NARX, analytic rule", "numeric": "numeric rule"}


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    for workers in (8, 32, 128):
        for rule, named in _NAMES.items():
            taken = tuple(_step_s(rule, workers, seed) for seed in range(RUNS))
            yield Figure(f"batch sizes of a step, {workers} workers: {named}", "s", taken, less_is_better=True, aim=AIM)


def _step_s(rule: RuleName, workers: int, seed: int) -> float:
    """Processor time of one worker in one step, without the packets of the reports: speeds wander."""
    rng = np.random.default_rng(seed)
    manager = BatchSizeManager(SAMPLES * workers, workers, rule=rule)
    reporter = SpeedReporter(rule=rule)
    free = np.clip(1 + np.cumsum(rng.normal(0, 0.03, (_STEPS, workers)), axis=0), 0.2, 1.0)
    sizes = manager.sizes

    def train() -> None:
        nonlocal sizes
        for shares in free:
            own = reporter.report(Readings(float(shares[0]), 0.5))
            times = np.array(sizes) / (1000 * shares)
            reports = np.column_stack([1000 * shares, times, np.zeros(workers)])
            reports[0] = own
            sizes = manager.decide(reports)
            reporter.observe(sizes[0], sizes[0] / (1000 * float(shares[0])))

    return cpu_seconds(train) / _STEPS
