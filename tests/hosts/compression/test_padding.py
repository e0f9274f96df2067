"""Scales come from the numbers of an array, and not from the zeros that fill its last chunk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weir.hosts.compression.codecs import CODECS, make_codec
from weir.hosts.compression.trial import contributions
from weir.hosts.numerics import lane_codes
from weir.hosts.numerics.draws import Draws
from weir.hosts.numerics.encodings import ChunkPlace, encoding_of
from weir.hosts.numerics.lane_codes import SCALES, LaneType, scale_codes
from weir.hosts.numerics.packed import PACKED
from weir.hosts.numerics.rotation import block_size, rotate
from weir.hosts.numerics.tensors import Tensor, reference_sum

WORKERS = 40
"""Packed numbers of 10 bits then have so few levels that they are clipped."""
SIZES = (*range(1, 601), 1023, 1025, 2047, 2049, 4099, 8191)
MEAN_SCALE = """code encode(float* gradient) {
    common float scale = reduce(map(gradient, [](float x) -> float { return abs(x); }), sum) / gradient.size;
    uint1* q = map(gradient, [](float x) -> uint1 { return x >= 0 ? 1 : 0; });
    return concat(scale, q);
}
float* decode(code packed) {
    float scale;
    uint1* q;
    extract(packed, scale, q);
    return map(q, [](uint1 bit) -> float { return (2 * float(bit) - 1) * scale; });
}
"""
LEAST_SCALE = MEAN_SCALE.replace("sum) / gradient.size", "min)")


def mean_magnitude(chunk: np.ndarray, values: int) -> float:
    return float(np.abs(chunk).mean(dtype=np.float64))


def clipped(root_mean_squares: float) -> Callable[[np.ndarray, int], float]:
    def scale(chunk: np.ndarray, values: int) -> float:
        mean_square = float(np.square(chunk, dtype=np.float64).mean())
        return float(min(np.abs(chunk).max(), root_mean_squares * np.sqrt(mean_square)))

    return scale


def rotated(chunk: np.ndarray, values: int) -> float:
    """The clipped scale of those blocks of the rotated chunk that have numbers."""
    block = block_size(values)
    filled = np.zeros((1, values), np.float32)
    filled[0, : chunk.size] = chunk
    turned = rotate(filled, Draws().common_signs(np.zeros(1, np.uint32), values))[0]
    return clipped(2.154)(turned[: -(-chunk.size // block) * block], values)


def largest(chunk: np.ndarray, values: int) -> float:
    return float(np.abs(chunk).max())


def kinds(folder: Path) -> dict[str, tuple[LaneType, Callable[[np.ndarray, int], float]]]:
    """Types of numbers whose scales are statistics, each with its scale by plain NumPy."""
    (folder / "mean.compll").write_text(MEAN_SCALE)
    (folder / "least.compll").write_text(LEAST_SCALE)
    made = {name: make_codec(name).kind for name in ("vote", "terngrad", "uniform")}
    made |= {name: make_codec(str(folder / f"{name}.compll")).kind for name in ("mean", "least")}
    made["packed10"] = PACKED[10]
    scales: dict[str, Callable[[np.ndarray, int], float]] = {
        "vote": mean_magnitude,
        "mean": mean_magnitude,
        "least": lambda chunk, _: float(np.abs(chunk).min()),
        "terngrad": clipped(2.5),
        "uniform": largest,
        "packed10": rotated,
    }
    found = {}
    for name, scale in scales.items():
        kind = made[name]
        assert isinstance(kind, LaneType)
        found[name] = kind, scale
    return found


@pytest.mark.parametrize("native", [False, True], ids=["NumPy", "native"])
@pytest.mark.parametrize("name", ["vote", "terngrad", "uniform", "mean", "least", "packed10"])
def test_a_scale_is_that_of_the_numbers_themselves(
    name: str, native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of all small sizes, and the last chunk of others."""
    if not native:
        monkeypatch.setattr(lane_codes, "native_code", lambda: None)
    kind, scale = kinds(tmp_path)[name]
    encoding = encoding_of(kind, WORKERS)
    rng = np.random.default_rng(3)
    for size in SIZES:
        if name == "packed10" and size > encoding.values:
            break  # the oracle has the signs of the first chunk
        values = (rng.standard_normal(size) + 0.1).astype(np.float32)
        tensor = Tensor(values, workers=WORKERS, dtype=kind)
        tensor.place(0, 0, tensor.end)
        chunks = -(-size // encoding.values)
        asked = tensor.exponents(np.arange(chunks))
        last = values[(chunks - 1) * encoding.values :]
        wanted = scale(last, encoding.values)
        near = [int(scale_codes(np.array([wanted * factor]))[0]) for factor in (1 - 1e-6, 1 + 1e-6)]
        assert asked[-1] in near, size


@pytest.mark.parametrize("bits", [6, 10])
def test_small_arrays_are_coded_as_well_as_large_ones(bits: int) -> None:
    """Clipped at the bound of their own numbers."""
    workers = {6: 4, 10: 40}[bits]

    def error(size: int) -> float:
        errors = []
        for seed in range(20):
            arrays = [np.random.default_rng([seed, size, rank]).standard_normal(size) for rank in range(workers)]
            values = [array.astype(np.float32) for array in arrays]
            total = reference_sum(values, dtype=PACKED[bits], workers=workers, seed=seed)
            right = np.sum(values, axis=0)
            errors.append(float(np.square(total - right).sum() / np.square(right).sum()))
        return float(np.mean(errors))

    whole = error(encoding_of(PACKED[bits], workers).values)
    for size in (40, 100, 256):
        assert error(size) < 2 * whole


def test_a_layer_has_the_scale_that_it_has_alone() -> None:
    rng = np.random.default_rng(2)
    small, large = rng.standard_normal(70).astype(np.float32), rng.standard_normal(20_000).astype(np.float32)
    kind = make_codec("vote").kind
    joined = reference_sum([np.concatenate([small, large])], dtype=kind, cuts=[70])
    assert joined[:70].tobytes() == reference_sum([small], dtype=kind).tobytes()


def test_chunks_without_sizes_are_whole() -> None:
    kind = make_codec("vote").kind
    assert isinstance(kind, LaneType)
    encoding = encoding_of(kind, 2)
    values = np.full((2, encoding.values), 3.0, np.float32)
    codes = encoding.prepare(values, 1, ChunkPlace.first(2))
    assert (SCALES[codes] >= 3).all()
    assert (SCALES[codes] < 3 * 2**0.25).all()


@pytest.mark.parametrize("name", CODECS)
def test_numbers_of_one_magnitude_are_not_shrunk(name: str) -> None:
    """Numbers sent of ±1 are at least 1 in the mean, at all sizes; lossy scales are rounded up."""
    if name == "tbq":
        pytest.skip("its scale is a parameter")
    rng = np.random.default_rng(8)
    options = {"bits": 15} if name == "packed" else {}
    codec = make_codec(name, **options)
    for size in (*range(1, 601, 7), 2049, 4099):
        values = rng.choice(np.array([-1, 1], np.float32), size)
        sent = contributions(codec, [values])[0]
        there = sent != 0
        assert there.any()
        magnitude = np.abs(sent[there]).mean()
        assert 0.999 < magnitude < 1.2, size
