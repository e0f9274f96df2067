"""The fixed-point numbers: exact where the design says exact, within the stated bound elsewhere."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from weir.hosts.errors import InvalidTensor
from weir.hosts.numerics.native_types import FLOAT32
from weir.hosts.numerics.quantization import (
    EXPONENT_BIAS,
    chunk_count,
    dequantize,
    quantize,
    reserved_bits,
    scale_table,
)
from weir.hosts.numerics.scalars import error_bound
from weir.hosts.numerics.tensors import reference_sum
from weir.tests.hosts.protocol.chunks import block_exponents, to_chunks
from weir.tests.support.errors import raises
from weir.wire.aggregation import LANES

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def min_exponent(chunk: np.ndarray) -> int:
    """The definition: the least e ≥ −127 with |x| < 2^e."""
    largest = max(abs(Fraction(float(x))) for x in chunk)
    e = -127
    while largest >= Fraction(2) ** e:
        e += 1
    return e


@given(st.lists(finite, min_size=1, max_size=4))
@settings(deadline=None)
def test_block_exponent_is_the_least_bound(values: list[float]) -> None:
    chunks = to_chunks(np.array(values, np.float32))
    assert block_exponents(chunks).tolist() == [min_exponent(chunks[0]) + EXPONENT_BIAS]


@pytest.mark.parametrize(
    ("value", "biased"),
    [
        (0, 0),
        (-0.0, 0),
        (2.0**-149, 0),
        (2.0**-128, 0),
        (2.0**-127, 1),
        (2.0**-126, 2),
        (0.99, 127),
        (1, 128),
        (-(2.0**127), 255),
        (float(np.finfo(np.float32).max), 255),
    ],
)
def test_block_exponent_at_the_edges(value: float, biased: int) -> None:
    assert block_exponents(to_chunks(np.array([value], np.float32))).tolist() == [biased]


@given(
    st.integers(1, 40).flatmap(
        lambda workers: arrays(np.float32, (workers, 3), elements=st.floats(-(2.0**100), 2.0**100, width=32))
    )
)
@settings(deadline=None)
def test_the_sum_is_within_the_bound_of_the_exact_sum(values: np.ndarray) -> None:
    workers = len(values)
    result = reference_sum(list(values))
    exponents = np.max([block_exponents(to_chunks(v)) for v in values], axis=0)
    bound = error_bound(FLOAT32, to_chunks(result), exponents, workers)[0]
    for lane in range(3):
        exact = sum(Fraction(float(v)) for v in values[:, lane])
        assert abs(Fraction(float(result[lane])) - exact) <= Fraction(bound[lane])


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 31, 32, 33, 1000, 1 << 20])
@pytest.mark.parametrize("exponent", [0, 1, 127, 255])
def test_no_sum_of_extreme_values_overflows(workers: int, exponent: int) -> None:
    """Every worker at the largest value below 2^e, or its opposite: n times the largest |q| stays within 2³⁰."""
    largest = np.float32(np.ldexp(1 - 2.0**-24, exponent - EXPONENT_BIAS))
    chunk = np.full((1, LANES), largest, np.float32)
    agreed = np.array([exponent], np.uint8)
    for sign in (1, -1):
        q = quantize(sign * chunk, agreed, scale_table(workers))
        assert workers * int(np.abs(q.astype(np.int64)).max()) <= 1 << 30


@pytest.mark.parametrize(
    ("workers", "bits"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (1000, 10), (1024, 10), (1025, 11)]
)
def test_every_worker_leaves_room_for_the_others(workers: int, bits: int) -> None:
    assert reserved_bits(workers) == bits
    assert scale_table(workers).tolist() == [2.0 ** (30 - bits - (biased - 127)) for biased in range(256)]


def test_integers_survive_exactly() -> None:
    """Small integers are multiples of every quantum in use here, so their sum is the true one."""
    rng = np.random.default_rng(1)
    values = rng.integers(-1000, 1000, (8, 5, 7, 11)).astype(np.float32)
    assert reference_sum(list(values)).tolist() == values.sum(axis=0).tolist()


@given(st.integers(0, 2**32 - 1), st.integers(2, 9))
@settings(deadline=None, max_examples=30)
def test_any_order_and_any_tree_gives_the_same_bits(seed: int, workers: int) -> None:
    rng = np.random.default_rng(seed)
    values = [np.ldexp(rng.standard_normal(300), rng.integers(-100, 90)).astype(np.float32) for _ in range(workers)]
    expected = reference_sum(values)
    chunks = [to_chunks(v) for v in values]
    agreed = np.max([block_exponents(c) for c in chunks], axis=0)
    pool = [quantize(c, agreed, scale_table(workers)) for c in chunks]
    while len(pool) > 1:  # join any two nodes, again and again: a random tree
        first = pool.pop(int(rng.integers(len(pool))))
        second = pool.pop(int(rng.integers(len(pool))))
        pool.append(first + second)
    result = dequantize(pool[0], agreed, scale_table(workers)).reshape(-1)[:300]
    assert result.tobytes() == expected.tobytes()


def test_shapes_and_padding() -> None:
    assert [chunk_count(size) for size in (0, 1, LANES, LANES + 1)] == [0, 1, 1, 2]
    for shape in [(), (0,), (1,), (3, 0), (LANES,), (2, LANES + 1)]:
        array = np.ones(shape, np.float32)
        assert reference_sum([array, array]).shape == shape
        assert (reference_sum([array, array]) == 2).all()
    chunks = to_chunks(np.ones(LANES + 1, np.float32))
    assert chunks.shape == (2, LANES)
    assert chunks[1].sum() == 1


def test_a_sum_beyond_float32_is_an_infinity() -> None:
    largest = np.finfo(np.float32).max
    assert reference_sum([np.array([largest])] * 2)[0] == math.inf


def test_a_lost_worker_does_not_change_the_scale() -> None:
    values = [np.array([1 / 3], np.float32)] * 3
    quantum = 2.0 ** (-(30 - 3) - 1)  # 5 workers reserve 3 bits; |x| < 2⁻¹
    assert reference_sum(values, workers=5)[0] == np.float32(3 * round(float(values[0][0]) / quantum) * quantum)


@pytest.mark.parametrize("scale", [1.0, 2.0**-95, 2.0**-110, 2.0**60])
def test_numbers_are_rounded_to_the_nearest_quantum_ties_to_even(scale: float) -> None:
    quantum = 2.0**-30 * scale
    values = np.array([0.75 * scale, *(parts * quantum for parts in (0.25, 0.5, 0.75, 1.5, 2.5, -0.75, -3.25))])
    expected = [0.75 * scale, *(parts * quantum for parts in (0, 0, 1, 2, 2, -1, -3))]
    assert reference_sum([values.astype(np.float32)]).tolist() == expected


def test_impossible_sums_are_refused() -> None:
    with raises(InvalidTensor, place="tensor 'tensor of worker 0'"):
        reference_sum([np.zeros(3, np.complex64)])
    with raises(InvalidTensor, place="tensor 'tensor'", value=1):
        reference_sum([np.zeros(3, np.float32), np.zeros(4, np.float32)])
    with raises(InvalidTensor, place="tensor 'tensor'", value=2):
        reference_sum([np.zeros(3, np.float32)] * 2, workers=1)
    with raises(InvalidTensor, place="tensor 'tensor'"):
        reference_sum([])
