"""Collectives: the result at each worker, over types, shapes, other workers' calls and deaths."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.collectives.communicator import Communicator, wait_all
from weir.hosts.collectives.compression import Compression
from weir.hosts.collectives.handle import Handle
from weir.hosts.errors import AllreduceTimeout, CallMismatch, HostError, InvalidTensor, WorkerMissing
from weir.hosts.numerics.bfloat16 import BFLOAT16
from weir.hosts.numerics.datatypes import DataType, FloatType, data_types
from weir.hosts.numerics.native_types import FLOAT32, INT64
from weir.hosts.numerics.tensors import reference_sum
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.support.errors import raises
from weir.wire.control import JobReport

Numbers = np.ndarray


def communicators(workers: int, **options: Any) -> tuple[MemoryJob, list[Communicator]]:
    job = MemoryJob(workers, **options)
    return job, [Communicator(driver, timeout_s=1) for driver in job.drivers]


def everywhere(workers: int, call: Callable[[Communicator], Handle], **options: Any) -> list[Any]:
    """The results of one call at every worker."""
    _, members = communicators(workers, **options)
    return wait_all([call(member) for member in members])


def normal(rank: int, *shape: int) -> Numbers:
    return np.random.default_rng(rank).standard_normal(shape)


@pytest.mark.parametrize("kind", data_types())
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_sums_and_means_are_the_reference_at_every_worker(kind: DataType, op: Any) -> None:
    weights: Any = [{"weight": rank + 1} if op == "mean" else {} for rank in range(5)]
    values = [normal(rank, 9, 101) * 1000 for rank in range(5)]
    arrays = [kind.narrow(v) if isinstance(kind, FloatType) else v.astype(kind.storage) for v in values]
    expected = reference_sum(arrays, dtype=kind.name, mean=op == "mean", weights=[1, 2, 3, 4, 5])
    results = everywhere(
        5, lambda c: c.allreduce_async(arrays[c.rank], op=op, dtype=kind.name, **weights[c.rank]), seed=3
    )
    for result in results:
        assert result.dtype == kind.storage
        assert result.shape == (9, 101)
        assert result.tobytes() == expected.tobytes()


@given(
    st.sampled_from(data_types()),
    st.sampled_from(["max", "min"]),
    st.integers(1, 6),
    st.sampled_from([0, 1, 2, 3, 63, 127, 254, 255, 700]),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=50)
def test_largest_and_least(kind: DataType, op: Any, workers: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wide = np.ldexp(rng.standard_normal((workers, size)), rng.integers(-10, 10, (workers, size)))
    wide[rng.random(wide.shape) < 0.1] = rng.choice([0.0, -0.0, np.inf, -np.inf])
    if isinstance(kind, FloatType):
        values = kind.narrow(wide)
        wide = kind.widen(values).astype(np.float64)
    else:
        limits = np.iinfo(kind.storage)
        values = wide = rng.integers(limits.min, limits.max, wide.shape, kind.storage, endpoint=True)
    results = everywhere(
        workers, lambda c: c.allreduce_async(values[c.rank], op=op, dtype=kind.name, nonfinite="propagate")
    )
    best = wide.max(axis=0) if op == "max" else wide.min(axis=0)
    if isinstance(kind, FloatType):  # NumPy does not say which zero is larger
        zeros = np.signbit(np.where(wide == 0, wide, -1 if op == "max" else 1))
        best = np.where(best == 0, np.where(zeros.all(axis=0) if op == "max" else zeros.any(axis=0), -0.0, 0.0), best)
    expected = kind.narrow(best) if isinstance(kind, FloatType) else best
    for result in results:
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", [kind for kind in data_types() if isinstance(kind, FloatType)])
@pytest.mark.parametrize("op", ["max", "min"])
def test_a_nan_is_the_largest_and_the_least(kind: FloatType, op: Any) -> None:
    values = kind.narrow(np.array([[1, np.nan, 3, -np.inf], [2, 1, -np.nan, 0]]))
    expected = kind.narrow(np.array([2, np.nan, np.nan, 0] if op == "max" else [1, np.nan, np.nan, -np.inf]))
    for result in everywhere(
        2, lambda c: c.allreduce_async(values[c.rank], op=op, dtype=kind.name, nonfinite="propagate")
    ):
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min"])
def test_non_finite_numbers_are_refused_before_anything_is_sent(op: Any) -> None:
    job, members = communicators(2)
    array = np.zeros((3, 400))
    array[1, 7] = np.nan
    with raises(InvalidTensor, place="tensor 'w'", value=407):
        members[0].allreduce_async(array, op=op, name="w")
    assert job.drivers[0].tensors == []


def test_nan_and_infinity_reach_every_worker() -> None:
    arrays = [np.full(1000, rank, np.float32) for rank in range(3)]
    arrays[1][[3, 700]] = np.inf
    arrays[2][[3, 10]] = [-np.inf, np.nan]
    expected = np.full(1000, 3, np.float32)
    expected[[3, 10, 700]] = [np.nan, np.nan, np.inf]
    for result in everywhere(3, lambda c: c.allreduce_async(arrays[c.rank], nonfinite="propagate")):
        assert result.tobytes() == expected.tobytes()


def test_many_of_all_types_in_flight_from_the_last_to_the_first() -> None:
    """Calls start in the order of a backward pass, and are awaited in yet another order."""
    kinds = data_types()
    shapes: list[tuple[int, ...]] = [(), (0,), (3, 5), (700,), (2, 300), (1, 1, 1)]
    layers = [(f"layer {i}.{kind.name}", shape, kind) for i, shape in enumerate(shapes) for kind in kinds]

    def array(rank: int, shape: tuple[int, ...], kind: DataType) -> Numbers:
        values = normal(rank, *shape) * 100
        return kind.narrow(values) if isinstance(kind, FloatType) else np.asarray(values).astype(kind.storage)

    _, members = communicators(3)
    handles: list[dict[str, Handle]] = [{}, {}, {}]
    for member in members:
        for name, shape, kind in reversed(layers):
            handles[member.rank][name] = member.allreduce_async(
                array(member.rank, shape, kind), name=name, dtype=kind.name
            )
            assert handles[member.rank][name].done() == (member.rank == 2)
    for name, shape, kind in layers:
        expected = reference_sum([array(rank, shape, kind) for rank in range(3)], dtype=kind.name)
        for rank in range(3):
            result = handles[rank][name].wait()
            assert (result.tobytes(), result.shape) == (expected.tobytes(), shape)
            assert handles[rank][name].wait() is result


def test_a_wait_says_what_it_waits_for() -> None:
    _, members = communicators(2)
    handle = members[0].allreduce_async(np.ones(3), name="fc1.weight")
    assert not handle.done()
    with raises(AllreduceTimeout, place="tensor 'fc1.weight'"):
        handle.wait()
    members[1].allreduce_async(np.ones(3), name="fc1.weight")
    assert handle.wait().tolist() == [2, 2, 2]


@pytest.mark.parametrize(("op", "expected"), [("sum", [0, 3, 6, 9]), ("max", [0, 1, 2, 3])])
def test_reduce_is_for_the_root(op: Any, expected: list[int]) -> None:
    assert everywhere(3, lambda c: c.reduce_async(np.arange(4), 1, op=op)) == [None, pytest.approx(expected), None]
    _, members = communicators(3)
    with raises(InvalidTensor, place="tensor 't'", value=3):
        members[0].reduce(np.arange(4), 3, name="t")


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_reduce_scatter_is_each_workers_part_of_the_reduction(op: Any) -> None:
    """Parts have scales that one chunk could not hold together."""
    arrays = [normal(rank, 4, 3, 5).astype(np.float32) * np.logspace(0, -20, 4)[:, None, None] for rank in range(4)]
    whole = everywhere(4, lambda c: c.allreduce_async(arrays[c.rank], op=op, cuts=[15, 30, 45]))[0]
    for rank, part in enumerate(everywhere(4, lambda c: c.reduce_scatter_async(arrays[c.rank], op=op, cuts=[30]))):
        assert part.shape == (3, 5)
        assert part.base is None
        assert part.tobytes() == whole[rank].tobytes()


def test_reduce_scatter_needs_a_part_for_each_worker() -> None:
    _, members = communicators(3)
    for shape in ((), (4,), (2, 3)):
        with raises(InvalidTensor, place="tensor 't'", value=shape):
            members[0].reduce_scatter(np.ones(shape), name="t")
    assert [part.shape for part in everywhere(3, lambda c: c.reduce_scatter_async(np.ones((3, 0))))] == [(0,)] * 3


def test_reduce_scatter_differs_from_allreduce() -> None:
    _, members = communicators(2)
    array = np.ones((2, 4))
    handles = [members[0].reduce_scatter_async(array, name="t"), members[1].allreduce_async(array, cuts=[4], name="t")]
    for handle in handles:
        with pytest.raises(CallMismatch):
            handle.wait()


BITS = [
    np.array([[1.5, -0.0], [np.nan, np.inf]]),
    np.arange(7, dtype=np.uint8),
    np.array([True, False, True]),
    np.array("2026-11-21", "datetime64[s]"),
    np.array([(1, 2.5)], [("a", "u1"), ("b", "<f8")]),
    np.zeros((0, 4), np.int16),
    np.arange(5000, dtype=">i4").reshape(2, -1)[:, ::3],
    np.array([1 + 2j, 3]),
]


@pytest.mark.parametrize("array", BITS, ids=lambda array: str(array.dtype))
def test_broadcast_copies_the_root_bit_by_bit(array: Numbers) -> None:
    def broadcast(root: int, c: Communicator) -> Handle:
        return c.broadcast_async(array if c.rank == root else np.zeros_like(array, subok=False), root)

    for root in range(3):
        for result in everywhere(3, partial(broadcast, root)):
            assert (result.dtype, result.shape) == (array.dtype, array.shape)
            assert result.tobytes() == array.tobytes()


@pytest.mark.parametrize("array", BITS, ids=lambda array: str(array.dtype))
@pytest.mark.parametrize("workers", [1, 2, 40])
def test_all_gather_keeps_every_bit(array: Numbers, workers: int) -> None:
    parts = []
    for rank in range(workers):
        data = np.frombuffer(array.tobytes(), np.uint8) ^ (0 if array.dtype == np.bool_ else rank)
        parts.append(np.frombuffer(data.tobytes(), array.dtype).reshape(array.shape))
    for result in everywhere(workers, lambda c: c.all_gather_async(parts[c.rank])):
        assert (result.dtype, result.shape) == (array.dtype, (workers, *array.shape))
        assert result.tobytes() == b"".join(part.tobytes() for part in parts)


@given(st.integers(1, 5), st.integers(0, 1100), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_all_gather_of_any_size(workers: int, size: int, seed: int) -> None:
    parts = np.random.default_rng(seed).integers(-(2**31), 2**31, (workers, size), np.int32)
    for result in everywhere(workers, lambda c: c.all_gather_async(parts[c.rank])):
        assert result.tolist() == parts.tolist()


def test_objects_have_no_bytes_to_copy() -> None:
    _, members = communicators(2)
    with raises(InvalidTensor, place="tensor 'tensor'", value="object"):
        members[0].broadcast(np.array(["a", None]))


def test_bytes_of_any_length_are_broadcast() -> None:
    assert Communicator(MemoryJob(1).drivers[0]).broadcast_bytes(b"of one", 0) == b"of one"
    assert Communicator(MemoryJob(1).drivers[0]).broadcast_bytes(b"", 0) == b""


def test_a_barrier_waits_for_all() -> None:
    job, members = communicators(3)
    for member in members[:2]:
        with raises(AllreduceTimeout, place="tensor 'barrier'"):
            member.barrier()
    members[2].barrier()
    assert job.rounds == 1
    assert job.drivers[0].done(0)


BASE: dict[str, Any] = {"array": np.ones(300, np.float32), "name": "t"}


@pytest.mark.parametrize(
    "other",
    [
        {"array": np.ones(301, np.float32)},
        {"array": np.ones((3, 100), np.float32)},
        {"array": np.ones(300, np.float64)},
        {"array": np.ones(300, np.int32)},
        {"array": np.ones(0, np.float32)},
        {"array": np.ones(100_000, np.float32)},
        {"name": "u"},
        {"op": "mean"},
        {"op": "max"},
        {"nonfinite": "propagate"},
        {"cuts": [7]},
    ],
    ids=str,
)
@pytest.mark.parametrize("workers", [2, 3, 7])
def test_calls_that_differ_are_an_error_at_every_worker(other: dict[str, Any], workers: int) -> None:
    job, members = communicators(workers)
    handles = [member.allreduce_async(**BASE) for member in members]
    wait_all(handles)
    rounds = job.rounds
    handles = [member.allreduce_async(**(BASE | other if member.rank == workers - 1 else BASE)) for member in members]
    assert job.rounds == rounds + 1  # no lane was summed
    for member, handle in zip(members, handles, strict=True):
        assert handle.done()
        with raises(CallMismatch, place=f"tensor '{(BASE | other if member.rank == workers - 1 else BASE)['name']}'"):
            handle.wait()
        with pytest.raises(CallMismatch):
            member.barrier()


NAN: Any = np.array([[1.0, np.nan, 1.0]] * 2, np.float32)
MASKED: Any = np.ma.ones((2, 3))


@pytest.mark.parametrize(
    "refused",
    [
        lambda c: c.allreduce(NAN),
        lambda c: c.allreduce(NAN, op="mean", weight=3),
        lambda c: c.allreduce(NAN, op="adasum"),
        lambda c: c.allreduce(NAN, compression=Compression.packed(8)),
        lambda c: c.allreduce_many({"tensor": NAN}),
        lambda c: c.allreduce_many([NAN]),
        lambda c: c.reduce(NAN, 1),
        lambda c: c.reduce_scatter(NAN),
        lambda c: c.reduce_scatter(MASKED),
        lambda c: c.broadcast(MASKED),
        lambda c: c.broadcast_bytes(b"", -1),
        lambda c: c.all_gather(MASKED),
        lambda c: c.barrier(name=1),
    ],
)
def test_a_worker_that_goes_on_after_a_refused_call_meets_no_other_call(refused: Callable[[Communicator], Any]) -> None:
    """Its next array would be added to the other's array of the call that was refused here."""
    _, members = communicators(2)
    for member in members:  # refused everywhere: all go on in step
        with pytest.raises(InvalidTensor):
            refused(member)
    wait_all([member.allreduce_async(np.ones(3)) for member in members])
    with pytest.raises(InvalidTensor):
        refused(members[0])
    for handle in [member.allreduce_async(np.ones(3)) for member in members]:
        with pytest.raises(CallMismatch):
            handle.wait()


