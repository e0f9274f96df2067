"""A graph as compressed sparse rows, and the edge lists that it is made of."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors.values import Checks
from ..errors import TrainingError

Nodes = NDArray[np.int64]
"""Numbers of nodes."""
MOST_NODES: Final = 1 << 31
"""Limit of a graph's nodes: a pair of nodes is one int64, and each node takes 8 bytes."""
_FEW_NODES: Final = 1 << 24
_NODES_PER_EDGE: Final = 16
"""Nodes of an edge list for each of its edges, beyond `_FEW_NODES`: memory that a short file takes is bounded."""
_UNREADABLE: Final = (
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions of NumPy and of its archives for files that are no edge lists."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Incoming neighbours of each node: node v receives from `neighbours[starts[v] : starts[v + 1]]`."""

    starts: Nodes
    """(nodes + 1,)."""
    neighbours: Nodes
    """(edges,), ascending for each node."""

    @classmethod
    def of_edges(cls, nodes: int, sources: NDArray[Any], targets: NDArray[Any]) -> Graph:
        """Make a graph of directed edges; edges that are given twice count once.

        Args:
            nodes: Number of nodes.
            sources: Node that sends, by edge, (edges,).
            targets: Node that receives, (edges,).

        Raises:
            TrainingError: The arrays have different lengths, or name nodes that are not there; or there are more than
                2^31 nodes.
        """
        nodes = Checks(TrainingError, "graph").integer("nodes", nodes, 0, MOST_NODES)
        ends = np.asarray(sources), np.asarray(targets)
        if ends[0].shape != ends[1].shape or ends[0].ndim != 1:
            raise TrainingError(f"edges of {ends[0].shape} sources and {ends[1].shape} targets", place="graph")
        for end in ends:
            if not np.issubdtype(end.dtype, np.integer):
                raise TrainingError(f"edges of type {end.dtype}; nodes are integers", place="graph", value=end.dtype)
            if end.size and not (end.min() >= 0 and end.max() < nodes):
                value = int(end.min() if end.min() < 0 else end.max())
                raise TrainingError(f"node {value} is not in 0…{nodes - 1}", place="graph", value=value)
        keys = np.unique(ends[1].astype(np.int64) * nodes + ends[0].astype(np.int64))
        counts = np.bincount(keys // max(nodes, 1), minlength=nodes)
        return cls(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), keys % max(nodes, 1))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.starts) - 1

    @property
    def edges(self) -> int:
        """Number of directed edges."""
        return len(self.neighbours)

    @property
    def in_degrees(self) -> Nodes:
        """Edges to each node, (nodes,)."""
        return np.diff(self.starts)

    def in_degrees_of(self, nodes: Nodes) -> Nodes:
        """Return edges to some nodes, without a pass over all."""
        return self.starts[nodes + 1] - self.starts[nodes]

    @property
    def out_degrees(self) -> Nodes:
        """Edges from each node, (nodes,)."""
        return np.bincount(self.neighbours, minlength=self.nodes)

    def incoming(self, nodes: Nodes) -> tuple[Nodes, Nodes]:
        """Return all edges to some nodes.

        Returns:
            The sending node of each edge, and the place in `nodes` of the receiving one, (edges,) each.
        """
        counts = self.in_degrees_of(nodes)
        places = np.repeat(np.arange(len(nodes)), counts)
        inside = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.neighbours[np.repeat(self.starts[nodes], counts) + inside], places


def read_edges(path: Path) -> Graph:
    """Read a graph of a user's: `.npz` with the arrays `sources` and `targets`, or text with two nodes a line.

    Lines that begin with # are comments. Node numbers are 0 and more, and the largest one is the last node. Memory is
    bounded by the file: a file of E edges has at most 2^24 + 16·E nodes.

    Raises:
        TrainingError: The file cannot be read as one of these, or names a node beyond the limit.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path) as file:
                sources, targets = (np.asarray(file[name]) for name in ("sources", "targets"))
        else:
            table = np.loadtxt(path, np.int64, ndmin=2, usecols=(0, 1))
            sources, targets = table[:, 0], table[:, 1]
    except _UNREADABLE as error:
        allowed = ("two integers a line", ".npz with sources and targets")
        raise TrainingError(f"{path}: no edge list ({error})", place=str(path), allowed=allowed) from None
    if not all(np.issubdtype(nodes.dtype, np.integer) for nodes in (sources, targets)):
        raise TrainingError(f"{path}: nodes are integers", place=str(path), value=str(sources.dtype))
    most = max((int(nodes.max()) for nodes in (sources, targets) if nodes.size), default=-1)
    limit = min(MOST_NODES, _FEW_NODES + _NODES_PER_EDGE * sources.size)
    if most >= limit:
        raise TrainingError(
            f"{path}: node {most} is above {limit - 1}; number the nodes from 0 on", place=str(path), value=most
        )
    return Graph.of_edges(most + 1, sources, targets)
