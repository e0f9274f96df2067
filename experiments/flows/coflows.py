"""A job's streams as one flow: load of a tree, or a ring, on every link, and duration of its first and last rounds.

A job's rounds go up, are merged and come down in a pipeline whose window couples all streams, so that they progress
together: on each link the job has the rate of its streams times how many of them cross it. Around that, a step begins
with the scale rounds' round trip and the first chunk's way up, and ends with the last chunk's way down.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...controller.placement.model.links import Links
from ...controller.placement.model.problem import Placement, way_up
from ...topologies import Endpoint, Routes
from ...wire.aggregation import HEADER_BYTES, message_bytes
from ...wire.frames import FRAME_HEADER_BYTES
from ..errors import ExperimentError
from .fair_shares import Floats, Ints

ROUND_BYTES: Final = message_bytes(256) + FRAME_HEADER_BYTES
SCALE_BYTES: Final = HEADER_BYTES + FRAME_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Pace:
    """Limits of a job other than links."""

    window: int = 512
    """W: rounds in flight at most."""
    poll_seconds: float = 0.0
    """Hosts take what has arrived at multiples of this."""
    round_bytes: int = ROUND_BYTES
    """A frame with lanes."""


@dataclass(frozen=True, slots=True)
class Coflow:
    """Streams that go in step."""

    links: Ints
    """Directed links, by their places in `Links`, each once."""
    streams: Floats
    """Number of streams that cross each link."""
    lead_seconds: float
    """Before bytes flow at the pace of the slowest link: scale rounds there and back, the first chunk up."""
    trail_seconds: float
    """After the last byte of the slowest link: the last chunk down."""
    limit_bps: float
    """The streams' rate where the window alone bounds it."""
    bytes_factor: float = 1.0
    """Bytes of each stream, as a multiple of the job's."""


def tree_coflow(routes: Routes, placement: Placement, pace: Pace, rng: random.Random) -> Coflow:
    """Return the flows of a tree of sums.

    Every hop's path is drawn among the equal-cost ones, separately up and down, as hashing does.

    Args:
        routes: Routes of the fabric.
        placement: Placement of the tree.
        pace: Window, polling and frame length of the job.
        rng: Generator of the paths.
    """
    fabric = Links.of(routes)
    streams: dict[int, float] = {}
    up: dict[str, tuple[float, float]] = {}
    down: dict[str, tuple[float, float]] = {}
    for child, parent in placement.edges:
        for source, sink, seconds in ((child, parent, up), (parent, child, down)):
            way = [fabric.number[link] for link in drawn_path(routes, source, sink, rng)]
            seconds[child] = _way_seconds(fabric, way, SCALE_BYTES), _way_seconds(fabric, way, pace.round_bytes)
            for link in way:
                streams[link] = streams.get(link, 0.0) + 1.0
    above = {**placement.aggregators, **placement.parents}
    at_host = routes.topology.is_host(placement.root)
    scales, chunk_up, chunk_down = 0.0, 0.0, 0.0
    for worker in placement.aggregators:
        small_up, large_up = _climbed(worker, above, up)
        small_down, large_down = _climbed(worker, above, down)
        scales = max(scales, sum(_polled((small_up, small_down), at_host, pace.poll_seconds)))
        there, back = _polled((large_up, large_down), at_host, pace.poll_seconds)
        chunk_up, chunk_down = max(chunk_up, there), max(chunk_down, back)
    return _coflow(streams, scales + chunk_up, chunk_down, pace, chunk_up + chunk_down)


def ring_coflow(routes: Routes, workers: Sequence[str], pace: Pace, rng: random.Random) -> Coflow:
    """Return a ring all-reduce rack by rack, as NCCL orders it (Patarasuk & Yuan, 2009).

    Each of N workers sends 2 (N−1)/N of the gradient to the next one, in 2 (N−1) steps of a chunk each.

    Args:
        routes: Routes of the fabric.
        workers: Hosts of the workers.
        pace: Window, polling and frame length of the job.
        rng: Generator of the paths.

    Raises:
        ExperimentError: There are fewer than two workers.
    """
    order = [worker for rack in racks_of(routes, workers) for worker in rack]
    share = 2 * (len(order) - 1) / len(order)
    return _exchange(routes, [_Phase(_ring(order, share), 2 * (len(order) - 1))], len(workers), pace, rng)


