"""Collectives through the compiled switch program, in a virtual fabric whose links lose frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weir.hosts import CallMismatch, Communicator, reference_sum, wait_all
from weir.hosts.numerics.datatypes import DataType, FloatType, data_types
from weir.tests.hosts.collectives.fabric_driver import FabricJob
from weir.wire.aggregation import HEADER_BYTES, LANES, message_bytes
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
MEASURED: list[tuple[Callable[[Communicator, np.ndarray], Any], int]] = [
    (lambda member, array: member.allreduce_async(array), 1),
    (lambda member, array: member.reduce_async(array, 2), 1),
    (lambda member, array: member.reduce_scatter_async(array.reshape(WORKERS, -1)), 1),
    (lambda member, array: member.broadcast_async(array, 1), 1),
    (lambda member, array: member.all_gather_async(array), WORKERS),
]
"""Collectives, with the times that their array goes up and down each worker's link."""


@pytest.mark.parametrize(("call", "factor"), MEASURED, ids=["allreduce", "reduce", "scatter", "broadcast", "gather"])
def test_bytes_on_every_workers_link_are_those_of_the_guide(call: Any, factor: int) -> None:
    job = FabricJob(loss=0.0, seed=1)
    members = [Communicator(driver) for driver in job.drivers]
    chunks = 40 * WORKERS
    words = LANES - 2 if factor > 1 else LANES  # a gathered piece has an even number, and a lane that says it is there
    array = np.arange(chunks * words, dtype=np.float32)
    for handle in [call(member, array) for member in members]:
        handle.wait()
    frames = WINDOW * (FRAME_HEADER_BYTES + HEADER_BYTES)
    frames += factor * chunks * (FRAME_HEADER_BYTES + message_bytes(LANES))
    assert {job.bytes_at_switch(host) for host in ("h1", "h2", "h3", "h4")} == {(frames, frames)}


def test_a_switch_tells_calls_that_differ_from_a_sum() -> None:
    """The server is not there to see it: the workers themselves do."""
    members = communicators(0.02, seed=3)
    before = [member.allreduce_async(np.full(2000, member.rank)) for member in members]
    odd = [member.allreduce_async(np.ones(3000 if member.rank == 2 else 400)) for member in members]
    assert [result.tolist() for result in wait_all(before)] == [[6] * 2000] * WORKERS
    for handle in odd:
        with pytest.raises(CallMismatch):
            handle.wait()
