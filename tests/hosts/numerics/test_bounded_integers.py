"""Integers of jobs with a key: their lanes' sums cannot wrap, and the sums are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from weir.hosts.errors import InvalidTensor
from weir.hosts.numerics.datatypes import DataType
from weir.hosts.numerics.encodings import encoding_of
from weir.hosts.numerics.native_types import INT32, INT64
from weir.wire.aggregation import LANES

WORKERS = (1, 2, 3, 7, 8, 9, 33, 256, 1000, 1024, 1025)


def extremes(seed: int, workers: int, values: int, kind: DataType) -> NDArray[Any]:
    """Numbers (workers, values): at the ends of their type, near 0, and anywhere."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(kind.storage)
    numbers = rng.integers(info.min, info.max, (workers, values), endpoint=True, dtype=np.int64)
    numbers[:, ::3] = rng.choice([info.min, info.max, -1, 0, 1])
    return numbers.astype(kind.storage)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", [INT32, INT64], ids=["int32", "int64"])
@given(seed=st.integers(0, 1 << 30), lanes=st.sampled_from([4, 64, LANES]))
@settings(deadline=None, max_examples=10)
def test_lanes_do_not_wrap_and_sums_do(kind: DataType, workers: int, seed: int, lanes: int) -> None:
    encoding = encoding_of(kind, workers, lanes, keyed=True)
    numbers = extremes(seed, workers, encoding.values, kind)
    none = np.zeros(1, np.uint8)
    exact = np.zeros((1, lanes), np.int64)
    for row in numbers:
        exact += encoding.encode(row[None], none, 1)
    assert not encoding.may_wrap
    assert exact.min() >= -(1 << 31)
    assert exact.max() < 1 << 31
    total = encoding.decode(exact.astype(np.int32), none, np.full(1, workers))
    assert total.dtype == kind.storage
    assert np.array_equal(total[0], numbers.sum(axis=0, dtype=kind.storage))


@pytest.mark.parametrize(("workers", "values"), [(2, 240), (8, 213), (32, 192), (512, 128)])
def test_highs_take_as_many_lanes_as_the_module_says(workers: int, values: int) -> None:
    assert encoding_of(INT32, workers, keyed=True).values == values
    assert encoding_of(INT32, workers).values == LANES


def test_too_many_workers_are_refused() -> None:
    with pytest.raises(InvalidTensor) as refused:
        encoding_of(INT32, (1 << 15) + 1, keyed=True)
    assert refused.value.value == (1 << 15) + 1


def test_numbers_of_one_worker_alone_take_a_lane_each() -> None:
    encoding = encoding_of(INT32, 8, keyed=True, alone=True)
    assert (encoding.values, encoding.may_wrap) == (LANES, False)
