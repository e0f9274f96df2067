"""Layers of many scales in one array, and NaN and infinity that poison their chunk."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.errors import InvalidTensor
from weir.hosts.numerics.datatypes import DataType, FloatType, data_types
from weir.hosts.numerics.encodings import encoding_of
from weir.hosts.numerics.tensors import Tensor, reference_sum
from weir.tests.support.errors import raises

FLOATS = [kind for kind in data_types() if isinstance(kind, FloatType)]


def stored(values: np.ndarray, kind: DataType) -> Any:
    return kind.narrow(values) if isinstance(kind, FloatType) else (values * 1e6).astype(kind.storage)


@given(
    st.sampled_from(data_types()),
    st.lists(st.sampled_from([1, 2, 7, 84, 85, 255, 256, 257, 600]), min_size=1, max_size=6),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from(["error", "propagate", "poison"]),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=50)
def test_layers_of_one_array_are_summed_as_each_alone(
    kind: DataType, sizes: list[int], workers: int, mean: bool, policy: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layers = [rng.standard_normal((workers, size)) * 10.0 ** -rng.integers(0, 7) for size in sizes]
    fused = stored(np.concatenate(layers, axis=1), kind)
    cuts = np.cumsum(sizes)[:-1].tolist()
    weights = rng.integers(1, 9, workers).tolist()
    how: dict[str, Any] = {"weights": weights, "dtype": kind.name, "mean": mean, "nonfinite": policy}
    together = reference_sum(list(fused), cuts=cuts, **how)
    alone = [reference_sum(list(part), **how) for part in np.split(fused, cuts, axis=1)]
    assert together.tobytes() == np.concatenate(alone).tobytes()


def test_a_layer_of_1e_minus_6_beside_one_of_1_keeps_its_digits() -> None:
    """Each layer's error is bounded by its own maximum, regardless of its neighbours; without cuts it is not."""
    rng = np.random.default_rng(5)
    workers, sizes = 8, [200, 10, 90, 300, 3]
    scales = [1.0, 1e-6, 1e-3, 1e-6, 1.0]
    layers = [
        (scale * rng.standard_normal((workers, n))).astype(np.float32) for scale, n in zip(scales, sizes, strict=True)
    ]
    fused = list(np.concatenate(layers, axis=1))
    cuts = np.cumsum(sizes)[:-1].tolist()
    cut, uncut = reference_sum(fused, cuts=cuts), reference_sum(fused)
    for layer, first, last in zip(layers, [0, *cuts], [*cuts, sum(sizes)], strict=True):
        exact = np.array([float(sum(map(Fraction, column))) for column in layer.T.tolist()])
        bound = workers * 2.0 ** (3 - 31) * 2 * np.abs(layer).max() + np.spacing(np.abs(cut[first:last])) / 2
        assert (np.abs(cut[first:last] - exact) <= bound).all()
        if np.abs(layer).max() < 1e-3:
            assert (np.abs(uncut[first:last] - exact) > bound).any()


def test_cut_sums_have_means_and_weights_by_chunk() -> None:
    tensor = Tensor(np.arange(1, 601, dtype=np.float32), workers=1, weight=4, cuts=[10, 300])
    tensor.place(0, 0, lead=tensor.end)
    local = np.arange(tensor.end)
    scales, lanes = local[: tensor.scale_rounds], local[tensor.scale_rounds :]
    tensor.add_results(scales, tensor.exponents(scales).astype(np.int64), np.full(len(scales), 4), None)
    weights = np.array([1, 2, 4, 8, 16])[: len(lanes)]
    tensor.add_results(lanes, tensor.exponents(lanes).astype(np.int64), weights, tensor.lanes(lanes))
    divisors = np.repeat([1, 2, 4, 8, 16], [10, 256, 34, 256, 44])
    assert tensor.reduced().mean().tolist() == (np.arange(1, 601, dtype=np.float32) / divisors).tolist()


@pytest.mark.parametrize(
    "cuts",
    [
        lambda: (100, 160),
        lambda: np.cumsum([100, 60]),
        lambda: np.array([100, 160], np.uint8),
        lambda: accumulate([100, 60]),
    ],
    ids=["tuple", "array", "small integers", "iterator"],
)
def test_cuts_may_be_any_iterable_of_integers(cuts: Callable[[], Any]) -> None:
    flat = np.repeat(np.array([1e-9, 2e-9, 1e6], np.float32), [100, 60, 100])
    expected = reference_sum([flat] * 2, cuts=[100, 160])
    assert reference_sum([flat] * 2, cuts=cuts()).tobytes() == expected.tobytes()
    assert expected[0] > 0


@pytest.mark.parametrize("cuts", [3, None, [1.5], ["1"], np.array([1.0]), np.array([[1, 2], [3, 4]])], ids=str)
def test_cuts_that_are_no_integers_are_refused_in_one_line(cuts: Any) -> None:
    with pytest.raises(InvalidTensor) as refused:
        Tensor(np.ones(10), workers=2, cuts=cuts)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cuts", [[0], [3, 3], [5, 4], [10], [-1]])
