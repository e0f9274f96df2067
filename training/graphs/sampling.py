"""Interface of samplers: the nodes and edges of a batch, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .graph import Graph, Nodes


@dataclass(frozen=True, slots=True)
class Layer:
    """Edges of one layer of the model, between places in a batch's nodes."""

    sources: Nodes
    targets: Nodes
    """Receiving nodes, all below `receiving`."""
    sending: int
    """Nodes whose values the layer reads: a prefix of the batch's nodes."""
    receiving: int
    """Nodes whose values the layer makes: a shorter prefix."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """One batch without features."""

    nodes: Nodes
    """All nodes that it reads, the seeds first; each once."""
    seeds: int
    layers: tuple[Layer, ...]
    """First layer of the model first; the last one makes the seeds."""


Choice = Callable[[Graph, Nodes, int, np.random.Generator], tuple[Nodes, Nodes]]
"""Edges to a layer's nodes: of a graph, the nodes, the fan-out and a generator; the sending nodes, and places in the
receiving ones.
"""


@dataclass(frozen=True, slots=True)
class SamplerDescription:
    """A sampler as it is registered: one in each module of `samplers`, as DESCRIPTION."""

    name: str
    summary: str
    choose: Choice


def sample(graph: Graph, seeds: Nodes, fanout: Sequence[int], choose: Choice, rng: np.random.Generator) -> Sampled:
    """Sample the nodes from which a model computes the values of some seeds.

    Args:
        graph: The whole graph.
        seeds: Nodes whose values are wanted, each once.
        fanout: A number for each layer, that of the first layer first.
        choose: Of a sampler.
        rng: Randomness of this batch.
    """
    place = np.full(graph.nodes, -1, np.int64)
    place[seeds] = np.arange(len(seeds))
    nodes, layers = seeds, []
    for neighbours in reversed(fanout):
        sources, targets = choose(graph, nodes, neighbours, rng)
        fresh = np.unique(sources[place[sources] < 0])
        place[fresh] = len(nodes) + np.arange(len(fresh))
        layers.append(Layer(place[sources], targets, len(nodes) + len(fresh), len(nodes)))
        nodes = np.concatenate([nodes, fresh])
    return Sampled(nodes, len(seeds), tuple(reversed(layers)))
