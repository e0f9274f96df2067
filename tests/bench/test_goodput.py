"""Large tensors fill the links and queues stay bound (docs/design.md §3.4); in virtual time, so the same everywhere."""

from __future__ import annotations

import pytest

from weir.bench.goodput import LOSS, SCENARIOS, Scenario, gradients, measure
from weir.controller.congestion import CongestionOptions
from weir.hosts import reference_sum

CHUNKS = 4096


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=() if scenario == SCENARIOS[0] else pytest.mark.long)
        for scenario in SCENARIOS
    ],
)
def test_workers_send_at_line_rate(scenario: Scenario) -> None:
    tensors = gradients(CHUNKS)
    outcome = measure(scenario, tensors, loss=0)
    assert outcome.share >= 0.95
    assert outcome.resends == 0
    assert outcome.largest_queue_packets <= CongestionOptions().bound_packets
    assert [total.tobytes() for total in outcome.sums] == [reference_sum(tensors).tobytes()] * len(tensors)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS[:2], ids=lambda scenario: scenario.name)
def test_loss_on_every_link_costs_a_fifth_at_most(scenario: Scenario) -> None:
    tensors = gradients(CHUNKS)
    outcome = measure(scenario, tensors, loss=LOSS)
    assert outcome.share >= 0.8
    assert [total.tobytes() for total in outcome.sums] == [reference_sum(tensors).tobytes()] * len(tensors)


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_loss_on_every_link_costs_at_most_a_fifth(scenario: Scenario) -> None:
    tensors = gradients(4 * CHUNKS)
    for seed in range(1, 4):
        outcome = measure(scenario, tensors, loss=LOSS, seed=seed)
        assert outcome.share >= 0.8, f"seed {seed}"
        assert [total.tobytes() for total in outcome.sums] == [reference_sum(tensors).tobytes()] * len(tensors)
