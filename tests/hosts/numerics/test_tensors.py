"""Tensors and their sums by themselves: rounds in any order, weights, signatures, and means after the sum."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.errors import CallMismatch, InvalidTensor
from weir.hosts.numerics.datatypes import DataType, FloatType, data_types
from weir.hosts.numerics.native_types import FLOAT32, INT32
from weir.hosts.numerics.tensors import Reduced, Tensor, reference_sum, sum_locally
from weir.tests.support.errors import raises
from weir.wire.aggregation import LANES


def test_rounds_count_from_0_until_a_tensor_is_placed() -> None:
    tensor = Tensor(array=np.ones(3 * LANES + 1, np.float32), workers=2)
    assert (tensor.handle, tensor.start, tensor.scale_rounds, tensor.end, tensor.remaining) == (0, 0, 1, 5, 5)
    tensor.place(7, 40, lead=2)
    assert (tensor.handle, tensor.start, tensor.scale_rounds, tensor.end, tensor.remaining) == (7, 40, 2, 46, 6)


@pytest.mark.parametrize(
    "chunks", [[3], [1, 2, 3], [3, 2, 1], [1, 0], [0, 4], [0, 2, 4], [0, 1, 3, 2], [1, 0, 3]], ids=str
)
def test_lanes_go_and_come_in_any_order(chunks: list[int]) -> None:
    values = np.arange(5 * LANES, dtype=np.int32).reshape(5, LANES)
    tensor = Tensor(values, workers=1)
    tensor.place(0, 0, lead=2)
    local = tensor.scale_rounds + np.array(chunks)
    lanes = tensor.lanes(local)
    assert lanes.tolist() == values[chunks].tolist()
    tensor.add_results(local, np.zeros(len(local), np.int64), np.ones(len(local), np.int64), -lanes)
    values[chunks] *= -1
    assert tensor.reduced().array.tolist() == values.tolist()


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("kind", data_types(), ids=lambda kind: kind.name)
def test_a_long_batch_is_encoded_and_decoded_as_its_rounds_are(kind: DataType, in_order: bool) -> None:
    draws = np.random.default_rng(1)
    if isinstance(kind, FloatType):
        values = kind.narrow(draws.standard_normal(40_000))
    else:
        values = draws.integers(-9, 9, 40_000, dtype=kind.storage)
    whole, single = (Tensor(values, workers=2, dtype=kind) for _ in range(2))
    whole.place(0, 0, whole.end)
    single.place(0, 0, single.end)
    scales, local = np.split(np.arange(whole.end), [whole.scale_rounds])
    for tensor in (whole, single):
        tensor.add_results(scales, tensor.exponents(scales).astype(np.int64), np.full(len(scales), 2), None)
    if not in_order:
        local = draws.permutation(local)
    lanes = whole.lanes(local)
    assert np.array_equal(lanes, np.concatenate([single.lanes(local[[row]]) for row in range(len(local))]))
    given = np.zeros_like(lanes)
    assert single.lanes(local, given) is given
    assert np.array_equal(given, lanes)
    weights = draws.integers(1, 3, len(local))
    whole.add_results(local, np.zeros(len(local), np.int64), weights, lanes)
    for row in range(len(local)):
        single.add_results(local[[row]], np.zeros(1, np.int64), weights[[row]], lanes[[row]])
    expected, found = single.reduced(), whole.reduced()
    assert np.array_equal(found.values.view(np.uint8), expected.values.view(np.uint8))
    assert np.array_equal(found.weights, expected.weights)


def test_every_chunk_of_a_long_tensor_has_an_exponent_of_its_own() -> None:
    values = np.repeat(np.ldexp(1.0, np.arange(600) % 200 - 100), LANES).astype(np.float32)
    assert reference_sum([values, values, -values]).tolist() == values.tolist()


def test_the_first_invalid_number_of_a_long_tensor_is_named() -> None:
    """Not the largest of those that can."""
    values = np.full(300 * LANES, 3e38, np.float32)
    values[[299 * LANES + 5, 299 * LANES + 7]] = np.nan
    with raises(InvalidTensor, place="tensor 'tensor'", value=76549):
        Tensor(values, workers=2)


def test_a_weight_below_0_is_refused() -> None:
    with raises(InvalidTensor, place="tensor 'g'", value=-1):
        Tensor(np.ones(2), workers=3, name="g", weight=-1)


def test_weights_of_a_reference_are_1() -> None:
    """The test uses an integer with a mean that no larger weight allows."""
    largest = np.array([2**62])
    assert reference_sum(arrays=[largest], mean=True).tolist() == largest.tolist()
    with raises(InvalidTensor, place="tensor 'tensor of worker 0'", value=0):
        reference_sum(arrays=[largest], mean=True, weights=[2])


@pytest.mark.parametrize("other", [77 ^ 1 << bit for bit in range(1, 32)] + [2**32 - 77])
def test_signatures_that_differ_in_any_bit_are_told_apart(other: int) -> None:
    """Also those whose sum is 0."""
    for size in (0, 1000):
        tensors = [Tensor(np.ones(size), workers=2, signature=signature) for signature in (77, other)]
        sum_locally(tensors, tensors)
        assert all(isinstance(tensor.failure, CallMismatch) for tensor in tensors)


@pytest.mark.parametrize("there", [1, 2, 3])
def test_signatures_of_any_workers_that_make_the_same_call_agree(there: int) -> None:
    tensors = [Tensor(np.ones(1000), workers=3, signature=2**32 - 1) for _ in range(there)]
    sum_locally(tensors, tensors)
    assert [tensor.failure for tensor in tensors] == [None] * there


@pytest.mark.parametrize("kind", [kind for kind in data_types() if isinstance(kind, FloatType)])
@pytest.mark.parametrize("sizes", [LANES, np.array([200, LANES, 144])], ids=["whole", "cut"])
def test_parts_of_a_mean_are_scaled_where_a_worker_was_lost(kind: FloatType, sizes: Any) -> None:
    sums = kind.narrow(np.resize([3.0, -1.5, 0.75], 600).reshape(20, 30))
    for weights in ([3, 3, 3], [3, 1, 2], [2, 2, 2]):
        reduced = Reduced("t", kind, sums, np.array(weights, np.uint32), sizes)
        by_element = np.repeat(weights, sizes)[:600].reshape(20, 30)
        expected = kind.narrow(kind.widen(sums) * (3 / by_element))
        assert reduced.as_of_all(3).tolist() == expected.tolist()


def test_integers_are_not_scaled() -> None:
    sums = np.arange(3, dtype=np.int32)
    assert Reduced("t", INT32, sums, np.array([3], np.uint32)).as_of_all(3) is sums
    with raises(InvalidTensor, place="tensor 't'", value="int32"):
        Reduced("t", INT32, sums, np.array([2], np.uint32)).as_of_all(3)


def test_a_chunk_without_weight_has_no_mean() -> None:
    reduced = Reduced("t", FLOAT32, np.ones(300, np.float32), np.array([1, 0], np.uint32))
    for mean in (reduced.mean, lambda: reduced.as_of_all(2)):
        with pytest.raises(ZeroDivisionError, match=r"tensor 't': .*weights sum to 0; .*positive weights"):
            mean()


def test_a_sum_is_equal_to_itself_alone_and_stays_what_it_is() -> None:
    first, second = (Reduced("t", INT32, np.zeros(3, np.int32), np.ones(1, np.uint32)) for _ in range(2))
    assert len({first, second, first}) == 2
    with pytest.raises(FrozenInstanceError):
        first.name = "u"  # type: ignore[misc]


@given(
    st.lists(st.sampled_from([1, 2, 84, 85, 86, 255, 256, 257, 600]), max_size=6),
    st.sampled_from(["float32", "float64", "int32"]),
    st.lists(st.tuples(st.integers(0, 3600), st.integers(0, 3600)), max_size=5),
)
@settings(deadline=None, max_examples=100)
def test_a_worker_wants_the_chunks_with_wanted_elements(
    sizes: list[int], dtype: str, runs: list[tuple[int, int]]
) -> None:
    total = sum(sizes)
    wanted = [(min(run), min(max(run), total)) for run in runs]
    tensor = Tensor(np.ones(total, dtype), workers=2, cuts=np.cumsum(sizes)[:-1].tolist(), wanted=wanted)
    values = 256 if dtype != "float64" else 85
    elements = np.zeros(total, np.bool_)
    for first, end in wanted:
        elements[first:end] = True
    parts = np.split(elements, np.cumsum(sizes)[:-1]) if sizes else []
    chunks = [part[start : start + values].any() for part in parts for start in range(0, len(part), values)]
    local = np.arange(len(chunks)) + tensor.scale_rounds
    assert np.broadcast_to(tensor.wants(local), len(chunks)).tolist() == chunks
    assert not tensor.wants_all


@pytest.mark.parametrize("run", [(0, 601), (-1, 5), (700, 701)])
def test_wanted_elements_that_a_tensor_does_not_have_are_refused(run: tuple[int, int]) -> None:
    shown = f"tensor 'gradient': wanted elements {run[0]}…{run[1] - 1} are not among its 600"
    with pytest.raises(InvalidTensor, match=shown):
        Tensor(np.ones(600), workers=2, name="gradient", wanted=[(5, 6), run])


@pytest.mark.parametrize("wanted", [5, "ab", [5], [(0, 1, 2)], [(0.5, 2)], [(0, None)]], ids=str)
def test_wanted_elements_that_are_no_runs_are_refused(wanted: Any) -> None:
    with pytest.raises(InvalidTensor, match=r"tensor 'gradient': wanted .* are not runs of elements"):
        Tensor(np.ones(600), workers=2, name="gradient", wanted=wanted)


@pytest.mark.parametrize("cuts", [(), (300,)])
def test_who_writes_into_a_sum_changes_no_numbers_that_may_be_summed_again(cuts: tuple[int, ...]) -> None:
    tensor = Tensor(np.ones(600, np.int32), workers=2, cuts=cuts, wanted=[(0, 200)])
    tensor.place(0, 0, 1)
    local = np.arange(tensor.scale_rounds, tensor.end)
    sent = tensor.lanes(local[1:]).copy()
    tensor.add_results(local[:1], np.zeros(1, np.int64), np.array([2]), 2 * tensor.lanes(local[:1]))
    tensor.add_results(local[1:], np.zeros(len(local) - 1, np.int64), np.full(len(local) - 1, 2), None)
    reduced = tensor.reduced()
    assert reduced.array[:200].tolist() == [2] * 200
    reduced.array[:] = 77
    assert tensor.lanes(local[1:]).tolist() == sent.tolist()
    tensor.add_results(local[1:], np.zeros(len(local) - 1, np.int64), np.full(len(local) - 1, 1), None)
    assert reduced.weights.tolist() == [2] * len(reduced.weights), "of the sum that was handed over"


def passed_on() -> tuple[Tensor, Tensor]:
    """A tensor of four chunks, the last two of which have later rounds."""
    tensor = Tensor(np.ones(4 * LANES, np.float32), workers=3, signature=7)
    tensor.place(0, 0, lead=2)
    later, useful = tensor.agree_again(np.array([True, True, True, True, False, False]), 4, lead=2)
    assert later is not None
    assert useful.tolist() == [True] * 4 + [False] * 2
    tensor.end_at(4)
    return tensor, later


def test_exponents_of_chunks_that_were_passed_on_are_those_of_the_later_rounds_after_a_second_loss() -> None:
    tensor, later = passed_on()
    twice, useful = tensor.agree_again(np.array([True, True, False, True]), 8, lead=2)
    assert twice is not None
    assert useful[3], "it carries the exponent of chunk 3, too"
    later.add_results(np.arange(2), np.full(2, 130), np.full(2, 7), None)
    lanes = later.lanes(np.array([2, 3])).copy()
    tensor.add_results(np.array([3]), np.array([140]), np.array([3]), np.zeros((1, LANES), np.int32))
    assert later.lanes(np.array([2, 3])).tolist() == lanes.tolist()


def test_a_sum_in_several_parts_is_handed_over_once() -> None:
    tensor, later = passed_on()
    later.note_delivery()
    assert tensor.delivered


@pytest.mark.parametrize("masked", ["adds", "wanted"])
def test_a_later_tensor_may_only_compare_the_calls_again(masked: str) -> None:
    mask: dict[str, Any] = {"adds": np.ones(2, np.bool_)} if masked == "adds" else {"wanted": ((0, 1),)}
    tensor = Tensor(np.ones(2 * LANES, np.float32), workers=3, signature=7, **mask)
    tensor.place(0, 0, lead=2)
    tensor.agree_again(np.array([True, True, False, False]), 2, lead=2)
    tensor.end_at(2)
    later, _ = tensor.agree_again(np.array([False, True]), 2, lead=2)
    assert later is not None
    assert (later.start, later.end) == (2, 3)
    local = np.zeros(1, np.int64)
    assert later.adds_to(local) is True
    assert later.wants(local) is True


def test_weights_of_sums_that_a_worker_does_not_want_are_known() -> None:
    tensor = Tensor(np.ones(600, np.float32), workers=2, wanted=[(256, 512)])
    tensor.place(0, 0, 2)
    scales = np.arange(2)
    tensor.add_results(scales, tensor.exponents(scales).astype(np.int64), np.full(2, 7), None)
    tensor.add_results(np.array([2, 4]), np.full(2, 128), np.array([7, 6]), None)
    assert tensor.remaining == 1
    local = np.array([3])
    tensor.add_results(local, np.zeros(1, np.int64), np.array([5]), tensor.lanes(local) * 2)
    assert tensor.remaining == 0
    assert tensor.reduced().weights.tolist() == [7, 5, 6]
    assert tensor.reduced().values[256:512].tolist() == [2.0] * 256
