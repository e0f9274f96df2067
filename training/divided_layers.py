"""Rates by layer that ranks divide among them: the parallel tensor operator (PTO) of Shi et al., MLSys 2021.

::

    layers, largest first ─▶ the rank with the fewest parameters so far
    each rank: factors of its layers ─all-gather of scalars─▶ the factors of all layers at every rank

Each rank reads only its layers' weights and gradients for norms, which takes 1 / P of the time for P ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .optimiser import Floats, Layers, Rule, norms

_START: Final = np.zeros(1, np.int64)


class Gatherer(Protocol):
    """The part of a `Communicator` that divided layers use."""

    @property
    def rank(self) -> int:
        """Rank of this worker, 0…`size` − 1."""

    @property
    def size(self) -> int:
        """Number of workers."""

    def all_gather(self, array: Any, *, name: str) -> Any:
        """Return the arrays of all ranks along a new first axis, bit by bit."""


def divided(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    """Divide layers among ranks: the largest first, to the rank with the fewest parameters so far.

    Args:
        sizes: Parameters of the layers.
        ranks: Number of ranks.

    Returns:
        The layers' numbers by rank, in ascending order; a rank may have none. The fullest rank has at most 4/3 of the
        parameters that an optimal division gives it (Graham, 1969).
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = np.zeros(ranks, np.int64)
    for layer in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        rank = int(loads.argmin())
        shares[rank].append(layer)
        loads[rank] += sizes[layer]
    return [sorted(share) for share in shares]


class DividedLayers(Layers):
    """Layers whose factors are computed by one rank each."""

    def __init__(self, sizes: Sequence[int], ranks: Gatherer) -> None:
        """Divide the layers among the ranks of a communicator. All ranks have the same layers.

        Raises:
            TrainingError: There is no layer, or one without parameters.
        """
        super().__init__(sizes)
        self._ranks = ranks
        self._shares = divided(sizes, ranks.size)
        own = self._shares[ranks.rank]
        self._own = [slice(int(self._starts[layer]), int(self._starts[layer] + sizes[layer])) for layer in own]
        self._longest = max(map(len, self._shares))

    def own_factors(self, rule: Rule, first: Floats, second: Floats) -> NDArray[np.float32]:
        """Return the factors of this rank's layers, in ascending order of layers."""
        lengths = np.zeros((2, len(self._own)), np.float32)
        for place, part in enumerate(self._own):
            lengths[:, place] = *norms(first[part], _START), *norms(second[part], _START)
        return rule(*lengths)

    def factors(self, rule: Rule, first: Floats, second: Floats) -> NDArray[np.float32]:
        own = self.own_factors(rule, first, second)
        told = np.zeros(self._longest, np.float32)
        told[: len(own)] = own
        rows = self._ranks.all_gather(told, name="rates of layers")
        scales = np.empty(len(self._sizes), np.float32)
        for share, row in zip(self._shares, rows, strict=True):
            scales[share] = row[: len(share)]
        return scales
