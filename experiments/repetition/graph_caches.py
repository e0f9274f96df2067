"""Rows that caches of graph features find, on graphs with hubs and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from ...training.graphs.graph import Graph
from ...training.graphs.made import barabasi_albert, communities, mnist_graph
from .paper import Paper, Quantity, Sample

HITS: Final = Quantity("rows found in the cache", "%", less_is_better=False)
NODES: Final = 50_000
CAPACITY: Final = 0.1
"""Rows of the cache, as a share of the nodes."""
TRAINING: Final = 0.1
"""Seeds of an epoch, as a share of the nodes."""
BATCH: Final = 100
SAMPLERS: Final = (("neighbour", (10, 10)), ("layer-wise", (400, 200)))


GRAPHS: Final[dict[str, Callable[[], Graph]]] = {
    "Barabási–Albert, 50,000 nodes": lambda: barabasi_albert(NODES, 5, 1),
    "LFR, 50,000 nodes": lambda: communities(NODES, 1)[0],
    "neighbours of 5,000 images of MNIST": lambda: mnist_graph()[0],
}
"""Makers of the graphs, by name."""


def cache_hits(paper: Paper) -> Iterator[Sample]:
    """Measure `HITS` of all contenders, which are caches, over an epoch of each graph and sampler."""
    from ...training.graphs.loader import GraphLoader

    graphs = {name: make() for name, make in GRAPHS.items()}  # first: one may lack a package
    for name, graph in graphs.items():
        rows = np.zeros((graph.nodes, 1), np.float32)
        for sampler, fanout in SAMPLERS:
            for contender in paper.contenders:
                for seed in range(paper.seeds):
                    rng = np.random.default_rng(seed)
                    seeds = np.sort(rng.permutation(graph.nodes)[: round(TRAINING * graph.nodes)])
                    loader = GraphLoader(
                        graph,
                        rows,
                        seeds,
                        fanout,
                        BATCH,
                        cache=contender.name,
                        capacity=round(CAPACITY * graph.nodes),
                        sampler=sampler,
                        pipelined=False,
                        seed=seed,
                    )
                    for _ in loader:
                        pass
                    held = loader.cache
                    assert held is not None
                    yield Sample(HITS.name, f"{name}, {sampler}", contender.name, seed, 100 * held.hits / held.asked)
