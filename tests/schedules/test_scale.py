"""A thousand workers on one fabric: summed rack by rack, and (long) by further switches and in the widest
tree.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from weir.controller.controller import Controller
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import JobSpec
from weir.tests.schedules.rig import MS, OPTIONS, Control, ScheduleRig
from weir.tests.schedules.sums import Summing, draw_tensors
from weir.topologies.generators import leaf_spine
from weir.wire.aggregation import FAN_IN, LANES

WORKERS = 1_000
QUIET = replace(OPTIONS, probe_period_ns=1_000 * MS, lease_ns=None, patience_ns=None, stuck_ns=None)


@pytest.mark.parametrize(
    ("name", "with_server", "racks"),
    [
        pytest.param("rack", True, 32, marks=pytest.mark.long),
        pytest.param("rack", True, 40, marks=pytest.mark.long),
        pytest.param("rack", False, 40, marks=pytest.mark.long),
        pytest.param("random", True, 40, marks=pytest.mark.long),
        pytest.param("widest", True, 32, marks=pytest.mark.long),
        pytest.param("widest", False, 32, marks=pytest.mark.long),
    ],
)
async def test_a_thousand_workers_hold_the_same_exact_sum(name: str, with_server: bool, racks: int) -> None:
    """Sums go through a spine as well if there are more racks than the root takes children."""
    topology = leaf_spine(racks, 1 if (name, racks) == ("rack", 32) else 2, -(-1024 // racks))
    rig = ScheduleRig(
        topology,
        strategy(name),
        options=QUIET,
        control=Control(heartbeat_ns=1_000 * MS),
        poll_ns=50_000,
    )
    await rig.controller.start()
    workers = tuple(host.name for host in topology.hosts[:WORKERS])
    spec = JobSpec(1, workers, topology.hosts[-1].name if with_server else None, 8, 4)
    await rig.admit(spec)
    plan = rig.controller.jobs[1].plan
    fan_in = max(map(len, plan.placement.children.values()))
    sys.stdout.write(f"{len(plan.switches)} switches, at most {fan_in} children, depth {depth_of(rig.controller, 1)}\n")
    assert fan_in <= FAN_IN
    assert depth_of(rig.controller, 1) >= 2
    summing = Summing(rig, spec, draw_tensors(1, [2 * LANES], WORKERS))
    summing.submit_all()
    await rig.run(lambda: summing.finished, 1_000 * MS, "a thousand workers", summing.collect)
    summing.check()
    rig.close()


def depth_of(controller: Controller, job: int) -> int:
    """Nodes that sum on the longest way from a worker to the root, which counts."""
    placement = controller.jobs[job].plan.placement
    deepest = 0
    for node in set(placement.aggregators.values()):
        depth = 1
        while node != placement.root:
            node, depth = placement.parents[node], depth + 1
        deepest = max(deepest, depth)
    return deepest
