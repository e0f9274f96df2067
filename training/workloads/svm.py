"""A sparse linear support vector machine on hashed words of Python's help topics, 2¹⁶ features.

A sample is 24 consecutive words. Its class is +1 if its topic is among the first half by name, −1 otherwise. Most
entries of a gradient are 0, which is the purpose of this workload.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..python_text import topics
from ..samples import Rows
from ..workload import Batch, Floats, Workload, WorkloadDescription

FEATURES: Final = 1 << 16
WORDS: Final = 24
"""Words of a sample."""
HELD_OUT_SHARE: Final = 0.2


@cache
def load_samples() -> tuple[NDArray[np.int64], Floats]:
    """Return features of each sample's words, int64 (samples, WORDS), and its class, float32 (samples,) of −1 and 1."""
    texts, features, classes = topics(), [], []
    for number, text in enumerate(texts):
        hashed = [zlib.crc32(word.encode()) % FEATURES for word in re.findall(r"\w+", text.lower())]
        whole = len(hashed) // WORDS * WORDS
        features.append(np.array(hashed[:whole], np.int64).reshape(-1, WORDS))
        classes.append(np.full(whole // WORDS, 1 if number < len(texts) // 2 else -1, np.float32))
    return np.concatenate(features), np.concatenate(classes)


class SparseSvm(Workload):
    """Mean hinge loss max(0, 1 − y · (w·x + b)), where x counts a sample's words, each as 1 / √WORDS."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        features, classes = load_samples()
        order = rng.permutation(len(classes))
        held_out = int(HELD_OUT_SHARE * len(classes))
        self._test = features[order[:held_out]], classes[order[:held_out]]
        self._train = features[order[held_out:]], classes[order[held_out:]]

    @property
    def layers(self) -> list[int]:
        return [FEATURES, 1]

    @property
    def rows(self) -> int:
        return len(self._train[1])

    def initial(self) -> Floats:
        return np.zeros(FEATURES + 1, np.float32)

    def fetch(self, rows: Rows) -> Batch:
        return self._train[0][rows], self._train[1][rows]

    def held_out(self) -> Batch:
        return self._test

    def gradient(self, weights: Floats, batch: Batch) -> Floats:
        features, classes = batch
        wrong = classes * _margins(weights, features) < 1
        pull = np.where(wrong, -classes / np.float32(len(classes)), np.float32(0))
        gradient = np.zeros(FEATURES + 1, np.float32)
        np.add.at(gradient, features, (pull * _unit())[:, None])
        gradient[-1] = pull.sum()
        return gradient

    def batch_loss(self, weights: Floats, batch: Batch) -> float:
        features, classes = batch
        return float(np.maximum(0, 1 - classes * _margins(weights, features)).mean())

    def batch_accuracy(self, weights: Floats, batch: Batch) -> float:
        features, classes = batch
        return float(np.mean(classes * _margins(weights, features) > 0))

    def torch_loss(self, weights: Any, batch: Batch) -> Any:
        import torch

        features, classes = (torch.from_numpy(array) for array in batch)
        margins = weights[features].sum(dim=1) * float(_unit()) + weights[-1]
        return torch.relu(1 - classes * margins).mean()


def _unit() -> np.float32:
    return np.float32(WORDS**-0.5)


def _margins(weights: Floats, features: NDArray[np.int64]) -> Floats:
    margins: Floats = weights[features].sum(axis=1) * _unit() + weights[-1]
    return margins


DESCRIPTION: Final = WorkloadDescription(
    "svm", "a sparse linear SVM on hashed words of Python's help topics, 2¹⁶ features", lambda seed, _: SparseSvm(seed)
)
