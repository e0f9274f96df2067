"""Max-min fair rates: by hand, by their certificate, and against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from weir.experiments.flows.fair_shares import Floats, fair_rates

SAME = 1e-9


def test_three_flows_on_two_links() -> None:
    """The second flow is held by the first link, and leaves the second link to the third."""
    rates = fair_rates([{0: 1}, {0: 1, 1: 1}, {1: 1}], np.array([1.0, 2.0]))
    assert rates.tolist() == pytest.approx([0.5, 0.5, 1.5])


def test_a_parking_lot() -> None:
    """One long flow over three links with a short one on each: halves everywhere (Bertsekas & Gallager, §6.5.2)."""
    rates = fair_rates([{0: 1, 1: 1, 2: 1}, {0: 1}, {1: 1}, {2: 1}], np.array([1.0, 1.0, 1.0]))
    assert rates.tolist() == pytest.approx([0.5] * 4)


def test_streams_in_step_count_as_often_as_they_cross_a_link() -> None:
    """A job with two streams on a link, and a plain flow: each stream gets a third."""
    assert fair_rates([{0: 2}, {0: 1}], np.array([3.0])).tolist() == pytest.approx([1.0, 1.0])


def test_the_rest_of_a_limited_flow_goes_to_the_others() -> None:
    rates = fair_rates([{0: 1}, {0: 1}, {0: 1}], np.array([3.0]), np.array([0.5, np.inf, 1.1]))
    assert rates.tolist() == pytest.approx([0.5, 1.4, 1.1])


def test_a_link_without_capacity_stops_its_flows_alone() -> None:
    assert fair_rates([{0: 1}, {0: 1, 1: 1}, {1: 1}], np.array([0.0, 2.0])).tolist() == pytest.approx([0.0, 0.0, 2.0])


def test_a_flow_that_nothing_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="flow 1 uses no link and has no limit"):
        fair_rates([{0: 1}, {}], np.array([1.0]))
    assert fair_rates([{0: 1}, {}], np.array([1.0]), np.array([np.inf, 7.0])).tolist() == [1.0, 7.0]


def drawn(seed: int) -> tuple[list[dict[int, float]], Floats, Floats]:
    rng = np.random.default_rng(seed)
    links = int(rng.integers(1, 30))
    paths = [
        {int(link): float(rng.integers(1, 6)) for link in rng.choice(links, int(rng.integers(1, links + 1)), False)}
        for _ in range(int(rng.integers(1, 60)))
    ]
    limits = np.where(rng.random(len(paths)) < 0.3, rng.random(len(paths)), np.inf)
    return paths, rng.choice([0.1, 1.0, 1.0, 10.0, 40.0], links) * 1e9, limits * 1e9


@pytest.mark.parametrize("seed", range(200))
def test_the_certificate_of_fairness(seed: int) -> None:
    """No link is overloaded; each flow is at its limit, or on a full link on which no flow is faster: these are exactly
    the max-min fair rates (Bertsekas & Gallager, proposition 6.1). They also are work-conserving.
    """
    paths, capacity, limits = drawn(seed)
    rates = fair_rates(paths, capacity, limits)
    load = np.zeros(len(capacity))
    for path, rate in zip(paths, rates, strict=True):
        for link, weight in path.items():
            load[link] += weight * rate
    assert (load <= capacity * (1 + SAME)).all()
    full = load >= capacity * (1 - SAME)
    assert (rates <= limits * (1 + SAME)).all()
    for flow, path in enumerate(paths):
        fastest = [max(rates[other] for other, way in enumerate(paths) if link in way) for link in path if full[link]]
        held = any(rates[flow] >= most * (1 - SAME) for most in fastest)
        assert held or rates[flow] >= limits[flow] * (1 - SAME), f"seed {seed}: flow {flow} could be faster"
