"""Batches of a graph by GraphLoader, and rates of 161 layers divided among ranks.

Loading is compared with a DataLoader of PyTorch whose `collate_fn` samples neighbours node by node. The pipeline is
compared with itself off, while gathering and training take a fixed time each, as on devices of their own; a ratio of
2 would hide all gathering. Rates are those of LARS for ResNet-50's 161 tensors, and the time is that of the rank with
most work, without the all-gather.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weir.bench.measure import Figure, TimedWork, compare, cpu_seconds
from weir.bench.obstacles import pytorch_missing as obstacle
from weir.training.divided_layers import DividedLayers
from weir.training.graphs.graph import Graph
from weir.training.graphs.made import barabasi_albert

if TYPE_CHECKING:
    import torch

    from weir.training.graphs.loader import GraphLoader

__all__ = ["figures", "obstacle"]

NODES: Final = 20_000
DIMENSIONS: Final = 64
BATCH: Final = 100
BATCHES: Final = 10
FANOUT: Final = (10, 10)
STAGE_S: Final = 0.02
RUNS: Final = 3
RANKS: Final = (2, 4, 8)


def resnet50() -> list[int]:
    """Parameters of ResNet-50's 161 tensors: 25.6 million."""
    sizes, inside = [64 * 3 * 49, 64, 64], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shortcut = [4 * width * inside, 4 * width, 4 * width] if block == 0 else []
            sizes += [width * inside, width, width, 9 * width * width, width, width, 4 * width * width]
            sizes += [4 * width, 4 * width, *shortcut]
            inside = 4 * width
    return [*sizes, 1000 * inside, 1000]


def node_by_node(graph: Graph, rows: torch.Tensor, seeds: list[int]) -> tuple[list[int], torch.Tensor, list[Any]]:
    """Sample a batch's neighbours in Python, as a `collate_fn` does; nodes, features and edges of each layer."""
    import torch

    rng = np.random.default_rng(seeds[0])
    nodes, edges = list(seeds), []
    places = {node: place for place, node in enumerate(nodes)}
    for fanout in FANOUT:
        layer = []
        for target in list(nodes):
            around = graph.neighbours[graph.starts[target] : graph.starts[target + 1]]
            for source in rng.permutation(around)[:fanout].tolist():
                if source not in places:
                    places[source] = len(nodes)
                    nodes.append(source)
                layer.append((places[source], places[target]))
        edges.append(torch.tensor(layer).T)
    return nodes, rows[nodes], edges


def local_rates(of_weights: Any, of_gradient: Any) -> Any:
    """LARS's rates of layers with these norms."""
    return 0.001 * of_weights / (of_gradient + 0.0005 * of_weights)


class _Rank:
    """A rank among others whose factors are not needed."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_gather(self, array: Any, *, name: str) -> Any:
        raise NotImplementedError


def rates_s(ranks: int) -> float:
    """CPU seconds of the rank with most work for the factors of all layers."""
    sizes = resnet50()
    weights, gradients = (np.random.default_rng(seed).standard_normal(sum(sizes), np.float32) for seed in (1, 2))
    times = []
    for rank in range(ranks):
        layers = DividedLayers(sizes, _Rank(rank, ranks))
        times.append(min(cpu_seconds(partial(layers.own_factors, local_rates, weights, gradients)) for _ in range(3)))
    return max(times)


def _epoch_s(loader: GraphLoader) -> float:
    started = time.perf_counter()
    for _ in loader:
        time.sleep(STAGE_S)
    return time.perf_counter() - started


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    import torch

    from weir.training.graphs.loader import GraphLoader

    graph = barabasi_albert(NODES, 5, seed=1)
    rows = np.random.default_rng(1).standard_normal((NODES, DIMENSIONS)).astype(np.float32)
    seeds = np.random.default_rng(2).choice(NODES, BATCH * BATCHES, replace=False)
    loader = GraphLoader(graph, rows, seeds, FANOUT, BATCH, pipelined=False)
    peer: Any = torch.utils.data.DataLoader(
        seeds.tolist(), BATCH, collate_fn=partial(node_by_node, graph, torch.from_numpy(rows))
    )
    yield compare(
        "batches of 100 seeds per second of CPU, 2 layers of 10 neighbours",
        "batches/s",
        TimedWork("GraphLoader", BATCHES, lambda: list(loader)),
        TimedWork("DataLoader, node by node", BATCHES, lambda: list(peer)),
        runs=RUNS,
        clock=cpu_seconds,
    )

    def slow(nodes: Any) -> Any:
        time.sleep(STAGE_S)
        return rows[nodes]

    def ended(pipelined: bool) -> float:
        return _epoch_s(GraphLoader(graph, slow, seeds, (5,), BATCH // 2, pipelined=pipelined))

    turns = [(ended(True), ended(False)) for _ in range(RUNS)]
    pipelined, apart = zip(*turns, strict=True)
    yield Figure("epoch of 20 batches, 20 ms to gather, 20 ms to train", "s", pipelined, "no pipeline", apart, True)
    for ranks in RANKS:
        turns = [(rates_s(ranks), rates_s(1)) for _ in range(RUNS)]
        divided, serial = zip(*turns, strict=True)
        yield Figure(f"LARS rates of 161 tensors, {ranks} ranks", "s", divided, "one rank for all", serial, True)
