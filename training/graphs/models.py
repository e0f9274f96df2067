"""GCN and GraphSAGE for sampled batches, in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from .loader import Edges, GraphBatch


def neighbour_mean(values: torch.Tensor, edges: Edges, *, with_self: bool) -> torch.Tensor:
    """Return the mean of what each receiving node is sent, (receiving, dimensions); of itself, too, if `with_self`."""
    sources, targets = edges.index
    total = torch.zeros(edges.receiving, values.shape[1], dtype=values.dtype, device=values.device)
    total = total.index_add(0, targets, values[sources])
    count = torch.bincount(targets, minlength=edges.receiving).to(values.dtype)
    if with_self:
        total, count = total + values[: edges.receiving], count + 1
    return total / count.clamp(min=1)[:, None]


class GraphModel(nn.Module):  # type: ignore[misc]
    """Layers of one kind, with ReLU between them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """`sizes` are the dimensions of the features, of each hidden layer, and the number of classes."""
        super().__init__()
        self.layers = nn.ModuleList(self.make_layer(*pair) for pair in pairwise(sizes))

    def make_layer(self, inputs: int, outputs: int) -> nn.Module:
        """Make one layer's weights."""
        raise NotImplementedError

    def combine(self, layer: nn.Module, values: torch.Tensor, edges: Edges) -> torch.Tensor:
        """Compute the values of one layer's receiving nodes."""
        raise NotImplementedError

    def forward(self, batch: GraphBatch) -> torch.Tensor:
        """Return logits of the seeds, (seeds, classes)."""
        values = batch.features
        for number, (layer, edges) in enumerate(zip(self.layers, batch.layers, strict=True)):
            values = self.combine(layer, values[: edges.sending], edges)
            if number + 1 < len(self.layers):
                values = values.relu()
        return values


class Gcn(GraphModel):
    """Graph convolution (Kipf and Welling, ICLR 2017), with the mean over neighbours and the node itself."""

    def make_layer(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(inputs, outputs)

    def combine(self, layer: nn.Module, values: torch.Tensor, edges: Edges) -> torch.Tensor:
        made: torch.Tensor = layer(neighbour_mean(values, edges, with_self=True))
        return made


class GraphSage(GraphModel):
    """GraphSAGE with means (Hamilton et al., NeurIPS 2017): the node's own values beside its neighbours' mean."""

    def make_layer(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(2 * inputs, outputs)

    def combine(self, layer: nn.Module, values: torch.Tensor, edges: Edges) -> torch.Tensor:
        own = values[: edges.receiving]
        made: torch.Tensor = layer(torch.cat([own, neighbour_mean(values, edges, with_self=False)], dim=1))
        return made
