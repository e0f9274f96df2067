"""Collectives through the compiled switch program, in a virtual fabric whose links lose frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weir.hosts import CallMismatch, Communicator, reference_sum, wait_all
from weir.hosts.numerics.datatypes import DataType, FloatType, data_types
from weir.tests.hosts.collectives.fabric_driver import TREES, FabricJob
from weir.tests.support.seeds import few_of
from weir.topologies.targets import BMV2, BMV2_32, Target
from weir.wire.aggregation import HEADER_BYTES, message_bytes
from weir.wire.frames import FRAME_HEADER_BYTES

WORKERS = 4


def weight_of(options: dict[str, Any], rank: int) -> Any:
    """Return the option `weight` for a mean."""
    return {"weight": rank + 1} if options["op"] == "mean" else {}


def communicators(loss: float, seed: int) -> list[Communicator]:
    return [Communicator(driver) for driver in FabricJob(loss=loss, seed=seed).drivers]


@pytest.mark.parametrize("loss", [pytest.param(0.0, marks=pytest.mark.long), 0.03])
def test_all_types_and_collectives_at_once(loss: float) -> None:
    members = communicators(loss, seed=7)
    rng = np.random.default_rng(7)
    calls: list[tuple[DataType, np.ndarray, dict[str, Any]]] = []
    for kind in data_types():
        values = np.ldexp(rng.standard_normal((WORKERS, 1500)), rng.integers(-9, 9, (WORKERS, 1)))
        for policy in ("error", "propagate"):
            if policy == "propagate" and isinstance(kind, FloatType):
                values[rng.random(values.shape) < 0.01] = rng.choice([np.nan, np.inf, -np.inf])
            stored = (
                kind.narrow(values)
                if isinstance(kind, FloatType)
                else (np.nan_to_num(values) * 1e6).astype(kind.storage)
            )
            calls.append((kind, stored, {"op": str(rng.choice(["sum", "mean"])), "nonfinite": policy}))
    handles = [
        [
            *(
                member.allreduce_async(
                    values[member.rank],
                    name=f"{i}",
                    dtype=kind.name,
                    **options,
                    **weight_of(options, member.rank),
                )
                for i, (kind, values, options) in enumerate(calls)
            ),
            member.all_gather_async(calls[0][1][member.rank]),
            member.broadcast_async(calls[0][1][member.rank], 3),
            member.allreduce_async(calls[0][1][member.rank], op="max"),
        ]
        for member in members
    ]
    expected = [
        reference_sum(
            list(values),
            dtype=kind.name,
            weights=[1, 2, 3, 4],
            mean=options["op"] == "mean",
            nonfinite=options["nonfinite"],
        )
        for kind, values, options in calls
    ]
    expected += [calls[0][1], calls[0][1][3], calls[0][1].max(axis=0)]
    for mine in handles:
        for result, right in zip(wait_all(mine), expected, strict=True):
            assert result.tobytes() == right.tobytes()


WINDOW = 8
"""Rounds in flight of the job, and so scale rounds of a tensor of as many chunks or more."""
ALL = (0, 1, 2, 3)
Collective = tuple[Callable[[Communicator, np.ndarray], Any], tuple[int, ...], int, Callable[[set[int]], float]]
MEASURED: dict[str, Collective] = {
    "allreduce": (lambda member, array: member.allreduce_async(array), ALL, 1, lambda below: 1),
    "reduce": (lambda member, array: member.reduce_async(array, 2), ALL, 1, lambda below: 2 in below),
    "scatter": (
        lambda member, array: member.reduce_scatter_async(array.reshape(WORKERS, -1)),
        ALL,
        1,
        lambda below: len(below) / WORKERS,
    ),
    "broadcast": (lambda member, array: member.broadcast_async(array, 1), (1,), 1, lambda below: below != {1}),
    "gather": (
        lambda member, array: member.all_gather_async(array),
        ALL,
        WORKERS,
        lambda below: 1 if len(below) > 1 else 1 - 1 / WORKERS,
    ),
}
"""Collectives, with the ranks that send their array up once, the number of arrays in a result, and the part of it that
one of the ranks below a link needs.
"""


@pytest.mark.parametrize(
    ("name", "target", "tree"),
    [
        pytest.param(name, target, tree, marks=pytest.mark.long if (row + column + place) % 2 else ())
        for row, name in enumerate(MEASURED)
        for column, target in enumerate((BMV2_32, BMV2))
        for place, tree in enumerate(TREES)
    ],
    ids=str,
)
def test_bytes_on_every_link_are_those_of_the_guide(name: str, target: Target, tree: str) -> None:
    """A link carries a round up with lanes if a worker below it adds some, and down if one below it wants them; else
    28 bytes.

    Where switches do not take PRESENT in messages as long, all add lanes; where they send no DONE, all get lanes.
    """
    call, adding, arrays, needed = MEASURED[name]
    job = FabricJob(loss=0.0, seed=1, tree=tree, target=target)
    members = [Communicator(driver) for driver in job.drivers]
    chunks = 10 * WORKERS
    lanes = target.lanes
    words = lanes - 2 if arrays > 1 else lanes  # a gathered piece has an even number, and a lane that says it is there
    array = np.arange(chunks * words, dtype=np.float32)
    for handle in [call(member, array) for member in members]:
        handle.wait()
    small, large = (FRAME_HEADER_BYTES + size for size in (HEADER_BYTES, message_bytes(lanes)))
    scales, rounds = WINDOW * small, arrays * chunks
    for link, below in job.links_of_tree().items():
        up = down = rounds
        if target.present_lanes >= lanes:
            adding_below = len(set(adding) & below)
            up = chunks * (adding_below if arrays > 1 else min(adding_below, 1))
        if target.prunes:
            down = round(rounds * needed(below))
        expected = [scales + sums * large + (rounds - sums) * small for sums in (up, down)]
        assert (link, list(job.bytes_on(*link))) == (link, expected)


@pytest.mark.parametrize("seed", few_of(range(3), 1))
def test_copies_are_right_with_losses(seed: int) -> None:
    """Broadcasts from every rank, gatherings, reductions for every rank and their parts, some of fewer words than a
    chunk, with 3 % of frames lost.
    """
    rng = np.random.default_rng(seed)
    job = FabricJob(loss=0.03, seed=seed, tree=TREES[seed % len(TREES)], target=(BMV2_32, BMV2)[seed % 2])
    members = [Communicator(driver) for driver in job.drivers]
    arrays = [rng.integers(0, 256, (WORKERS, int(size)), np.uint8) for size in rng.integers(1, 6_000, 5)]
    numbers = [array.astype(np.int32) for array in arrays]
    scattered = [array[:, : array.shape[1] // WORKERS * WORKERS].reshape(WORKERS, WORKERS, -1) for array in numbers]
    handles = [
        [
            member.broadcast_async(array[member.rank], index % WORKERS, name=f"b{index}")
            for index, array in enumerate(arrays)
        ]
        + [member.all_gather_async(array[member.rank], name=f"g{index}") for index, array in enumerate(arrays)]
        + [
            member.reduce_async(array[member.rank], index % WORKERS, name=f"r{index}")
            for index, array in enumerate(numbers)
        ]
        + [member.reduce_scatter_async(array[member.rank], name=f"s{index}") for index, array in enumerate(scattered)]
        for member in members
    ]
    for rank, mine in enumerate(handles):
        results = np.array(wait_all(mine), dtype=object).reshape(4, -1)
        for index, array in enumerate(arrays):
            sent, gathered, reduced, part = results[:, index]
            assert sent.tobytes() == array[index % WORKERS].tobytes()
            assert gathered.tobytes() == array.tobytes()
            assert (reduced is None) == (index % WORKERS != rank)
            assert reduced is None or reduced.tolist() == numbers[index].sum(axis=0).tolist()
            assert part.tolist() == scattered[index].sum(axis=0)[rank].tolist()


def test_a_switch_tells_calls_that_differ_from_a_sum() -> None:
    """The server is not there to see it: the workers themselves do."""
    members = communicators(0.02, seed=3)
    before = [member.allreduce_async(np.full(2000, member.rank)) for member in members]
    odd = [member.allreduce_async(np.ones(3000 if member.rank == 2 else 400)) for member in members]
    assert [result.tolist() for result in wait_all(before)] == [[6] * 2000] * WORKERS
    for handle in odd:
        with pytest.raises(CallMismatch):
            handle.wait()
