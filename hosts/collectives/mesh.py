"""Meshes: a job's ranks as a grid, and the groups of ranks along each of its dimensions.

::

    2x3:   0 1 2     along dimension 0: [0, 3] [1, 4] [2, 5]     the last coordinate counts fastest,
           3 4 5     along dimension 1: [0, 1, 2] [3, 4, 5]      as in PyTorch's `init_device_mesh`
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from ..errors import InvalidPlan

MAX_DIMENSIONS: Final = 8


def read_mesh(text: str, ranks: int, place: str = "mesh") -> tuple[int, ...]:
    """Return the sizes of a mesh's dimensions from a text such as `2x2x2`.

    Args:
        text: The sizes, with an "x" between them.
        ranks: Number of ranks in the job, all of which the mesh has; 0: any number.
        place: Name of the setting, for errors.

    Raises:
        InvalidPlan: It is no mesh, or not of this many ranks.
    """
    words = text.split("x")
    if len(words) > MAX_DIMENSIONS or not all(word.isascii() and word.isdecimal() and int(word) > 0 for word in words):
        raise InvalidPlan(
            f'"{text}" is not a mesh; write 1 to {MAX_DIMENSIONS} sizes of at least 1, like 2x2x2',
            place=place,
            value=text,
        )
    shape = tuple(map(int, words))
    check_mesh(shape, ranks, place)
    return shape


def check_mesh(shape: Sequence[int], ranks: int, place: str = "mesh") -> None:
    """Raise InvalidPlan unless a mesh has exactly this many ranks; 0: any number."""
    if ranks and prod(shape) != ranks:
        raise InvalidPlan(
            f"{'x'.join(map(str, shape))} has {prod(shape)} ranks, and the job {ranks}; the sizes multiply to the "
            "number of ranks",
            place=place,
            value=tuple(shape),
        )


def groups_along(shape: Sequence[int]) -> list[list[list[int]]]:
    """Return the groups along each dimension of a mesh, each with its ranks by their coordinate."""
    ranks = np.arange(prod(shape)).reshape(shape)
    return [np.moveaxis(ranks, at, -1).reshape(-1, size).tolist() for at, size in enumerate(shape)]


def groups_of(shape: Sequence[int]) -> list[list[int]]:
    """Return the groups of a mesh that sum on their own.

    A group of one rank does not, nor does the only dimension of a mesh, along which all ranks are one group: the job.
    """
    if len(shape) < 2:
        return []
    return [group for groups in groups_along(shape) for group in groups if len(group) > 1]
