"""Bit patterns of single workers through lanes that only add: everyone else adds zeros, for which no lanes are sent.

A worker's part is cut into pieces of an even number of words, each followed by a lane that is 1: its presence. A piece
never crosses chunks, so its presence in the sum says whether the worker's words are in the very same sum: a worker that
was lost half-way is missed by the piece. Pieces lie by rank, as many to a chunk as fit::

    chunk 0: │ rank 0: words … 1 │ rank 1: words … 1 │ …  chunk 1: │ …
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import LANES
from ..array_types import BoolArray
from ..numerics.datatypes import DataType
from ..numerics.quantization import Int32Array


def words_of(array: NDArray[Any]) -> Int32Array:
    """Return the bytes of an array of any type, in C order, as int32 (m,), padded with zeros."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = np.zeros(-(-data.size // 4), np.int32)
    words.view(np.uint8)[: data.size] = data
    return words


def array_of(words: Int32Array, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Return the inverse of `words_of`: an array of this shape from words (m,), or (n, m) for its first axis n."""
    rows = np.atleast_2d(words)
    count = math.prod(shape) * dtype.itemsize // max(len(rows), 1)
    data = np.ascontiguousarray(rows.view(np.uint8)[:, :count])
    return data.reshape(-1).view(dtype).reshape(tuple(shape))


@dataclass(frozen=True, slots=True)
class Gathering:
    """Layout of the parts of `ranks` workers, each of `words` words."""

    ranks: int
    words: int
    lanes: int = LANES
    """Lanes of a message."""

    @property
    def piece_words(self) -> int:
        """Even, so that no number of 8 bytes is in two pieces."""
        return min(self.words + self.words % 2, self.lanes - 2)

    @property
    def pieces(self) -> int:
        """Number of pieces of each worker."""
        return -(-self.words // self.piece_words) if self.words else 0

    @property
    def pieces_per_chunk(self) -> int:
        """Pieces of `piece_words` words, with a word of presence each, that fit the lanes of one chunk."""
        return self.lanes // (self.piece_words + 1)

    @property
    def chunks(self) -> int:
        """Number of chunks of the sum."""
        return -(-self.ranks * self.pieces // self.pieces_per_chunk)

    def chunks_of(self, rank: int) -> BoolArray:
        """Return a mask (chunks,) of the chunks with a piece of this worker."""
        mask = np.zeros(self.chunks, np.bool_)
        if self.pieces:
            first = rank * self.pieces
            mask[first // self.pieces_per_chunk : (first + self.pieces - 1) // self.pieces_per_chunk + 1] = True
        return mask

    def contribution(self, rank: int, words: Int32Array) -> Int32Array:
        """Return a worker's contribution with its part, int32 (chunks, lanes)."""
        lanes = np.zeros((self.chunks, self.lanes), np.int32)
        width = self.piece_words + 1
        pieces = np.zeros((self.pieces, width), np.int32)
        pieces[:, -1] = 1
        padded = np.zeros(self.pieces * self.piece_words, np.int32)
        padded[: self.words] = words
        pieces[:, :-1] = padded.reshape(self.pieces, self.piece_words)
        at = rank * self.pieces + np.arange(self.pieces)
        columns = at % self.pieces_per_chunk * width
        lanes[(at // self.pieces_per_chunk)[:, None], columns[:, None] + np.arange(width)] = pieces
        return lanes

    def parts(self, lanes: Int32Array) -> tuple[Int32Array, NDArray[np.bool_]]:
        """Return the words (ranks, pieces · piece_words) of a sum, and which pieces are there (ranks, pieces)."""
        width = self.piece_words + 1
        pieces = lanes[:, : self.pieces_per_chunk * width].reshape(-1, width)[: self.ranks * self.pieces]
        words = np.ascontiguousarray(pieces[:, :-1]).reshape(self.ranks, self.pieces * self.piece_words)
        return words, (pieces[:, -1] == 1).reshape(self.ranks, self.pieces)

    def numbers(self, lanes: Int32Array, kind: DataType, size: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the workers' numbers (ranks, size) in a sum, in the storage of `kind`, and which of them are there."""
        words, present = self.parts(lanes)
        per_piece = self.piece_words * 4 // kind.storage.itemsize
        return words.view(kind.storage)[:, :size], np.repeat(present, per_piece, axis=1)[:, :size]
