"""GLoader: caches of features in the training of graph networks."""

from __future__ import annotations

from typing import Final

from ..repetition.graph_caches import HITS, cache_hits
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="gloader",
    title="GLoader: caches of graph features",
    published="Lin et al., PaGraph, SoCC 2020, and its pipelined successor GLoader (the latter known by its summary)",
    headline="loading is hidden behind computing, with a static cache by out-degree; near-linear scaling to 4 GPUs",
    system=Contender("degree", "out-degree (PaGraph, GLoader)"),
    baselines=(
        Contender("presampled", "visits of an epoch sampled before (GNNLab)", strong=True),
        Contender("lru", "least recently used"),
        Contender("random", "random nodes"),
        Contender("oracle", "known order (Belady): the bound"),
    ),
    figures=(HITS,),
    regime="an epoch of a tenth of the nodes in batches of 100, a cache of a tenth of all rows; two layers, 10 "
    "neighbours each, or 400 and 200 nodes a layer",
    run_files=(),
    seeds=3,
    findings="With hubs, the order is oracle, sampled visits, out-degree, random; visits gain up to two points on "
    "out-degree, which costs no sampling. On the graph of nearest neighbours in-degrees are equal and out-degrees "
    "nearly so: out-degree and visits find half as much again as random nodes with neighbour sampling, and are alike. "
    "A cache of recent rows is no better than random ones there. [loading.md](loading.md) has the pipeline and the "
    "scaling.",
    measure=cache_hits,
)
