"""A character-level transformer that predicts the next character of the text of Python's help topics.

::

    characters ─▶ embedding + position ─▶ block ─▶ block ─▶ norm ─▶ logits of the next character
    block: x + attention(norm(x)), then y + relu(norm(y) · W₁ + b₁) · W₂ + b₂; norm: zero mean, unit variance
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..python_text import topics
from ..samples import Rows
from ..workload import Batch, Floats, Workload, WorkloadDescription
from .digits import cross_entropy, share_right, softmax

SYMBOLS: Final = 97
"""Printable ASCII, newline, and one for all other characters."""
CONTEXT: Final = 32
"""Characters of a sample."""
WIDTH: Final = 32
HEADS: Final = 2
INNER: Final = 64
BLOCKS: Final = 2
HELD_OUT: Final = 64
"""Samples that are not trained with, spread over the text."""
_EPSILON: Final = 1e-5
_SCALE: Final = np.float32((WIDTH // HEADS) ** -0.5)
_BLOCK_SHAPES: Final = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, INNER), (INNER,), (INNER, WIDTH), (WIDTH,))
_SHAPES: Final = ((SYMBOLS, WIDTH), (CONTEXT, WIDTH), *_BLOCK_SHAPES * BLOCKS, (WIDTH, SYMBOLS))
_SIZES: Final = [int(np.prod(shape)) for shape in _SHAPES]
_PER_BLOCK: Final = len(_BLOCK_SHAPES)


@cache
def load_windows() -> NDArray[np.int64]:
    """Return the text in samples of CONTEXT + 1 symbols, int64 (samples, CONTEXT + 1); the last is the target of the
    one before.
    """
    codes = np.frombuffer("\n".join(topics()).encode("latin-1", "replace"), np.uint8).astype(np.int64)
    symbols = np.where((codes >= 32) & (codes < 127), codes - 32, np.where(codes == 10, SYMBOLS - 2, SYMBOLS - 1))
    count = (len(symbols) - 1) // CONTEXT
    starts = CONTEXT * np.arange(count)
    windows: NDArray[np.int64] = symbols[starts[:, None] + np.arange(CONTEXT + 1)]
    return windows


class _Block(NamedTuple):
    """Values of a block's forward pass that its backward pass needs."""

    normed: Floats
    deviation: Floats
    queries: Floats
    keys: Floats
    values: Floats
    attention: Floats
    mixed: Floats
    second_normed: Floats
    second_deviation: Floats
    inner: Floats


class CharacterTransformer(Workload):
    """Two blocks of two heads, 23,808 parameters; the loss is the mean cross entropy of a character, in nats."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        windows = load_windows()
        held_out = np.zeros(len(windows), np.bool_)
        held_out[rng.choice(len(windows), HELD_OUT, replace=False)] = True
        self._train, self._test = windows[~held_out], windows[held_out]
        drawn = [
            np.zeros(shape) if len(shape) == 1 else rng.normal(0, 0.1 if shape[0] > WIDTH else shape[0] ** -0.5, shape)
            for shape in _SHAPES
        ]
        self._start = np.concatenate([part.ravel() for part in drawn]).astype(np.float32)

    @property
    def layers(self) -> list[int]:
        return list(_SIZES)

    @property
    def rows(self) -> int:
        return len(self._train)

    def initial(self) -> Floats:
        return self._start.copy()

    def fetch(self, rows: Rows) -> Batch:
        windows = self._train[rows]
        return windows[:, :-1], windows[:, 1:]

    def held_out(self) -> Batch:
        return self._test[:, :-1], self._test[:, 1:]

    def gradient(self, weights: Floats, batch: Batch) -> Floats:
        symbols, targets = batch
        parts = _parts(weights)
        logits, normed, deviation, blocks = _forward(parts, symbols)
        flat = softmax(logits.reshape(-1, SYMBOLS))
        flat[np.arange(targets.size), targets.ravel()] -= 1
        error: Floats = (flat / np.float32(targets.size)).reshape(logits.shape)
        gradients: list[Floats] = [_outer(normed, error)]
        of_norm: Floats = error @ parts[-1].T
        back = _norm_back(of_norm, normed, deviation)
        for number in reversed(range(BLOCKS)):
            at = 2 + number * _PER_BLOCK
            back, of_block = _block_back(parts[at : at + _PER_BLOCK], blocks[number], back)
            gradients = [*of_block, *gradients]
        embedding = np.zeros((SYMBOLS, WIDTH), np.float32)
        np.add.at(embedding, symbols, back)
        return np.concatenate([part.ravel() for part in (embedding, back.sum(axis=0), *gradients)], dtype=np.float32)

    def batch_loss(self, weights: Floats, batch: Batch) -> float:
        return cross_entropy(_forward(_parts(weights), batch[0])[0].reshape(-1, SYMBOLS), batch[1].ravel())

    def batch_accuracy(self, weights: Floats, batch: Batch) -> float:
        """Share of the characters that are predicted."""
        return share_right(_forward(_parts(weights), batch[0])[0].reshape(-1, SYMBOLS), batch[1].ravel())

    def torch_loss(self, weights: Any, batch: Batch) -> Any:
        import torch
        from torch.nn import functional

        parts = [part.reshape(shape) for part, shape in zip(weights.split(_SIZES), _SHAPES, strict=True)]
        symbols, targets = (torch.from_numpy(np.ascontiguousarray(array)) for array in batch)
        stream = parts[0][symbols] + parts[1]
        for index in range(2, len(parts) - 1, _PER_BLOCK):
            joint, out, first, first_bias, second, second_bias = parts[index : index + _PER_BLOCK]
            projected = functional.layer_norm(stream, [WIDTH], eps=_EPSILON) @ joint
            queries, keys, values = (
                projection.unflatten(-1, (HEADS, -1)).transpose(1, 2) for projection in projected.chunk(3, dim=-1)
            )
            mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            stream = stream + mixed.transpose(1, 2).flatten(2) @ out
            inner = functional.relu(functional.layer_norm(stream, [WIDTH], eps=_EPSILON) @ first + first_bias)
            stream = stream + inner @ second + second_bias
        logits = functional.layer_norm(stream, [WIDTH], eps=_EPSILON) @ parts[-1]
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _parts(weights: Floats) -> list[Floats]:
    split = np.split(weights, np.cumsum(_SIZES)[:-1])
    return [part.reshape(shape) for part, shape in zip(split, _SHAPES, strict=True)]


def _forward(parts: list[Floats], symbols: NDArray[np.int64]) -> tuple[Floats, Floats, Floats, list[_Block]]:
    """Return logits (n, CONTEXT, SYMBOLS), the last norm and its deviation, and the blocks' intermediate values."""
    stream, blocks = parts[0][symbols] + parts[1], []
    for index in range(2, len(parts) - 1, _PER_BLOCK):
        stream, block = _block(parts[index : index + _PER_BLOCK], stream)
        blocks.append(block)
    normed, deviation = _norm(stream)
    return normed @ parts[-1], normed, deviation, blocks


