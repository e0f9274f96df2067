"""Every type's sums: exact where they are said to be, within their bounds elsewhere, and rounded once."""

from __future__ import annotations

import copy
import math
import pickle
import re
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.hosts.errors import InvalidTensor
from weir.hosts.numerics.bfloat16 import BFLOAT16
from weir.hosts.numerics.datatypes import DataType, FloatType, data_type, data_types, register
from weir.hosts.numerics.encodings import encoding_of
from weir.hosts.numerics.native_types import FLOAT16, FLOAT32, FLOAT64, INT32, INT64
from weir.hosts.numerics.scalars import error_bound
from weir.hosts.numerics.tensors import Reduced, Tensor, reference_sum
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.wire.aggregation import LANES

FLOATS = [kind for kind in data_types() if isinstance(kind, FloatType)]


def stored(values: Any, kind: DataType) -> np.ndarray:
    """Numbers as the type stores them, rounded where it has not as many digits."""
    with np.errstate(over="ignore"):
        if isinstance(kind, FloatType):
            return kind.narrow(np.asarray(values, np.float64))
        return np.asarray(values, kind.storage)


def exact(values: np.ndarray, kind: DataType) -> list[Fraction]:
    """The numbers that an array stores."""
    if isinstance(kind, FloatType):
        values = kind.widen(values)
    return [Fraction(value) for value in values.reshape(-1).tolist()]


def tensor(values: np.ndarray, kind: DataType, **options: Any) -> Tensor:
    options.setdefault("workers", 1)
    return Tensor(values, dtype=kind.name, **options)


def exponents(tensors: list[Tensor]) -> np.ndarray:
    by_tensor = [
        laid_tensor.exponents(np.arange(laid_tensor.end))[: laid_tensor.end - laid_tensor.scale_rounds]
        for laid_tensor in tensors
    ]
    largest: np.ndarray = np.max(by_tensor, axis=0)
    return largest


