"""The three products of a linear layer on blocks, by SUMMA (van de Geijn and Watts, 1997) on every layer of the mesh.

::

    Y  = X W     for i: X(row, i) along the row, W(i, column) along the column;  Y += product
    dX = dY Wᵀ   for i: W(i, column) along the column; product;                  sum along the row at (row, i)
    dW = Xᵀ dY   for i: X(row, i) along the row; product; sum along the column at (i, column);  then over the depth

Two buffers: while one pair of blocks is multiplied, the next one travels. Weights are (outputs, inputs), as those of
`torch.nn.Linear`, so W(i, column) is used transposed.
"""

from __future__ import annotations

from typing import Any

import torch

from .mesh import Mesh


class _Travelling:
    """A block on its way along a row or column."""

    def __init__(self, mesh: Mesh, block: torch.Tensor, source: int, along: str) -> None:
        self._block = block if mesh.place(along) == source else torch.empty_like(block)
        self._work = mesh.broadcast(self._block, source, along)

    def arrived(self) -> torch.Tensor:
        """Wait for the block."""
        _wait(self._work)
        return self._block


def multiply(mesh: Mesh, block: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return this rank's block of Y = X W.

    Args:
        mesh: The ranks.
        block: X(row, column), (rows, inputs / q), contiguous.
        weight: W(row, column), (outputs / q, inputs / q), contiguous.

    Returns:
        Y(row, column), (rows, outputs / q).
    """

    def start(step: int) -> tuple[_Travelling, _Travelling]:
        return _Travelling(mesh, block, step, "row"), _Travelling(mesh, weight, step, "column")

    result = block.new_zeros(block.shape[0], weight.shape[0])
    pair = start(0)
    for step in range(mesh.q):
        following = start(step + 1) if step + 1 < mesh.q else pair
        result.addmm_(pair[0].arrived(), pair[1].arrived().t())
        pair = following
    return result


def multiply_transposed(mesh: Mesh, gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return this rank's block of dX = dY Wᵀ.

    Args:
        mesh: The ranks.
        gradient: dY(row, column), (rows, outputs / q), contiguous.
        weight: W(row, column), (outputs / q, inputs / q), contiguous.

    Returns:
        dX(row, column), (rows, inputs / q).
    """
    parts: list[tuple[torch.Tensor, Any]] = []
    travelling = _Travelling(mesh, weight, 0, "column")
    for step in range(mesh.q):
        following = _Travelling(mesh, weight, step + 1, "column") if step + 1 < mesh.q else travelling
        part = gradient @ travelling.arrived()
        parts.append((part, mesh.reduce(part, step, "row")))
        travelling = following
    return _own(parts, mesh.column)


def gradient_of_weight(mesh: Mesh, block: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return this rank's block of dW = Xᵀ dY, summed over the layers of the mesh.

    Args:
        mesh: The ranks.
        block: X(row, column), (rows, inputs / q), contiguous.
        gradient: dY(row, column), (rows, outputs / q), contiguous.

    Returns:
        dW(row, column), (outputs / q, inputs / q).
    """
    parts: list[tuple[torch.Tensor, Any]] = []
    travelling = _Travelling(mesh, block, 0, "row")
    for step in range(mesh.q):
        following = _Travelling(mesh, block, step + 1, "row") if step + 1 < mesh.q else travelling
        part = gradient.t() @ travelling.arrived()
        parts.append((part, mesh.reduce(part, step, "column")))
        travelling = following
    result = _own(parts, mesh.row)
    mesh.all_reduce(result, "depth")
    return result


def _own(parts: list[tuple[torch.Tensor, Any]], number: int) -> torch.Tensor:
    """Wait for all sums, of which one arrives here."""
    for _, work in parts:
        _wait(work)
    return parts[number][0]


def _wait(work: Any) -> None:
    if work is not None:
        work.wait()
