"""Encoders in PyTorch as public collections write them, for `torch.compile`: the peer of CompLL's generated code.

Work and codes are those of `plain_codecs`, in PyTorch's operators and with its random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

_RATIO: Final = 0.01
_SAMPLES: Final = 1000
_THRESHOLD: Final = 0.01


def _packed(levels: torch.Tensor) -> torch.Tensor:
    rows = levels.view(-1, 4)
    return rows[:, 0] << 6 | rows[:, 1] << 4 | rows[:, 2] << 2 | rows[:, 3]


def onebit(values: torch.Tensor) -> Any:
    """Encode by the signs and the means of both."""
    below = values < 0
    count = below.sum()
    low = torch.where(below, values, 0.0).sum() / count
    high = torch.where(below, 0.0, values).sum() / (values.numel() - count)
    rows = below.view(-1, 8).to(torch.uint8)
    signs = rows[:, 0] << 7
    for column in range(1, 8):
        signs = signs | rows[:, column] << (7 - column)
    return low, high, signs, values.numel()


def tbq(values: torch.Tensor) -> Any:
    """Encode by a threshold."""
    levels = 1 + (values >= _THRESHOLD).to(torch.uint8) - (values <= -_THRESHOLD).to(torch.uint8)
    return _packed(levels)


def terngrad(values: torch.Tensor) -> Any:
    """Encode by stochastic rounding to −1, 0 and 1 times the largest magnitude."""
    magnitudes = values.abs()
    scale = magnitudes.max()
    kept = torch.rand_like(values) < magnitudes / scale
    return scale, _packed((values.sign() * kept + 1).to(torch.uint8))


def _threshold(magnitudes: torch.Tensor) -> torch.Tensor:
    sample = magnitudes[torch.randint(0, magnitudes.numel(), (_SAMPLES,))]
    return sample.sort().values[-int(_RATIO * _SAMPLES)]


def graddrop(values: torch.Tensor) -> Any:
    """Encode what exceeds a sampled threshold."""
    magnitudes = values.abs()
    (at,) = torch.where(magnitudes > _threshold(magnitudes))
    return at.int(), values[at], values.numel()


def dgc(values: torch.Tensor) -> Any:
    """Encode what exceeds a threshold that is moved until about as many exceed it as wanted."""
    magnitudes = values.abs()
    threshold, wanted = _threshold(magnitudes), int(_RATIO * values.numel())
    mask = magnitudes > threshold
    for _ in range(10):
        count = int(mask.sum())
        if 0.7 * wanted <= count <= 1.3 * wanted:
            break
        threshold = threshold * (1.3 if count > 1.3 * wanted else 0.7)
        mask = magnitudes > threshold
    (at,) = torch.where(mask)
    return at.int(), values[at], values.numel()


TORCH: Final[dict[str, Callable[[torch.Tensor], Any]]] = {
    "onebit": onebit,
    "tbq": tbq,
    "terngrad": terngrad,
    "graddrop": graddrop,
    "dgc": dgc,
}
"""Encoder by name."""