def test_cuts_that_do_not_ascend_are_refused(cuts: list[int]) -> None:
    with raises(InvalidTensor, place="tensor 'w'", value=cuts):
        Tensor(np.ones(10), workers=2, name="w", cuts=cuts)


@pytest.mark.parametrize("element", [0, 1, 19, 20, 300, 301, 307, 556, 557, 700, 813, 1199])
def test_an_error_in_a_cut_array_has_its_own_index(element: int) -> None:
    array = np.ones((4, 300), np.float32)
    array.flat[element] = np.inf
    with raises(InvalidTensor, place="tensor 'w'", value=element):
        Tensor(array, workers=2, name="w", cuts=[1, 20, 301])


@given(st.sampled_from(FLOATS), st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_nan_and_infinity_make_their_chunk_nan_and_nothing_else(
    kind: FloatType, workers: int, mean: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.standard_normal((workers, 1200)), rng.integers(-5, 5, (workers, 1)))
    value = encoding_of(kind, workers, poison=True).values
    chunk = np.arange(1200) // value
    odd = (rng.random((workers, chunk[-1] + 1)) < 0.3)[:, chunk] & (rng.random(values.shape) < 0.02)
    poisoned = np.isin(chunk, chunk[odd.any(axis=0)])
    clean = stored(np.where(poisoned, 0, values), kind)
    values[odd] = rng.choice([np.nan, np.inf, -np.inf], int(odd.sum()))
    weights = rng.integers(1, 9, workers).tolist()
    how: dict[str, Any] = {"dtype": kind.name, "mean": mean, "weights": weights}
    result = reference_sum(list(stored(values, kind)), nonfinite="poison", **how)
    assert np.isnan(kind.widen(result)).tolist() == poisoned.tolist()
    assert result[~poisoned].tobytes() == reference_sum(list(clean), **how)[~poisoned].tobytes()


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize(("workers", "period"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 4), (13, 5), (1000, 11)])
def test_a_poisoned_chunk_has_powers_of_2_as_numbers(kind: FloatType, workers: int, period: int) -> None:
    encoding = encoding_of(kind, workers, poison=True)
    values = stored(np.array([[np.nan] + (encoding.values - 1) * [0.0]]), kind)
    lanes = encoding.encode(values, np.full(1, 130, np.uint8), 1).view(np.uint32)
    expected = [2 ** (31 - lane % period) for lane in range(encoding.values)]
    assert lanes[0].tolist() == expected + (encoding.lanes - encoding.values) * [0]


@pytest.mark.parametrize("lanes", [4, 5, 7, 32, 64, 256])
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_a_chunk_of_few_lanes_is_poisoned_or_refused(kind: FloatType, lanes: int) -> None:
    """Marks need ⌈log₂ n⌉ + 1 lanes, more than a narrow message's chunk of float64 has numbers."""
    for workers in (2, 8, 9, 1024):
        arrays = [stored(np.array([[np.nan]]), kind)[0]] * workers
        needed = (workers - 1).bit_length() + 1
        if needed > lanes - lanes % encoding_of(kind, workers, lanes).scalars.limbs:
            with pytest.raises(InvalidTensor):
                reference_sum(arrays, dtype=kind.name, nonfinite="poison", lanes=lanes)
            continue
        for bad in {1, 2, workers // 2, workers - 1, workers} if workers < 1024 else {1, workers}:
            mixed = arrays[:bad] + [stored(np.array([[1.0]]), kind)[0]] * (workers - bad)
            result = reference_sum(mixed, dtype=kind.name, nonfinite="poison", lanes=lanes)
            assert np.isnan(kind.widen(result)).all(), (workers, bad)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_sum_is_no_poison(sign: int) -> None:
    values = np.full(100, sign * np.nextafter(256.0, 0))  # 2³⁰ as a first limb, which is rounded
    for workers in (1, 2, 8):
        assert reference_sum([values] * workers, nonfinite="poison").tolist() == (workers * values).tolist()


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 13, 32, 1000])
def test_any_number_of_workers_that_poison_a_chunk_is_seen(kind: FloatType, workers: int) -> None:
    """Also where the others add the most that they can, of either sign."""
    encoding = encoding_of(kind, workers, poison=True)
    agreed = np.full(1, 130, np.uint8)
    poison = encoding.encode(stored(np.full((1, encoding.values), np.nan), kind), agreed, 1).view(np.uint32)
    first = encoding.scalars.limbs * [0]
    first[0] = 1
    most = np.repeat(first, encoding.values).astype(np.int64) << (30 - (workers - 1).bit_length())
    used = len(most)
    for count in range(1, workers + 1):
        for sign in (-1, 1):
            total = poison[0, :used].astype(np.int64) * count + sign * (workers - count) * most
            sums = np.zeros((1, encoding.lanes), np.int32)
            sums[0, :used] = (total % 2**32).astype(np.uint32).view(np.int32)
            assert np.isnan(kind.widen(encoding.decode(sums, agreed, np.ones(1, np.int64)))).all(), (count, sign)
