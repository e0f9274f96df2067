"""Communication of a transformer block in 1-D, 2-D and 2.5-D tensor parallelism, in the flow model.

Collectives of one phase run side by side and share links max-min fairly; phases follow one another, and computing takes
no time. Hosts alone carry a broadcast or a sum as a pipelined chain, and an all-reduce as a ring; switches copy and add
on the shortest paths' tree. Streams take drawn shortest paths.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from ...controller.placement.model.links import Links
from ...topologies import Endpoint, Routes
from ...topologies.generators import leaf_spine
from ..flows.coflows import drawn_path
from ..flows.fair_shares import fair_rates
from .paper import Paper, Quantity, Sample

STEP: Final = Quantity("communication of a block's training step", "ms")
WIDTH: Final = 4096
NUMBER_BYTES: Final = 4
ROWS: Final = (1, 2, 4, 8, 16, 20, 32, 64)
"""Rows of the activations (samples times positions), as multiples of the width."""
LAYERS: Final = ((WIDTH, WIDTH),) * 4 + ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
LEAVES: Final = 8
HOSTS_PER_LEAF: Final = 8
SPINES: Final = 4
RATE_BPS: Final = 10_000_000_000

Load = dict[int, float]
"""Streams of one collective by the links that they cross."""


@dataclass(frozen=True, slots=True)
class Division:
    """Ranks [q, q, d], or q = 0: Megatron-LM's 1-D division. With q = 1 each rank has all weights: data parallelism."""

    q: int
    d: int
    by_switches: bool


DIVISIONS: Final = {
    "tesseract": Division(4, 4, False),
    "optimus": Division(8, 1, False),
    "megatron": Division(0, 0, False),
    "tesseract-deep": Division(2, 16, False),
    "data-parallel": Division(1, 64, False),
    "tesseract-switches": Division(4, 4, True),
    "optimus-switches": Division(8, 1, True),
    "megatron-switches": Division(0, 0, True),
}


class HashedFabric:
    """A leaf-spine fabric of 64 hosts, rank r on the r-th host, with paths drawn by a seed."""

    def __init__(self, seed: int) -> None:
        self.routes = Routes(leaf_spine(LEAVES, SPINES, HOSTS_PER_LEAF, rate_bps=RATE_BPS))
        self.links = Links.of(self.routes)
        self.hosts = [host.name for host in self.routes.topology.hosts]
        self._rng = random.Random(seed)

    @cached_property
    def capacity(self) -> np.ndarray:
        """(links,) bytes a second."""
        return np.asarray(self.links.rate_bps, np.float64) / 8

    def _path(self, source: int, sink: int) -> list[int]:
        way = drawn_path(self.routes, self.hosts[source], self.hosts[sink], self._rng)
        return [self.links.number[link] for link in way]

    def chain(self, ranks: Sequence[int]) -> Load:
        """Load of a stream that each rank passes on to the next."""
        load: Load = {}
        for source, sink in pairwise(ranks):
            for link in self._path(source, sink):
                load[link] = load.get(link, 0.0) + 1.0
        return load

    def ring(self, ranks: Sequence[int]) -> Load:
        """Return the load that a ring over these ranks puts on each link."""
        return self.chain([*ranks, ranks[0]])

    def copies(self, source: int, sinks: Sequence[int]) -> Load:
        """Load of a stream that switches copy: a link carries it once. Of ways that meet again, one leaf's is kept."""
        trunks: dict[str, list[Endpoint]] = {}
        load: Load = {}
        for sink in sinks:
            *trunk, last = drawn_path(self.routes, self.hosts[source], self.hosts[sink], self._rng)
            for link in (*trunks.setdefault(last.node, trunk), last):
                load[self.links.number[link]] = 1.0
        return load

    def sums(self, target: int, sources: Sequence[int]) -> Load:
        """Load of streams that switches add: the reverse of copies."""
        return {self.reverse[link]: streams for link, streams in self.copies(target, sources).items()}

    @cached_property
    def reverse(self) -> dict[int, int]:
        """The other direction of each link."""
        topology = self.routes.topology
        return {number: self.links.number[topology.peer(link)] for link, number in self.links.number.items()}

    def seconds(self, phase: Sequence[tuple[Load, float]]) -> float:
        """Return the time in which all collectives of a phase, with their bytes, are done."""
        loads = [load for load, size in phase if load and size]
        left = np.array([size for load, size in phase if load and size])
        passed = 0.0
        while len(loads):
            rates = fair_rates(loads, self.capacity)
            step = float((left / rates).min())
            passed += step
            left = left - rates * step
            going = left > 1e-6 * rates * step
            loads, left = [load for load, on in zip(loads, going, strict=True) if on], left[going]
        return passed