def test_integers_of_numpy_and_python_make_the_same_call() -> None:
    roots: list[Any] = [1, np.int64(1), np.uint8(1)]
    cuts: list[Any] = [[2, 4], np.array([2, 4]), (n for n in (2, 4))]
    array = np.arange(6, dtype=np.float32)
    results = everywhere(3, lambda c: c.reduce_async(array, roots[c.rank], cuts=cuts[c.rank]))
    assert results[1].tolist() == (3 * array).tolist()
    for result in everywhere(3, lambda c: c.broadcast_async(array, roots[c.rank])):
        assert result.tolist() == array.tolist()


@pytest.mark.parametrize("root", [-1, 3, 1.0, None, "0"])
def test_a_root_that_is_no_rank_is_refused(root: Any) -> None:
    _, (member, *_) = communicators(3)
    with pytest.raises(InvalidTensor):
        member.broadcast_async(np.ones(3), root)


def test_collectives_are_not_taken_for_each_other() -> None:
    array = np.ones(3, np.int32)
    calls: list[Callable[[Communicator], Handle]] = [
        lambda c: c.allreduce_async(array),
        lambda c: c.broadcast_async(array),
        lambda c: c.broadcast_async(array, 1),
        lambda c: c.all_gather_async(array),
    ]
    for first in calls:
        for second in calls:
            _, members = communicators(2)
            handles = [first(members[0]), second(members[1])]
            if first is second:
                wait_all(handles)
                continue
            for handle in handles:
                with pytest.raises(CallMismatch):
                    handle.wait()