def two_level_ring_coflow(routes: Routes, workers: Sequence[str], pace: Pace, rng: random.Random) -> Coflow:
    """Return a ring reduce-scatter in each rack, rings over the racks for each worker's part, and a ring all-gather in
    each rack.

    Racks of different sizes cut the gradient at different places, so a worker may have rings with several workers of
    the next rack.

    Args:
        routes: Routes of the fabric.
        workers: Hosts of the workers.
        pace: Window, polling and frame length of the job.
        rng: Generator of the paths.

    Raises:
        ExperimentError: There are fewer than two workers.
    """
    racks = racks_of(routes, workers)
    inside = [flow for rack in racks for flow in _ring(rack, 2 * (len(rack) - 1) / len(rack))]
    share = 2 * (len(racks) - 1) / len(racks)
    between = [
        (
            mine[i],
            theirs[j],
            share * (min((i + 1) / len(mine), (j + 1) / len(theirs)) - max(i / len(mine), j / len(theirs))),
        )
        for mine, theirs in zip(racks, [*racks[1:], racks[0]], strict=True)
        for i in range(len(mine))
        for j in range(i * len(theirs) // len(mine), -(-(i + 1) * len(theirs) // len(mine)))
    ]
    phases = [_Phase(inside, 2 * (max(map(len, racks)) - 1)), _Phase(between, 2 * (len(racks) - 1))]
    return _exchange(routes, phases, len(workers), pace, rng)


def halving_doubling_coflow(routes: Routes, workers: Sequence[str], pace: Pace, rng: random.Random) -> Coflow:
    """Return recursive vector halving, and doubling back (Rabenseifner, 2004).

    In step i, pairs at a distance of 2^i in rack order exchange 2^−(i+1) of the gradient, so that the largest part
    stays near. If the number of workers is no power of two, each worker beyond one gives its gradient to a neighbour
    and gets the sum back.

    Args:
        routes: Routes of the fabric.
        workers: Hosts of the workers.
        pace: Window, polling and frame length of the job.
        rng: Generator of the paths.

    Raises:
        ExperimentError: There are fewer than two workers.
    """
    order = [worker for rack in racks_of(routes, workers) for worker in rack]
    steps = len(order).bit_length() - 1
    extra = len(order) - (1 << steps)
    pairs = list(zip(order[0 : 2 * extra : 2], order[1 : 2 * extra : 2], strict=True))
    core = [*(keeper for _, keeper in pairs), *order[2 * extra :]]
    phases = [_Phase([(a, b, 1.0) for pair in pairs for a, b in (pair, pair[::-1])], 2)] if pairs else []
    for step in range(steps):
        exchanged = [(worker, core[index ^ (1 << step)], 2.0**-step) for index, worker in enumerate(core)]
        phases.append(_Phase(exchanged, 2))
    return _exchange(routes, phases, len(workers), pace, rng)


def racks_of(routes: Routes, workers: Sequence[str]) -> list[list[str]]:
    """Return the workers of each rack, racks and workers in the fabric's order."""
    racks: dict[str, list[str]] = {}
    mine = set(workers)
    for host in routes.topology.hosts:
        if host.name in mine:
            racks.setdefault(routes.topology.attached_switch(host.name).name, []).append(host.name)
    return list(racks.values())


@dataclass(frozen=True, slots=True)
class _Phase:
    """Flows of an all-reduce that go at the same time, and how often a chunk goes along one of them."""

    flows: Sequence[tuple[str, str, float]]
    """Source, sink and share of the gradient's bytes."""
    steps: int


def _ring(order: Sequence[str], share: float) -> list[tuple[str, str, float]]:
    following = [*order[1:], order[0]]
    return [(source, sink, share) for source, sink in zip(order, following, strict=True) if source != sink]


def _exchange(routes: Routes, phases: Sequence[_Phase], count: int, pace: Pace, rng: random.Random) -> Coflow:
    """Phases as one coflow: gradients are cut into chunks, so all phases go on at once, each with another chunk.

    This favours an all-reduce whose phases use different links. Raises ExperimentError for fewer than two workers.
    """
    if count < 2:
        raise ExperimentError(f"an all-reduce of {count} worker(s) sends nothing; it takes two at least", value=count)
    fabric = Links.of(routes)
    unit = 2 * (count - 1) / count
    streams: dict[int, float] = {}
    trail, longest = 0.0, 0.0
    for phase in phases:
        slowest = 0.0
        for source, sink, share in phase.flows:
            way = [fabric.number[link] for link in drawn_path(routes, source, sink, rng)]
            slowest = max(slowest, _way_seconds(fabric, way, pace.round_bytes))
            for link in way:
                streams[link] = streams.get(link, 0.0) + share / unit
        trail, longest = trail + phase.steps * slowest, max(longest, slowest)
    return _coflow(streams, 0.0, trail, pace, 2 * longest, bytes_factor=unit)


def drawn_path(routes: Routes, source: str, sink: str, rng: random.Random) -> Iterator[Endpoint]:
    """Draw one of the equal-cost shortest paths: at each node a random port, as a hash would choose for a new flow.

    Args:
        routes: Routes of the fabric.
        source: Name of the first node.
        sink: Name of the last node.
        rng: Generator of the choices.

    Yields:
        Links in the order of the path.
    """
    node = source
    while node != sink:
        link = Endpoint(node, rng.choice(routes.next_hops(node, sink)))
        yield link
        node = routes.topology.peer(link).node


def _way_seconds(fabric: Links, way: Sequence[int], frame_bytes: int) -> float:
    """Propagation, and a frame stored and forwarded on each link, in empty queues."""
    return float(sum(fabric.delay_seconds[link] + 8 * frame_bytes / fabric.rate_bps[link] for link in way))


def _climbed(worker: str, above: Mapping[str, str], hops: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Between a worker and the root: the seconds of a small frame and of a large one."""
    on_way = [hops[node] for node, _ in way_up(worker, above)]
    return sum(small for small, _ in on_way), sum(large for _, large in on_way)


def _polled(seconds: tuple[float, float], at_host: bool, poll: float) -> tuple[float, float]:
    """Ways up and down as hosts see them, who look at multiples of `poll`: workers, and the root where it is one."""
    up, down = seconds
    if not poll:
        return up, down
    if at_host:
        return _ceiled(up, poll), _ceiled(down, poll)
    return up, _ceiled(up + down, poll) - up


def _ceiled(seconds: float, poll: float) -> float:
    return math.ceil(seconds / poll - 1e-9) * poll


def _coflow(
    streams: Mapping[int, float], lead: float, trail: float, pace: Pace, round_trip: float, bytes_factor: float = 1.0
) -> Coflow:
    limit = 8 * pace.window * pace.round_bytes / round_trip if round_trip else math.inf
    return Coflow(np.array(list(streams), np.int64), np.array(list(streams.values())), lead, trail, limit, bytes_factor)
