"""Estimate of how long links' loads last, over drawn courses of load."""

from __future__ import annotations

import numpy as np
import pytest

from weir.controller.placement.model.links import Links
from weir.controller.placement.model.loads import LinkLoad
from weir.controller.planning.persistence import LoadHistory
from weir.topologies import Endpoint, Routes, leaf_spine

GBIT = 1_000_000_000
FABRIC = leaf_spine(8, 4, 2, rate_bps=GBIT)
LINKS = Links.of(Routes(FABRIC))
Reading = tuple[float, dict[Endpoint, LinkLoad]]
BETWEEN = [end for end, at in LINKS.number.items() if LINKS.pair_of[at] >= 0]


def persistence(links: Links, readings: list[Reading], horizon_s: float) -> float:
    history = LoadHistory(len(readings))
    for at_s, loads in readings:
        history.add(links, at_s, loads)
    return history.persistence(horizon_s)


def course(correlation: float, count: int = 12, gap_s: float = 0.02, seed: int = 1) -> list[Reading]:
    """Loads that keep their value from one reading to the next with this probability, and are drawn again else."""
    rng = np.random.default_rng(seed)
    shares = rng.choice([0.0, 0.2, 0.6], len(BETWEEN))
    readings: list[Reading] = []
    for number in range(count):
        again = rng.random(len(BETWEEN)) >= correlation
        shares = np.where(again, rng.choice([0.0, 0.2, 0.6], len(BETWEEN)), shares)
        loads = {end: LinkLoad(float(share) * GBIT) for end, share in zip(BETWEEN, shares, strict=True)}
        readings.append((number * gap_s, loads))
    return readings


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_share_of_kept_loads_is_found(correlation: float, steps: int) -> None:
    found = [persistence(LINKS, course(correlation, seed=seed), steps * 0.02) for seed in range(20)]
    assert np.mean(found) == pytest.approx(correlation**steps, abs=0.06)


def test_readings_shorter_than_the_horizon_are_extrapolated() -> None:
    found = [persistence(LINKS, course(0.7, count=3, seed=seed), 0.08) for seed in range(40)]
    assert np.mean(found) == pytest.approx(0.7**4, abs=0.08)


def test_loads_that_never_change_last() -> None:
    assert persistence(LINKS, course(1.0), 1.0) == pytest.approx(1.0)


def test_one_reading_or_an_idle_fabric_counts_as_lasting() -> None:
    assert persistence(LINKS, course(0.0, count=1), 0.02) == 1.0
    assert persistence(LINKS, [(0.0, {}), (0.02, {}), (0.04, {})], 0.02) == 1.0


@pytest.mark.filterwarnings("error")
def test_a_fabric_of_one_switch_counts_as_lasting() -> None:
    one = Links.of(Routes(leaf_spine(1, 0, 2)))
    assert persistence(one, [(0.0, {}), (0.02, {}), (0.04, {})], 0.02) == 1.0


def test_loads_of_hosts_links_do_not_count() -> None:
    host = next(end for end, at in LINKS.number.items() if LINKS.pair_of[at] < 0)
    readings = [(at, {**loads, host: LinkLoad((number % 2) * GBIT)}) for number, (at, loads) in enumerate(course(1.0))]
    assert persistence(LINKS, readings, 0.02) == pytest.approx(1.0)


def test_a_reading_of_the_same_time_replaces_the_one_before() -> None:
    steady = course(1.0, count=3)
    history = LoadHistory(12)
    for at_s, loads in steady:
        history.add(LINKS, at_s, {})
        history.add(LINKS, at_s, loads)
    assert history.persistence(0.02) == persistence(LINKS, steady, 0.02)


def test_readings_of_other_links_are_dropped() -> None:
    history, other = LoadHistory(12), Links.of(Routes(leaf_spine(2, 2, 2)))
    for at_s, loads in course(0.0, count=6):
        history.add(LINKS, at_s, loads)
    history.add(other, 0.2, {})
    assert history.persistence(0.02) == 1.0