@given(st.sampled_from(data_types()), st.integers(0, 30), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_a_lost_worker_is_in_a_number_or_not_with_all_its_limbs(kind: DataType, rounds: int, seed: int) -> None:
    """Each chunk is the sum of all, or of the survivors; never a mixture of limbs."""
    rng = np.random.default_rng(seed)
    if isinstance(kind, FloatType):
        values = kind.narrow(np.ldexp(rng.integers(1, 4, (3, 3000)).astype(np.float64), -2))
    else:
        values = rng.integers(-(2**30), 2**30, (3, 3000)).astype(kind.storage)
    job, members = communicators(3, seed=seed)
    job.lost[2] = rounds
    first, second, _ = (member.allreduce_async(values[member.rank], op="mean", dtype=kind.name) for member in members)
    result = first.wait()
    assert second.wait().tobytes() == result.tobytes()
    reduced = job.drivers[0].tensors[0].reduced()
    everyone = reference_sum(list(values), dtype=kind.name, mean=True)
    survivors = reference_sum(list(values[:2]), workers=3, dtype=kind.name, mean=True)
    chunks = len(reduced.weights)
    assert reduced.weights.tolist().count(3) == min(rounds, chunks)
    for chunk, weight in enumerate(reduced.weights.tolist()):
        part = slice(chunk * reduced.chunk_values, (chunk + 1) * reduced.chunk_values)
        assert result[part].tobytes() == (everyone if weight == 3 else survivors)[part].tobytes()


def test_broadcast_and_gather_miss_a_lost_worker() -> None:
    array = np.arange(4000, dtype=np.int32)
    calls: list[Callable[[Communicator], Handle]] = [
        lambda c: c.broadcast_async(array, 2),
        lambda c: c.all_gather_async(array),
    ]
    for call in calls:
        job, members = communicators(3)
        handles = [call(member) for member in members[:2]]
        job.lost[2] = 5
        call(members[2])
        messages = set()
        for handle in handles * 2:  # a second wait has the same answer
            assert handle.done()
            with pytest.raises(WorkerMissing) as caught:
                handle.wait()
            messages.add(str(caught.value))
        assert len(messages) == 1
        assert "2" in messages.pop()


def test_the_mean_of_weights_that_sum_to_nothing_is_an_error() -> None:
    for handle in [member.allreduce_async(np.ones(3), op="mean", weight=0) for member in communicators(2)[1]][1:]:
        with pytest.raises(ZeroDivisionError, match="weights sum to 0"):
            handle.wait()


def test_an_unknown_operation_or_policy_is_refused() -> None:
    _, members = communicators(1)
    wrong: Any = "prod"
    with pytest.raises(InvalidTensor, match=r'unknown operation "prod"; supported: sum, .*max'):
        members[0].allreduce(np.ones(3), op=wrong)
    with raises(InvalidTensor, place="tensor 'tensor'", value="prod", allowed=("error", "propagate", "poison")):
        members[0].allreduce(np.ones(3), nonfinite=wrong)


def test_an_operation_of_a_users_file_is_found_by_its_path() -> None:
    arrays = np.random.default_rng(8).uniform(0.5, 2, (3, 2, 350)).astype(np.float32)
    own = str(Path(__file__).with_name("product.py"))
    for result in everywhere(3, lambda c: c.allreduce_async(arrays[c.rank], op=own)):
        assert result.tobytes() == arrays.prod(axis=0).tobytes()


def test_allreduce_many_gives_weights() -> None:
    _, members = communicators(1)
    result = members[0].allreduce_many({"a": np.ones(2, np.float32), "b": np.full((3, 1), 8.0)}, weight=4)
    assert result["b"].mean().tolist() == [[2.0]] * 3
    assert result["a"].weights.tolist() == [4]
    assert Fraction(float(result["a"].array[0])) == 1


def memory_of_a_sum(arrays: list[Numbers], dtype: str) -> tuple[float, Numbers]:
    """Peak extra memory of a sum, as a multiple of a worker's array, and the sum."""
    _, members = communicators(len(arrays), lead=1024, batch=256)
    tracemalloc.start()
    try:
        results = wait_all([member.allreduce_async(arrays[member.rank], dtype=dtype) for member in members])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(np.array_equal(result.view(np.uint8), results[0].view(np.uint8)) for result in results[1:])
    return peak / (len(arrays) * arrays[0].nbytes), results[0]


@pytest.mark.parametrize("kind", data_types())
def test_a_sum_takes_the_memory_of_one_copy(kind: DataType) -> None:
    size = (16 << 20) // kind.storage.itemsize
    arrays = [np.random.default_rng(rank).integers(0, 1 << 6, size).astype(kind.storage) for rank in range(2)]
    copies, _ = memory_of_a_sum(arrays, kind.name)
    assert 1 <= copies < 1.25


@pytest.mark.long
@pytest.mark.parametrize(("kind", "megabytes"), [(FLOAT32, 1024), (BFLOAT16, 256), (INT64, 256)])
def test_large_tensors(kind: DataType, megabytes: int) -> None:
    """Up to a gigabyte; the reference is computed by blocks, which are whole chunks."""
    size = (megabytes << 20) // kind.storage.itemsize
    rng = np.random.default_rng(megabytes)
    block = 255 * 256 * 16
    arrays = [np.empty(size, kind.storage) for _ in range(2)]
    for start in range(0, size, block):
        for array in arrays:
            part = array[start : start + block]
            values = rng.standard_normal(len(part))
            part[...] = kind.narrow(values) if isinstance(kind, FloatType) else (values * 1e18).astype(kind.storage)
    copies, result = memory_of_a_sum(arrays, kind.name)
    assert copies < 1.05
    for start in range(0, size, block):
        where = slice(start, start + block)
        expected = reference_sum([array[where] for array in arrays], dtype=kind.name)
        assert result[where].tobytes() == expected.tobytes()


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_a_weight_is_refused_by_operations_without_weights(op: str) -> None:
    _, members = communicators(2)
    for member in members:
        with raises(InvalidTensor, place="tensor 'gradient'", value=1):
            member.allreduce_async(np.ones(3), op=op, weight=1, name="gradient")
    assert all(result.tolist() == [2.0] * 3 for result in wait_all([m.allreduce_async(np.ones(3)) for m in members]))


@pytest.mark.parametrize("data", ["text", None, [1, 2]])
def test_invalid_bytes_are_refused_and_the_job_stays_in_step(data: Any) -> None:
    alone = Communicator(MemoryJob(1).drivers[0])
    with raises(InvalidTensor, place="broadcast 'bytes'", value=data):
        alone.broadcast_bytes(data)
    assert alone.broadcast_bytes(b"after", 0) == b"after"
    assert alone.broadcast_bytes(np.arange(3, dtype=np.uint8)) == bytes([0, 1, 2])  # type: ignore[arg-type]


def test_a_report_has_the_steps_bytes_and_what_was_given() -> None:
    heard: list[JobReport] = []
    (driver,) = MemoryJob(1).drivers
    communicator = Communicator(driver, report=heard.append)
    communicator.allreduce(np.ones(256, np.float32))
    communicator.report(step=np.int64(3), loss=np.float32(0.5), compute_ns=7, exposed_ns=0)
    communicator.report(step=4, steps_left=2, stage="decay")
    assert heard[0] == JobReport(3, loss=0.5, compute_ns=7, bytes=1024)
    assert replace(heard[1], compute_ns=0) == JobReport(4, 2, "decay")
    assert heard[1].compute_ns > 0


@pytest.mark.parametrize(
    ("values", "value"),
    [({"step": -1}, -1), ({"step": 1, "stage": 65 * "s"}, 65 * "s"), ({"step": 1, "epoch": 2}, "epoch")],
)
def test_a_report_of_what_cannot_be_is_refused(values: Any, value: object) -> None:
    (driver,) = MemoryJob(1).drivers
    with raises(HostError, place="report", value=value):
        Communicator(driver).report(**values)


def test_a_report_of_no_number_is_refused() -> None:
    (driver,) = MemoryJob(1).drivers
    with pytest.raises(HostError):
        Communicator(driver).report(step=1, loss="low")  # type: ignore[arg-type]
