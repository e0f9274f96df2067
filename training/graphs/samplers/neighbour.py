"""Neighbour sampling (Hamilton et al., GraphSAGE, NeurIPS 2017): up to `fanout` neighbours of each node."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..graph import Graph, Nodes
from ..sampling import SamplerDescription


def _choose(graph: Graph, nodes: Nodes, fanout: int, rng: np.random.Generator) -> tuple[Nodes, Nodes]:
    """All edges of nodes with at most `fanout`; of the others, distinct ones by Floyd's algorithm, a row a node."""
    degrees = graph.in_degrees_of(nodes)
    few = np.flatnonzero(degrees <= fanout)
    sources, places = graph.incoming(nodes[few])
    many = np.flatnonzero(degrees > fanout)
    chosen = np.empty((len(many), fanout), np.int64)
    for column in range(fanout):
        last = degrees[many] - fanout + column
        drawn = rng.integers(0, last + 1)
        taken = (chosen[:, :column] == drawn[:, None]).any(axis=1)
        chosen[:, column] = np.where(taken, last, drawn)
    picked = graph.neighbours[graph.starts[nodes[many]][:, None] + np.sort(chosen, axis=1)]
    return np.concatenate([sources, picked.ravel()]), np.concatenate([few[places], np.repeat(many, fanout)])


DESCRIPTION: Final = SamplerDescription("neighbour", "up to `fanout` neighbours of each node", _choose)
