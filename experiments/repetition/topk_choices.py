"""Choices of the largest magnitudes: MSTopK as published and as mended here, beside exact selections and a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np

from ...hosts.array_types import IntArray
from ...hosts.compression.mstopk import largest
from ...hosts.numerics.quantization import Float32Array
from .compressed_steps import processor_seconds
from .paper import Paper, Quantity, Sample

OVERLAP: Final = Quantity("share of the k largest that is chosen", "%", less_is_better=False)
CHOSEN: Final = Quantity("numbers chosen, of the k asked for", "%")
TIME: Final = Quantity("choice", "ms")
SIZE: Final = 1 << 20
SEARCHES: Final = 20
"""Thresholds that MSTopK tries."""
_SAMPLE: Final = 0.01
"""Share of the numbers of which DGC takes its threshold."""

Choose = Callable[[Float32Array, int, np.random.Generator], IntArray]


def published(values: Float32Array, k: int, rng: np.random.Generator) -> IntArray:
    """Choose by MSTopK as Shi et al. (MLSys 2021) have it: 20 thresholds between the mean and the largest magnitude.

    What the closest threshold above lacks is taken from a run of the band below it, which begins at a random place. A
    threshold that was never found is infinite, so that numbers without any above it are all in the band.
    """
    magnitudes = np.abs(values)
    mean, top = magnitudes.mean(), magnitudes.max()
    low, high = 0.0, 1.0
    fewer, more, above, below = 0, values.size, np.inf, 0.0
    for _ in range(SEARCHES):
        middle = (low + high) / 2
        threshold = float(mean + middle * (top - mean))
        count = int(np.count_nonzero(magnitudes >= threshold))
        if count <= k:
            high = middle
            if count > fewer:
                fewer, above = count, threshold
        else:
            low = middle
            if count < more:
                more, below = count, threshold
    sure = np.flatnonzero(magnitudes >= above)
    band = np.flatnonzero((magnitudes < above) & (magnitudes >= below))
    first = int(rng.integers(0, more - k + 1))
    chosen: IntArray = np.concatenate([sure, band[first : first + k - fewer]])
    return chosen


def sampled(values: Float32Array, k: int, rng: np.random.Generator) -> IntArray:
    """Choose what exceeds the threshold of a sample of 1 %, as DGC and GradDrop do."""
    magnitudes = np.abs(values)
    sample = np.sort(magnitudes[rng.integers(0, values.size, int(_SAMPLE * values.size))])
    chosen: IntArray = np.flatnonzero(magnitudes > sample[max(0, sample.size - 1 - k * sample.size // values.size)])
    return chosen


def _partitioned(values: Float32Array, k: int, rng: np.random.Generator) -> IntArray:
    chosen: IntArray = np.argpartition(np.abs(values), values.size - k)[values.size - k :]
    return chosen


def _sorted(values: Float32Array, k: int, rng: np.random.Generator) -> IntArray:
    chosen: IntArray = np.argsort(np.abs(values))[values.size - k :]
    return chosen


CHOICES: Final[Mapping[str, Choose]] = {
    "mended": lambda values, k, rng: largest(values, k),
    "published": published,
    "argpartition": _partitioned,
    "sort": _sorted,
    "sampled": sampled,
}
"""Choices by the names of the contenders."""


def _outlier(rng: np.random.Generator) -> Float32Array:
    values = rng.standard_normal(SIZE, dtype=np.float32)
    values[int(rng.integers(SIZE))] = 1e6
    return values


CASES: Final[Mapping[str, tuple[Callable[[np.random.Generator], Float32Array], float]]] = {
    "normal, 1 %": (lambda rng: rng.standard_normal(SIZE, dtype=np.float32), 0.01),
    "Laplace, 1 %": (lambda rng: rng.laplace(size=SIZE).astype(np.float32), 0.01),
    "Student's t of 3, 0.1 %": (lambda rng: rng.standard_t(3, SIZE).astype(np.float32), 0.001),
    "normal and one number of 10^6, 1 %": (_outlier, 0.01),
    "normal, 60 %": (lambda rng: rng.standard_normal(SIZE, dtype=np.float32), 0.6),
    "zeros, 1 %": (lambda rng: np.zeros(SIZE, np.float32), 0.01),
}
"""Numbers, and the share that is chosen."""


def overlap(values: Float32Array, chosen: IntArray, k: int) -> float:
    """Return the share of the k largest magnitudes that is among the chosen ones; equal ones are as good.

    Args:
        values: The numbers, (n,).
        chosen: Indices.
        k: Numbers that were asked for.
    """
    magnitudes = np.abs(values)
    least = np.partition(magnitudes, values.size - k)[values.size - k]
    return min(k, int(np.count_nonzero(magnitudes[np.unique(chosen)] >= least))) / k


def topk_choices(paper: Paper) -> Iterator[Sample]:
    """Measure `TIME`, `OVERLAP` and `CHOSEN` of all contenders in all cases."""
    for case, (draw, share) in CASES.items():
        for seed in range(1, 1 + paper.seeds):
            values = draw(np.random.default_rng((seed, 5)))
            k = int(share * SIZE)
            for name, choose in CHOICES.items():
                chosen = choose(values, k, np.random.default_rng(seed))
                spent_s = processor_seconds(partial(choose, values, k, np.random.default_rng(seed)), runs=3)
                yield Sample(TIME.name, case, name, seed, 1e3 * spent_s)
                yield Sample(OVERLAP.name, case, name, seed, 100 * overlap(values, chosen, k))
                yield Sample(CHOSEN.name, case, name, seed, 100 * chosen.size / k)