def step_seconds(fabric: HashedFabric, division: Division, rows: int) -> float:
    """Return the communication time of one block's training step on 64 ranks."""
    ranks = range(len(fabric.hosts))
    if not division.q:
        phase = [_all_reduce(fabric, division, list(ranks), rows * WIDTH)]
        return 4 * fabric.seconds(phase)
    q, d = division.q, division.d
    lines = {
        "row": [[c + q * r + q * q * k for c in range(q)] for k in range(d) for r in range(q)],
        "column": [[c + q * r + q * q * k for r in range(q)] for k in range(d) for c in range(q)],
    }

    def broadcasts(along: str, step: int, size: float) -> list[tuple[Load, float]]:
        return [(_one_source(fabric, division, line, step), size) for line in lines[along]]

    def reductions(along: str, step: int, size: float) -> list[tuple[Load, float]]:
        return [(_one_sink(fabric, division, line, step), size) for line in lines[along]]

    total = 0.0
    for inputs, outputs in LAYERS:
        a = rows / (d * q) * inputs / q * NUMBER_BYTES
        w = inputs / q * outputs / q * NUMBER_BYTES
        for step in range(q):
            total += fabric.seconds([*broadcasts("row", step, a), *broadcasts("column", step, w)])
            total += fabric.seconds([*broadcasts("column", step, w), *reductions("row", step, a)])
            total += fabric.seconds([*broadcasts("row", step, a), *reductions("column", step, w)])
        if d > 1:
            stacks = [[place + q * q * k for k in range(d)] for place in range(q * q)]
            total += fabric.seconds([_all_reduce(fabric, division, stack, w / NUMBER_BYTES) for stack in stacks])
    return total


def _one_source(fabric: HashedFabric, division: Division, line: Sequence[int], source: int) -> Load:
    others = [rank for rank in line if rank != line[source]]
    if division.by_switches:
        return fabric.copies(line[source], others)
    return fabric.chain([line[source], *others])


def _one_sink(fabric: HashedFabric, division: Division, line: Sequence[int], sink: int) -> Load:
    others = [rank for rank in line if rank != line[sink]]
    if division.by_switches:
        return fabric.sums(line[sink], others)
    return fabric.chain([*others, line[sink]])


def _all_reduce(fabric: HashedFabric, division: Division, ranks: Sequence[int], numbers: float) -> tuple[Load, float]:
    size = numbers * NUMBER_BYTES
    if not division.by_switches:
        return fabric.ring(ranks), 2 * (len(ranks) - 1) / len(ranks) * size
    # every rank sends up and receives once, over the tree below the first rank's switch
    down = fabric.copies(ranks[0], ranks[1:])
    load = dict(down)
    for link in down:
        load[fabric.reverse[link]] = 1.0
    return load, size


def block_times(paper: Paper) -> Iterator[Sample]:
    """Measure `STEP` of all contenders, which are divisions, over rows of the activations."""
    for factor in ROWS:
        for contender in paper.contenders:
            for seed in range(paper.seeds):
                taken = step_seconds(HashedFabric(seed), DIVISIONS[contender.name], factor * WIDTH)
                yield Sample(STEP.name, f"{factor} rows per column", contender.name, seed, 1e3 * taken)
