"""What a run's page plots: the figures of the record, none of them cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weir.experiments.config import RunConfig
from weir.experiments.records.record import QueueTrace, RunRecord
from weir.tests.experiments.test_records import RESULT

Drawn = Callable[[RunRecord], dict[str, Any]]


def a_record(config: RunConfig, *changes: dict[str, Any]) -> RunRecord:
    record = RunRecord.begin(config, "ef", 0.5)
    record.results += [RESULT.model_copy(update=change) for change in changes]
    return record


def test_the_deepest_queue_is_seen_whole_whichever_strategy_has_it(short: RunConfig, drawn: Drawn) -> None:
    depths = {"ps": 5, "rack": 80, "widest": 7}
    traced = [
        {"strategy": name, "queues": [QueueTrace(port="s1-p2", time_ns=[0, 1_000], depth_packets=[0, depth])]}
        for name, depth in depths.items()
    ]
    for axes in drawn(a_record(short, *traced))["queues"].axes:
        low, high = axes.get_ylim()
        assert low == 0
        assert high > 80
