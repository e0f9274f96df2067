"""Peers of CompLL's codecs: PyTorch's do the work of plain NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weir.experiments.errors import ExperimentError
from weir.experiments.papers import PAPERS
from weir.experiments.repetition.codec_speeds import ENCODE, FOLDER, by_torch, plain
from weir.experiments.repetition.plain_codecs import PLAIN
from weir.tests.experiments.test_papers import recorded

SIZE = 1 << 14


def numbers() -> np.ndarray:
    return np.float32(0.01) * np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)


def codes(name: str, values: np.ndarray) -> list[Any]:
    """Return the codes of plain NumPy and of PyTorch, as arrays."""
    pytest.importorskip("torch")
    own, peer = plain(name, values)(), by_torch(name, values, compiled=False)()
    return [own, tuple(map(np.asarray, peer)) if isinstance(peer, tuple) else np.asarray(peer)]


@pytest.mark.parametrize("name", ["onebit", "tbq"])
def test_codecs_without_chance_decode_alike(name: str) -> None:
    values = numbers()
    own, peer = (PLAIN[name][1](code) for code in codes(name, values))
    np.testing.assert_allclose(peer, own, rtol=1e-5)


@pytest.mark.parametrize("name", ["graddrop", "dgc"])
def test_sparse_codecs_keep_about_a_hundredth_as_it_is(name: str) -> None:
    values = numbers()
    for code in codes(name, values):
        result = PLAIN[name][1](code)
        at = np.flatnonzero(result)
        assert np.array_equal(result[at], values[at])
        assert 0.002 * SIZE < at.size < 0.03 * SIZE
        assert np.abs(values[at]).min() > np.quantile(np.abs(values), 0.95)


def test_ternary_levels_are_right_in_the_mean() -> None:
    values = np.full(SIZE, 0.25, np.float32)
    values[0] = 1
    for code in codes("terngrad", values):
        result = PLAIN["terngrad"][1](code)
        assert set(result.tolist()) == {0, 1}
        assert result.mean() == pytest.approx(0.25, abs=0.03)


def test_generated_codecs_have_40_lines_at_most() -> None:
    for name in PLAIN:
        assert len((FOLDER / f"{name}.compll").read_text().splitlines()) <= 40


def test_missing_compiler_is_an_error_before_any_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.experiments.repetition.codec_speeds.shutil.which", lambda name: None)
    with pytest.raises(ExperimentError):
        next(iter(PAPERS["compll"].measure(PAPERS["compll"])))


def test_recorded_encoders_are_several_times_as_fast_as_numpy() -> None:
    found = recorded("compll", ENCODE.name)
    for name in PLAIN:
        assert found[f"{name}, 64 MiB", "compll"] >= 3 * found[f"{name}, 64 MiB", "numpy"], name
    for name in ("onebit", "terngrad"):
        assert found[f"{name}, 64 MiB", "compll"] >= 9 * found[f"{name}, 64 MiB", "numpy"], name
