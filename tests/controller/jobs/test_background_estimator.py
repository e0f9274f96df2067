"""Known traffic of jobs on links, at their present and future places, and the links that have surely carried it."""

from __future__ import annotations

import pytest

from weir.controller.jobs.carried import links_carried
from weir.controller.jobs.job import RunningJob, WorkerProgress
from weir.controller.options import ControllerOptions
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.tests.controller.pure_rig import MS, PureRig
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint

TOPOLOGY = leaf_spine(2, 2, 3, slots=512)
"""h1…h3 at s1, h4…h6 at s2; spines s3 and s4."""
PERIOD = 10 * MS
BYTES = 3000
AT_S3, AT_S4 = (Placement({"h1": spine, "h4": spine}, {}, spine) for spine in ("s3", "s4"))


@pytest.fixture
def fabric() -> PureRig:
    return PureRig(TOPOLOGY, ControllerOptions(probe_period_ns=PERIOD, solve_period_ns=0))


def add(fabric: PureRig, number: int = 1, placement: Placement = AT_S3) -> RunningJob:
    return fabric.add(JobSpec(number, ("h1", "h4"), server="h5", gradient_bytes=BYTES), placement)


def test_averages_are_over_two_periods(fabric: PureRig) -> None:
    assert (fabric.outlook.period_ns, fabric.outlook.average_ns) == (PERIOD, 2 * PERIOD)


def test_links_of_old_and_new_trees_are_unsettled_on_a_move(fabric: PureRig) -> None:
    job = add(fabric)
    fabric.outlook.update(0)
    now_ns = 5 * PERIOD
    assert not fabric.outlook.unsettled(now_ns)
    was = job.plan.streams.keys()
    job.plan = fabric.planner.plan(job.spec, AT_S3, 2)
    fabric.outlook.update(now_ns)
    assert not fabric.outlook.unsettled(now_ns)
    job.plan = fabric.planner.plan(job.spec, AT_S4, 3)
    fabric.outlook.update(now_ns)
    fabric.outlook.update(2 * now_ns - 1)
    assert set(fabric.outlook.unsettled(2 * now_ns - 1)) == was | job.plan.streams.keys()
    assert not fabric.outlook.unsettled(2 * now_ns)


def test_a_moving_job_brings_its_bytes_along_existing_ways(fabric: PureRig) -> None:
    job, other = add(fabric), add(fabric, 2, AT_S4)
    fabric.moves.begin(1, 0, AT_S4)
    assert fabric.outlook.others(2) == {link: BYTES * count for link, count in other.plan.streams.items()}
    job.target = Placement(dict(AT_S3.aggregators), {}, "s3")
    assert fabric.outlook.others(2) == {link: BYTES * count for link, count in job.plan.streams.items()}
    job.target = AT_S4
    fabric.planner.update_topology({Endpoint("s2", 4), Endpoint("s2", 5)}, ())  # no way is left between h4 and s4
    h1_and_back = {Endpoint("h1", 0), Endpoint("s1", 5), Endpoint("s4", 1), Endpoint("s1", 1)}
    assert fabric.outlook.others(2) == dict.fromkeys(h1_and_back, BYTES)


def carried(fabric: PureRig, since_ns: int) -> frozenset[Endpoint]:
    return links_carried(fabric.jobs.values(), fabric.planner.routes, since_ns)


def completes(job: RunningJob, worker: str, at_ns: int) -> None:
    job.progress[worker] = WorkerProgress(1, at_ns, at_ns, True, completed_ns=at_ns)


def test_links_have_carried_the_rounds_completed_since(fabric: PureRig) -> None:
    """All numbers went up, and the result down to those workers; of jobs that move nothing is known."""
    add(fabric)
    moves, runs = add(fabric, 2, AT_S4), add(fabric, 3)
    for worker in ("h1", "h4"):
        completes(moves, worker, MS)
        completes(runs, worker, MS)
    fabric.moves.begin(2, 0)
    up = {Endpoint("h1", 0), Endpoint("s1", 4), Endpoint("h4", 0), Endpoint("s2", 4)}
    down = {Endpoint("s3", 1), Endpoint("s1", 1), Endpoint("s3", 2), Endpoint("s2", 1)}
    assert carried(fabric, MS) == up | down
    assert carried(fabric, MS + 1) == frozenset()


def test_rounds_over_several_possible_links_are_carried_by_none(fabric: PureRig) -> None:
    """Nor has one that leads nowhere by now."""
    job = add(fabric, placement=Placement({"h1": "h5", "h4": "h5"}, {}, "h5"))
    completes(job, "h1", 0)
    assert carried(fabric, 0) == frozenset(), "no other worker confirms it"
    completes(job, "h4", 0)
    between_h4_and_h5 = {Endpoint("h4", 0), Endpoint("s2", 2), Endpoint("s2", 1), Endpoint("h5", 0)}
    assert carried(fabric, 0) == between_h4_and_h5 | {Endpoint("h1", 0), Endpoint("s1", 1)}
    fabric.planner.update_topology({Endpoint("s1", 4), Endpoint("s1", 5), Endpoint("s2", 4), Endpoint("s2", 5)}, ())
    assert carried(fabric, 0) == between_h4_and_h5
