"""Bit patterns of single workers through lanes that only add: everyone else adds zeros, for which no lanes are sent.

A worker's part is cut into pieces of an even number of words, each followed by a lane that is 1: its presence. A piece
never crosses chunks, so its presence in the sum says whether the worker's words are in the very same sum: a worker that
was lost half-way is missed by the piece. Pieces lie by rank, as many to a chunk as fit::

    chunk 0: │ rank 0: words … 1 │ rank 1: words … 1 │ …  chunk 1: │ …

Longer parts, of a chunk for each piece, lie in turns of a few pieces of each rank. A worker has its own words and needs
no sums of chunks that hold nothing else; by turns, all workers' links are idle for these at all times alike, and no
worker's for one long time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import LANES
from ..array_types import BoolArray, IntArray
from ..numerics.datatypes import DataType
from ..numerics.quantization import Int32Array

_TURN: Final = 8
"""Pieces of one rank in a row: few, compared with a window of rounds."""


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
        mask[self._places(rank) // self.pieces_per_chunk] = True
        return mask

    def _places(self, rank: IntArray | int) -> IntArray:
        """Return the places of a worker's pieces among all, (pieces,), or of the workers' (n, 1), (n, pieces)."""
        pieces = np.arange(self.pieces)
        before = pieces // _TURN * _TURN
        places: IntArray = before * self.ranks + rank * np.minimum(_TURN, self.pieces - before) + pieces - before
        return places

    def part_of(self, rank: int) -> dict[str, Any]:
        """Return the options of the `Tensor` by which this worker takes part: what it adds, and which sums it needs."""
        each, total = self.pieces_per_chunk, np.arange(self.ranks * self.pieces)
        count = partial(np.bincount, minlength=self.chunks)
        needed = count(total // each) > count(self._places(rank) // each)
        bounds = np.flatnonzero(np.diff(needed, prepend=False, append=False)) * self.lanes
        return {"alone": True, "adds": self.chunks_of(rank), "wanted": bounds.reshape(-1, 2).tolist()}

    def contribution(self, rank: int, words: Int32Array) -> Int32Array:
        """Return a worker's contribution with its part, int32 (chunks, lanes)."""
        lanes = np.zeros((self.chunks, self.lanes), np.int32)
        width = self.piece_words + 1
        pieces = np.zeros((self.pieces, width), np.int32)
        pieces[:, -1] = 1
        padded = np.zeros(self.pieces * self.piece_words, np.int32)
        padded[: self.words] = words
        pieces[:, :-1] = padded.reshape(self.pieces, self.piece_words)
        at = self._places(rank)
        columns = at % self.pieces_per_chunk * width
        lanes[(at // self.pieces_per_chunk)[:, None], columns[:, None] + np.arange(width)] = pieces
        return lanes

    def parts(self, lanes: Int32Array, rank: int, own: Int32Array) -> tuple[Int32Array, NDArray[np.bool_]]:
        """Return all workers' words, and which pieces are there.

        Args:
            lanes: Sum, int32 (chunks, lanes), as the worker `rank` has it.
            rank: Rank of this worker.
            own: Words of this worker, int32 (words,).

        Returns:
            Words (ranks, pieces · piece_words), and a mask of the pieces (ranks, pieces).
        """
        width = self.piece_words + 1
        pieces = lanes[:, : self.pieces_per_chunk * width].reshape(-1, width)
        places = self._places(np.arange(self.ranks)[:, None])
        words = pieces[:, :-1][places].reshape(self.ranks, self.pieces * self.piece_words)
        present = pieces[:, -1][places] == 1
        words[rank, : self.words], present[rank] = own, True
        return words, present

    def numbers(
        self, lanes: Int32Array, rank: int, own: Int32Array, kind: DataType, size: int
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the workers' numbers (ranks, size) in a sum, in the storage of `kind`, and which of them are there.

        The first three arguments are those of `parts`.
        """
        words, present = self.parts(lanes, rank, own)
        per_piece = self.piece_words * 4 // kind.storage.itemsize
        return words.view(kind.storage)[:, :size], np.repeat(present, per_piece, axis=1)[:, :size]
