"""Drawn demands of jobs, with seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from weir.controller.scheduling.demand import Demand


def demand(job: str, seconds: list[float], cojob: str = "", steps: float = 1, **values: Any) -> Demand:
    return Demand(job=job, cojob=cojob or job, link_seconds=np.array(seconds, np.float64), steps_left=steps, **values)


def drawn(seed: int, jobs: int, links: int, cojobs: int | None = None) -> list[Demand]:
    rng = np.random.default_rng(seed)
    return [
        demand(
            f"j{index}",
            [*(rng.lognormal(0, 1, links) * (rng.random(links) < 0.7))],
            f"c{index % cojobs}" if cojobs else "",
            float(rng.integers(1, 20)),
            compute_seconds=float(rng.uniform(0, 2)),
            begun_seconds=float(rng.uniform(0, 5)),
            workers=4,
        )
        for index in range(jobs)
    ]
