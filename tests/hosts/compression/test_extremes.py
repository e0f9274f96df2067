"""Every codec with empty arrays, zeros, the smallest and largest numbers, and what is not finite."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from weir.hosts.compression.codecs import CODECS, make_codec
from weir.hosts.compression.trial import contributions
from weir.hosts.errors import InvalidTensor

RNG = np.random.default_rng(1)
NORMAL = RNG.standard_normal(4099).astype(np.float32)
CASES = {
    "empty": np.zeros(0, np.float32),
    "one": np.ones(1, np.float32),
    "zeros": np.zeros(1000, np.float32),
    "smallest": np.full(777, 1e-45, np.float32),
    "odd": NORMAL[:1021],
    "outlier": np.where(np.arange(4099) == 7, np.float32(1e6), NORMAL),
}


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("case", CASES)
def test_codes_are_finite_and_of_the_arrays_size(name: str, case: str) -> None:
    values = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = contributions(make_codec(name), [values, values, values])
    for part in parts:
        assert part.shape == values.shape
        assert np.isfinite(part).all()
        if case == "zeros":
            assert not part.any()


@pytest.mark.parametrize("name", CODECS)
def test_huge_numbers_are_coded_or_refused(name: str) -> None:
    values = np.full(1025, 3e38, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            parts = contributions(make_codec(name), [values, values])
        except InvalidTensor as error:
            assert error.place  # noqa: PT017 (either is right)
            return
    assert all(np.isfinite(part).all() for part in parts)


def test_dgc_goes_on_after_a_nan() -> None:
    """A number that was NaN once is accumulated and sent again."""
    codec = make_codec("dgc", ratio=0.5, momentum=0.5)
    gradient = np.array([1, 2, 3, 4], np.float32)
    values = codec.compensate("g", np.array([1, np.nan, 3, 4], np.float32))
    codec.update("g", values, np.array([0, 0, 3, 4], np.float32))
    values = codec.compensate("g", gradient)
    assert np.isfinite(values).all()
    assert values[1] == 2
