"""Large tensors fill the links: the bounds of docs/design.md §3.4, in virtual time, so the same on every machine."""

from __future__ import annotations

import pytest

from bench.goodput import LOSS, SCENARIOS, gradients, measure
from hosts import reference_sum

CHUNKS = 4096


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_workers_send_at_line_rate(scenario: object) -> None:
    tensors = gradients(CHUNKS)
    outcome = measure(scenario, tensors, loss=0)  # type: ignore[arg-type]
    assert outcome.share >= 0.95
    assert outcome.resends == 0
    assert [total.tobytes() for total in outcome.sums] == [reference_sum(tensors).tobytes()] * len(tensors)


def test_loss_on_every_link_costs_a_fifth_at_most() -> None:
    tensors = gradients(CHUNKS)
    outcome = measure(SCENARIOS[0], tensors, loss=LOSS)
    assert outcome.share >= 0.8
    assert [total.tobytes() for total in outcome.sums] == [reference_sum(tensors).tobytes()] * len(tensors)
