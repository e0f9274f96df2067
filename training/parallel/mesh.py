"""Ranks of 2.5-D tensor parallelism as q rows and q columns of each of d layers, with PyTorch's groups along each.

::

    rank = column + q · row + q² · layer            mesh dimensions: depth, row, column
    activations: row block (layer, row) of d · q, column block of q        weights: block (row, column), on every layer
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ..errors import TrainingError
from .traffic import Traffic

DIMENSIONS: Final = ("depth", "row", "column")


class Mesh:
    """This rank's place in the mesh, and its collectives.

    `along="row"` means the q ranks of this rank's row, which differ in their column; `"column"` those of its column;
    `"depth"` those at the same place of all layers. A group's ranks are numbered by the coordinate that differs.
    """

    def __init__(self, q: int, d: int = 1) -> None:
        """Make the groups; all ranks of the default process group call it alike.

        Args:
            q: Rows, and columns, of a layer.
            d: Layers. 1: the 2-D division of Optimus.

        Raises:
            TrainingError: The default process group does not have q · q · d ranks.
        """
        ranks = dist.get_world_size()
        if min(q, d) < 1 or q * q * d != ranks:
            raise TrainingError(
                f"mesh [{q}, {q}, {d}]: {q * q * d} ranks for a group of {ranks}; q and d are at least 1, and q·q·d is "
                "the number of ranks"
            )
        self.q, self.d = q, d
        self.device_mesh: Any = init_device_mesh("cpu", (d, q, q), mesh_dim_names=DIMENSIONS)
        self.layer, self.row, self.column = self.device_mesh.get_coordinate()
        # PyTorch names a dimension by what varies: its "column" group is a row of the mesh
        self._groups = {
            "row": self.device_mesh.get_group("column"),
            "column": self.device_mesh.get_group("row"),
            "depth": self.device_mesh.get_group("depth"),
        }
        self._place = {"row": self.column, "column": self.row, "depth": self.layer}
        self.traffic = Traffic()
        """Numbers moved by this rank so far."""

    def size(self, along: str) -> int:
        """Return the number of ranks along a dimension."""
        return self.d if along == "depth" else self.q

    def place(self, along: str) -> int:
        """Return this rank's number in its group."""
        return int(self._place[along])

    def broadcast(self, tensor: torch.Tensor, source: int, along: str) -> Any:
        """Begin to copy the source's contiguous tensor into those of its group.

        Returns:
            What `wait()` is called on, or None if the group has one rank.
        """
        self.traffic.count_broadcast(tensor.numel(), self.size(along), source=source == self.place(along))
        group = self._groups[along]
        if self.size(along) == 1:
            return None
        return dist.broadcast(tensor, dist.get_global_rank(group, source), group=group, async_op=True)

    def reduce(self, tensor: torch.Tensor, target: int, along: str) -> Any:
        """Begin to add the group's tensors into the target's; those of the other ranks are undefined afterwards.

        Returns:
            What `wait()` is called on, or None if the group has one rank.
        """
        self.traffic.count_reduce(tensor.numel(), self.size(along), target=target == self.place(along))
        group = self._groups[along]
        if self.size(along) == 1:
            return None
        return dist.reduce(tensor, dist.get_global_rank(group, target), group=group, async_op=True)

    def all_reduce(self, tensor: torch.Tensor, along: str, op: Any = dist.ReduceOp.SUM) -> None:
        """Combine the group's tensors, in place at every rank."""
        self.traffic.count_all_reduce(tensor.numel(), self.size(along))
        if self.size(along) > 1:
            dist.all_reduce(tensor, op=op, group=self._groups[along])

    def all_reduce_rows(self, tensor: torch.Tensor) -> None:
        """Sum over all ranks that have this rank's columns: they hold the other rows of the activations."""
        self.all_reduce(tensor, "column")
        self.all_reduce(tensor, "depth")

    def rows_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of rows of a whole tensor.

        Raises:
            TrainingError: The rows are no multiple of d · q.
        """
        return _part(tensor, 0, self.d * self.q, self.layer * self.q + self.row)

    def block_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of whole activations: of their rows, and of their last dimension."""
        return _part(self.rows_of(tensor), tensor.dim() - 1, self.q, self.column)

    def columns_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the last dimension, as vectors and tables are divided."""
        return _part(tensor, tensor.dim() - 1, self.q, self.column)

    def weight_of(self, weight: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of a weight (outputs, inputs), as `torch.nn.Linear` holds it."""
        return _part(_part(weight, 1, self.q, self.row), 0, self.q, self.column)


def _part(tensor: torch.Tensor, dimension: int, parts: int, number: int) -> torch.Tensor:
    size = tensor.shape[dimension]
    if size % parts:
        raise TrainingError(f"dimension {dimension} of {tuple(tensor.shape)}: {size} is no multiple of {parts}")
    return tensor.narrow(dimension, number * (size // parts), size // parts)
