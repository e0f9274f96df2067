"""Codecs in plain NumPy as public collections of codecs write them: the peer of CompLL's native code.

Each is the NumPy form of GRACE's or HiPress' published code: masks and selections of whole arrays, NumPy's own random
numbers, several numbers to a byte. They do the work of the files in examples/codecs, not bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]

_RATIO: Final = 0.01
_SAMPLES: Final = 1000
_THRESHOLD: Final = np.float32(0.01)


def _packed(levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rows = levels.reshape(-1, 4)
    data: NDArray[np.uint8] = (rows[:, 0] << 6 | rows[:, 1] << 4 | rows[:, 2] << 2 | rows[:, 3]).astype(
        np.uint8, copy=False
    )
    return data


def _unpacked(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    levels = np.empty((data.size, 4), np.uint8)
    for column in range(4):
        levels[:, column] = data >> (6 - 2 * column) & 3
    return levels.ravel()


def onebit(values: Values, rng: np.random.Generator) -> Any:
    """Encode by the signs and the means of both."""
    below = values < 0
    low, high = values[below].mean(), values[~below].mean()
    return low, high, np.packbits(below), values.size


def onebit_back(code: Any) -> Values:
    """Decode `onebit`."""
    low, high, signs, size = code
    values: Values = np.where(np.unpackbits(signs, count=size).astype(np.bool_), low, high)
    return values


def tbq(values: Values, rng: np.random.Generator) -> Any:
    """Encode by a threshold."""
    return _packed((1 + (values >= _THRESHOLD).astype(np.int8) - (values <= -_THRESHOLD)).astype(np.uint8))


def tbq_back(code: Any) -> Values:
    """Decode `tbq`."""
    return (_unpacked(code).astype(np.float32) - np.float32(1)) * _THRESHOLD


def terngrad(values: Values, rng: np.random.Generator) -> Any:
    """Encode by stochastic rounding to −1, 0 and 1 times the largest magnitude."""
    magnitudes = np.abs(values)
    scale = magnitudes.max()
    kept = rng.random(values.size, dtype=np.float32) < magnitudes / scale
    return scale, _packed((np.sign(values) * kept + 1).astype(np.uint8))


def terngrad_back(code: Any) -> Values:
    """Decode `terngrad`."""
    scale, levels = code
    values: Values = (_unpacked(levels).astype(np.float32) - np.float32(1)) * scale
    return values


def _threshold(magnitudes: Values, rng: np.random.Generator) -> np.float32:
    sample = magnitudes[rng.integers(0, magnitudes.size, _SAMPLES)]
    return np.float32(np.sort(sample)[-int(_RATIO * _SAMPLES)])


def graddrop(values: Values, rng: np.random.Generator) -> Any:
    """Encode what exceeds a sampled threshold."""
    magnitudes = np.abs(values)
    (at,) = np.nonzero(magnitudes > _threshold(magnitudes, rng))
    return at.astype(np.int32), values[at], values.size


def sparse_back(code: Any) -> Values:
    """Decode `graddrop` and `dgc`."""
    at, kept, size = code
    out = np.zeros(size, np.float32)
    out[at] = kept
    return out


def dgc(values: Values, rng: np.random.Generator) -> Any:
    """Encode what exceeds a threshold that is moved until about as many exceed it as wanted."""
    magnitudes = np.abs(values)
    threshold, wanted = _threshold(magnitudes, rng), int(_RATIO * values.size)
    mask = magnitudes > threshold
    for _ in range(10):
        count = int(mask.sum())
        if 0.7 * wanted <= count <= 1.3 * wanted:
            break
        threshold *= np.float32(1.3 if count > 1.3 * wanted else 0.7)
        mask = magnitudes > threshold
    (at,) = np.nonzero(mask)
    return at.astype(np.int32), values[at], values.size


PLAIN: Final[dict[str, tuple[Callable[[Values, np.random.Generator], Any], Callable[[Any], Values]]]] = {
    "onebit": (onebit, onebit_back),
    "tbq": (tbq, tbq_back),
    "terngrad": (terngrad, terngrad_back),
    "graddrop": (graddrop, sparse_back),
    "dgc": (dgc, sparse_back),
}
"""Encoder and decoder by name."""
