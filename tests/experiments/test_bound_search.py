"""No drawn run exceeds a bound, and climbs towards the fullest queues find none."""

from __future__ import annotations

import pytest

from weir.experiments.config import RunConfig
from weir.tests.experiments.bound_search import climb, play
from weir.tests.experiments.bound_trials import drawn


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_drawn_runs_keep_their_bounds(seed: int) -> None:
    outcome = play(drawn(seed))
    assert outcome is not None
    assert not outcome.broken, f"seed {seed}: {drawn(seed)}"
    assert outcome.tested > 0
    assert outcome.largest > 0.2


def test_drawn_run_files_are_valid_and_have_all_features() -> None:
    runs = [RunConfig.model_validate(drawn(seed).run()) for seed in range(80)]
    modes = {run.synchronisation.modes[0].name for run in runs if run.synchronisation is not None}
    assert {"gossip", "lb-bsp"} < modes
    assert any(flow.lower_effort for run in runs for flow in run.transfers)
    assert any(run.job.stripes > 1 for run in runs)
    assert any(run.job.servers for run in runs)
    assert any(run.telemetry is not None and run.telemetry.collector in run.job.workers for run in runs)
    assert any(run.heartbeats is not None for run in runs)
    assert any(run.control.order is not None for run in runs)
    assert any(run.job.traffic_class > 1 for run in runs)
    assert any(drawn(seed).moves[0] for seed in range(80))


@pytest.mark.long(minutes=3)
@pytest.mark.parametrize("seed", range(1_000, 1_010))
def test_climbs_towards_full_queues_break_no_bound(seed: int) -> None:
    best, outcome = climb(seed, 12)
    assert not outcome.broken, f"seed {seed}: {best}"
