"""GraphLoader: batches of a graph with their features, as an iterable data set of PyTorch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import IterableDataset

from ...errors.values import Checks
from ..errors import TrainingError
from .caches import CACHES
from .caching import Cache, CacheSetting, Fetch, Rows, check_capacity
from .graph import Graph, Nodes
from .pipeline import TIMEOUT_S, staged
from .samplers import SAMPLERS
from .sampling import Sampled, sample


def _rows_of(features: Rows, nodes: int) -> Fetch:
    """Return the function that reads rows of an array, or of a tensor in main memory."""
    rows = np.asarray(features)
    if rows.ndim != 2 or len(rows) != nodes:
        raise TrainingError(
            f"features of shape {rows.shape} for {nodes} nodes; they are (nodes, dimensions)",
            place="features",
            value=rows.shape,
        )
    return lambda which: rows[which]


def _checked(fetch: Fetch) -> Fetch:
    """Return a function that refuses other than one row for each node."""

    def rows_of(nodes: Nodes) -> Rows:
        rows = np.asarray(fetch(nodes))
        if rows.shape[:1] != (len(nodes),):
            raise TrainingError(
                f"features of shape {rows.shape} for {len(nodes)} nodes", place="features", value=rows.shape
            )
        return rows

    return rows_of


@dataclass(frozen=True, slots=True)
class Edges:
    """One layer's edges, for `models` and for layers of torch_geometric."""

    index: torch.Tensor
    """int64 (2, edges): sending nodes, then receiving ones, as places in the batch's nodes."""
    sending: int
    receiving: int


@dataclass(frozen=True, slots=True)
class GraphBatch:
    """One mini-batch of seeds with the nodes, features and edges that its layers read."""

    nodes: torch.Tensor
    """Numbers of all nodes that it reads, int64 (k,); the seeds come first."""
    features: torch.Tensor
    """(k, dimensions)."""
    seeds: torch.Tensor
    """Numbers of the nodes that it trains with."""
    layers: tuple[Edges, ...]
    """First layer first."""


class GraphLoader(IterableDataset[GraphBatch]):  # type: ignore[misc]
    """Batches of some seeds in an order of their own each epoch, which a seed fixes.

    The batches are the same with the pipeline and without, at each iteration of the same number.
    """

    def __init__(
        self,
        graph: Graph,
        features: Rows | Fetch,
        seeds: Nodes,
        fanout: Sequence[int],
        batch: int,
        *,
        cache: str = "degree",
        capacity: int = 0,
        sampler: str = "neighbour",
        pipelined: bool = True,
        seed: int = 0,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Prepare a loader, and fill its cache.

        Args:
            graph: The whole graph.
            features: Features of all nodes, (nodes, dimensions), as an array or a tensor in main memory; or a function
                that reads those of some nodes.
            seeds: Nodes to train with, such as this worker's part.
            fanout: A number for each layer of the model, that of the first layer first.
            batch: Seeds of a batch.
            cache: Name of a cache: degree, presampled, random, lru, oracle; or the path of a Python file with one.
            capacity: Rows of the cache; 0: none.
            sampler: Name of a sampler: neighbour, layer-wise; or the path of a Python file with one.
            pipelined: Sample and gather in threads, ahead of training.
            seed: Seed of orders and samples.
            timeout_s: Time in seconds that sampling or gathering may take for one batch of the pipeline; then the
                iteration raises TrainingError, which names the stage.

        Raises:
            TrainingError: An argument cannot be.
        """
        super().__init__()
        wanted = np.asarray(seeds)
        if not np.issubdtype(wanted.dtype, np.integer) or wanted.ndim != 1:
            raise TrainingError(
                f"seeds of type {wanted.dtype} and shape {wanted.shape}; they are numbers of nodes, as one int64 array",
                place="seeds",
                value=str(wanted.dtype),
            )
        wanted = wanted.astype(np.int64)
        if not len(wanted) or wanted.min() < 0 or wanted.max() >= graph.nodes or len(np.unique(wanted)) < len(wanted):
            raise TrainingError(f"{len(wanted)} seeds; each is one of the {graph.nodes} nodes, once", place="seeds")
        checks = Checks(TrainingError, "fanout")
        fanout = [checks.integer("fan-out", each, 1) for each in checks.items("fan-out", fanout, "whole numbers")]
        batch = checks.integer("batch", batch, 1)
        if not fanout:
            raise TrainingError("fan-out of no layer; give a number for each", place="fanout")
        if not timeout_s > 0:
            raise TrainingError(f"{timeout_s} is not a positive number of seconds", place="timeout_s", value=timeout_s)
        check_capacity(capacity, graph.nodes)
        self._graph, self._seeds, self._fanout, self._batch = graph, wanted, tuple(fanout), batch
        self._fetch: Fetch = _checked(features) if callable(features) else _rows_of(features, graph.nodes)
        self._choose = SAMPLERS.describe(sampler).choose
        self._pipelined, self._seed, self._timeout_s = pipelined, seed, timeout_s
        self.epoch = 0
        """Number of the next iteration."""
        self.loading_s = 0.0
        """Wait of the training for the batch that came last, in seconds."""
        self.cache: Cache | None = None
        if capacity:
            described = CACHES.describe(cache)
            rng = np.random.default_rng((seed, 2))
            setting = CacheSetting(graph, capacity, self._fetch, self._visits, lambda: self._orders(self.epoch), rng)
            self.cache = described.make(setting)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-len(self._seeds) // self._batch)

    def __iter__(self) -> Iterator[GraphBatch]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        drawn = self._draws((self._seed, 0, epoch))
        made = (
            staged(drawn, self._sampled, self._gathered, timeout_s=self._timeout_s)
            if self._pipelined
            else (self._gathered(self._sampled(each)) for each in drawn)
        )
        while True:
            began_s = time.monotonic()
            try:
                batch = next(made)
            except StopIteration:
                return
            self.loading_s = time.monotonic() - began_s
            yield batch

    def _draws(self, key: tuple[int, ...]) -> Iterator[tuple[Nodes, np.random.Generator]]:
        """Seeds of each batch of an epoch, and the randomness of its samples."""
        order = np.random.default_rng(key).permutation(self._seeds)
        for number in range(len(self)):
            rng = np.random.default_rng((*key, number))
            yield order[number * self._batch : (number + 1) * self._batch], rng

    def _sampled(self, drawn: tuple[Nodes, np.random.Generator]) -> Sampled:
        return sample(self._graph, drawn[0], self._fanout, self._choose, drawn[1])

    def _gathered(self, sampled: Sampled) -> GraphBatch:
        cache = self.cache
        rows = self._fetch(sampled.nodes) if cache is None else cache.fetch(sampled.nodes, self._fetch)
        nodes = torch.from_numpy(sampled.nodes)
        layers = tuple(
            Edges(torch.from_numpy(np.stack([layer.sources, layer.targets])), layer.sending, layer.receiving)
            for layer in sampled.layers
        )
        return GraphBatch(nodes, torch.from_numpy(np.ascontiguousarray(rows)), nodes[: sampled.seeds], layers)

    def _visits(self) -> Nodes:
        visits = np.zeros(self._graph.nodes, np.int64)
        for drawn in self._draws((self._seed, 1)):
            visits[self._sampled(drawn).nodes] += 1
        return visits

    def _orders(self, epoch: int) -> list[Nodes]:
        return [self._sampled(drawn).nodes for drawn in self._draws((self._seed, 0, epoch))]
