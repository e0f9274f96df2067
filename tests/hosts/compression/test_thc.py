"""One-step error of packed numbers beside THC's table of 16 values in 0 … 30, on gradients of the digits' network."""

from __future__ import annotations

import numpy as np
import pytest

from weir.hosts.numerics.rotation import rotate, rotate_back
from weir.hosts.numerics.tensors import reference_sum
from weir.training.workloads.digits import TrainingJob, TrainingOptions

WORKERS = 8
BLOCK = 1024
TABLE = np.array([0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30])
CLIP = 2.153875
"""Normal quantile that 1 of 32 numbers exceeds."""


def recorded(step: int) -> list[np.ndarray]:
    """Gradients of all workers at a step of training by exact means."""
    job = TrainingJob(TrainingOptions(hidden=64), WORKERS, 0)
    for number in range(step + 1):
        gradients = [job.gradient(worker, number) / np.float32(16) for worker in range(WORKERS)]
        for worker in range(WORKERS):
            job.apply_to(worker, np.mean(gradients, axis=0, dtype=np.float32))
    return gradients


def table_sum(arrays: list[np.ndarray], seed: int) -> np.ndarray:
    """THC's sum: rotation, the largest L2 norm, clipping, stochastic rounding to the table; one byte a number down."""
    rng = np.random.default_rng(seed)
    padded = [np.pad(array, (0, -array.size % BLOCK)).reshape(-1, BLOCK) for array in arrays]
    signs = rng.integers(0, 2, padded[0].shape, np.uint32) << np.uint32(31)
    turned = [rotate(each, signs).ravel().astype(np.float64) for each in padded]
    scale = np.sqrt(turned[0].size) / max(np.linalg.norm(each) for each in turned)
    total = np.zeros(turned[0].size)
    for each in turned:
        place = (np.clip(each * scale, -CLIP, CLIP) + CLIP) / (2 * CLIP) * TABLE[-1]
        high = np.clip(np.searchsorted(TABLE, place), 1, len(TABLE) - 1)
        share = (place - TABLE[high - 1]) / (TABLE[high] - TABLE[high - 1])
        total += np.where(rng.random(place.size) < share, TABLE[high], TABLE[high - 1])
    decoded = (total - WORKERS * TABLE[-1] / 2) * 2 * CLIP / TABLE[-1] / scale
    return rotate_back(decoded.astype(np.float32).reshape(-1, BLOCK), signs).ravel()[: arrays[0].size]


def error(total: np.ndarray, arrays: list[np.ndarray]) -> float:
    """Squared error relative to the sum's own square."""
    right = np.sum(arrays, axis=0, dtype=np.float64)
    return float(np.square(total - right).sum() / np.square(right).sum())


@pytest.mark.parametrize("step", [0, 10, 30])
def test_packed8_has_half_the_tables_error_at_equal_bytes(step: int) -> None:
    arrays = recorded(step)
    packed = np.mean([error(reference_sum(arrays, dtype="packed8", seed=seed), arrays) for seed in range(3)])
    table = np.mean([error(table_sum(arrays, seed), arrays) for seed in range(3)])
    assert packed < table / 2