def random_values(rng: np.random.Generator, kind: DataType, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers of a type, of very different magnitude by worker and chunk, with its least and largest ones."""
    if not isinstance(kind, FloatType):
        limits = np.iinfo(kind.storage)
        values = rng.integers(limits.min, limits.max, shape, kind.storage, endpoint=True)
        return np.where(rng.random(shape) < 0.2, limits.min, values)
    scale = rng.integers(kind.least, largest_exponent(kind) - 4, (*shape[:-1], 1))
    spread = rng.integers(-8, 1, shape)
    return stored(np.ldexp(rng.standard_normal(shape), np.maximum(scale + spread, kind.least)), kind)


def largest_exponent(kind: FloatType) -> int:
    """The largest k for which 2^k is finite."""
    return int(np.count_nonzero(kind.is_finite(kind.narrow(np.ldexp(1.0, np.arange(1024)))))) - 1


def test_digits_and_least_numbers() -> None:
    known = {FLOAT32: (24, -149), FLOAT64: (53, -1074), FLOAT16: (11, -24), BFLOAT16: (8, -133)}
    assert {kind: (kind.digits, kind.least) for kind in known} == known


@pytest.mark.parametrize("kind", FLOATS)
def test_digits_and_least_number_are_what_rounding_shows(kind: FloatType) -> None:
    def rounded(number: float) -> float:
        return float(kind.widen(kind.narrow(np.array([number])))[0])

    least, digit = math.ldexp(1, kind.least), math.ldexp(1, 1 - kind.digits)
    assert (rounded(least), rounded(least / 2)) == (least, 0)
    assert (rounded(1 + digit), rounded(1 + digit / 2)) == (1 + digit, 1)


@given(st.sampled_from(FLOATS), st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_a_sum_is_within_its_bound_of_the_exact_one(kind: FloatType, workers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = random_values(rng, kind, (workers, 5))
    result = reference_sum(list(values), dtype=kind.name)
    agreed = exponents([tensor(row, kind, workers=workers) for row in values])
    bound = error_bound(kind, result[None, :], agreed, workers)[0]
    for lane in range(5):
        total = sum(exact(values[:, lane], kind))
        got = exact(result[lane : lane + 1], kind)[0]
        assert abs(got - total) <= Fraction(bound[lane])


@pytest.mark.parametrize("kind", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("workers", [1, 2, 3, 40])
def test_the_bound_holds_with_every_workers_worst_rounding(kind: FloatType, workers: int) -> None:
    """Each worker loses a number of half a quantum next to a 1 in the chunk. The test searches for that number."""
    lost = []
    for exponent in range(-110, -10):
        values = np.array([[1.0, math.ldexp(1, exponent)]] * workers, kind.storage)
        result = reference_sum(list(values), dtype=kind.name)
        agreed = exponents([tensor(row, kind, workers=workers) for row in values])
        error = abs(exact(result[1:], kind)[0] - workers * Fraction(2) ** exponent)
        assert error <= Fraction(error_bound(kind, result[None, :], agreed, workers)[0, 1])
        lost += [exponent] if result[1] == 0 else []
    assert lost
    assert max(lost) < -11, "the largest that is lost is among those tried"


@pytest.mark.parametrize("kind", [FLOAT32, FLOAT64])
def test_a_worker_of_no_weight_asks_for_the_least_exponent(kind: FloatType) -> None:
    values = np.ldexp(np.full(1 << 15, 0.75), np.arange(1 << 15) // 256 - 64).astype(kind.storage)
    assert not exponents([tensor(values, kind, workers=3, weight=0, mean=True)]).any()


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("policy", ["error", "propagate", "poison"])
def test_numbers_of_a_worker_of_no_weight_change_no_bit(kind: FloatType, policy: Any) -> None:
    counted = stored([[1e-3, 2e-3], [-3e-3, 1e-3]], kind)
    largest = kind.narrow(np.array([math.ldexp(1.0, largest_exponent(kind) - 1), 5.0]))
    how: dict[str, Any] = {"dtype": kind.name, "mean": True, "nonfinite": policy}
    alone = reference_sum([*counted, 0 * counted[0]], weights=[4, 3, 0], **how)
    assert reference_sum([*counted, largest], weights=[4, 3, 0], **how).tobytes() == alone.tobytes()
    assert np.allclose(kind.widen(alone), (4 * kind.widen(counted[0]) + 3 * kind.widen(counted[1])) / 7, rtol=1e-2)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("workers", "reserved"), [(1, 0), (2, 1), (3, 2), (8, 3), (1000, 10)])
def test_the_bound_is_half_a_quantum_per_worker_and_half_an_ulp(kind: FloatType, workers: int, reserved: int) -> None:
    results = kind.narrow(np.array([[0, math.ldexp(1, kind.least), 0.75, 1, -1.5, 2]]))
    ulps = [kind.least, kind.least, *(place - kind.digits for place in (0, 1, 1, 2))]
    for biased in (100, 130, 140):
        bound = 8 * biased - 1016 if kind is FLOAT64 else biased - 127
        quantum = bound + (3 * reserved - 92 if kind is FLOAT64 else reserved - 30)
        expected = [workers * math.ldexp(0.5, quantum) + math.ldexp(0.5, ulp) for ulp in ulps]
        assert error_bound(kind, results, np.array([biased], np.uint8), workers).tolist() == [expected]


@pytest.mark.parametrize("weight", [1, 2, 3, 127, 128, 129])
@pytest.mark.parametrize("value", [5e-324, 2.0**-1017, 2.0**-1016, 0.75, 1.0, -3.0, 254.0, 255.0, 256.0, -(2.0**1015)])
def test_a_float64_chunk_has_the_least_sufficient_power_of_256(value: float, weight: int) -> None:
    _, exponent = math.frexp(value)  # |value| < 2^exponent, and so are products with a weight, which is 2^k at most
    power = exponent + max(weight - 1, 0).bit_length()
    expected = next(biased for biased in range(256) if power <= 8 * biased - 1016)
    encoding = encoding_of(FLOAT64, 2, mean=True)
    assert encoding.exponents(np.array([[0, value], [0, 0]]), weight).tolist() == [expected, 0]


@given(st.integers(1, 1024), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_a_float64_sum_is_exact_if_all_digits_fit(workers: int, seed: int) -> None:
    """53 digits of the largest number fit up to 1,024 workers: sums of numbers near it are correctly rounded."""
    rng = np.random.default_rng(seed)
    scale = int(rng.integers(-1074, 960))
    values = np.ldexp(rng.integers(-(2**53), 2**53, (workers, 3)).astype(np.float64), scale)
    values[0] = np.ldexp(float(2**53), scale)
    result = reference_sum(list(values))
    for lane in range(3):
        assert result[lane] == float(sum(Fraction(x) for x in values[:, lane].tolist()))


@given(st.integers(1, 1022), st.integers(1, 53), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_a_float64_sum_that_is_subnormal_has_no_error(workers: int, bits: int, seed: int) -> None:
    """Also where the numbers are not, and nearly cancel out."""
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.integers(-(2**bits), 2**bits, (workers, 4)).astype(np.float64), -1074)
    largest = np.ldexp(rng.integers(0, 2**53, 4).astype(np.float64), -1074)
    values = np.concatenate([values, [largest, -largest]])
    result = reference_sum(list(values))
    for lane in range(4):
        assert result[lane] == float(sum(Fraction(x) for x in values[:, lane].tolist()))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6))
@settings(deadline=None)
def test_one_worker_gets_its_float64_back_within_a_quantum(values: list[float]) -> None:
    array = np.array(values)
    result = reference_sum([array])
    agreed = int(exponents([tensor(array, FLOAT64)])[0])
    for value, got in zip(values, result.tolist(), strict=True):
        assert abs(Fraction(value) - Fraction(got)) <= Fraction(2) ** (8 * agreed - 1016 - 93) + Fraction(2) ** -1075


@pytest.mark.parametrize(
    "value", [0.0, 5e-324, -5e-324, 2.0**-1022, np.nextafter(2.0**-1022, 0), float(np.finfo(np.float64).max), -1.5]
)
@pytest.mark.parametrize("workers", [1, 3, 1000])
def test_float64_at_its_edges(value: float, workers: int) -> None:
    total = Fraction(value) * workers
    expected = math.copysign(math.inf, value) if abs(total) > Fraction(2) ** 1024 else float(total)
    assert reference_sum([np.array([value])] * workers)[0] == expected


@given(st.sampled_from([INT32, INT64]), st.integers(1, 50), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=80)
def test_integer_sums_are_exact_and_wrap(kind: DataType, workers: int, seed: int) -> None:
    values = random_values(np.random.default_rng(seed), kind, (workers, 90))
    with np.errstate(over="ignore"):
        assert reference_sum(list(values)).tolist() == values.sum(axis=0, dtype=kind.storage).tolist()


@pytest.mark.parametrize("workers", [1, 2, 1024, 1 << 16])
@pytest.mark.parametrize("value", [-1, 2**63 - 1, -(2**63), 0x5555_FFFF_FFFF_FFFF])
def test_int64_limbs_cannot_overflow(workers: int, value: int) -> None:
    """All workers with the same number: their limbs add up to n times its own."""
    encoding = encoding_of(INT64, workers)
    chunk = np.full((1, encoding.values), value, np.int64)
    zero = np.zeros(1, np.uint8)
    with np.errstate(over="ignore"):
        sums = encoding.encode(chunk, zero, 1) * np.int32(workers)
        expected = np.int64(value) * np.int64(workers)
    assert (encoding.decode(sums, zero, np.ones(1, np.int64)) == expected).all()


def test_int64_over_too_many_workers_is_refused() -> None:
    with raises(InvalidTensor, place="tensor 'steps': dtype int64", value=65537):
        Tensor(np.zeros(3, np.int64), workers=65_537, name="steps")


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 32, 1000, 1024, 4096])
@pytest.mark.parametrize("biased", [0, 1, 127, 255])
def test_no_limb_of_a_float64_overflows(workers: int, biased: int) -> None:
    encoding = encoding_of(FLOAT64, workers)
    largest = math.ldexp(1 - 2.0**-53, 8 * biased - 1016)
    lowest = math.ldexp(1.0 + 2.0**-30, 8 * biased - 1024)
    for value in (largest, -largest, lowest, -lowest):
        lanes = encoding.encode(np.full((1, encoding.values), value), np.array([biased], np.uint8), 1)
        assert workers * int(np.abs(lanes.astype(np.int64)).max()) <= 1 << 30


@given(st.sampled_from(data_types()), st.integers(0, 2**32 - 1), st.integers(2, 9), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_order_and_any_tree_gives_the_same_bits(kind: DataType, seed: int, workers: int, propagate: bool) -> None:
    rng = np.random.default_rng(seed)
    policy: Any = "propagate" if propagate else "error"
    values = random_values(rng, kind, (workers, 300))
    if propagate and isinstance(kind, FloatType):
        holes = rng.random(values.shape) < 0.02
        values[holes] = stored(rng.choice([np.nan, np.inf, -np.inf], int(holes.sum())), kind)
    expected = reference_sum(list(values), dtype=kind.name, nonfinite=policy)
    tensors = [tensor(row, kind, workers=workers, nonfinite=policy) for row in values]
    agreed = exponents(tensors)
    encoding = encoding_of(kind, workers, propagate=propagate)
    pool = []
    for row in values:
        chunks = np.zeros((len(agreed), encoding.values), kind.storage)
        chunks.reshape(-1)[:300] = row
        pool.append(encoding.encode(chunks, agreed, 1))
    while len(pool) > 1:  # join any two nodes, again and again: a random tree
        first = pool.pop(int(rng.integers(len(pool))))
        second = pool.pop(int(rng.integers(len(pool))))
        pool.append(first + second)
    result = encoding.decode(pool[0], agreed, np.full(len(agreed), workers))
    assert result.reshape(-1)[:300].tobytes() == expected.tobytes()


@given(st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=100)
def test_to_bfloat16_is_rounded_once(bits: int) -> None:
    """Against the definition: the nearest bfloat16, the even one of two."""
    value = float(np.uint64(bits).view(np.float64))
    if abs(value) > 1e39 or 0 < abs(value) < 1e-42:  # most are: bring them near what it can hold
        value = math.ldexp(math.frexp(value)[0], bits % 290 - 150)
    got = int(BFLOAT16.narrow(np.array([value]))[0])
    if math.isnan(value):
        assert got == 0x7FC0
        return
    positive = np.arange(0x7F81, dtype=np.uint16)
    numbers = BFLOAT16.widen(positive).astype(np.float64)
    numbers[-1] = 2.0**128  # rounds as if the range went on
    distance = np.abs(numbers - abs(value))
    nearest = np.flatnonzero(distance == distance.min())
    expected = int(nearest[0]) if len(nearest) == 1 else int(nearest[nearest % 2 == 0][0])
    assert got == expected | (0x8000 if math.copysign(1, value) < 0 else 0)


def test_float16_sums_out_of_range_are_infinite_but_means_finite() -> None:
    values = [np.array([60_000, -60_000], np.float16)] * 8
    assert reference_sum(values).tolist() == [math.inf, -math.inf]
    assert reference_sum(values, mean=True).tolist() == [60_000, -60_000]


@given(st.sampled_from(FLOATS), st.integers(2, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=100)
def test_nan_and_infinity_are_summed_as_ieee_addition_does(kind: FloatType, workers: int, seed: int) -> None:
    """All other elements are unchanged."""
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.standard_normal((workers, 300)), rng.integers(-5, 5, (workers, 1)))
    clean = stored(values, kind)
    holes = rng.random(values.shape) < 0.1
    values[holes] = rng.choice([np.nan, -np.nan, np.inf, -np.inf], int(holes.sum()))
    result = reference_sum(list(stored(values, kind)), dtype=kind.name, nonfinite="propagate")
    without = reference_sum(
        [stored(np.where(h, 0, v), kind) for h, v in zip(holes, values, strict=True)],
        dtype=kind.name,
        nonfinite="propagate",
    )
    with np.errstate(invalid="ignore"):
        ieee = values.sum(axis=0)
    wide = kind.widen(result)
    assert np.isnan(wide).tolist() == np.isnan(ieee).tolist()
    infinite = np.isinf(ieee)
    assert np.isinf(wide).tolist() == infinite.tolist()
    assert wide[infinite].tolist() == ieee[infinite].tolist()
    finite = ~holes.any(axis=0)
    assert result[finite].tobytes() == without[finite].tobytes()
    assert clean.shape == values.shape


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 8, 255, 256, 65_535])
@pytest.mark.parametrize("kind", FLOATS)
def test_counters_hold_all_workers(kind: DataType, workers: int) -> None:
    """Every worker has the same element infinite: no counter runs over into its neighbour."""
    encoding = encoding_of(kind, workers, propagate=True)
    values = stored(np.where(np.arange(encoding.values) % 2 == 0, np.inf, 0), kind)[None, :]
    zero = np.zeros(1, np.uint8)
    with np.errstate(over="ignore"):
        sums = encoding.encode(values, zero, 1) * np.int32(workers)
    assert encoding.decode(sums, zero, np.ones(1, np.int64)).tobytes() == values.tobytes()
    assert sums.shape == (1, LANES)


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 100, 65_535])
@pytest.mark.parametrize("lanes", [32, 100, LANES])
@pytest.mark.parametrize("kind", FLOATS)
def test_a_message_has_as_many_numbers_with_counters_as_fit(kind: DataType, lanes: int, workers: int) -> None:
    encoding = encoding_of(kind, workers, lanes, propagate=True)
    per_lane = 32 // (2 * workers.bit_length())  # lanes are not cut: a number's counters are in one of them
    taken = [numbers * encoding.scalars.limbs + math.ceil(numbers / per_lane) for numbers in range(lanes)]
    assert encoding.values == max(numbers for numbers in range(lanes) if taken[numbers] <= lanes)


def test_nan_and_infinity_of_too_many_workers_are_refused() -> None:
    with raises(InvalidTensor, place="tensor 'w': dtype float32", value=65536):
        Tensor(np.zeros(3, np.float32), workers=65_536, name="w", nonfinite="propagate")


def test_a_nan_takes_no_digits_from_the_small_numbers_beside_it() -> None:
    values = np.array([math.pi * 1e-6, math.nan, -math.inf, math.e * 1e-6], np.float32)
    assert reference_sum([values], nonfinite="propagate").tobytes() == values.tobytes()


def test_an_encoding_is_shared_and_stays_what_it_is() -> None:
    encoding = encoding_of(FLOAT32, 2, poison=True)
    assert {encoding} == {encoding_of(FLOAT32, 2, poison=True)}
    with pytest.raises(FrozenInstanceError):
        encoding.values = 3  # type: ignore[misc]


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_refused_by_name_and_place(kind: DataType, bad: float) -> None:
    values = np.zeros((3, 500))
    values[2, 123] = bad
    with pytest.raises(InvalidTensor) as caught:
        tensor(stored(values, kind), kind, name="fc1.weight")
    assert str(caught.value) == (
        f"tensor 'fc1.weight': element 1123 (index (2, 123)) is {bad}; only finite values can be summed"
    )


@given(st.sampled_from(FLOATS), st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=80)
def test_weighted_means(kind: FloatType, workers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = [int(w) for w in rng.integers(1, rng.choice([2, 9, 2**20]), workers)]
    values = stored(np.ldexp(rng.standard_normal((workers, 4)), rng.integers(-3, 3, (workers, 1))), kind)
    result = exact(reference_sum(list(values), dtype=kind.name, weights=weights, mean=True), kind)
    largest = max(weights)
    for lane in range(4):
        parts = exact(values[:, lane], kind)
        mean = sum((w * x for w, x in zip(weights, parts, strict=True)), Fraction()) / sum(weights)
        digits = kind.digits
        # a weight may be half of its power of two, and a chunk's bound twice its largest number, 2⁸ times in float64
        quanta = Fraction(largest * 64 * workers**2) / sum(weights) * Fraction(2) ** (-26 if digits < 53 else -60)
        assert abs(result[lane] - mean) <= quanta + abs(mean) * Fraction(2) ** (1 - digits) + Fraction(2) ** -25


@pytest.mark.parametrize("kind", data_types())
@pytest.mark.parametrize("policy", ["error", "propagate", "poison"])
def test_a_worker_of_no_weight_has_no_part_in_a_mean(kind: DataType, policy: Any) -> None:
    """Nor has its NaN, where that is not refused."""
    counted, other = stored([[1, -2, 3], [5, 7, 9]], kind)
    if isinstance(kind, FloatType) and policy != "error":
        other[1] = kind.special("nan")
    for weight in (1, 2, 3):
        result = reference_sum([counted, other], dtype=kind.name, weights=[weight, 0], mean=True, nonfinite=policy)
        assert result.tolist() == counted.tolist()


@pytest.mark.parametrize("kind", data_types())
def test_lanes_may_wrap_unless_all_are_parts_of_finite_numbers(kind: DataType) -> None:
    policies: list[dict[str, bool]] = [{}, {"propagate": True}, {"poison": True}]
    wraps = [encoding_of(kind, 1, **policy).may_wrap for policy in policies]
    assert wraps == ([False, True, True] if isinstance(kind, FloatType) else [kind.name == "int32"] * 3)


@given(st.sampled_from([INT32, INT64]), st.integers(1, 9), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=80)
def test_integer_means_are_rounded_to_nearest_ties_to_even(kind: DataType, workers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = [int(w) for w in rng.integers(1, rng.choice([2, 5]), workers)]
    bits = int(rng.choice([2, 31])) if kind is INT32 else int(rng.choice([2, 31, 56]))
    values = rng.integers(-(2**bits), 2**bits - 1, (workers, 100), endpoint=True).astype(kind.storage)
    result = reference_sum(list(values), weights=weights, mean=True)
    for lane in range(100):
        total = sum(w * int(x) for w, x in zip(weights, values[:, lane], strict=True))
        assert result[lane] == round(Fraction(total, sum(weights)))


def test_integers_too_large_for_their_mean_are_refused() -> None:
    values = np.zeros((2, 100), np.int64)
    values[1, 7] = -(2**58)
    Tensor(values, workers=8, mean=True, weight=1)
    with pytest.raises(InvalidTensor) as caught:
        Tensor(values, workers=8, mean=True, weight=5, name="steps")
    assert str(caught.value) == (
        "tensor 'steps': element 107 (index (1, 7)) is -288230376151711744, which times its weight 5 is too large for "
        "a mean of int64 over 8 workers"
    )


@pytest.mark.parametrize("kind", [INT32, INT64])
@pytest.mark.parametrize(("workers", "reserved"), [(2, 1), (3, 2), (8, 3), (65_536, 16)])
@pytest.mark.parametrize("weight", [1, 5, 3000])
def test_weighted_integers_have_a_mean_up_to_the_common_maximum(
    kind: DataType, workers: int, reserved: int, weight: int
) -> None:
    largest = (2 ** (63 - reserved) - 1) // weight
    values = np.array([[largest, -largest], [largest + 1, 0], [0, -largest - 1]])
    asked = encoding_of(kind, workers=workers, mean=True).exponents(values, weight)
    assert (asked <= 255).tolist() == [True, False, False]


def test_a_product_beyond_the_exponents_is_refused() -> None:
    values = np.array([1, 2.0**125, 3e38], np.float32)
    Tensor(values, workers=2, mean=True)
    with raises(InvalidTensor, place="tensor 'tensor'", value=2):
        Tensor(values, workers=2, mean=True, weight=3)


def test_bfloat16_is_named_or_known() -> None:
    values = np.array([0x3F80, 0x4000], np.uint16)
    assert reference_sum([values, values], dtype="bfloat16").tolist() == [0x4000, 0x4080]
    with raises(InvalidTensor, place="tensor 'tensor of worker 0'"):
        reference_sum([values])
    with raises(InvalidTensor, place="tensor 'tensor of worker 0'", value="bfloat16"):
        reference_sum([values.astype(np.float32)], dtype="bfloat16")
    with raises(InvalidTensor, place="tensor 'tensor of worker 0'", value="float64"):
        reference_sum([values.astype(np.float32)], dtype="float64")


@pytest.mark.parametrize("kind", data_types())
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (LANES,), (2, LANES + 1), (5, 7, 11)])
def test_shapes(kind: DataType, shape: tuple[int, ...]) -> None:
    values = stored(np.arange(math.prod(shape)).reshape(shape) % 19 - 9, kind)
    result = reference_sum([values, values], dtype=kind.name)
    assert result.shape == shape
    assert result.dtype == kind.storage
    assert exact(result, kind) == [2 * x for x in exact(values, kind)]


def test_layouts() -> None:
    """Fortran order, steps, reversed and foreign byte order: the sum is that of NumPy's view."""
    base = np.arange(40 * 30, dtype=np.float32).reshape(40, 30)
    for view in (
        base.T,
        np.asfortranarray(base),
        base[::3, ::-2],
        base.astype(">f4"),
        np.broadcast_to(base[0], (4, 30)),
    ):
        result = reference_sum([view, view])
        assert result.tolist() == (2 * view).tolist()


def test_a_mean_after_the_sum_is_for_floats() -> None:
    reduced = Reduced("t", INT32, np.zeros(3, np.int32), np.ones(1, np.uint32))
    with raises(InvalidTensor, place="tensor 't'", value="int32"):
        reduced.mean()


@pytest.mark.parametrize("step", [1, 0, -1])
@pytest.mark.parametrize("kind", FLOATS)
def test_a_mean_after_the_sum_divides_by_the_weights_themselves(kind: FloatType, step: int) -> None:
    """Weights that the type itself cannot hold, or not exactly; a chunk more than are divided at once."""
    numbers = np.array([3.0, -1.5, 0.25])
    chunks = 300
    weights = (80_001 + step * np.arange(chunks)).astype(np.uint32)
    sums = kind.narrow(np.resize(numbers, chunks * LANES - 5))
    mean = Reduced("t", kind, sums, weights).mean()
    wide = kind.widen(sums).astype(np.float64)
    assert mean.tolist() == kind.narrow(wide / np.repeat(weights, LANES)[: len(wide)]).tolist()
    assert mean.any()  # in float16 those weights would be infinite


def test_weights_that_could_wrap_are_refused() -> None:
    most = (2**32 - 1) // 3
    arrays = [np.full(2, x) for x in (1.0, 2.0, 6.0)]
    assert reference_sum(arrays, mean=True, weights=[most] * 3).tolist() == [3.0, 3.0]
    with raises(InvalidTensor, place="tensor 'g'", value=1431655766):
        Tensor(arrays[0], workers=3, name="g", weight=most + 1)
    with raises(InvalidTensor, place="tensor 'tensor of worker 0'", value=2147483648):
        reference_sum(arrays, mean=True, weights=[2**31] * 3)


def test_bits_in_foreign_byte_order_are_the_same_numbers() -> None:
    bits = np.array([0x3F80, 0xC000], np.uint16)
    assert reference_sum([bits.astype(">u2"), bits], dtype="bfloat16").tolist() == [0x4000, 0xC080]


@pytest.mark.parametrize("page", ["collectives.md", "design.md"])
def test_a_page_has_every_type_in_its_table(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    tables = re.findall(r"^\| type \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    [table] = [rows for rows in tables if "float32" in rows]
    named = [name for row in table.splitlines() for name in row.split("|")[1].strip().split(", ")]
    named = [name for name in named if not name.endswith(" with a key")]  # another encoding of the same type
    assert sorted(named) == sorted(kind.name for kind in data_types())


def test_a_data_type_is_registered_once_and_copied_never() -> None:
    for kind in data_types():
        assert data_type(kind.name) is kind
        assert pickle.loads(pickle.dumps(kind)) is kind
        assert copy.deepcopy(kind) is kind
    with pytest.raises(ValueError, match="'bfloat16' is registered already"):
        register(BFLOAT16)


@pytest.mark.parametrize("lanes", [4, 32, 64])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
def test_messages_of_fewer_lanes_carry_the_same_sum(kind: str, lanes: int) -> None:
    """The numbers need no rounding: exponents are agreed by chunk, and chunks are shorter."""
    rng = np.random.default_rng(lanes)
    arrays = [rng.integers(-(2**20), 2**20, (3, 101)).astype(kind) for _ in range(3)]
    np.testing.assert_array_equal(reference_sum(arrays, lanes=lanes), sum(arrays[1:], arrays[0]))
    encoding = encoding_of(kind=data_type(kind), workers=3, lanes=lanes, propagate=kind.startswith("float"))
    chunks = np.zeros((2, encoding.values), kind)
    assert encoding.encode(chunks, np.zeros(2, np.uint8), 1).shape == (2, lanes)
