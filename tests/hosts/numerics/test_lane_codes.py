"""Packed numbers against an oracle that counts in Python's integers, number by number."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.compression.codecs import make_codec
from weir.hosts.errors import InvalidTensor
from weir.hosts.numerics import lane_codes
from weir.hosts.numerics.datatypes import data_type, data_types
from weir.hosts.numerics.draws import Draws, mixed
from weir.hosts.numerics.encodings import ChunkPlace, encoding_of
from weir.hosts.numerics.lane_codes import LARGEST_SCALE, NAN_CODE, SCALES, LaneType, scale_codes
from weir.hosts.numerics.packed import FIELD_BITS, PACKED, Packed
from weir.hosts.numerics.rotation import rotate, rotate_back
from weir.hosts.numerics.tensors import Tensor, reference_sum, sum_locally
from weir.tests.support.errors import raises
from weir.wire.aggregation import LANES

PLAIN = {bits: LaneType(Packed(bits, rotated=False)) for bits in FIELD_BITS}

TERNARY = make_codec("terngrad").kind


def gradients(seed: int, workers: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    common = rng.standard_t(4, size)
    return [((common + rng.standard_t(4, size)) * 0.01).astype(np.float32) for _ in range(workers)]


def error(total: np.ndarray, arrays: list[np.ndarray]) -> float:
    """Squared error of a sum, relative to the sum's own square."""
    right = np.sum(arrays, axis=0, dtype=np.float64)
    return float(np.square(total - right).sum() / np.square(right).sum())


