"""Scenario of a point of the grid under its seed: fabric, hosts of the jobs, background traffic. It is the same for all
strategies that are compared there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from ...topologies import Routes, Topology
from ...topologies.schema import parse_topology
from .suite import Point, as_file, fabric_name

MIXED_SHARES: Final = (0.4, 1.0)
"""Shares of the fabric's rate that links between switches have with mixed rates."""
WEIGHTS: Final = (1.0, 2.0, 3.0)
PRIORITIES: Final = (0, 1, 2)
ROOM_SHARE: Final = 0.5
"""Probability that a switch has slots with scarce memory."""


@dataclass(frozen=True, slots=True)
class JobHosts:
    """Participants of one job."""

    workers: tuple[str, ...]
    server: str
    weight: float = 1.0
    priority: int = 0


@dataclass(frozen=True)
class Scenario:
    """One point, drawn."""

    point: Point
    routes: Routes
    jobs: tuple[JobHosts, ...]
    room: dict[str, int] | None
    """Number of jobs that each switch can sum; None: unlimited."""

    @classmethod
    def drawn(cls, point: Point) -> Scenario:
        """Draw hosts, weights, memory and traffic of a point from its seed."""
        rng = rng_of(point, "hosts")
        routes = fabric_of(json.dumps(point.fabric, sort_keys=True), point.seed if point.rates == "mixed" else None)
        order = ordered_hosts(routes.topology, point.spread, rng)
        size = point.workers + 1
        jobs = []
        for number in range(point.jobs):
            mine = order[number * size : (number + 1) * size]
            server = rng.choice(mine)
            weight, priority = _importance(point, number)
            jobs.append(JobHosts(tuple(host for host in mine if host != server), server, weight, priority))
        room = None
        if point.memory == "scarce":
            room = {switch.name: int(rng.random() < ROOM_SHARE) for switch in routes.topology.switches}
        return cls(point, routes, tuple(jobs), room)

    @property
    def rate_bps(self) -> int:
        """Rate of the hosts' links, in bit/s."""
        topology = self.routes.topology
        return max(link.rate_bps for link in topology.links)


def _importance(point: Point, job: int) -> tuple[float, int]:
    """Weight and priority of a job."""
    rng = rng_of(point, f"importance of job {job}")
    weight, priority = rng.choice(WEIGHTS), rng.choice(PRIORITIES)
    return (weight if point.importance == "weights" else 1.0, priority if point.importance == "priorities" else 0)


def rng_of(point: Point, purpose: str) -> random.Random:
    """Return the lot for one purpose: by the conditions and the seed, whatever strategies are compared."""
    told = point.model_dump(mode="json", exclude={"strategies", "telemetry", "memory", "importance"})
    return random.Random(json.dumps([purpose, told], sort_keys=True))


@lru_cache(maxsize=4)
def fabric_of(fabric: str, mixed_seed: int | None) -> Routes:
    """Return routes of a fabric given as JSON; with a seed, its links between switches have rates by lot."""
    told = json.loads(fabric)
    topology = parse_topology(as_file(told, fabric_name(told).replace(" ", "-")), "fabric")
    if mixed_seed is not None:
        rng = random.Random(f"rates {mixed_seed}")
        links = tuple(
            replace(link, rate_bps=round(link.rate_bps * rng.choice(MIXED_SHARES)))
            if all(topology.is_switch(end.node) for end in link.ends)
            else link
            for link in topology.links
        )
        topology = replace(topology, links=links)
    return Routes(topology)


def ordered_hosts(topology: Topology, spread: str, rng: random.Random) -> Sequence[str]:
    """Return hosts in the order in which jobs take them: rack by rack from a random one (packed), one of each rack
    in turn (spread), or at random.
    """
    racks: dict[str, list[str]] = {}
    for host in topology.hosts:
        racks.setdefault(topology.attached_switch(host.name).name, []).append(host.name)
    if spread == "random":
        hosts = [host.name for host in topology.hosts]
        rng.shuffle(hosts)
        return hosts
    order = list(racks.values())
    first = rng.randrange(len(order))
    order = order[first:] + order[:first]
    if spread == "packed":
        return [host for rack in order for host in rack]
    deepest = max(len(rack) for rack in order)
    return [rack[place] for place in range(deepest) for rack in order if place < len(rack)]
