"""Every strategy's trees, as the controller lays them on leaf-spine and fat-tree fabrics, with a server and without."""

from __future__ import annotations

import random

import pytest

from weir.controller.placement.strategies import STRATEGIES, Need, strategy
from weir.controller.planning.plan import JobSpec
from weir.tests.schedules.rig import MS, ScheduleRig
from weir.tests.schedules.sums import Summing, draw_tensors
from weir.topologies.generators import fat_tree, leaf_spine
from weir.topologies.model import Topology
from weir.wire.aggregation import LANES

FABRICS = {"leaf-spine": lambda: leaf_spine(4, 2, 4), "fat-tree": lambda: fat_tree(4)}
WAYS = [
    (name, with_server)
    for name, known in STRATEGIES.items()
    for with_server in (True, False)
    if with_server or Need.SERVER not in known.needs
]


async def sum_exactly(topology: Topology, name: str, with_server: bool, seed: int) -> ScheduleRig:
    """One lossy job; the rig, with the job still on it."""
    rng = random.Random(seed)
    hosts = rng.sample([host.name for host in topology.hosts], rng.randint(3, 9))
    rig = ScheduleRig(topology, strategy(name), seed=seed, link={"loss": 0.01, "reorder": 0.1, "reorder_ns": 100_000})
    await rig.controller.start()
    spec = JobSpec(1, tuple(hosts[1:]), hosts[0] if with_server else None, 16, 8)
    await rig.admit(spec)
    summing = Summing(rig, spec, draw_tensors(seed, [12 * LANES, 5], len(spec.workers)))
    summing.submit_all()
    await rig.run(lambda: summing.finished, 1_000 * MS, f"{name}, seed {seed}", summing.collect)
    summing.check()
    return rig


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("name", "with_server", "fabric"),
    [
        pytest.param(name, with_server, fabric, marks=pytest.mark.long if again else ())
        for name, with_server in WAYS
        for fabric in FABRICS
        for again in [fabric == "fat-tree" and not (name in ("agg", "widest") and not with_server)]
    ],
)
async def test_every_strategy_sums_exactly(name: str, with_server: bool, fabric: str, seed: int) -> None:
    rig = await sum_exactly(FABRICS[fabric](), name, with_server, seed)
    placement = rig.controller.jobs[1].plan.placement
    assert rig.topology.is_switch(placement.root) == (not with_server)
    await rig.finish(1)
    await rig.check_empty()
    rig.close()
