"""Ranks of a timed all-reduce: their command line is read as it was written."""

from __future__ import annotations

import pytest

from weir.experiments.backends.all_reduce_rank import Rank
from weir.wire.control import Pacing, WorkerPlan

PLAN = WorkerPlan(1, 2, 3, 4, 5, 1, 64, 8, members=(7, 8), key="ab" * 32, pacing=Pacing(window=3, round_trip_ns=10_000))


@pytest.mark.parametrize(
    "rank", [Rank(3, 4, 100, PLAN, 0x0A000001, 22341), Rank(0, 8, 1 << 24, store="10.0.0.1:29500")]
)
def test_a_rank_is_read_as_it_was_written(rank: Rank) -> None:
    assert Rank.load(rank.dump()) == rank
