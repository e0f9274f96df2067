"""Top-k by counting against sorting, where MSTopK fails too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.compression.mstopk import kth_magnitude_bits, largest


def right(values: np.ndarray, k: int) -> list[int]:
    """Choice of a stable sort: of equal magnitudes the one with the lower index."""
    return sorted(np.argsort(-np.abs(values), kind="stable")[:k].tolist())


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.data())
@settings(max_examples=60)
def test_the_largest_are_those_of_a_sort(seed: int, size: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([rng.standard_normal(size), rng.integers(-3, 4, size), rng.standard_cauchy(size) ** 5])
    values = values.astype(np.float32)
    k = data.draw(st.integers(1, size))
    assert largest(values, k).tolist() == right(values, k)


def outlier() -> np.ndarray:
    values = np.random.default_rng(0).standard_normal(1 << 18).astype(np.float32)
    values[12_345] = 1e6
    return values


@pytest.mark.parametrize("share", [0.001, 0.01])
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.random.default_rng(1).standard_normal(1 << 18).astype(np.float32), id="normal"),
        pytest.param(np.random.default_rng(2).laplace(size=1 << 18).astype(np.float32), id="laplace"),
        pytest.param(np.random.default_rng(3).standard_t(3, 1 << 18).astype(np.float32), id="t3"),
        pytest.param(outlier(), id="one outlier"),
    ],
)
def test_the_overlap_with_exact_top_k_is_whole(values: np.ndarray, share: float) -> None:
    k = int(share * values.size)
    assert largest(values, k).tolist() == right(values, k)


def test_dense_choices_and_zeros_are_exact() -> None:
    values = np.random.default_rng(5).standard_normal(5000).astype(np.float32)
    assert largest(values, 3000).tolist() == right(values, 3000)
    assert largest(np.zeros(100, np.float32), 7).tolist() == list(range(7))
    assert largest(np.ones(5, np.float32), 9).tolist() == list(range(5))
    mixed = np.array([0, 0, 3, 0], np.float32)
    assert largest(mixed, 2).tolist() == [0, 2]
    assert kth_magnitude_bits(mixed, 1) == (int(np.float32(3).view(np.uint32)), 0)
