"""Courses with compressed gradients: their arithmetic, steps, and times of exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import pytest

from weir.experiments.papers.compression import DESCRIPTION
from weir.experiments.repetition.compressed_courses import WAYS
from weir.experiments.repetition.compressed_steps import (
    WORKERS,
    CodecMean,
    PowerMean,
    bfloat16_ring,
    shapes_of,
    steps_to_accuracy,
)
from weir.experiments.repetition.exchange_times import ring_gather_s, ring_sum_s
from weir.training.workload import Floats
from weir.training.workloads import make_workload

LAYERS = [64 * 8, 8, 8 * 10, 10]
SIZE = sum(LAYERS)


def gradients(seed: int) -> list[Floats]:
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(SIZE)
    return [(common + rng.standard_normal(SIZE)).astype(np.float32) for _ in range(WORKERS)]


def error(mean: Floats, parts: list[Floats]) -> float:
    """Squared error of the mean relative to its square."""
    right = np.mean(parts, axis=0, dtype=np.float64)
    return float(np.square(mean - right).sum() / np.square(right).sum())


def test_every_contender_has_its_way() -> None:
    assert [contender.name for contender in DESCRIPTION.contenders if contender.name not in WAYS] == []
    assert set(WAYS) == {contender.name for contender in DESCRIPTION.contenders}


def test_errors_are_those_of_the_arithmetic() -> None:
    parts = gradients(1)
    assert error(CodecMean("packed", bits=15)(parts), parts) < 1e-5
    assert 1e-4 < error(CodecMean("packed", bits=8)(parts), parts) < 0.02
    assert 1e-7 < error(bfloat16_ring(parts), parts) < 1e-4


def test_error_feedback_sends_later_what_was_not_sent() -> None:
    parts, compressed, total = gradients(2), CodecMean("topk", ratio=0.1), np.zeros(SIZE)
    errors = []
    for step in range(1, 41):
        total += compressed(parts)
        errors.append(error((total / step).astype(np.float32), parts))
    assert errors[-1] < 0.05 < errors[0]


def test_random_numbers_are_drawn_again_in_every_step() -> None:
    parts, rounding = gradients(3), CodecMean("terngrad")
    assert not np.array_equal(rounding(parts), rounding(parts))


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')")
def test_powersgd_is_pytorchs_hook() -> None:
    """The first two steps are exact; the later ones lose, and matrices of a low rank lose nothing."""
    parts, power = gradients(4), PowerMean(shapes_of(LAYERS))
    assert [error(power(parts), parts) < 1e-10 for _ in range(3)] == [True, True, False]
    rng = np.random.default_rng(5)
    flat = [rng.standard_normal((rows, 2)) @ rng.standard_normal((2, columns)) for rows, columns in ((64, 8), (8, 10))]
    low = np.concatenate([flat[0].ravel(), np.ones(8), flat[1].ravel(), np.ones(10)]).astype(np.float32)
    exact = PowerMean(shapes_of(LAYERS))
    assert all(error(exact([low] * WORKERS), [low]) < 1e-8 for _ in range(4))


def test_shapes_are_those_of_the_layers() -> None:
    assert shapes_of(LAYERS) == [(64, 8), (8,), (8, 10), (10,)]


def test_steps_end_at_the_accuracy_or_the_limit() -> None:
    workload = make_workload("digits", 1, 16)

    def exact(those: Sequence[Floats]) -> Floats:
        mean: Floats = np.mean(those, axis=0, dtype=np.float32)
        return mean

    steps = steps_to_accuracy(workload, 0.5, exact, 0.2, 0.9, 1, 40)
    assert steps is not None
    assert 1 <= steps <= 40
    assert steps_to_accuracy(workload, 1.1, exact, 0.2, 0.9, 1, 3) is None
    with np.errstate(over="ignore", invalid="ignore"):
        assert steps_to_accuracy(workload, 1.1, exact, 1e30, 0.9, 1, 40) is None


def test_rings_carry_their_bytes_at_line_rate() -> None:
    assert ring_sum_s(8, 1000, 8000.0, 0.0) == pytest.approx(1.75)
    assert ring_gather_s(8, 1000, 8000.0, 0.5) == pytest.approx(7 * 1.5)
