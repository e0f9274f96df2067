"""Fabrics by their measures: leaf-spine and fat-tree, and Jellyfish and random ones by their measures and a seed.

The first two number switches tier by tier from the hosts up (`s1` is the first leaf); all give a switch its lowest
ports towards the hosts. Hosts are `10.0.<leaf>.<place>`, places from 1.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address

from .errors import TopologyError
from .model import MIN_MTU, Endpoint, Host, Link, Switch, Topology, networkx_module
from .targets import BMV2, Target


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    *,
    rate_bps: int = 1_000_000_000,
    uplink_rate_bps: int | None = None,
    delay_ns: int = 2_000,
    loss: float = 0.0,
    queue_packets: int = 128,
    mtu: int = MIN_MTU,
    slots: int = BMV2.slots,
    target: Target = BMV2,
    name: str = "leaf-spine",
) -> Topology:
    """Return a leaf-spine fabric: every leaf is linked to every spine.

    Leaf i is `s<i>`: ports 1…hosts_per_leaf are its hosts', then spine by spine. Port i of a spine goes to leaf i.

    Args:
        leaves: Number of leaf switches, 1…255.
        spines: Number of spine switches, 1…255; 0 only with one leaf.
        hosts_per_leaf: Hosts of each leaf, 0…254.
        rate_bps: Rate of the hosts' links in bit/s.
        uplink_rate_bps: Rate of links between leaves and spines; None: `rate_bps`.
        delay_ns: Propagation delay of each link.
        loss: Probability that a frame is lost, per link and direction.
        queue_packets: Depth of each egress queue in packets.
        mtu: Largest IPv4 packet in bytes.
        slots: Aggregation slots of each switch.
        target: Kind of the switches.
        name: Name of the fabric.

    Raises:
        TopologyError: A number is out of range.
    """
    _check_count("leaves", leaves, 1, 255)
    _check_count("spines", spines, 0 if leaves == 1 else 1, 255)
    _check_count("hosts_per_leaf", hosts_per_leaf, 0, 254)
    wiring = _Wiring(rate_bps, delay_ns, loss, queue_packets, mtu)
    wiring.add_hosts(leaves, hosts_per_leaf)
    for leaf in range(1, leaves + 1):
        for spine in range(1, spines + 1):
            wiring.link((leaf, hosts_per_leaf + spine), (leaves + spine, leaf), uplink_rate_bps)
    return wiring.topology(name, ["leaf"] * leaves + ["spine"] * spines, slots, target)


def fat_tree(
    k: int,
    *,
    rate_bps: int = 1_000_000_000,
    delay_ns: int = 2_000,
    loss: float = 0.0,
    queue_packets: int = 128,
    mtu: int = MIN_MTU,
    slots: int = BMV2.slots,
    target: Target = BMV2,
    name: str = "fat-tree",
) -> Topology:
    """Return the k-ary fat-tree (Al-Fares et al., SIGCOMM 2008): k pods, 5k²/4 switches, k³/4 hosts.

    Edge switches come first (pod by pod), then aggregation, then core. Aggregation switch j of each pod is linked to
    the j-th group of k/2 cores; a core's port p goes to pod p.

    Args:
        k: Ports of each switch: an even number in 2…64.
        rate_bps: Rate of each link in bit/s.
        delay_ns: Propagation delay of each link.
        loss: Probability that a frame is lost, per link and direction.
        queue_packets: Depth of each egress queue in packets.
        mtu: Largest IPv4 packet in bytes.
        slots: Aggregation slots of each switch.
        target: Kind of the switches.
        name: Name of the fabric.

    Raises:
        TopologyError: A number is out of range.
    """
    if k < 2 or k % 2 or k > 64:
        raise TopologyError(f"k {k} is not an even number in 2…64; write it like 4", value=k)
    half = k // 2
    edges, aggregations, cores = k * half, k * half, half * half
    wiring = _Wiring(rate_bps, delay_ns, loss, queue_packets, mtu)
    wiring.add_hosts(edges, half)
    for pod in range(k):
        for e in range(half):
            for j in range(half):
                wiring.link((pod * half + e + 1, half + j + 1), (edges + pod * half + j + 1, e + 1))
    for pod in range(k):
        for j in range(half):
            for c in range(half):
                core = edges + aggregations + j * half + c + 1
                wiring.link((edges + pod * half + j + 1, half + c + 1), (core, pod + 1))
    tiers = ["edge"] * edges + ["aggregation"] * aggregations + ["core"] * cores
    return wiring.topology(name, tiers, slots, target)


def jellyfish(
    switches: int,
    degree: int,
    hosts_per_switch: int,
    *,
    seed: int = 1,
    rate_bps: int = 1_000_000_000,
    delay_ns: int = 2_000,
    loss: float = 0.0,
    queue_packets: int = 128,
    mtu: int = MIN_MTU,
    slots: int = BMV2.slots,
    target: Target = BMV2,
    name: str = "jellyfish",
) -> Topology:
    """Return a random regular graph of switches (Singla et al., NSDI 2012).

    Args:
        switches: Number of switches, 3…255.
        degree: Number of links of each switch to others.
        hosts_per_switch: Number of hosts at each switch.
        seed: Seed of the draw.
        rate_bps: Rate of every link in bit/s.
        delay_ns: Delay of every link in ns.
        loss: Probability that a link loses a frame.
        queue_packets: Capacity of each egress queue in packets.
        mtu: Maximum bytes of an IPv4 packet.
        slots: Aggregation slots of each switch.
        target: Kind of every switch.
        name: Name of the fabric.

    Raises:
        TopologyError: A number is out of range, or `switches` · `degree` is odd.
    """
    _check_count("switches", switches, 3, 255)
    _check_count("degree", degree, 2, switches - 1)
    if switches * degree % 2:
        raise TopologyError(
            f"{switches} switches of degree {degree} have an odd number of link ends; change one by 1", value=switches
        )
    networkx = networkx_module()
    rng = random.Random(seed)
    others = switches - 1 - degree  # the switches to which a switch has no link are drawn if they are fewer
    while True:
        graph = networkx.random_regular_graph(min(degree, others), switches, seed=rng.randrange(1 << 30))
        if others < degree:
            graph = networkx.complement(graph)
        if networkx.is_connected(graph):
            break
    wiring = _Wiring(rate_bps, delay_ns, loss, queue_packets, mtu)
    wiring.add_flat(switches, hosts_per_switch, sorted((min(edge) + 1, max(edge) + 1) for edge in graph.edges))
    return wiring.topology(name, [None] * switches, slots, target)


def random_fabric(
    switches: int,
    links: int,
    hosts_per_switch: int,
    *,
    seed: int = 1,
    rate_bps: int = 1_000_000_000,
    delay_ns: int = 2_000,
    loss: float = 0.0,
    queue_packets: int = 128,
    mtu: int = MIN_MTU,
    slots: int = BMV2.slots,
    target: Target = BMV2,
    name: str = "random",
) -> Topology:
    """Return a fabric with a random spanning tree and further links between pairs drawn at random.

    Args:
        switches: Number of switches, 2…255.
        links: Number of links between switches, from `switches` − 1 on.
        hosts_per_switch: Number of hosts at each switch.
        seed: Seed of the draw.
        rate_bps: Rate of every link in bit/s.
        delay_ns: Delay of every link in ns.
        loss: Probability that a link loses a frame.
        queue_packets: Capacity of each egress queue in packets.
        mtu: Maximum bytes of an IPv4 packet.
        slots: Aggregation slots of each switch.
        target: Kind of every switch.
        name: Name of the fabric.

    Raises:
        TopologyError: A number is out of range.
    """
    _check_count("switches", switches, 2, 255)
    _check_count("links", links, switches - 1, switches * (switches - 1) // 2)
    rng = random.Random(seed)
    pairs = {(rng.randint(1, later - 1), later) for later in range(2, switches + 1)}
    while len(pairs) < links:
        a, b = sorted(rng.sample(range(1, switches + 1), 2))
        pairs.add((a, b))
    wiring = _Wiring(rate_bps, delay_ns, loss, queue_packets, mtu)
    wiring.add_flat(switches, hosts_per_switch, sorted(pairs))
    return wiring.topology(name, [None] * switches, slots, target)


class _Wiring:
    """Hosts and links of a fabric, in the order in which they are added; switches are numbers from 1."""

    def __init__(self, rate_bps: int, delay_ns: int, loss: float, queue_packets: int, mtu: int) -> None:
        self._rate_bps = rate_bps
        self._further = (delay_ns, loss, queue_packets, mtu)
        self._hosts: list[Host] = []
        self._links: list[Link] = []

    def add_hosts(self, switches: int, each: int) -> None:
        """Add the hosts of the first switches, from port 1 of each."""
        for switch in range(1, switches + 1):
            for place in range(1, each + 1):
                host = Host(f"h{len(self._hosts) + 1}", IPv4Address(f"10.{switch >> 8}.{switch & 255}.{place}"))
                self._hosts.append(host)
                self._add(Endpoint(host.name, 0), Endpoint(f"s{switch}", place), self._rate_bps)

    def link(self, a: tuple[int, int], b: tuple[int, int], rate_bps: int | None = None) -> None:
        """Link two ports of switches, at the rate of the hosts' links unless another is given."""
        self._add(Endpoint(f"s{a[0]}", a[1]), Endpoint(f"s{b[0]}", b[1]), rate_bps or self._rate_bps)

    def add_flat(self, switches: int, hosts_per_switch: int, pairs: Iterable[tuple[int, int]]) -> None:
        """Add equally many hosts to every switch, and a link, from their next free ports, between each pair."""
        _check_count("hosts_per_switch", hosts_per_switch, 1, 254)
        self.add_hosts(switches, hosts_per_switch)
        ports = [hosts_per_switch] * (switches + 1)
        for a, b in pairs:
            ports[a], ports[b] = ports[a] + 1, ports[b] + 1
            self.link((a, ports[a]), (b, ports[b]))

    def topology(self, name: str, tiers: Sequence[str | None], slots: int, target: Target) -> Topology:
        """Return the fabric; `tiers` is the tier of every switch."""
        switches = tuple(Switch(f"s{i}", i, slots, tier, target) for i, tier in enumerate(tiers, 1))
        return Topology(name, tuple(self._hosts), switches, tuple(self._links))

    def _add(self, a: Endpoint, b: Endpoint, rate_bps: int) -> None:
        self._links.append(Link(a, b, rate_bps, *self._further))


def _check_count(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise TopologyError(f"{name} {value} is not in {least}…{most}")
