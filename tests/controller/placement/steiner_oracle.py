"""The cheapest tree that joins some switches: of every set of others between them the best that spans all."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import networkx as nx
import numpy as np

from weir.controller.placement.model.links import Bools, Floats


def exact_tree(
    pairs: Sequence[tuple[int, int]], usable: Bools, costs: Floats, ends: Collection[int]
) -> tuple[frozenset[int] | None, float]:
    """Indices of the tree's pairs, and their cost; None if no usable pairs join all ends."""
    graph = nx.Graph()
    graph.add_nodes_from(ends)
    for pair in np.flatnonzero(usable).tolist():
        graph.add_edge(*pairs[pair], weight=float(costs[pair]), pair=pair)
    others = [node for node in graph if node not in ends]
    best, cheapest = None, np.inf
    for size in range(len(others) + 1):
        for more in itertools.combinations(others, size):
            inside = graph.subgraph([*ends, *more])
            if nx.is_connected(inside):
                tree = [data for _, _, data in nx.minimum_spanning_edges(inside)]
                price = sum(data["weight"] for data in tree)
                if price < cheapest:
                    best, cheapest = frozenset(data["pair"] for data in tree), price
    return best, cheapest
