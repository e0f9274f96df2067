"""Layer-wise sampling (Zou et al., LADIES, NeurIPS 2019): up to `fanout` nodes of a layer, for all its nodes together.

A node is drawn by the share of its edges in the receiving nodes' means, squared and summed. Models average over the
edges that were drawn, as LADIES normalises rows after sampling.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..graph import Graph, Nodes
from ..sampling import SamplerDescription


def _choose(graph: Graph, nodes: Nodes, fanout: int, rng: np.random.Generator) -> tuple[Nodes, Nodes]:
    sources, places = graph.incoming(nodes)
    candidates, where = np.unique(sources, return_inverse=True)
    if len(candidates) <= fanout:
        return sources, places
    shares = 1.0 / graph.in_degrees_of(nodes)[places] ** 2
    weights = np.bincount(where, shares, minlength=len(candidates))
    keys = np.log(weights) + rng.gumbel(size=len(candidates))  # the largest keys are a draw without replacement
    kept = np.zeros(len(candidates), np.bool_)
    kept[np.argpartition(keys, -fanout)[-fanout:]] = True
    edges = kept[where]
    return sources[edges], places[edges]


DESCRIPTION: Final = SamplerDescription("layer-wise", "up to `fanout` nodes of a layer, by importance", _choose)
