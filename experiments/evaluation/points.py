"""One point of the grid, run: every strategy under the same conditions."""

from __future__ import annotations

import time

from . import in_flows, in_packets
from .records import PointRecord, maker
from .scenario import Scenario
from .suite import Point


def run_point(point: Point) -> PointRecord:
    """All strategies of a point, one after the other."""
    started = time.process_time()
    engine = in_flows if point.engine == "flows" else in_packets
    scenario = Scenario.drawn(point)
    figures = tuple(engine.run(scenario, name) for name in point.strategies)
    seconds = time.process_time() - started
    return PointRecord(point=point, figures=figures, seconds=seconds, made_by=maker())
