"""Jobs that are stuck: workers that have waited too long, by the pace of their links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weir.controller.jobs.job import RunningJob, WorkerProgress
from weir.controller.options import ControllerOptions
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.tests.controller.pure_rig import MS, PureRig
from weir.topologies import leaf_spine
from weir.wire.control import Pacing

MOVED = 1_000 * MS
STUCK = 500 * MS


def waiting(pacing: Pacing, since_ns: int, reported_ns: int) -> RunningJob:
    """A job of two, of which h1 waits for a round."""
    rig = PureRig(leaf_spine(1, 1, 3), ControllerOptions(stuck_ns=STUCK))
    job = rig.add(JobSpec(1, ("h1", "h2")), Placement({"h1": "s1", "h2": "s1"}, {}, "s1"), MOVED)
    job.plan = replace(job.plan, pacing=pacing)
    job.progress = {
        "h1": WorkerProgress(7, reported_ns, since_ns, waiting=True),
        "h2": WorkerProgress(8, reported_ns, since_ns, waiting=False),
    }
    return job


@pytest.mark.parametrize(
    ("pacing", "since_ns", "least_ns"),
    [
        (Pacing(window=4), MOVED + 100 * MS, MOVED + 600 * MS),
        (Pacing(window=4), MOVED - 100 * MS, MOVED + 500 * MS),  # not before this generation
        (Pacing(window=4, hold_ns=860 * MS), MOVED - 100 * MS, MOVED + 1_360 * MS),  # nothing may be sent before
        (Pacing(window=4, hold_ns=860 * MS), MOVED + 900 * MS, MOVED + 1_400 * MS),
        (Pacing(window=4, round_trip_ns=100 * MS), MOVED, MOVED + 500 * MS),
        (Pacing(window=4, hold_ns=860 * MS, round_trip_ns=860 * MS), MOVED, MOVED + 4 * 860 * MS),
    ],
)
def test_a_worker_is_stuck_once_no_packet_explains_that_it_waits(pacing: Pacing, since_ns: int, least_ns: int) -> None:
    assert waiting(pacing, since_ns, least_ns - 1).stuck(STUCK) == []
    assert waiting(pacing, since_ns, least_ns).stuck(STUCK) == ["h1"]
