"""Adasum and AdaCons: their identities, the plain formulas as oracles, racks, and what is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.collectives.communicator import Communicator, wait_all
from weir.hosts.collectives.handle import Handle
from weir.hosts.collectives.operations.adacons import MOMENTUM, coefficients
from weir.hosts.errors import CallMismatch, InvalidPlan, InvalidTensor, PeerLost, TransportTimeout
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.hosts.collectives.memory_messages import MemoryMessages, Received
from weir.tests.support.errors import raises

TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


def workers_of(count: int) -> tuple[list[Communicator], list[MemoryMessages]]:
    queues: dict[tuple[int, int], deque[Any]] = {}
    messages = [MemoryMessages(queues, rank) for rank in range(count)]
    drivers = MemoryJob(count).drivers
    made: list[Any] = [lambda each=message: each for message in messages]
    return [Communicator(driver, connect=connect) for driver, connect in zip(drivers, made, strict=True)], messages


def settled(handles: Sequence[Handle]) -> list[Any]:
    """The results of one call at every worker, all in this thread."""
    for _ in range(1000):
        done = [handle.done() for handle in handles]  # all of them are asked: it is what begins their next exchange
        if all(done):
            break
    return wait_all(handles)


def everywhere(arrays: Iterable[np.ndarray], op: str, **how: Any) -> list[Any]:
    numbers = list(arrays)
    members, _ = workers_of(len(numbers))
    return settled([c.allreduce_async(numbers[c.rank], op=op, **how) for c in members])


def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Adasum of two vectors, by its definition."""
    dot, a_square, b_square = float(a @ b), float(a @ a), float(b @ b)
    of_a = 1 - dot / (2 * a_square) if a_square else 1.0
    of_b = 1 - dot / (2 * b_square) if b_square else 1.0
    return of_a * a + of_b * b


