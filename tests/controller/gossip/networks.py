"""Drawn iteration times of gossiping workers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

COMPUTE_S = 0.1


def two_racks_and_a_slow_pair(workers: int, rng: np.random.Generator) -> Floats:
    """0.12 s inside a rack, 0.5 s between racks, and one pair of 10 s."""
    rack = np.arange(workers) * 2 // workers
    times = np.where(rack[:, None] == rack, 0.12, 0.5)
    slow = rng.choice(workers, 2, replace=False)
    times[slow[0], slow[1]] = times[slow[1], slow[0]] = 10.0
    return _with_compute(times)


def lognormal(workers: int, rng: np.random.Generator) -> Floats:
    """A median of 0.3 s, and a factor of e more or less as deviation; the same both ways."""
    drawn = np.triu(rng.lognormal(np.log(0.3), 1.0, (workers, workers)), 1)
    return _with_compute(drawn + drawn.T)


def one_slow_worker(workers: int, rng: np.random.Generator) -> Floats:
    """All pairs 0.12 s, those of one worker 2 to 100 times as long."""
    times = np.full((workers, workers), 0.12)
    slow, factor = rng.integers(workers), np.exp(rng.uniform(np.log(2), np.log(100)))
    times[slow], times[:, slow] = 0.12 * factor, 0.12 * factor
    return _with_compute(times)


def drawn(number: int, workers: int) -> Floats:
    """The network of that number, of three kinds in turn."""
    rng = np.random.default_rng((48, number))
    return (two_racks_and_a_slow_pair, lognormal, one_slow_worker)[number % 3](workers, rng)


def _with_compute(times: Floats) -> Floats:
    seconds: Floats = np.maximum(times, COMPUTE_S)
    np.fill_diagonal(seconds, COMPUTE_S)
    return seconds