def counted(arrays: list[np.ndarray], bits: int, workers: int, seed: int) -> np.ndarray:
    """The sum of unrotated packed numbers of one chunk, with one Python integer for each lane of each worker."""
    per_lane, levels = 32 // bits, ((1 << bits) - 1) // workers + 1
    size = LANES * per_lane
    scale = float(SCALES[max(int(scale_codes(np.array([np.abs(array).max()]))[0]) for array in arrays)])
    lanes = [0] * LANES
    for rank, array in enumerate(arrays):
        uniform = Draws(seed, rank).own_uniform(np.zeros(1, np.uint32), size)[0]
        for number, value in enumerate(array):
            at = np.float32(np.clip(value, -np.float32(scale), np.float32(scale)) + np.float32(scale))
            place = min(np.float32(at * np.float32((levels - 1) / (2 * scale))), np.float32(levels - 1))
            low = int(np.floor(place))
            code = low + int(Fraction(float(uniform[number])) < Fraction(float(place)) - low)
            assert 0 <= code < levels
            lanes[number % LANES] += code << (bits * (number // LANES))
    assert max(lanes) < 1 << 32
    sums = [lanes[number % LANES] >> (bits * (number // LANES)) & ((1 << bits) - 1) for number in range(arrays[0].size)]
    step = scale / (levels - 1)
    return np.array([np.float32((2 * total - len(arrays) * (levels - 1)) * step) for total in sums])


@pytest.mark.parametrize("bits", FIELD_BITS)
@pytest.mark.parametrize(("workers", "there"), [(2, 2), (7, 7), (8, 5), (63, 9)])
def test_a_packed_sum_is_the_sum_of_counted_codes(bits: int, workers: int, there: int) -> None:
    arrays = gradients(bits, there, 300)
    total = reference_sum(arrays, workers=workers, dtype=PLAIN[bits], seed=9)
    assert total.tobytes() == counted(arrays, bits, workers, 9).tobytes()


@pytest.mark.parametrize("kind", [*PACKED.values(), PLAIN[8]])
@pytest.mark.parametrize("lanes", [256, 32, 40, 8, 5])
def test_native_code_has_the_bits_of_numpy(kind: LaneType, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = gradients(6, 3, 4000)
    arrays[0][:2000] = arrays[1][:2000] = arrays[2][:2000] = 0
    arrays[1][3000] = np.nan

    def results() -> list[bytes]:
        return [
            reference_sum(
                arrays, workers=5, dtype=kind, lanes=lanes, mean=mean, nonfinite="poison", seed=4, cuts=[1500]
            ).tobytes()
            for mean in (False, True)
        ]

    native = results()
    monkeypatch.setattr(lane_codes, "native_code", lambda: None)
    assert results() == native


@pytest.mark.parametrize("kind", [PACKED[8], PLAIN[8], PACKED[15], TERNARY])
def test_native_code_refuses_and_keeps_what_numpy_does(kind: LaneType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of zeros, of the least and the largest numbers, and with a NaN and infinities."""
    encoding = encoding_of(kind, 3, poison=True)
    chunks = np.zeros((8, encoding.values), np.float32)
    chunks[1] = 3.4e38  # becomes infinite where it is rotated
    chunks[2] = 1e-45
    chunks[3, 7] = np.nan
    chunks[4, -1] = -np.inf
    chunks[5] = np.random.default_rng(1).standard_normal(encoding.values) * 1e-39
    chunks[6] = np.random.default_rng(2).standard_cauchy(encoding.values)
    chunks[7, 0] = -0.0

    def results() -> list[list[float] | bytes]:
        values, place = chunks.copy(), ChunkPlace(np.arange(8, dtype=np.uint32), Draws(2, 1))
        codes = encoding.prepare(values, 1, place)
        agreed = np.where(codes <= 255, codes, 0).astype(np.uint8)
        lanes = encoding.encode(values, agreed, 1, place)
        weights = np.array([1, 1, 1, 1, 1, 1, 0, 1])
        return [
            codes.tolist(),
            values.tobytes(),
            lanes.tobytes(),
            encoding.decode(lanes, agreed, weights, place).tobytes(),
        ]

    native = results()
    assert native[0][1] == 256
    assert native[0][3:5] == [NAN_CODE, NAN_CODE]
    monkeypatch.setattr(lane_codes, "native_code", lambda: None)
    assert results() == native


@pytest.mark.parametrize("bits", FIELD_BITS)
@pytest.mark.parametrize("workers", [2, 8, 63, 64])
def test_fields_never_carry(bits: int, workers: int) -> None:
    """All workers are at the highest level."""
    if ((1 << bits) - 1) // workers == 0:
        with raises(InvalidTensor, place=f"dtype packed{bits}", value=workers):
            encoding_of(PACKED[bits], workers)
        return
    encoding = encoding_of(PLAIN[bits], workers)
    values = np.full((1, encoding.values), 3.0, np.float32)
    exponents = scale_codes(np.array([3.0])).astype(np.uint8)
    values[:, ::2] = SCALES[exponents[0]]
    lanes = encoding.encode(values, exponents, 1).view(np.uint32).astype(np.uint64)
    assert (lanes * workers < 1 << 32).all()
    assert encoding.values == LANES * (32 // bits)


@pytest.mark.parametrize("kind", [*PACKED.values(), *PLAIN.values()])
def test_rounding_is_unbiased_within_the_range(kind: LaneType) -> None:
    if kind.name in ("packed6", "packed7", "packed8"):
        pytest.skip("a clipped scale")
    values = np.linspace(-1, 1, 500, dtype=np.float32)
    draws = 100
    mean = np.mean([reference_sum([values] * 2, dtype=kind, seed=seed) for seed in range(draws)], axis=0) / 2
    step = 2.4 / (((1 << int(kind.name[6:].split("-")[0])) - 1) // 2)
    assert np.abs(mean - values).max() < 5 * step / np.sqrt(2 * draws)


@pytest.mark.parametrize("lanes", [256, 64, 32])
@pytest.mark.parametrize("bits", FIELD_BITS)
def test_a_sum_has_a_small_error_in_messages_of_any_length(bits: int, lanes: int) -> None:
    arrays = gradients(3, 4, 3000)
    total = reference_sum(arrays, dtype=f"packed{bits}", lanes=lanes, seed=1)
    assert error(total, arrays) < {6: 0.05, 7: 0.02, 8: 0.008, 10: 3e-4, 15: 3e-7}[bits]


def test_means_are_sums_over_contributors() -> None:
    arrays = gradients(1, 8, 5000)
    total = reference_sum(arrays, dtype="packed8", mean=True, workers=8)
    fewer = reference_sum(arrays[:5], dtype="packed8", mean=True, workers=8)
    assert error(total * 8, arrays) < 0.01
    assert error(fewer * 5, arrays[:5]) < 0.02


@given(st.integers(0, 2**32 - 1), st.sampled_from(FIELD_BITS), st.integers(1, 3000), st.data())
@settings(max_examples=30)
def test_cuts_keep_layers_apart(seed: int, bits: int, size: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, size))
    small, large = gradients(seed, 2, size), gradients(seed + 1, 2, 700)
    joined = [np.concatenate([a, b * np.float32(1e6)]) for a, b in zip(small, large, strict=True)]
    total = reference_sum(joined, dtype=f"packed{bits}", cuts=[size], seed=seed)
    alone = reference_sum(small, dtype=f"packed{bits}", seed=seed)
    assert total[:cut].tobytes() == alone[:cut].tobytes()


@pytest.mark.parametrize("bits", FIELD_BITS)
def test_a_nan_makes_its_chunk_nan_and_no_other(bits: int) -> None:
    arrays = gradients(2, 3, 4000)
    value = encoding_of(PACKED[bits], 3).values
    arrays[1][value + 5] = np.nan
    arrays[2][value + 6] = np.inf
    with raises(InvalidTensor, place="tensor 'tensor of worker 1'", value=value + 5):
        reference_sum(arrays, dtype=f"packed{bits}")
    with raises(InvalidTensor, value="propagate"):
        reference_sum(arrays, dtype=f"packed{bits}", nonfinite="propagate")
    total = reference_sum(arrays, dtype=f"packed{bits}", nonfinite="poison")
    assert np.isnan(total[value : 2 * value]).all()
    assert np.isfinite(total[:value]).all()
    assert np.isfinite(total[2 * value :]).all()


def test_numbers_beyond_the_largest_scale_are_refused() -> None:
    values = np.zeros(10, np.float32)
    values[7] = 3 * LARGEST_SCALE
    with raises(InvalidTensor, value=7):
        Tensor(values, workers=2, dtype=PLAIN[8])
    Tensor(values, workers=2, dtype="packed8")  # spread over its block, it fits
    with np.errstate(over="raise"), pytest.raises(InvalidTensor):
        Tensor(np.full(2000, 3e38, np.float32), workers=2, dtype="packed8", nonfinite="poison")


def test_zeros_are_exact_and_so_are_tiny_sums_bounded() -> None:
    assert not reference_sum([np.zeros(3000, np.float32)] * 3, dtype="packed8").any()
    tiny = reference_sum([np.full(3000, 1e-30, np.float32)] * 3, dtype="packed8")
    assert np.abs(tiny).max() < 1e-10


def test_weights_count_contributors_and_nothing_else() -> None:
    with raises(InvalidTensor, value=2):
        Tensor(np.ones(3, np.float32), workers=2, weight=2, dtype="packed8")


def test_workers_contributions_add_up_to_the_sum() -> None:
    arrays = gradients(5, 4, 3000)
    tensors = [Tensor(a, workers=4, dtype="packed8", draws=Draws(3, rank)) for rank, a in enumerate(arrays)]
    sum_locally(tensors, tensors)
    parts = [tensor.contributed(array) for tensor, array in zip(tensors, arrays, strict=True)]
    total = tensors[0].reduced().values
    assert np.allclose(np.sum(parts, axis=0), total, atol=1e-5)
    assert error(parts[0], arrays[:1]) < 0.05


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([32, 96, 320, 1024]))
def test_rotation_is_undone_and_keeps_norms(seed: int, chunks: int, size: int) -> None:
    values = np.random.default_rng(seed).standard_normal((chunks, size)).astype(np.float32)
    signs = Draws(seed).common_signs(np.arange(chunks, dtype=np.uint32), size)
    turned = rotate(values, signs)
    assert np.allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(values, axis=1), rtol=1e-5)
    assert np.allclose(rotate_back(turned, signs), values, atol=1e-5)


def test_an_outlier_is_spread_over_its_block() -> None:
    values = np.zeros((1, 1024), np.float32)
    values[0, 77] = 32
    assert np.unique(np.abs(rotate(values, Draws(1).common_signs(np.zeros(1, np.uint32), 1024)))).tolist() == [1.0]


def test_scales_are_quarter_octaves_that_cover_what_is_asked_for() -> None:
    assert SCALES[0] == 0
    assert np.isnan(SCALES[NAN_CODE])
    assert np.allclose(SCALES[2:NAN_CODE] / SCALES[1 : NAN_CODE - 1], 2**0.25)
    asked = np.random.default_rng(0).uniform(-30, 20, 1000)
    codes = scale_codes(2.0**asked)
    assert (SCALES[codes] >= 2.0**asked).all()
    assert (SCALES[codes - 1] < 2.0**asked).all()
    assert scale_codes(np.array([0.0, 1e-30, np.inf])).tolist() == [0, 1, 256]


def test_draws_depend_on_seed_rank_chunk_and_place_alone() -> None:
    chunks = np.array([3, 9], np.uint32)
    uniform = Draws(5, 2).own_uniform(chunks, 700)
    assert Draws(5, 2).own_uniform(chunks[1:], 500)[0].tolist() == uniform[1, :500].tolist()
    for other in (Draws(6, 2), Draws(5, 3)):
        assert np.mean(other.own_uniform(chunks, 700) == uniform) < 0.01
    many = np.concatenate([Draws(seed, rank).own_uniform(chunks, 5000).ravel() for seed in range(9) for rank in (0, 1)])
    assert many.min() >= 0
    assert many.max() < 1
    assert abs(many.mean() - 0.5) < 0.005
    assert abs(np.corrcoef(many[:-1], many[1:])[0, 1]) < 0.01
    assert len({mixed(1, 2), mixed(1, 3), mixed(2, 2), mixed(1, 2, 0), mixed(1)}) == 5


def test_lossy_types_are_found_by_name_and_not_offered() -> None:
    assert data_type("packed8") is PACKED[8]
    assert not {kind.name for kind in data_types()} & {kind.name for kind in PACKED.values()}
    assert pickle.loads(pickle.dumps(PACKED[8])).name == "packed8"
    with raises(InvalidTensor, place="bits", value=9, allowed=FIELD_BITS):
        Packed(9)


def test_chunks_are_encoded_alike_alone_and_together() -> None:
    """A round can be sent again, on another tree."""
    encoding = encoding_of(PACKED[10], 4)
    values = np.random.default_rng(4).standard_normal((6, encoding.values)).astype(np.float32)
    exponents = np.full(6, int(scale_codes(np.array([4.0]))[0]), np.uint8)
    place = ChunkPlace(np.arange(6, dtype=np.uint32), Draws(8, 1))
    together = encoding.encode(values, exponents, 1, place)
    for chunk in (4, 1):
        one = slice(chunk, chunk + 1)
        alone = encoding.encode(values[one], exponents[one], 1, ChunkPlace(place.chunks[one], place.draws))
        assert alone.tobytes() == together[one].tobytes()
