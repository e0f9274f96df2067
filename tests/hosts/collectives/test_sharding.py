"""Several jobs that share every tensor: the same bits as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from weir.hosts.collectives.communicator import Communicator, wait_all
from weir.hosts.collectives.sharding import ShardedDriver
from weir.hosts.errors import AllreduceTimeout, CallMismatch, InvalidPlan
from weir.hosts.numerics.datatypes import DataType, FloatType, data_types
from weir.hosts.numerics.native_types import FLOAT32
from weir.hosts.numerics.tensors import reference_sum
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.support.errors import raises


def sharded(
    workers: int, shards: int, shares: Sequence[int] | None = None
) -> tuple[list[MemoryJob], list[Communicator]]:
    jobs = [MemoryJob(workers, seed=shard) for shard in range(shards)]
    drivers = [ShardedDriver([job.drivers[rank] for job in jobs], shares) for rank in range(workers)]
    return jobs, [Communicator(driver, timeout_s=1) for driver in drivers]


@pytest.mark.parametrize("kind", data_types())
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 1, 300, 256 * 7, 5000])
def test_the_bits_are_those_of_one_job(kind: DataType, shards: int, size: int) -> None:
    values = np.random.default_rng(size).standard_normal((3, size)) * 1000
    arrays = list(kind.narrow(values) if isinstance(kind, FloatType) else values.astype(kind.storage))
    jobs, members = sharded(3, shards)
    expected = reference_sum(arrays, dtype=kind.name)
    handles = [member.allreduce_async(arrays[member.rank], dtype=kind.name) for member in members]
    assert all(handle.done() for handle in handles)
    assert [result.tobytes() for result in wait_all(handles)] == [expected.tobytes()] * 3
    if size == 256 * 7 and kind is FLOAT32:
        assert max(job.rounds for job in jobs) - min(job.rounds for job in jobs) <= 2  # all have a part of it


@pytest.mark.parametrize("shares", [[5, 3], [1, 6, 1], [250, 6]])
@pytest.mark.parametrize("size", [0, 1, 256 * 8, 5000])
def test_shares_divide_the_chunks_and_leave_the_bits(shares: list[int], size: int) -> None:
    arrays = list(np.random.default_rng(size).standard_normal((2, size)).astype(np.float32))
    jobs, members = sharded(2, len(shares), shares)
    results = wait_all([member.allreduce_async(arrays[member.rank]) for member in members])
    assert {result.tobytes() for result in results} == {reference_sum(arrays).tobytes()}
    if size == 256 * sum(shares):
        assert [job.rounds for job in jobs] == [
            share + min(share, 4) for share in shares
        ]  # with 4 scale rounds at most


@pytest.mark.parametrize("shares", [None, [1, 6, 1]])
def test_an_array_of_several_layers_goes_over_shards(shares: list[int] | None) -> None:
    rng, cuts = np.random.default_rng(1), [300, 610]
    scales = np.repeat([1e-6, 1.0, 1e3], [300, 310, 2390])
    arrays = [(rng.standard_normal(3000) * scales).astype(np.float32) for _ in range(2)]
    _, members = sharded(2, 3, shares)
    results = wait_all([member.allreduce_async(arrays[member.rank], cuts=cuts) for member in members])
    parts = [reference_sum([array[first:last] for array in arrays]) for first, last in pairwise([0, *cuts, 3000])]
    assert {result.tobytes() for result in results} == {np.concatenate(parts).tobytes()}


def test_all_collectives_go_over_shards() -> None:
    _, members = sharded(3, 2)
    calls: list[Any] = [
        lambda c: c.all_gather_async(np.full(700, c.rank)),
        lambda c: c.broadcast_async(np.full(700, c.rank), 1),
        lambda c: c.allreduce_async(np.full(700, c.rank), op="max"),
        lambda c: c.allreduce_async(np.full(700, c.rank), op="mean"),
    ]
    gathered, copied, largest, mean = (wait_all([call(member) for member in members]) for call in calls)
    for rank in range(3):
        assert gathered[rank].tolist() == [[other] * 700 for other in range(3)]
        assert copied[rank].tolist() == mean[rank].tolist() == [1] * 700
        assert largest[rank].tolist() == [2] * 700


def test_a_shard_that_is_missing_is_waited_for_again() -> None:
    jobs, members = sharded(2, 2)
    handle = members[0].allreduce_async(np.ones(600), name="fc1.weight")
    with raises(AllreduceTimeout, place="tensor 'fc1.weight'"):
        handle.wait()
    members[1].allreduce_async(np.ones(600), name="fc1.weight")
    assert handle.wait().tolist() == [2] * 600
    assert all(job.rounds for job in jobs)


def test_calls_that_differ_are_told_by_every_shard() -> None:
    _, members = sharded(2, 3)
    handles = [member.allreduce_async(np.ones(1000 + member.rank)) for member in members]
    for handle in handles:
        with pytest.raises(CallMismatch):
            handle.wait()


def test_shards_of_other_workers_are_refused() -> None:
    with raises(InvalidPlan, place="shard 1", value=1):
        ShardedDriver([MemoryJob(2).drivers[0], MemoryJob(2).drivers[1]])
    with raises(InvalidPlan, place="drivers", value=0):
        ShardedDriver([])
    for shares in ([1], [1, 0], [2, 1, 1]):
        with raises(InvalidPlan, place="shares", value=shares):
            sharded(2, 2, shares)
