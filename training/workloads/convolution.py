"""A small convolutional network on the same images: 8 filters of 3 × 3, ReLU, means of 2 × 2, a dense layer."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..workload import Batch, Floats, WorkloadDescription
from .digits import CLASSES, DigitsWorkload, softmax

_SIDE: Final = 8
_KERNEL: Final = 3
_FILTERS: Final = 8
_OUT: Final = _SIDE - _KERNEL + 1
_POOLED: Final = _OUT // 2
_ENDS: Final = np.cumsum([_FILTERS * _KERNEL**2, _FILTERS, _FILTERS * _POOLED**2 * CLASSES, CLASSES])


class ConvolutionalNetwork(DigitsWorkload):
    """The network, initialised from `seed`, which also splits the data."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        filters = rng.normal(0, np.sqrt(2) / _KERNEL, _FILTERS * _KERNEL**2)
        dense = rng.normal(0, np.sqrt(1 / (_FILTERS * _POOLED**2)), _FILTERS * _POOLED**2 * CLASSES)
        start = np.concatenate([filters, np.zeros(_FILTERS), dense, np.zeros(CLASSES)]).astype(np.float32)
        super().__init__(seed, start)

    @property
    def layers(self) -> list[int]:
        return [int(size) for size in np.diff(_ENDS, prepend=0)]

    def gradient(self, weights: Floats, batch: Batch) -> Floats:
        images, labels = batch
        filters, filter_bias, dense, bias = _layers(weights)
        windows = _windows(images)
        mapped = windows @ filters.T + filter_bias
        pooled = _pooled(np.maximum(mapped, 0))
        error = softmax(pooled @ dense + bias)
        error[np.arange(len(labels)), labels] -= 1
        error /= np.float32(len(labels))
        back = (error @ dense.T).reshape(-1, _POOLED, 1, _POOLED, 1, _FILTERS) / np.float32(4)
        spread = np.broadcast_to(back, (len(labels), _POOLED, 2, _POOLED, 2, _FILTERS))
        maps = spread.reshape(len(labels), _OUT, _OUT, _FILTERS) * (mapped > 0)
        pixels = maps.reshape(-1, _FILTERS)
        parts = [pixels.T @ windows.reshape(-1, _KERNEL**2), pixels.sum(axis=0), pooled.T @ error, error.sum(axis=0)]
        return np.concatenate([part.ravel() for part in parts], dtype=np.float32)

    def logits(self, weights: Floats, images: Floats) -> Floats:
        filters, filter_bias, dense, bias = _layers(weights)
        mapped = _windows(images) @ filters.T + filter_bias
        logits: Floats = _pooled(np.maximum(mapped, 0)) @ dense + bias
        return logits

    def torch_loss(self, weights: Any, batch: Batch) -> Any:
        import torch
        from torch.nn import functional

        filters, filter_bias, dense, bias = weights.split(self.layers)
        images, labels = (torch.from_numpy(array) for array in batch)
        kernels = filters.reshape(_FILTERS, 1, _KERNEL, _KERNEL)
        maps = functional.relu(functional.conv2d(images.reshape(-1, 1, _SIDE, _SIDE), kernels, filter_bias))
        pooled = functional.avg_pool2d(maps, 2).permute(0, 2, 3, 1).flatten(1)
        return functional.cross_entropy(pooled @ dense.reshape(-1, CLASSES) + bias, labels)


def _layers(weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    filters, filter_bias, dense, bias = np.split(weights, _ENDS[:-1])
    return filters.reshape(_FILTERS, _KERNEL**2), filter_bias, dense.reshape(-1, CLASSES), bias


def _windows(images: Floats) -> Floats:
    """Every place of a filter: (n, out, out, kernel²)."""
    shaped = images.reshape(-1, _SIDE, _SIDE)
    return sliding_window_view(shaped, (_KERNEL, _KERNEL), axis=(1, 2)).reshape(len(shaped), _OUT, _OUT, _KERNEL**2)


def _pooled(maps: Floats) -> Floats:
    """Means of 2 × 2, flat: (n, pooled² · filters)."""
    means: Floats = maps.reshape(len(maps), _POOLED, 2, _POOLED, 2, _FILTERS).mean(axis=(2, 4))
    return means.reshape(len(maps), -1)


DESCRIPTION: Final = WorkloadDescription(
    "convolution", "a small convolutional network on the same digits", lambda seed, _: ConvolutionalNetwork(seed)
)
