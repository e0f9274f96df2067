"""Plans of compression, predicted by fitted costs and measured with all packets in virtual time."""

from __future__ import annotations

import asyncio
from statistics import median

import pytest

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.papers import PAPERS, record_path
from weir.experiments.repetition.planned_schedules import (
    PREDICTION_ERROR,
    SUM_TIME,
    packet_sum_costs,
    packet_time_ms,
)
from weir.experiments.repetition.record import PaperRecord
from weir.experiments.repetition.selective_plans import contenders_choices, predicted_ms
from weir.hosts.compression.selective import CommunicationCosts, Line, choices, plan
from weir.tests.experiments.test_papers import recorded

SIZES = [600, 3_000, 9_000, 24_000]


def coding(slope: float = 30e-6) -> CommunicationCosts:
    return CommunicationCosts(
        Line(slope, 0.02), Line(4 / 3 * slope, 0.02), Line(0, 0), 0.25, hop=Line(2e-4, 0.05), switch_ratio=0.25
    )


async def found() -> list[tuple[float, float]]:
    """Predicted and measured times in ms: of the plan of all gradients, and of single ones in several ways."""
    config = RunConfig.load(PAPERS["secopa"].files[0])
    workers = len(config.job.workers)
    async with Cluster(config, config.strategies[-1], values=max(SIZES)) as cluster:
        costs = CommunicationCosts(
            *(Line(30e-6, 0.02), Line(40e-6, 0.02), Line(0, 0), 0.25),
            hop=await packet_sum_costs(cluster),
            switch_ratio=0.25,
        )
        planned = plan(costs, workers, SIZES)
        pairs = [(predicted_ms(planned, costs, workers, SIZES), await packet_time_ms(cluster, planned, costs, SIZES))]
        for size in SIZES:
            for choice in choices(costs, workers, size):
                if choice.parts in (1, 3):
                    pairs.append((choice.time_ms, await packet_time_ms(cluster, [choice], costs, [size])))
    return pairs


def test_predictions_are_near_what_packets_take() -> None:
    pairs = asyncio.run(found())
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs]
    assert float(median(errors)) <= 0.05
    assert max(errors) <= 0.10


@pytest.mark.parametrize("slope", [1e-6, 30e-6])
def test_contenders_keep_their_rules_and_no_combination_beats_the_best(slope: float) -> None:
    costs, sizes = coding(slope), [400, 9_000, 20_000]
    taken = contenders_choices(costs, 4, sizes)
    assert [choice.compressed for choice in taken["all"]] == [True, True, True]
    assert [choice.compressed for choice in taken["none"]] == [False, False, False]
    assert [choice.compressed for choice in taken["threshold"]] == [False, True, True]
    times = {name: predicted_ms(each, costs, 4, sizes) for name, each in taken.items()}
    assert times["exhaustive"] == min(times.values())


def test_recorded_plans_are_no_slower_than_any_rule_and_predicted_within_a_tenth() -> None:
    series = PaperRecord.load(record_path("secopa")).series
    errors = [value for each in series if each.figure == PREDICTION_ERROR.name for value in each.values]
    assert median(errors) <= 5
    assert max(errors) <= 10
    times = recorded("secopa", SUM_TIME.name)
    for condition in {condition for condition, _ in times}:
        rules = [times[condition, rule] for rule in ("all", "none", "threshold")]
        assert times[condition, "plan"] <= 1.02 * min(rules), condition