def _block(parts: list[Floats], stream: Floats) -> tuple[Floats, _Block]:
    joint, out, first, first_bias, second, second_bias = parts
    normed, deviation = _norm(stream)
    queries, keys, values = (_heads(projection) for projection in np.split(normed @ joint, 3, axis=-1))
    scores = queries @ keys.swapaxes(-1, -2) * _SCALE
    scores = np.where(np.tri(CONTEXT, dtype=np.bool_), scores, np.float32(-np.inf))
    attention = softmax(scores.reshape(-1, CONTEXT)).reshape(scores.shape)
    mixed = _joined(attention @ values)
    middle = stream + mixed @ out
    second_normed, second_deviation = _norm(middle)
    inner = np.maximum(second_normed @ first + first_bias, np.float32(0))
    block = _Block(normed, deviation, queries, keys, values, attention, mixed, second_normed, second_deviation, inner)
    return middle + inner @ second + second_bias, block


def _block_back(parts: list[Floats], kept: _Block, back: Floats) -> tuple[Floats, list[Floats]]:
    """Gradient of the block's input, and of its parts, from the gradient of its output."""
    joint, out, first, _, second, _ = parts
    of_inner: Floats = (back @ second.T) * (kept.inner > 0)
    of_second_norm: Floats = of_inner @ first.T
    middle: Floats = back + _norm_back(of_second_norm, kept.second_normed, kept.second_deviation)
    of_mixed = _heads(middle @ out.T)
    of_attention = of_mixed @ kept.values.swapaxes(-1, -2)
    of_values = kept.attention.swapaxes(-1, -2) @ of_mixed
    weighted = (of_attention * kept.attention).sum(axis=-1, keepdims=True)
    of_scores = kept.attention * (of_attention - weighted) * _SCALE
    of_heads = (of_scores @ kept.keys, of_scores.swapaxes(-1, -2) @ kept.queries, of_values)
    of_joint = np.concatenate([_joined(heads) for heads in of_heads], axis=-1)
    gradients = [
        _outer(kept.normed, of_joint),
        _outer(kept.mixed, middle),
        _outer(kept.second_normed, of_inner),
        of_inner.sum(axis=(0, 1)),
        _outer(kept.inner, back),
        back.sum(axis=(0, 1)),
    ]
    of_norm: Floats = of_joint @ joint.T
    return middle + _norm_back(of_norm, kept.normed, kept.deviation), gradients


def _norm(stream: Floats) -> tuple[Floats, Floats]:
    """Zero mean and unit variance along the last axis, and the deviation that was divided by."""
    centred = stream - stream.mean(axis=-1, keepdims=True)
    deviation: Floats = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
    return centred / deviation, deviation


def _norm_back(back: Floats, normed: Floats, deviation: Floats) -> Floats:
    along = (back * normed).mean(axis=-1, keepdims=True)
    result: Floats = (back - back.mean(axis=-1, keepdims=True) - normed * along) / deviation
    return result


def _heads(stream: Floats) -> Floats:
    """(n, CONTEXT, WIDTH) to (n, HEADS, CONTEXT, WIDTH / HEADS)."""
    return stream.reshape(len(stream), CONTEXT, HEADS, -1).swapaxes(1, 2)


def _joined(heads: Floats) -> Floats:
    """Inverse of `_heads`."""
    return heads.swapaxes(1, 2).reshape(len(heads), CONTEXT, WIDTH)


def _outer(inputs: Floats, errors: Floats) -> Floats:
    """Gradient of a matrix: summed over samples and positions."""
    result: Floats = inputs.reshape(-1, inputs.shape[-1]).T @ errors.reshape(-1, errors.shape[-1])
    return result


DESCRIPTION: Final = WorkloadDescription(
    "transformer",
    "a character-level transformer on the text of Python's help topics",
    lambda seed, _: CharacterTransformer(seed),
)
