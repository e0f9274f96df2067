"""Selective compression and partitioning (SeCoPa): for each gradient, whether to compress it and in how many parts.

Costs are lines with a floor, fitted to measured times. A plan takes the cheapest of the ways at hand: a parameter
server on every node, a ring, or the switches, with and without compression, over all numbers of parts. Formulas of the
first two are those of HiPress (SOSP 2021). Switches add packet by packet, so a sum takes about the time of one hop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from ..errors import InvalidTensor


@dataclass(frozen=True, slots=True)
class Line:
    """Time in ms of an operation on x numbers: slope · x + base, at least `floor` where x is small."""

    slope: float
    base: float
    floor: float = 0.0

    def __call__(self, numbers: float) -> float:
        """Return the time in ms; the floor holds below the x at which the line reaches it."""
        if numbers < max(0.0, (self.floor - self.base) / self.slope if self.slope else 0.0):
            return self.floor
        return self.slope * numbers + self.base


def fitted(numbers: Sequence[float], times_ms: Sequence[float]) -> Line:
    """Return the least-squares line of measured times, with the least of them as its floor.

    Raises:
        InvalidTensor: There are less than two sizes.
    """
    if len(set(numbers)) < 2 or len(numbers) != len(times_ms):
        raise InvalidTensor(
            f"{len(set(numbers))} sizes and {len(times_ms)} times; a line needs two sizes, and a time for each",
            place="measured costs",
            value=len(numbers),
        )
    slope, base = np.polyfit(np.asarray(numbers, float), np.asarray(times_ms, float), 1)
    return Line(float(slope), float(base), float(min(times_ms)))


@dataclass(frozen=True, slots=True)
class CommunicationCosts:
    """Costs of a cluster; ways without their lines are not considered."""

    encode: Line
    decode: Line
    merge: Line
    ratio: float
    """Size of a code as a share of its numbers' size."""
    gather: Line | None = None
    """Cost of sending to a parameter server from all other nodes."""
    broadcast: Line | None = None
    send: Line | None = None
    """Cost of sending to the neighbour of a ring."""
    hop: Line | None = None
    """Cost of a sum by the switches: numbers go up and down at once."""
    switch_ratio: float = 1.0
    """Size of lanes that switches can sum, as a share of float32's."""


@dataclass(frozen=True, slots=True)
class SummationChoice:
    """Way to sum one gradient, and the predicted time."""

    way: str
    """server, ring or switch."""
    compressed: bool
    parts: int
    time_ms: float


def _server(costs: CommunicationCosts, nodes: int, size: float, parts: int, compressed: bool) -> float:
    assert costs.gather is not None
    assert costs.broadcast is not None
    part_bytes = size / parts
    merges = (nodes - 1) * costs.merge(part_bytes)
    if not compressed:
        return costs.gather(part_bytes) + costs.broadcast(part_bytes) + merges
    code = costs.ratio * part_bytes
    encodes = min(parts + 1, nodes) * costs.encode(part_bytes)
    decodes = min(nodes - 1 + parts, 2 * (nodes - 1)) * costs.decode(code)
    return costs.gather(code) + costs.broadcast(code) + encodes + decodes + merges


def _ring(costs: CommunicationCosts, nodes: int, size: float, parts: int, compressed: bool) -> float:
    assert costs.send is not None
    part_bytes = size / parts
    merges = (nodes - 1) * costs.merge(part_bytes)
    if not compressed:
        return 2 * (nodes - 1) * costs.send(part_bytes) + merges
    code = costs.ratio * part_bytes
    return 2 * (nodes - 1) * costs.send(code) + nodes * (costs.encode(part_bytes) + costs.decode(code)) + merges


def _switch(costs: CommunicationCosts, nodes: int, size: float, parts: int, compressed: bool) -> float:
    """Parts are encoded while earlier ones are on their way, and decoded after all are encoded (`task_graph`)."""
    assert costs.hop is not None
    part_bytes = size / parts
    if not compressed:
        return parts * costs.hop(part_bytes)
    lanes = costs.switch_ratio * part_bytes
    encode, hop, decode = costs.encode(part_bytes), costs.hop(lanes), costs.decode(lanes)
    there = (encode + part * max(encode, hop) + hop for part in range(parts))
    return max(max(time, parts * encode) + (parts - part) * decode for part, time in enumerate(there))


_WAYS: Final[Mapping[str, Callable[[CommunicationCosts, int, float, int, bool], float]]] = {
    "server": _server,
    "ring": _ring,
    "switch": _switch,
}


def ways_of(costs: CommunicationCosts) -> list[str]:
    """Return the ways that costs are known of."""
    known = {
        "server": costs.gather is not None and costs.broadcast is not None,
        "ring": costs.send is not None,
        "switch": costs.hop is not None,
    }
    return [way for way in _WAYS if known[way]]


def choices(costs: CommunicationCosts, nodes: int, size: int) -> list[SummationChoice]:
    """Return all ways to sum one gradient of `size` numbers over `nodes` workers, with 1 … `nodes` parts each."""
    return [
        SummationChoice(way, compressed, parts, _WAYS[way](costs, nodes, size, parts, compressed))
        for way in ways_of(costs)
        for compressed in (False, True)
        for parts in range(1, nodes + 1)
    ]


def plan(costs: CommunicationCosts, nodes: int, sizes: Sequence[int]) -> list[SummationChoice]:
    """Return the cheapest choice of each gradient; raw numbers where compression gains nothing.

    Args:
        costs: Costs of the cluster.
        nodes: Number of workers, at least 2.
        sizes: Numbers of each gradient.

    Raises:
        InvalidTensor: There are less than two workers, an empty gradient, or no way.
    """
    if nodes < 2:
        raise InvalidTensor(f"{nodes} workers; a plan is for two or more", place="workers", value=nodes)
    if not ways_of(costs):
        raise InvalidTensor("no way has its costs", place="costs", allowed=tuple(_WAYS))
    if min(sizes, default=1) < 1:
        raise InvalidTensor(f"a gradient of {min(sizes)} numbers", place="sizes", value=min(sizes))
    return [min(choices(costs, nodes, size), key=lambda choice: choice.time_ms) for size in sizes]


_VGG19_CHANNELS: Final = (3, 64, 64, 128, 128, 256, 256, 256, 256, *[512] * 8)


def vgg19_sizes() -> list[int]:
    """Return the sizes of VGG19's 38 gradients: weights and bias of each layer."""
    layers = [(9 * before * after, after) for before, after in pairwise(_VGG19_CHANNELS)]
    layers += [(25_088 * 4096, 4096), (4096 * 4096, 4096), (4096 * 1000, 1000)]
    return [size for layer in layers for size in layer]


def bert_base_sizes() -> list[int]:
    """Return the sizes of BERT-base's 199 gradients: embeddings, 12 layers of 16 parameters, and the pooler."""
    width, inner = 768, 4 * 768
    embeddings = [30_522 * width, 512 * width, 2 * width, width, width]
    attention = 4 * [width * width, width]
    layer = [*attention, width, width, width * inner, inner, inner * width, width, width, width]
    return [*embeddings, *(12 * layer), width * width, width]


MODELS: Final[Mapping[str, Callable[[], list[int]]]] = {"vgg19": vgg19_sizes, "bert-base": bert_base_sizes}
"""Sizes of the gradients of models, in the order of their parameters, by name."""
