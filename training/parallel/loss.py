"""Cross entropy of logits in blocks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .mesh import Mesh


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, mesh: Mesh) -> torch.Tensor:
        classes = logits.shape[1]
        here = targets - mesh.column * classes
        own = (here >= 0) & (here < classes)
        index = here.clamp(0, classes - 1).unsqueeze(1)
        largest = logits.max(dim=1).values
        mesh.all_reduce(largest, "row", dist.ReduceOp.MAX)
        shifted = logits - largest.unsqueeze(1)
        powers = shifted.exp()
        sums = torch.stack([powers.sum(dim=1), shifted.gather(1, index).squeeze(1) * own])
        mesh.all_reduce(sums, "row")
        total, target = sums
        rows = len(targets) * mesh.q * mesh.d
        loss = (total.log() - target).sum() / rows
        mesh.all_reduce_rows(loss)
        ctx.rows = rows
        ctx.save_for_backward(powers / total.unsqueeze(1), index, own)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        shares, index, own = ctx.saved_tensors
        of_logits = shares.clone()
        of_logits.scatter_add_(1, index, -own.to(shares.dtype).unsqueeze(1))
        return of_logits * (gradient / ctx.rows), None, None


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, mesh: Mesh) -> torch.Tensor:
    """Return the mean cross entropy over all rows of all ranks, the same at every rank.

    Args:
        logits: This rank's block, (rows, classes / q).
        targets: Classes of this rank's rows, int64 (rows,).
        mesh: The ranks.
    """
    loss: torch.Tensor = _CrossEntropy.apply(logits, targets, mesh)
    return loss