def tree(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Adasum of 2^k vectors as a binary tree."""
    while len(vectors) > 1:
        vectors = [pair(a, b) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("count", [2, 8])
def test_orthogonal_vectors_are_summed_and_parallel_averaged(kind: str, count: int) -> None:
    rng = np.random.default_rng(count)
    basis = np.linalg.qr(rng.standard_normal((50, count)))[0].T * rng.uniform(0.1, 9, (count, 1))
    factors = rng.uniform(0.5, 2, count)
    for wanted, exact in ((basis, basis.sum(axis=0)), (np.outer(factors, basis[0]), factors.mean() * basis[0])):
        for found in everywhere(wanted.astype(kind), "adasum"):
            assert found.dtype == kind
            assert distance(found, exact) < TOLERANCE[kind]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 4).map(lambda level: 1 << level),
    st.integers(0, 70),
    st.lists(st.integers(1, 69), max_size=4, unique=True),
    st.integers(0, 1000),
)
def test_any_size_and_tensors_have_the_bits_of_the_binary_tree(
    count: int, size: int, cuts: list[int], seed: int
) -> None:
    cuts = sorted(cut for cut in cuts if cut < size)
    arrays = np.random.default_rng(seed).standard_normal((count, size)) * 10.0 ** np.arange(count)[:, None]
    results = everywhere(arrays, "adasum", cuts=cuts)
    assert len({result.tobytes() for result in results}) == 1
    for first, last in zip([0, *cuts], [*cuts, size], strict=True):
        if first < last:
            assert distance(results[0][first:last], tree([*arrays[:, first:last]])) < 1e-12


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_results_keep_shape_and_type(kind: str) -> None:
    arrays = np.random.default_rng(1).standard_normal((4, 3, 5)).astype(kind)
    found = everywhere(arrays, "adasum")[2]
    assert (found.shape, found.dtype) == ((3, 5), np.dtype(kind))
    assert distance(found.ravel(), tree([*arrays.reshape(4, -1).astype(np.float64)])) < 2e-3


def test_zeros_and_tiny_vectors_count_as_they_are() -> None:
    vector = np.array([3.0, 4.0])
    assert everywhere([np.zeros(2), vector], "adasum")[0].tolist() == [3.0, 4.0]
    assert everywhere([np.zeros(2), np.zeros(2)], "adasum")[1].tolist() == [0.0, 0.0]
    assert everywhere([vector * 1e-160, vector], "adasum")[0] == pytest.approx(vector)
    assert everywhere([vector * 1e-60] * 2, "adasum")[0] == pytest.approx(vector * 1e-60)


def test_traffic_is_that_of_halving_and_doubling() -> None:
    members, messages = workers_of(8)
    settled([c.allreduce_async(np.ones(8000, np.float32), op="adasum", cuts=[1000]) for c in members])
    products = 2 * 24 * (1 + 2 + 3)
    assert {message.sent_bytes for message in messages} == {2 * 4 * 8000 * 7 // 8 + products}


@pytest.mark.parametrize("count", [3, 6])
def test_workers_that_are_no_power_of_two_are_refused(count: int) -> None:
    members, _ = workers_of(count)
    for member in members:
        with raises(InvalidPlan, place="tensor 'tensor'", value=count):
            member.allreduce_async(np.ones(4), op="adasum")


def in_racks(members: list[Communicator], size: int) -> list[Communicator]:
    jobs = [MemoryJob(size) for _ in range(len(members) // size)]
    return [Communicator(jobs[c.rank // size].drivers[c.rank % size]) for c in members]


@pytest.mark.parametrize(("count", "size"), [(8, 4), (8, 2), (6, 3), (4, 4)])
def test_racks_are_summed_and_adasum_taken_among_them(count: int, size: int) -> None:
    arrays = np.random.default_rng(7).standard_normal((count, 300))
    members, _ = workers_of(count)
    racks = in_racks(members, size)
    calls = [c.allreduce_async(arrays[c.rank], op="adasum", rack=racks[c.rank], cuts=[100]) for c in members]
    results = settled(calls)
    sums = arrays.reshape(-1, size, 300).sum(axis=1)
    assert len({result.tobytes() for result in results}) == 1
    for part in (slice(0, 100), slice(100, 300)):
        assert distance(results[0][part], tree([*sums[:, part]])) < 1e-12


def test_three_racks_are_refused_at_every_worker() -> None:
    members, _ = workers_of(6)
    racks = in_racks(members, 2)
    handles = [c.allreduce_async(np.ones(4), op="adasum", rack=racks[c.rank]) for c in members]
    for handle in handles:
        assert handle.done()
        with raises(InvalidPlan, place="tensor 'tensor'", value=3):
            handle.wait()


def test_different_calls_are_found() -> None:
    members, _ = workers_of(2)
    handles = [c.allreduce_async(np.ones(4 + c.rank), op="adasum") for c in members]
    with pytest.raises(CallMismatch):
        settled(handles)


@pytest.mark.parametrize(
    ("array", "how"),
    [
        (np.ones(3, np.int32), {}),
        (np.array([1.0, np.nan]), {}),
        (np.array([1e200, 1.0]), {}),
        (np.ones(3), {"cuts": [2, 1]}),
        (np.ones(3), {"weight": 2}),
    ],
)
def test_numbers_and_options_that_cannot_be_are_refused(array: np.ndarray, how: dict[str, Any]) -> None:
    members, _ = workers_of(2)
    with pytest.raises(InvalidTensor):
        members[0].allreduce_async(array, op="adasum", **how)


def test_a_rack_is_for_adasum_alone() -> None:
    members, _ = workers_of(2)
    with raises(InvalidTensor, allowed=("adasum",)):
        members[0].allreduce_async(np.ones(3), rack=members[1])


@pytest.mark.parametrize(
    "call", [lambda c: c.allreduce_async(np.ones(1)), lambda c: c.allreduce_async(np.ones(1), op="adacons")]
)
def test_a_call_before_the_end_of_a_stepped_one_is_refused(call: Callable[[Communicator], Handle]) -> None:
    members, _ = workers_of(1)
    handle = members[0].allreduce_async(np.ones(2), op="adacons")
    with pytest.raises(InvalidTensor):
        call(members[0])
    handle.wait()
    settled([call(members[0])])


@pytest.mark.parametrize("way", ["wait", "done"])
def test_a_peer_that_is_lost_ends_the_call_and_not_the_ones_after(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> Any:
        raise PeerLost("rank 1 is lost", 1)

    members, _ = workers_of(2)
    handles = [c.allreduce_async(np.ones(6), op="adasum") for c in members]
    with monkeypatch.context() as patch:
        patch.setattr(Received, "wait", lost)
        patch.setattr(Received, "done", lambda self: True)
        for handle in handles:
            assert way == "wait" or handle.done()
            for _ in range(2):
                with raises(PeerLost, peer=1):
                    handle.wait()
    later = [c.allreduce_async(np.full(2, c.rank + 1.0)) for c in members]
    assert [total.tolist() for total in settled(later)] == [[3.0, 3.0]] * 2


def test_a_call_that_has_timed_out_can_be_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any) -> Any:
        raise TransportTimeout("nothing from rank 1", 1)

    members, _ = workers_of(2)
    handles = [c.allreduce_async(np.ones(6), op="adasum") for c in members]
    with monkeypatch.context() as patch:
        patch.setattr(Received, "wait", late)
        with pytest.raises(TransportTimeout):
            handles[0].wait()
    assert [total.tolist() for total in settled(handles)] == [[1.0] * 6] * 2


def test_adacons_weighs_gradients_by_their_agreement() -> None:
    arrays = np.random.default_rng(5).standard_normal((5, 400)) + 0.3
    total = arrays.sum(axis=0)
    weights = arrays @ total / (arrays**2).sum(axis=1)
    results = everywhere(arrays, "adacons")
    assert len({result.tobytes() for result in results}) == 1
    assert distance(results[0], weights @ arrays / weights.sum()) < 1e-9


def test_adacons_of_equal_or_opposite_gradients_is_their_mean() -> None:
    vector = np.arange(1.0, 30)
    assert everywhere([vector] * 4, "adacons")[3] == pytest.approx(vector)
    assert everywhere([vector, -vector], "adacons")[0] == pytest.approx(np.zeros(29), abs=1e-12)
    assert everywhere([np.zeros(3)] * 2, "adacons")[0].tolist() == [0.0] * 3


def test_adacons_smooths_the_sorted_coefficients_over_calls() -> None:
    memory: dict[str, Any] = {}
    ones = np.ones(3)
    assert coefficients(np.array([1.0, 2.0, 3.0]), ones, memory).tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    wanted = np.array([3.0, 1.0, 2.0]) * MOMENTUM + (1 - MOMENTUM) * np.array([30.0, 10.0, 20.0])
    assert coefficients(np.array([30.0, 10.0, 20.0]), ones, memory) == pytest.approx(wanted / wanted.sum())


def test_communicators_keep_the_coefficients_by_name() -> None:
    rng = np.random.default_rng(2)
    members, _ = workers_of(3)
    memory: dict[str, Any] = {}
    for _ in range(3):
        arrays = rng.standard_normal((3, 50)) + 1
        results = settled([c.allreduce_async(arrays[c.rank], op="adacons", name="layer") for c in members])
        settled([c.allreduce_async(-arrays[c.rank], op="adacons", name="other") for c in members])
        norms = np.linalg.norm(arrays, axis=1)
        factors = coefficients(arrays @ arrays.sum(axis=0) / (3 * norms), norms, memory)
        assert distance(results[0], factors @ arrays) < 1e-9
