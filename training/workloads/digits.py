"""The demo's job: a small network on scikit-learn's handwritten digits, trained data-parallel by synchronous SGD.

Every worker holds a replica of the weights and a shard of the training images. A step is: each worker computes the
*sum* of its batch's gradients; the sums are added over the workers (by a fabric, or NumPy alone); each replica applies
the mean. Equal totals therefore keep the replicas equal to the last bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..optimiser import Optimiser
from ..optimisers import OPTIMISERS, make_optimiser
from ..replicated import ReplicatedJob
from ..workload import Batch, Floats, Workload, WorkloadDescription

CLASSES: Final = 10
PIXELS: Final = 64
TEST_SHARE: Final = 0.2
IMAGES: Final = 1797
"""Number of images in scikit-learn's set, both parts together."""


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of the job's training."""

    hidden: int = 128
    """Units of the hidden layer."""
    batch: int = 16
    """Images per worker and step."""
    steps: int = 150
    learning_rate: float = 0.15
    momentum: float = 0.9
    """Momentum, for optimisers that have one."""
    optimiser: str = "sgd"
    """Name or path of the optimiser."""
    optimiser_options: Mapping[str, float] = field(default_factory=dict)
    """Its other options."""

    def new_optimiser(self, layers: Sequence[int]) -> Optimiser:
        """Return the optimiser at its start. Raises TrainingError for an unknown optimiser or invalid options."""
        return make_optimiser(self.optimiser, layers, self.learning_rate, **self.all_optimiser_options)

    @property
    def all_optimiser_options(self) -> Mapping[str, float]:
        """Options besides the learning rate, with the momentum if the optimiser has one."""
        own = OPTIMISERS.describe(self.optimiser).option_names
        return {**({"momentum": self.momentum} if "momentum" in own else {}), **self.optimiser_options}

    @property
    def layers(self) -> list[int]:
        """Lengths of the layers of the digits' network."""
        return [PIXELS * self.hidden, self.hidden, self.hidden * CLASSES, CLASSES]

    @property
    def parameters(self) -> int:
        """Number of trained values, which is the length of a gradient."""
        return sum(self.layers)

    def passes(self, workers: int) -> float:
        """Return the mean number of times that this many workers see each training image."""
        return self.steps * self.batch * workers / (IMAGES * (1 - TEST_SHARE))


@dataclass(frozen=True, slots=True)
class Digits:
    """The images, (n, 64) float32 in 0…1, and their labels, split into a training and a held-out part."""

    train_images: Floats
    train_labels: NDArray[np.int64]
    test_images: Floats
    test_labels: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Save the data for processes without scikit-learn."""
        np.savez(path, **{array.name: getattr(self, array.name) for array in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Digits:
        """Read arrays that `save` wrote to an npz file."""
        with np.load(path) as arrays:
            return cls(*(arrays[array.name] for array in fields(cls)))


@cache
def load_digits(seed: int) -> Digits:
    """Return scikit-learn's 1,797 digits of 8 × 8 pixels, split in a stratified way by `seed`."""
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    data = load()
    images = (data.data / 16.0).astype(np.float32)
    labels = data.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=TEST_SHARE, random_state=seed, stratify=labels
    )
    return Digits(train_x, train_y, test_x, test_y)


class DigitsReplica:
    """One worker's copy of the network: 64 → hidden (ReLU) → 10 (softmax, cross entropy), and an optimiser."""

    def __init__(self, options: TrainingOptions, seed: int) -> None:
        self._options = options
        rng = np.random.default_rng(seed)
        hidden = options.hidden
        self.weights: Floats = np.concatenate(
            [
                rng.normal(0, np.sqrt(2 / PIXELS), PIXELS * hidden),
                np.zeros(hidden),
                rng.normal(0, np.sqrt(1 / hidden), hidden * CLASSES),
                np.zeros(CLASSES),
            ]
        ).astype(np.float32)
        self._optimiser = options.new_optimiser(options.layers)

    def _layers(self) -> tuple[Floats, Floats, Floats, Floats]:
        hidden = self._options.hidden
        ends = np.cumsum([PIXELS * hidden, hidden, hidden * CLASSES])
        first, first_bias, second, second_bias = np.split(self.weights, ends)
        return first.reshape(PIXELS, hidden), first_bias, second.reshape(hidden, CLASSES), second_bias

    def gradient(self, images: Floats, labels: NDArray[np.int64]) -> Floats:
        """Sum over the batch of the loss's gradient, flat, shape (parameters,)."""
        first, first_bias, second, second_bias = self._layers()
        hidden = np.maximum(images @ first + first_bias, np.float32(0))
        error = softmax(hidden @ second + second_bias)
        error[np.arange(len(labels)), labels] -= 1
        back = (error @ second.T) * (hidden > 0)
        return np.concatenate(
            [(images.T @ back).ravel(), back.sum(axis=0), (hidden.T @ error).ravel(), error.sum(axis=0)],
            dtype=np.float32,
        )

    def apply(self, mean: Floats) -> None:
        """Make one step of the optimiser with the mean gradient over all workers' samples."""
        self.weights = self._optimiser.step(self.weights, mean)

    def accuracy(self, images: Floats, labels: NDArray[np.int64]) -> float:
        """Share of the images that the network names right, 0…1."""
        return share_right(self.logits(images), labels)

    def logits(self, images: Floats) -> Floats:
        """Return the logits of images, (n, CLASSES)."""
        first, first_bias, second, second_bias = self._layers()
        hidden = np.maximum(images @ first + first_bias, np.float32(0))
        logits: Floats = hidden @ second + second_bias
        return logits


