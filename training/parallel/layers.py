"""Layers on blocks: linear, norm and embedding, each made from PyTorch's own layer, whose block of weights it takes.

A weight's block is on every layer of the mesh. Vectors and tables (biases, norms, embeddings) are divided by columns,
and all rows hold the same; their gradients are summed over the rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard

from .mesh import Mesh
from .products import gradient_of_weight, multiply, multiply_transposed

_BY_COLUMNS = (Replicate(), Replicate(), Shard(-1))


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """Y = X W and its gradients."""

    @staticmethod
    def forward(ctx: Any, block: torch.Tensor, weight: torch.Tensor, mesh: Mesh) -> torch.Tensor:
        rows = block.reshape(-1, block.shape[-1]).contiguous()
        ctx.mesh, ctx.shape = mesh, block.shape
        ctx.save_for_backward(rows, weight)
        return multiply(mesh, rows, weight).view(*block.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        of_input = multiply_transposed(ctx.mesh, flat, weight).view(ctx.shape) if ctx.needs_input_grad[0] else None
        of_weight = gradient_of_weight(ctx.mesh, rows, flat) if ctx.needs_input_grad[1] else None
        return of_input, of_weight, None


class _Shared(torch.autograd.Function):  # type: ignore[misc]
    """A parameter that all rows hold: its gradient is the sum of the rows'."""

    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, mesh: Mesh) -> torch.Tensor:
        ctx.mesh = mesh
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = gradient.contiguous().clone()
        ctx.mesh.all_reduce_rows(total)
        return total, None


class _Normalised(torch.autograd.Function):  # type: ignore[misc]
    """Zero mean and unit variance along a last dimension that a row of ranks shares."""

    @staticmethod
    def forward(ctx: Any, block: torch.Tensor, width: int, epsilon: float, mesh: Mesh) -> torch.Tensor:
        sums = torch.stack([block.sum(dim=-1), (block * block).sum(dim=-1)])
        mesh.all_reduce(sums, "row")
        mean, square = (sums / width).unsqueeze(-1)
        inverse = torch.rsqrt(square - mean * mean + epsilon)
        normalised = (block - mean) * inverse
        ctx.mesh, ctx.width = mesh, width
        ctx.save_for_backward(normalised, inverse)
        return normalised

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        normalised, inverse = ctx.saved_tensors
        sums = torch.stack([gradient.sum(dim=-1), (gradient * normalised).sum(dim=-1)])
        ctx.mesh.all_reduce(sums, "row")
        mean, along = (sums / ctx.width).unsqueeze(-1)
        return (gradient - mean - normalised * along) * inverse, None, None, None


def _parameter(part: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(part.detach().clone(memory_format=torch.contiguous_format))


class Linear2p5D(nn.Module):  # type: ignore[misc]
    """`torch.nn.Linear` on blocks of [q, q, d] ranks.

    Its input is this rank's block of the activations, (…, inputs / q), its output (…, outputs / q).
    """

    def __init__(self, whole: nn.Linear, mesh: Mesh) -> None:
        """Take this rank's blocks of a whole layer's weight and bias.

        Raises:
            TrainingError: A dimension of the weight is no multiple of q.
        """
        super().__init__()
        self.mesh = mesh
        self.weight = _parameter(mesh.weight_of(whole.weight))
        self.bias = None if whole.bias is None else _parameter(mesh.columns_of(whole.bias))
        self.placements = {"weight": (Replicate(), Shard(1), Shard(0)), "bias": _BY_COLUMNS}

    def forward(self, block: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of the output, (…, outputs / q), for its block of the input, (…, inputs / q)."""
        made: torch.Tensor = _Product.apply(block, self.weight, self.mesh)
        return made if self.bias is None else made + _Shared.apply(self.bias, self.mesh)


class LayerNorm2p5D(nn.Module):  # type: ignore[misc]
    """`torch.nn.LayerNorm` over the last dimension, on blocks."""

    def __init__(self, whole: nn.LayerNorm, mesh: Mesh) -> None:
        """Take this rank's parts of a whole layer's weight and bias.

        Raises:
            TrainingError: The dimension is no multiple of q.
        """
        super().__init__()
        self.mesh = mesh
        (self.width,) = whole.normalized_shape
        self.epsilon = whole.eps
        self.weight, self.bias = (
            None if part is None else _parameter(mesh.columns_of(part)) for part in (whole.weight, whole.bias)
        )
        self.placements = {"weight": _BY_COLUMNS, "bias": _BY_COLUMNS}

    def forward(self, block: torch.Tensor) -> torch.Tensor:
        """Return this rank's block, normalised over the whole last dimension."""
        made: torch.Tensor = _Normalised.apply(block, self.width, self.epsilon, self.mesh)
        if self.weight is not None:
            made = made * _Shared.apply(self.weight, self.mesh)
        return made if self.bias is None else made + _Shared.apply(self.bias, self.mesh)


class Embedding2p5D(nn.Module):  # type: ignore[misc]
    """`torch.nn.Embedding`, whose table is divided by columns: indices are this rank's rows, its output their block."""

    def __init__(self, whole: nn.Embedding, mesh: Mesh) -> None:
        """Take this rank's columns of a whole table.

        Raises:
            TrainingError: The table's width is no multiple of q.
        """
        super().__init__()
        self.mesh = mesh
        self.weight = _parameter(mesh.columns_of(whole.weight))
        self.placements = {"weight": _BY_COLUMNS}

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of the rows of its indices: its columns only."""
        made: torch.Tensor = nn.functional.embedding(indices, _Shared.apply(self.weight, self.mesh))
        return made
