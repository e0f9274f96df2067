"""Division of training nodes among workers so that their samples overlap: PaGraph's rule (Lin et al., SoCC 2020)."""

from __future__ import annotations

import numpy as np

from ..errors import TrainingError
from .graph import Graph, Nodes


def partition(graph: Graph, training: Nodes, parts: int, hops: int) -> list[Nodes]:
    """Divide training nodes, one after the other, by the neighbourhoods that a part has already.

    A node goes to the part with the largest (1 + |N ∩ part|) · (mean − |training nodes|) / (|part| + 1). N are the
    nodes within `hops` of it, the part has those of all its nodes, and the mean is that of training nodes by part.

    Args:
        graph: The whole graph.
        training: Nodes to divide, (n,), each once.
        parts: Number of workers.
        hops: Layers of the model.

    Returns:
        The nodes of each part, in ascending order.

    Raises:
        TrainingError: There are fewer nodes than parts.
    """
    if not 1 <= parts <= len(training):
        raise TrainingError(f"{parts} parts of {len(training)} nodes", place="partition", value=parts)
    mean = -(-len(training) // parts)
    held = np.zeros((parts, graph.nodes), np.bool_)
    sizes, counts = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    part_of = np.empty(len(training), np.int64)
    for place, node in enumerate(training):
        around = _neighbourhood(graph, int(node), hops)
        common = held[:, around].sum(axis=1)
        scores = (1 + common) * (mean - counts) / (sizes + 1)
        part = int(np.lexsort((counts, -scores))[0])
        part_of[place] = part
        counts[part] += 1
        sizes[part] += len(around) - common[part]
        held[part, around] = True
    return [np.sort(training[part_of == part]) for part in range(parts)]


def _neighbourhood(graph: Graph, node: int, hops: int) -> Nodes:
    nodes = frontier = np.array([node])
    for _ in range(hops):
        frontier = np.setdiff1d(graph.incoming(frontier)[0], nodes)
        nodes = np.union1d(nodes, frontier)
    return nodes
