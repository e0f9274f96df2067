"""Adasum among 2^k ranks by vector halving and distance doubling.

::

    distance 1, 2, 4 …    rank ^ distance: each sends one half of its piece and keeps the other
                          dot products of the kept halves, summed over the ranks that share both vectors
                          kept piece ← Adasum(lower rank's vector, upper rank's vector), by tensor
    … 4, 2, 1             rank ^ distance: pieces go back, until each rank has the whole vector

Traffic of a rank: that of a reduce-scatter and an all-gather, and 24 bytes for each tensor and distance pair. Every
number is computed by one rank, so all ranks have the same bits. The algorithm is that of Maleki et al., "Scaling
Distributed Training with Adaptive Summation", MLSys 2021.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import CallMismatch, InvalidPlan
from .operation import PeerMessages, PendingExchange, Steps

Products = NDArray[np.float64]
"""|a|², |b|² and a·b of each tensor, (tensors, 3)."""

TINY: Final = float(np.sqrt(np.finfo(np.float64).tiny))
"""Squared norm below which a vector counts as zero."""


def check_power_of_two(count: int, noun: str, place: str) -> None:
    """Raise InvalidPlan unless 2^k workers, or racks, take part."""
    if count < 1 or count & (count - 1):
        raise InvalidPlan(
            f"{count} {noun}; Adasum halves vectors between pairs, and between pairs of pairs",
            place=place,
            value=count,
            allowed=("1", "2", "4", "8", "…"),
        )


def products_of(
    a: NDArray[np.floating[Any]], b: NDArray[np.floating[Any]], first: int, ends: Sequence[int]
) -> Products:
    """Return the dot products of two pieces by tensor, in float64.

    Args:
        a: Piece of one vector, (m,).
        b: The same piece of another.
        first: Element of the vectors at which the pieces begin.
        ends: Elements at which tensors begin, and the vectors' length at the end: [0, …, size].

    Returns:
        |a|², |b|² and a·b, (tensors, 3); zeros for tensors that have nothing in the pieces.
    """
    bounds = np.clip(np.asarray(ends) - first, 0, len(a))
    some = np.flatnonzero(bounds[:-1] < bounds[1:])
    products = np.zeros((len(ends) - 1, 3))
    if len(some):
        wide, other = a.astype(np.float64), b.astype(np.float64)
        for column, product in enumerate((wide * wide, other * other, wide * other)):
            products[some, column] = np.add.reduceat(product, bounds[:-1][some])
    return products


def combined(
    a: NDArray[np.floating[Any]], b: NDArray[np.floating[Any]], first: int, ends: Sequence[int], products: Products
) -> NDArray[Any]:
    """Adasum(a, b) = (1 − a·b / 2|a|²) a + (1 − a·b / 2|b|²) b for a piece, by tensor, rounded once to the type of a.

    The factor of a vector that counts as zero is 1.

    Args:
        a: Piece of the first vector, (n,).
        b: Piece of the second vector, (n,).
        first: Index of the piece's first element in the vectors.
        ends: Elements at which tensors begin, and the vectors' length at the end: [0, …, size].
        products: |a|², |b|² and a·b of each tensor, float64, (tensors, 3).

    Returns:
        The combined piece, (n,).
    """
    squares = products[:, :2]
    safe = np.where(squares < TINY, 1.0, squares)
    factors = np.where(squares < TINY, 1.0, 1.0 - products[:, 2:] / (2.0 * safe))
    lengths = np.diff(np.clip(np.asarray(ends) - first, 0, len(a)))
    spread = np.repeat(factors, lengths, axis=0)
    result: NDArray[Any] = (spread[:, 0] * a + spread[:, 1] * b).astype(a.dtype)
    return result


def halve_and_double(
    transport: PeerMessages, ranks: Sequence[int], place: int, values: NDArray[Any], ends: Sequence[int]
) -> Steps:
    """Take Adasum of the vectors of all ranks; with the same bits at each.

    Args:
        transport: Messages to the other ranks.
        ranks: The 2^k ranks that take part.
        place: This one's place among them.
        values: Its vector, float32 or float64 (size,); it is overwritten.
        ends: Elements at which tensors begin, and the size at the end: [0, …, size].

    Returns:
        A generator of exchanges, whose value is the result (size,).
    """

    def exchange(distance: int, value: NDArray[Any], size: int) -> Generator[Sequence[PendingExchange], list[Any], Any]:
        peer = ranks[place ^ distance]
        _, theirs = yield [transport.send_async(peer, value), transport.recv_async(peer)]
        if not isinstance(theirs, np.ndarray) or theirs.dtype != value.dtype or theirs.size != size:
            raise CallMismatch(
                f"rank {peer} sent another message than its part of this call; take what it sends before the call",
                place="op 'adasum'",
                value=peer,
            )
        return theirs

    distances = [1 << level for level in range((len(ranks) - 1).bit_length())]
    first, last = 0, len(values)
    pieces = [(first, last)]
    for distance in distances:
        middle = (first + last) // 2
        is_lower = not place & distance
        kept, sent = ((first, middle), (middle, last)) if is_lower else ((middle, last), (first, middle))
        theirs = yield from exchange(distance, values[slice(*sent)], kept[1] - kept[0])
        own = values[slice(*kept)]
        a, b = (own, theirs) if is_lower else (theirs, own)
        first, last = kept
        products = products_of(a, b, first, ends)
        for nearer in distances[: distance.bit_length()]:
            more = yield from exchange(nearer, products, products.size)
            products = products + more
        values[first:last] = combined(a, b, first, ends, products)
        pieces.append(kept)
    for distance, (whole, own_piece) in zip(reversed(distances), reversed([*pairwise(pieces)]), strict=True):
        rest = (whole[0], own_piece[0]) if place & distance else (own_piece[1], whole[1])
        values[slice(*rest)] = yield from exchange(distance, values[slice(*own_piece)], rest[1] - rest[0])
    return values
