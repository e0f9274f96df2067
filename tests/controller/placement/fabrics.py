"""Fabrics, loads and problems drawn at random, for tests of placement."""

from __future__ import annotations

import itertools
import random
from ipaddress import IPv4Address

import networkx

from weir.controller.placement import Problem
from weir.controller.placement.model.loads import LinkLoad
from weir.topologies import Endpoint, Host, Link, Routes, Switch, Topology, fat_tree, leaf_spine
from weir.wire.aggregation import FAN_IN

GBIT = 1_000_000_000


def wired(name: str, switches: int, pairs: list[tuple[int, int]], hosts_each: int, rng: random.Random) -> Topology:
    """Switches 0, 1, … with these links of 1 or 4 Gbit/s, a pair named twice being two, and hosts on each."""
    ports = [1] * switches
    links = []
    for host in range(switches * hosts_each):
        at = host % switches
        links.append(Link(Endpoint(f"h{host + 1}", 0), Endpoint(f"s{at + 1}", ports[at]), 4 * GBIT))
        ports[at] += 1
    for a, b in pairs:
        ends = Endpoint(f"s{a + 1}", ports[a]), Endpoint(f"s{b + 1}", ports[b])
        links.append(Link(*ends, rng.choice((GBIT, 4 * GBIT))))
        ports[a], ports[b] = ports[a] + 1, ports[b] + 1
    hosts = tuple(Host(f"h{i + 1}", IPv4Address("10.0.0.1") + i) for i in range(switches * hosts_each))
    return Topology(name, hosts, tuple(Switch(f"s{i + 1}", i + 1) for i in range(switches)), tuple(links))


def random_fabric(rng: random.Random, hosts_each: int = 1) -> Topology:
    """A connected fabric of 4 to 7 switches with random extra links, some of them parallel."""
    count = rng.randint(4, 7)
    pairs = [(rng.randrange(i), i) for i in range(1, count)]
    pairs += [pair for pair in itertools.combinations(range(count), 2) if rng.random() < 0.3]
    return wired("random", count, sorted(pairs), hosts_each, rng)


def jellyfish(rng: random.Random, switches: int = 8, degree: int = 3) -> Topology:
    """A random regular graph of switches, a host on each (Singla et al., NSDI 2012)."""
    while True:
        graph = networkx.random_regular_graph(degree, switches, seed=rng.randrange(1 << 30))
        if networkx.is_connected(graph):
            return wired("jellyfish", switches, sorted(tuple(sorted(edge)) for edge in graph.edges), 1, rng)


def uneven_fabric(rng: random.Random) -> Topology:
    """Fabric on which hashing is uneven.

    Two to four leaves have two hosts each, and the last leaf one host. Ways to it go by a spine of each leaf's own and
    one of all; hashing takes each as often as it has links, and there may be more links for the way back. Between
    leaves and spines links are fast, and between spines and the last leaf 10 Gbit/s.
    """
    leaves = rng.randint(2, 4)
    last, shared = leaves, 2 * leaves + 1
    up = [(leaf, leaves + 1 + leaf) for leaf in range(leaves) for _ in range(rng.randint(1, 3))]
    up += [(leaf, shared) for leaf in range(leaves) for _ in range(rng.randint(1, 2))]
    down = [(last, spine) for spine in range(leaves + 1, shared + 1) for _ in range(rng.choice((1, 1, 2)))]
    ports = [1] * (shared + 1)
    links = []

    def end(switch: int) -> Endpoint:
        ports[switch] += 1
        return Endpoint(f"s{switch + 1}", ports[switch] - 1)

    for host in range(2 * leaves + 1):
        links.append(Link(Endpoint(f"h{host + 1}", 0), end(host // 2), 100 * GBIT))
    for pairs, rate_bps in ((up, 100 * GBIT), (down, 10 * GBIT)):
        links += [Link(end(a), end(b), rate_bps) for a, b in pairs]
    hosts = tuple(Host(f"h{i + 1}", IPv4Address("10.0.0.1") + i) for i in range(2 * leaves + 1))
    return Topology("uneven", hosts, tuple(Switch(f"s{i + 1}", i + 1) for i in range(shared + 1)), tuple(links))


def any_fabric(rng: random.Random) -> Topology:
    """Fabric of a random kind."""
    match rng.randrange(10):
        case 0 | 1:
            return leaf_spine(rng.randint(2, 4), rng.randint(1, 3), 3)
        case 2:
            return fat_tree(4)
        case 3 | 4:
            return jellyfish(rng)
        case 5 | 6:
            return random_fabric(rng, 2)
        case _:
            return random_fabric(rng)


def random_loads(topology: Topology, rng: random.Random, share: float = 0.6) -> dict[Endpoint, LinkLoad]:
    """So large a share of the links between switches is busy, at levels that make ties common; some have queues."""
    between = [
        link
        for link in topology.directed_links
        if topology.is_switch(link.node) and topology.is_switch(topology.peer(link).node)
    ]
    return {
        link: LinkLoad(topology.link_at(link).rate_bps * rng.randint(0, 8) / 10, rng.choice((0, 0, 20)))
        for link in between
        if rng.random() < share
    }


def random_others(topology: Topology, rng: random.Random) -> dict[Endpoint, float]:
    """Bytes of other jobs, on about a third of all links; 0 to 3 streams of a job like the tests'."""
    return {link: 1e6 * rng.choice((0.5, 1, 1, 2, 3)) for link in topology.directed_links if rng.random() < 0.35}


def any_problem(seed: int, *, room: float = 1.0, fan_in: int | None = None, max_workers: int = 9) -> Problem:
    """A job on any fabric under any load; each switch has room with the probability `room`."""
    rng = random.Random(seed)
    topology = any_fabric(rng)
    hosts = [host.name for host in topology.hosts]
    server, *workers = rng.sample(hosts, rng.randint(3, min(max_workers, len(hosts))))
    return Problem(
        Routes(topology),
        tuple(workers),
        server if rng.random() < 0.7 else None,
        1_000_000,
        random_loads(topology, rng, rng.choice((0.0, 0.3, 0.6, 1.0))),
        {switch.name: int(rng.random() < room) for switch in topology.switches},
        fan_in=FAN_IN if fan_in is None else fan_in,
    )
