"""One point of the grid, run: every strategy under the same conditions."""

from __future__ import annotations

import time

from . import flow_simulator, packet_emulator
from .records import PointRecord, maker
from .scenario import Scenario
from .suite import Point


def run_point(point: Point) -> PointRecord:
    """Return all strategies of a point, one after the other."""
    engine = flow_simulator if point.engine == "flows" else packet_emulator
    scenario = Scenario.drawn(point)
    made_by = maker()
    figures = []
    for name in point.strategies:
        started = time.process_time()
        outcome = engine.run(scenario, name)
        figures.append(outcome.model_copy(update={"seconds": time.process_time() - started, "made_by": made_by}))
    return PointRecord(point=point, figures=tuple(figures))
