"""A character-level transformer of PyTorch's own layers, which runs whole or on blocks.

It names no number of heads and no width in its forward pass: both follow from what its layers return.
"""

from __future__ import annotations

import torch
from torch import nn


class TransformerBlock(nn.Module):  # type: ignore[misc]
    """x + attention(norm(x)), then y + MLP(norm(y)); attention is causal."""

    def __init__(self, width: int, inner: int, head: int) -> None:
        """`head` is the width of an attention head."""
        super().__init__()
        self.head = head
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        """Return the block's output, (samples, context, width), for an input of the same shape."""
        normed = self.first_norm(stream)
        queries, keys, values = (
            layer(normed).unflatten(-1, (-1, self.head)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        stream = stream + self.out(mixed.transpose(1, 2).flatten(2))
        made: torch.Tensor = stream + self.second(nn.functional.relu(self.first(self.second_norm(stream))))
        return made


class CharacterModel(nn.Module):  # type: ignore[misc]
    """Logits of the next character, (samples, context, symbols), from int64 characters (samples, context)."""

    def __init__(self, symbols: int, context: int, width: int, inner: int, head: int, blocks: int) -> None:
        """Make a whole model by PyTorch's generator: ranks that need the same one set the same seed before."""
        super().__init__()
        self.embedding, self.position = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, inner, head) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, symbols, bias=False)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """Return logits (samples, context, symbols) for int64 characters (samples, context)."""
        places = torch.arange(characters.shape[1], device=characters.device)
        stream = self.embedding(characters) + self.position(places)
        for block in self.blocks:
            stream = block(stream)
        made: torch.Tensor = self.logits(self.norm(stream))
        return made
