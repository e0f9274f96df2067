"""Choices of the largest magnitudes: failures of MSTopK as published, and recorded overlaps."""

from __future__ import annotations

import numpy as np
import pytest

from weir.experiments.repetition.topk_choices import CHOICES, OVERLAP, overlap, published
from weir.tests.experiments.test_papers import recorded

SIZE = 1 << 14


def numbers() -> np.ndarray:
    return np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)


@pytest.mark.parametrize("name", ["mended", "published", "argpartition", "sort"])
def test_the_largest_of_normal_numbers_are_chosen(name: str) -> None:
    values, k = numbers(), SIZE // 100
    chosen = CHOICES[name](values, k, np.random.default_rng(2))
    assert len(set(chosen.tolist())) == k
    assert overlap(values, chosen, k) >= 0.99


def test_the_published_search_misses_beside_an_outlier_and_below_the_mean() -> None:
    values = numbers()
    dense = int(0.6 * SIZE)
    assert overlap(values, published(values, dense, np.random.default_rng(2)), dense) < 0.9
    values[5] = 1e6
    assert overlap(values, published(values, SIZE // 100, np.random.default_rng(2)), SIZE // 100) < 0.1


def test_a_choice_counts_each_index_once() -> None:
    values = np.array([4, -3, 2, 1], np.float32)
    assert overlap(values, np.array([0, 0]), 2) == 0.5
    assert overlap(values, np.array([1, 0, 2]), 2) == 1


def test_recorded_choices_of_the_mended_search_are_exact_everywhere() -> None:
    found = recorded("mstopk", OVERLAP.name)
    own = [value for (_, contender), value in found.items() if contender == "mended"]
    assert len(own) == 6
    assert min(own) == 100