class TrainingJob(ReplicatedJob):
    """The digits' replicas, with the data in equal shares."""

    def __init__(self, options: TrainingOptions, workers: int, seed: int, data: Digits | None = None) -> None:
        """`data` are the digits as `seed` splits them, where they are at hand."""
        super().__init__(workers, options.steps)
        self.options = options
        self._data = data or load_digits(seed)
        self._replicas = [DigitsReplica(options, seed) for _ in range(workers)]
        self._shards = np.array_split(np.random.default_rng(seed).permutation(len(self._data.train_labels)), workers)

    def gradient(self, worker: int, step: int) -> Floats:
        shard = self._shards[worker]
        rows = shard[(np.arange(self.options.batch) + step * self.options.batch) % len(shard)]
        return self._replicas[worker].gradient(self._data.train_images[rows], self._data.train_labels[rows])

    def samples(self, worker: int) -> int:
        return self.options.batch

    def apply_to(self, worker: int, mean: Floats) -> None:
        self._replicas[worker].apply(mean)

    def weights(self, worker: int) -> Floats:
        return self._replicas[worker].weights

    def accuracy(self, worker: int = 0) -> float:
        """Return the accuracy on the held-out images."""
        return self._replicas[worker].accuracy(self._data.test_images, self._data.test_labels)


class DigitsWorkload(Workload):
    """A network on the digits."""

    def __init__(self, seed: int, start: Floats) -> None:
        """`seed` splits the data; training begins with the weights `start`."""
        self._data = load_digits(seed)
        self._start = start

    @property
    def rows(self) -> int:
        return len(self._data.train_labels)

    def initial(self) -> Floats:
        return self._start.copy()

    def fetch(self, rows: NDArray[np.int64]) -> Batch:
        return self._data.train_images[rows], self._data.train_labels[rows]

    def held_out(self) -> Batch:
        return self._data.test_images, self._data.test_labels

    @abstractmethod
    def logits(self, weights: Floats, images: Floats) -> Floats:
        """Return the logits of images, (n, CLASSES)."""

    def batch_loss(self, weights: Floats, batch: Batch) -> float:
        images, labels = batch
        return cross_entropy(self.logits(weights, images), labels)

    def batch_accuracy(self, weights: Floats, batch: Batch) -> float:
        images, labels = batch
        return share_right(self.logits(weights, images), labels)


class DigitsNetwork(DigitsWorkload):
    """The demo's network."""

    def __init__(self, hidden: int, seed: int) -> None:
        self._options = TrainingOptions(hidden=hidden)
        self._replica = DigitsReplica(self._options, seed)
        super().__init__(seed, self._replica.weights)

    @property
    def layers(self) -> list[int]:
        return self._options.layers

    def gradient(self, weights: Floats, batch: Batch) -> Floats:
        self._replica.weights = weights
        total = self._replica.gradient(*batch)
        return total / np.float32(len(batch[-1]))

    def logits(self, weights: Floats, images: Floats) -> Floats:
        self._replica.weights = weights
        return self._replica.logits(images)

    def torch_loss(self, weights: Any, batch: Batch) -> Any:
        return perceptron_loss(weights, batch, PIXELS, self._options.hidden)


def perceptron_loss(weights: Any, batch: Batch, pixels: int, hidden: int) -> Any:
    """Return the mean cross entropy of pixels → hidden (ReLU) → CLASSES in PyTorch.

    Args:
        weights: Tensor of all weights and biases, layer by layer, (parameters,).
        batch: Images (n, pixels) and labels (n,).
        pixels: Number of inputs.
        hidden: Number of hidden units.

    Returns:
        The loss, a tensor of one number.
    """
    import torch
    from torch.nn import functional

    first, first_bias, second, second_bias = weights.split([pixels * hidden, hidden, hidden * CLASSES, CLASSES])
    images, labels = (torch.from_numpy(array) for array in batch)
    inner = functional.relu(images @ first.reshape(pixels, hidden) + first_bias)
    return functional.cross_entropy(inner @ second.reshape(hidden, CLASSES) + second_bias, labels)


def softmax(logits: Floats) -> Floats:
    """Return the softmax of each row, (n, classes)."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def share_right(logits: Floats, labels: NDArray[np.int64]) -> float:
    """Share of the rows whose largest entry is the label's, 0…1."""
    return float(np.mean(np.argmax(logits, axis=1) == labels))


def cross_entropy(logits: Floats, labels: NDArray[np.int64]) -> float:
    """Return the mean cross entropy over the rows.

    Args:
        logits: (n, classes).
        labels: Class of each row, (n,).
    """
    right = softmax(logits)[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.maximum(right, np.float32(1e-12)))))


DESCRIPTION: Final = WorkloadDescription(
    "digits",
    "a perceptron on scikit-learn's 1,797 digits of 8 × 8 pixels",
    lambda seed, hidden: DigitsNetwork(hidden, seed),
)
