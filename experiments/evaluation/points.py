"""One point of the grid, run: every strategy under the same conditions."""

from __future__ import annotations

import time

from . import flow_simulator, packet_emulator
from .records import PointRecord, maker
from .scenario import Scenario
from .suite import Point


def run_point(point: Point) -> PointRecord:
    """All strategies of a point, one after the other."""
    started = time.process_time()
    engine = flow_simulator if point.engine == "flows" else packet_emulator
    scenario = Scenario.drawn(point)
    figures = tuple(engine.run(scenario, name) for name in point.strategies)
    seconds = time.process_time() - started
    return PointRecord(point=point, figures=figures, seconds=seconds, made_by=maker())
