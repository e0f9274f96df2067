"""A search for the largest error of sums and means, in units of the bound that docs/collectives.md states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

import numpy as np
import pytest

from weir.hosts.numerics.datatypes import FloatType, data_types
from weir.hosts.numerics.encodings import encoding_of
from weir.hosts.numerics.native_types import FLOAT64
from weir.hosts.numerics.tensors import NonFinite
from weir.wire.aggregation import LANES

FLOATS: Final = [kind for kind in data_types() if isinstance(kind, FloatType)]
WORKERS: Final = (2, 3, 8, 64, 1024)
NUMBERS: Final = 6
"""Numbers of a chunk that are searched; one more holds the largest magnitude, the others are 0."""
LARGEST: Final = {"float16": 16, "bfloat16": 128, "float32": 128, "float64": 1024}
"""Exponent of 2 that the type's numbers are below."""
SHIFT: Final = 1200
"""Numbers times 2^SHIFT are integers, whose sums are exact."""
Operation = Literal["sum", "mean"]


@dataclass(frozen=True)
class Job:
    """One search: a type, a number of workers, an operation and the workers' weights."""

    kind: FloatType
    operation: Operation
    weights: np.ndarray
    lost: int = 0
    """Number of the last workers, which are in no sum."""
    nonfinite: NonFinite = "error"
    lanes: int = LANES

    @property
    def workers(self) -> int:
        return len(self.weights)

    @property
    def mean(self) -> bool:
        return self.operation == "mean"

    def factors(self) -> np.ndarray:
        here = np.arange(self.workers) < self.workers - self.lost
        return np.where(here, self.weights if self.mean else 1, 0)

    def half_quantum(self, values: np.ndarray) -> int:
        """The exponent of 2 of the largest rounding error of one worker's number, by the documented formula."""
        reserved = (self.workers - 1).bit_length()
        wide = np.abs(self.kind.widen(values).astype(np.float64)).max(axis=1)
        counted = (self.factors() > 0) & (wide > 0)
        weight_bits = np.array([max(int(w) - 1, 0).bit_length() for w in self.factors()])
        exponents = np.frexp(wide)[1] + weight_bits
        if self.kind is FLOAT64:
            exponent = max(-1016, *(-(-exponents[counted] // 8) * 8).tolist(), -1016)
            return int(exponent) + 3 * reserved - 93
        return int(max(-127, *exponents[counted].tolist(), -127)) + reserved - 31

    def results(self, values: np.ndarray) -> np.ndarray:
        """Result of a fabric for the workers' chunks (n, v), by the code under test."""
        propagate, poison = self.nonfinite == "propagate", self.nonfinite == "poison"
        encoding = encoding_of(self.kind, self.workers, self.lanes, mean=self.mean, propagate=propagate, poison=poison)
        here = np.arange(self.workers) < self.workers - self.lost
        chunks = np.zeros((self.workers, encoding.values), self.kind.storage)
        chunks[:, : values.shape[1]] = values
        groups = [(int(weight), here & (self.weights == weight)) for weight in np.unique(self.weights[here])]
        agreed = np.array([max(int(encoding.exponents(chunks[rows], w).max()) for w, rows in groups)], np.uint8)
        total = np.zeros((1, encoding.lanes), np.int32)
        for weight, rows in groups:
            total += encoding.encode(chunks[rows], np.repeat(agreed, rows.sum()), weight).sum(
                axis=0, dtype=np.int32, keepdims=True
            )
        return encoding.decode(total, agreed, np.array([self.weights[here].sum()]))[0, : values.shape[1]]

    def ratios(self, values: np.ndarray) -> list[Fraction]:
        """Error / bound of each number, exactly."""
        factors, divisor = self.factors().tolist(), int(self.factors().sum()) if self.mean else 1
        per_worker = Fraction(2) ** self.half_quantum(values)
        rounding = per_worker * int((self.factors() > 0).sum()) / divisor
        results = self.kind.widen(self.results(values)).astype(np.float64).tolist()
        found = []
        for column, result in zip(self.kind.widen(values).T.astype(np.float64).tolist(), results, strict=True):
            exact = Fraction(sum(f * scaled(x) for f, x in zip(factors, column, strict=True)), divisor << SHIFT)
            ulp = max(math.frexp(result)[1] - self.kind.digits, self.kind.least) if result else self.kind.least
            bound = rounding + Fraction(2) ** (ulp - 1)
            if self.mean:  # divided in float64 before it is rounded to the type
                bound += abs(Fraction(result)) / 2**53
            found.append(abs(Fraction(result) - exact) / bound)
        return found


def scaled(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator << SHIFT - (denominator.bit_length() - 1)


def climb(job: Job, exponent: int, steps: int, rng: np.random.Generator) -> Fraction:
    """The largest error / bound found, with the largest magnitude just below 2^exponent at worker 0."""
    top = np.zeros((job.workers, 1))
    top[np.argmax(job.factors()), 0] = math.ldexp(0.99, exponent)

    def chunk(numbers: np.ndarray) -> np.ndarray:
        limit = math.ldexp(0.99, exponent)
        return job.kind.narrow(np.concatenate([top, np.clip(numbers, -limit, limit)], axis=1))

    quantum = math.ldexp(2.0, max(job.half_quantum(chunk(np.zeros((job.workers, 0)))), -1073))
    best = np.zeros((job.workers, NUMBERS))
    ratios = [Fraction(0)] * NUMBERS
    for step in range(steps):
        trial = best.copy()
        for column in range(NUMBERS):
            choice = rng.integers(5) if step else column % 4
            some = rng.random(job.workers) < 0.5
            if choice == 0:  # between two quanta, where every worker rounds by a half
                whole = rng.integers(0, 2 ** rng.integers(1, 28), job.workers)
                trial[:, column] = (whole + 0.5) * quantum / np.maximum(job.factors(), 1)
            elif choice == 1:  # the same at all workers
                trial[:, column] = (2 * rng.integers(0, 2**20) + rng.choice([0.5, 1.5])) * quantum
            elif choice == 2:  # terms that cancel
                trial[:, column] = math.ldexp(rng.random(), exponent - 1) * np.where(some, 1, -1)
            elif choice == 3:
                trial[some, column] = np.nextafter(trial[some, column], rng.choice([-np.inf, np.inf]))
            else:
                trial[some, column] += rng.integers(-2, 3, int(some.sum())) * quantum
        for column, ratio in enumerate(job.ratios(chunk(trial))[1:]):
            if ratio > ratios[column]:
                ratios[column] = ratio
                best[:, column] = trial[:, column]
    return max(ratios)


def weights_of(workers: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Equal, small with zeros, and as large as the sum of all weights allows."""
    most = (2**32 - 1) // workers
    small = rng.integers(0, 5, workers)
    small[0] = 3
    large = np.where(rng.random(workers) < 0.5, most, most - 2)
    return [np.ones(workers, np.int64), small, large]


def search(kind: FloatType, operation: Operation, steps: int, seed: int) -> Fraction:
    """The largest error / bound over numbers of workers, weights and magnitudes."""
    rng = np.random.default_rng(seed)
    highest = {"float16": 3, "float64": 900}.get(kind.name, 80)
    lowest = {"float16": -20, "float64": -1070}.get(kind.name, -140)
    found = []
    for workers in WORKERS:
        for weights in weights_of(workers, rng)[: None if operation == "mean" else 1]:
            for exponent in (lowest, 0, highest):
                found.append(climb(Job(kind, operation, weights), exponent, max(2, steps // workers), rng))
    return max(found)


@pytest.mark.parametrize("operation", ["sum", "mean"])
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_no_error_passes_its_bound(kind: FloatType, operation: Operation) -> None:
    largest = search(kind, operation, 120, seed=7)
    assert largest <= 1
    assert largest > 0.5  # the search comes near the bound, so that a wrong one would be seen


@pytest.mark.parametrize("lanes", [32, LANES])
@pytest.mark.parametrize("nonfinite", ["error", "propagate", "poison"])
@pytest.mark.parametrize("operation", ["sum", "mean"])
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_no_error_passes_its_bound_after_losses(
    kind: FloatType, operation: Operation, nonfinite: NonFinite, lanes: int
) -> None:
    """Two of five workers are lost: the bound is that of the others' sum, by the scale of all five."""
    weights = np.array([3, 1, 7, 2, 100]) if operation == "mean" else np.ones(5, np.int64)
    job = Job(kind, operation, weights, lost=2, nonfinite=nonfinite, lanes=lanes)
    assert 0.5 < climb(job, 0, 40, np.random.default_rng(lanes)) <= 1


@pytest.mark.long(minutes=12)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("operation", ["sum", "mean"])
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_no_error_passes_its_bound_in_a_long_search(kind: FloatType, operation: Operation, seed: int) -> None:
    assert search(kind, operation, 4000, seed) <= 1


@pytest.mark.parametrize("workers", [2, 3, 1000])
def test_a_weighted_float64_mean_keeps_digits_under_cancellation(workers: int) -> None:
    """weight · x has up to 85 digits, more than a float64 holds: it is rounded with the quantum and no sooner."""
    x = 1 + 2.0**-52
    weights = np.ones(workers, np.int64)
    weights[:2] = 1000003, 999983
    values = np.zeros((workers, 1))
    values[:2, 0] = x, -float(Fraction(x) * 1000003 / 999983)
    job = Job(FLOAT64, "mean", weights)
    assert job.results(values)[0] != 0
    assert job.ratios(values)[0] <= 1


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("workers", [2, 3, 1000])
def test_a_mean_of_numbers_with_a_sum_beyond_the_type_is_finite(kind: FloatType, workers: int) -> None:
    number = np.ldexp(0.75, LARGEST[kind.name])
    values = kind.narrow(np.full((workers, 2), [number, -number]))
    job = Job(kind, "mean", np.ones(workers, np.int64))
    assert np.isfinite(kind.widen(job.results(values))).all()
    assert max(job.ratios(values)) <= 1
