"""Background traffic between racks: at fixed rates, or as flows of published sizes that share links with the jobs.

Flow sizes are points of cumulative distributions, joined by straight lines on a logarithmic axis of bytes:

* `websearch`: a cluster that answers queries; most bytes are in flows above a megabyte (Alizadeh et al., Data Center
  TCP, SIGCOMM 2010, figure 4; in frames of 1,460 bytes, as the simulations of pFabric, SIGCOMM 2013, have it).
* `datamining`: a cluster for data mining; most flows are of a few packets, most bytes in flows above 10 MB (Greenberg
  et al., VL2, SIGCOMM 2009, figure 2).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...controller.placement.model.links import Links
from ...topologies import Routes
from ..errors import ExperimentError
from .coflows import drawn_path
from .fair_shares import Floats
from .simulator import Arrivals
from .sizes import points_of

FULLEST: Final = 0.9
"""No link is loaded by more than this share of its rate with traffic at fixed rates."""
_RATES: Final = (0.1, 0.2, 0.4, 0.6)
"""Fixed rates, as shares of a path's slowest link."""
_PATIENCE: Final = 200
"""Number of consecutive flows without room after which the fabric counts as full."""
MAX_FLOWS: Final = 5_000_000
"""Flows of a simulation, expected: each has its path in memory, about 200 bytes."""


def drawn_sizes(name: str, count: int, rng: np.random.Generator) -> Floats:
    """Draw `count` sizes in bytes, (count,), from a distribution by its name or file. Raises ExperimentError for an
    unknown one.
    """
    points, shares = np.array(points_of(name)).T
    sizes: Floats = np.exp(np.interp(rng.random(count), shares, np.log(points)))
    return sizes


def mean_size(name: str) -> float:
    """Return bytes of a distribution's mean flow: between two points, the logarithmic mean of their sizes."""
    points, shares = np.array(points_of(name)).T
    low, high, weight = points[:-1], points[1:], np.diff(shares)
    ratio = high / low
    means = np.where(ratio > 1, (high - low) / np.log(np.maximum(ratio, 1 + 1e-12)), low)
    return float((means * weight).sum())


@dataclass(frozen=True, slots=True)
class TrafficRacks:
    """Sources and destinations of background traffic: switches with hosts, whose own links it does not load."""

    routes: Routes
    names: tuple[str, ...]

    @classmethod
    def of(cls, routes: Routes) -> TrafficRacks:
        """Return the racks of a fabric. Raises ExperimentError where the fabric has fewer than two."""
        topology = routes.topology
        names = tuple(dict.fromkeys(topology.attached_switch(host.name).name for host in topology.hosts))
        if len(names) < 2:
            raise ExperimentError(f"{topology.name}: traffic between racks takes two switches with hosts at least")
        return cls(routes, names)

    def path(self, rng: random.Random) -> list[int]:
        """Return a path between two random racks, along a random one of the hashed ways."""
        number = Links.of(self.routes).number
        source, sink = rng.sample(self.names, 2)
        return [number[link] for link in drawn_path(self.routes, source, sink, rng)]


def between_switches(routes: Routes) -> Floats:
    """Return, by link (links,), 1 for a link between switches, 0 for a host's."""
    fabric = Links.of(routes)
    return (fabric.pair_of >= 0).astype(np.float64)


def paced(routes: Routes, load: float, rng: random.Random) -> Floats:
    """Draw traffic at fixed rates, as bit/s per link, (links,), with this mean load of the links between switches.

    Flows between random racks are added until the mean is reached. A flow that would load a link beyond FULLEST is
    rejected. After enough consecutive rejections the fabric counts as full, and the mean stays below `load`.
    """
    fabric, racks = Links.of(routes), TrafficRacks.of(routes)
    inside = between_switches(routes) > 0
    bps = np.zeros(len(fabric.rate_bps))
    total = float(fabric.rate_bps[inside].sum())
    refused = 0
    while bps.sum() < load * total and refused < _PATIENCE:
        path = racks.path(rng)
        rate = min(float(fabric.rate_bps[path].min()) * rng.choice(_RATES), load * total - float(bps.sum()))
        if ((bps[path] + rate) > FULLEST * fabric.rate_bps[path]).any():
            refused += 1
            continue
        refused = 0
        bps[path] += rate
    return bps


def flows(
    routes: Routes, sizes: str, load: float, seconds: float, rng: random.Random, min_bytes: float = 0.0
) -> Arrivals:
    """Draw flows of published sizes with Poisson arrivals.

    Args:
        routes: Routes of the fabric.
        sizes: Name of the distribution of sizes.
        load: Mean offered load on links between switches, as a share of their rate.
        seconds: Time in which flows arrive, in s.
        rng: Generator of sizes, arrivals and paths.
        min_bytes: Size below which flows are left out; their load is not replaced by others.

    Raises:
        ExperimentError: The distribution is unknown, or so small that more than `MAX_FLOWS` are expected.
    """
    fabric, racks = Links.of(routes), TrafficRacks.of(routes)
    capacity = float(fabric.rate_bps[between_switches(routes) > 0].sum()) / 8
    numbers = np.random.default_rng(rng.randrange(1 << 32))
    hops = float(np.mean([len(racks.path(rng)) for _ in range(200)]))
    every = load * capacity / (mean_size(sizes) * hops)
    if (expected := every * seconds) > MAX_FLOWS:
        raise ExperimentError(
            f"{expected:.3g} flows would arrive in {seconds:.3g} s; {MAX_FLOWS:,} are possible. Larger flows, a lower "
            "load or fewer steps make fewer",
            place=sizes,
            value=expected,
        )
    drawn = drawn_sizes(sizes, int(numbers.poisson(expected)), numbers)
    drawn = drawn[drawn >= min_bytes]
    times = np.sort(numbers.random(len(drawn)) * seconds)
    paths = [racks.path(rng) for _ in drawn]
    starts = np.concatenate(([0], np.cumsum([len(path) for path in paths]))).astype(np.int64)
    return Arrivals(times, drawn, starts, np.array([link for path in paths for link in path], np.int64))
