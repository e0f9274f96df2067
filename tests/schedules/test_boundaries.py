"""The protocol at its bounds, through the compiled switch: numbers that wrap, the smallest and the fullest jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec
from weir.tests.schedules.rig import MS, OPTIONS, PACE, Chosen, ScheduleRig
from weir.tests.schedules.sums import Summing, draw_tensors
from weir.topologies.generators import leaf_spine
from weir.wire.aggregation import CHUNKS, FAN_IN, GENERATIONS, LANES

TOPOLOGY = leaf_spine(2, 1, 4, rate_bps=1_000_000_000)
LOSSY = {"loss": 0.03, "duplicate": 0.05, "reorder": 0.2, "reorder_ns": 300_000}
SERVER = "h8"
ROOTS = {
    "server": Placement({"h1": SERVER, "h2": SERVER, "h5": SERVER}, {}, SERVER),
    "switch": Placement({"h1": "s3", "h2": "s3", "h5": "s3"}, {}, "s3"),
    "tree": Placement({"h1": "s1", "h2": "s1", "h5": "s2"}, {"s1": "s3", "s2": "s3", "s3": SERVER}, SERVER),
}
WORKERS = ("h1", "h2", "h5")


@dataclass(frozen=True)
class Bound:
    """A job at some limit; omitted values have defaults."""

    job: int = 7
    workers: tuple[str, ...] = WORKERS
    slots: int = 8
    window: int = 4
    sizes: tuple[int, ...] = (10 * LANES,)
    first_round: int = 0
    slots_before: int = 0
    """Occupied slots of each switch."""


BOUNDS = {
    "the first job's number": Bound(job=1),
    "the last job's number": Bound(job=0xFFFF),
    "one worker": Bound(workers=("h1",)),
    "one element": Bound(sizes=(1,)),
    "one chunk": Bound(sizes=(LANES,)),
    "one chunk and one element": Bound(sizes=(LANES + 1,)),
    "nothing": Bound(sizes=(0,)),
    "nothing between others": Bound(sizes=(0, 3 * LANES, 0, 0, 1, 0)),
    "a window of half the slots": Bound(slots=16, window=8, sizes=(64 * LANES,)),
    "two slots": Bound(slots=2, window=1, sizes=(20 * LANES,)),
    "all slots of a switch": Bound(slots=1024, window=512, sizes=(700 * LANES,)),
    "the last slots of a switch": Bound(slots=16, window=8, slots_before=1024 - 16),
    "chunk numbers that start anew": Bound(first_round=CHUNKS - 11, sizes=(20 * LANES,)),
    "chunk numbers that start anew between two tensors": Bound(first_round=CHUNKS - 14, sizes=(10 * LANES, 10 * LANES)),
    "rounds that have started anew often": Bound(first_round=5 * CHUNKS - 7, sizes=(20 * LANES,)),
}


@pytest.mark.parametrize(
    ("bound", "root"),
    [
        pytest.param(
            bound,
            root,
            id=f"{name}-{root}",
            marks=() if (row + column) % len(ROOTS) == 0 else pytest.mark.long,
        )
        for row, (name, bound) in enumerate(BOUNDS.items())
        for column, root in enumerate(ROOTS)
    ],
)
async def test_sums_are_exact_at_the_bounds(bound: Bound, root: str) -> None:
    whole = ROOTS[root]
    tree = {worker: whole.aggregators[worker] for worker in bound.workers}
    used = set(tree.values()) | {"s3"}
    parents = {name: above for name, above in whole.parents.items() if name in used}
    placement = Placement(tree, parents, whole.root)
    rig = ScheduleRig(
        TOPOLOGY,
        Chosen(lambda problem: placement),
        options=replace(OPTIONS, stuck_ns=None),
        pace=replace(PACE, first_round=bound.first_round),
        link=LOSSY,
        poll_ns=10_000,
    )
    await rig.controller.start()
    if bound.slots_before:
        rig.controller.planner.memory.allot(0, rig.switches, bound.slots_before)
    spec = JobSpec(bound.job, bound.workers, None if root == "switch" else SERVER, bound.slots, bound.window)
    await rig.admit(spec)
    if bound.slots_before and root != "server":
        assert rig.controller.planner.memory.jobs_that_fit(1)["s3"] == 0, "the job is not at the end of the memory"
    summing = Summing(rig, spec, draw_tensors(3, bound.sizes, len(bound.workers)))
    summing.submit_all()
    await rig.run(lambda: summing.finished, 3_000 * MS, str(bound), summing.collect)
    summing.check()
    await rig.finish(bound.job)
    rig.controller.planner.memory.retain(0)
    await rig.check_empty()
    rig.close()


@pytest.mark.long
async def test_generations_start_anew_after_the_last() -> None:
    """More moves than there are generations, each while tensors are being summed, between trees and slots."""
    rig = ScheduleRig(
        TOPOLOGY, Chosen(lambda problem: ROOTS["tree"]), options=replace(OPTIONS, stuck_ns=None), link=LOSSY
    )
    await rig.controller.start()
    spec = JobSpec(7, WORKERS, SERVER, 8, 4)
    await rig.admit(spec)
    tensors = draw_tensors(4, [LANES] * (GENERATIONS + 5), len(WORKERS))
    summing = Summing(rig, spec, tensors)
    generations: list[int] = []
    for number in range(len(tensors)):
        for name in WORKERS:
            summing.submit(name, range(number, number + 1))
        rig.controller.moves.begin(7, rig.now_ns, ROOTS[("tree", "switch", "server")[number % 3]])
        await rig.run(lambda number=number: summing.has(number), 1_000 * MS, f"tensor {number}", summing.collect)  # type: ignore[misc]
        generations.append(rig.controller.jobs[7].plan.generation)
    assert generations[-1] < max(generations) == GENERATIONS - 1
    summing.check()
    await rig.finish(7)
    await rig.check_empty()
    rig.close()


async def test_a_switch_that_was_left_long_ago_sums_again() -> None:
    """Its slots hold a generation that is over for longer than half of all generations."""
    options = replace(OPTIONS, stuck_ns=None)
    rig = ScheduleRig(TOPOLOGY, Chosen(lambda problem: ROOTS["switch"]), options=options)
    await rig.controller.start()
    spec = JobSpec(7, WORKERS, SERVER, 8, 4)
    await rig.admit(spec)
    tensors = draw_tensors(5, [20 * LANES, 20 * LANES], len(WORKERS))
    summing = Summing(rig, spec, tensors)

    async def sum_up(number: int) -> None:
        for name in WORKERS:
            summing.submit(name, range(number, number + 1))
        await rig.run(lambda: summing.has(number), 1_000 * MS, f"tensor {number}", summing.collect)

    async def move(placement: Placement) -> None:
        before = rig.controller.jobs[7].plan.generation
        rig.controller.moves.begin(7, rig.now_ns, placement)
        await rig.run(lambda: rig.controller.jobs[7].plan.generation != before, 100 * MS, "a move")
        await rig.rest(2 * MS)

    await sum_up(0)
    for _ in range(GENERATIONS // 2 + 10):
        await move(ROOTS["server"])
    await move(ROOTS["switch"])
    await sum_up(1)
    summing.check()
    rig.close()


@pytest.mark.parametrize("server", [None, f"h{FAN_IN + 1}"])
async def test_a_node_with_all_its_children(server: str | None) -> None:
    """The maximum number of workers of a node, on one switch that is the root, and on one below a server."""
    names = tuple(f"h{number}" for number in range(1, FAN_IN + 1))
    placement = Placement(dict.fromkeys(names, "s1"), {} if server is None else {"s1": server}, server or "s1")
    rig = ScheduleRig(leaf_spine(1, 0, FAN_IN + 1), Chosen(lambda problem: placement), link={"loss": 0.002})
    await rig.controller.start()
    spec = JobSpec(1, names, server, 8, 4)
    await rig.admit(spec)
    summing = Summing(rig, spec, draw_tensors(6, [9 * LANES], FAN_IN))
    summing.submit_all()
    await rig.run(lambda: summing.finished, 1_000 * MS, "32 children", summing.collect)
    summing.check()
    rig.close()
