"""No drawn run exceeds a bound, and climbs towards the fullest queues find none."""

from __future__ import annotations

import pytest

from weir.tests.experiments.bound_search import climb, drawn, play


@pytest.mark.parametrize("seed", [2, pytest.param(4, marks=pytest.mark.long)])
def test_drawn_runs_keep_their_bounds(seed: int) -> None:
    outcome = play(drawn(seed))
    assert outcome is not None
    assert not outcome.broken, f"seed {seed}: {drawn(seed)}"
    assert outcome.largest > 0.2, "queues are in use"


@pytest.mark.long(minutes=3)
@pytest.mark.parametrize("seed", range(1_000, 1_010))
def test_climbs_towards_full_queues_break_no_bound(seed: int) -> None:
    best, outcome = climb(seed, 12)
    assert not outcome.broken, f"seed {seed}: {best}"
