"""Fabrics by their measures: leaf-spine and fat-tree, and Jellyfish and random ones by their measures and a seed.

The first two number switches tier by tier from the hosts up (`s1` is the first leaf); all give a switch its lowest
ports towards the hosts. Hosts are `10.0.<leaf>.<place>`, places from 1.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
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
    hosts: list[Host] = []
    links: list[Link] = []
    for leaf in range(1, leaves + 1):
        for place in range(1, hosts_per_leaf + 1):
            host = Host(f"h{len(hosts) + 1}", IPv4Address(f"10.0.{leaf}.{place}"))
            hosts.append(host)
            access = Endpoint(host.name, 0), Endpoint(f"s{leaf}", place)
            links.append(Link(*access, rate_bps, delay_ns, loss, queue_packets, mtu))
    for leaf in range(1, leaves + 1):
        for spine in range(1, spines + 1):
            uplink = Endpoint(f"s{leaf}", hosts_per_leaf + spine), Endpoint(f"s{leaves + spine}", leaf)
            links.append(Link(*uplink, uplink_rate_bps or rate_bps, delay_ns, loss, queue_packets, mtu))
    tiers = ["leaf"] * leaves + ["spine"] * spines
    switches = tuple(Switch(f"s{i}", i, slots, tier, target) for i, tier in enumerate(tiers, 1))
    return Topology(name, tuple(hosts), switches, tuple(links))


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
    hosts: list[Host] = []
    links: list[Link] = []

    def link(a: Endpoint, b: Endpoint) -> None:
        links.append(Link(a, b, rate_bps, delay_ns, loss, queue_packets, mtu))

    for edge in range(1, edges + 1):
        for place in range(1, half + 1):
            host = Host(f"h{len(hosts) + 1}", IPv4Address(f"10.{edge >> 8}.{edge & 255}.{place}"))
            hosts.append(host)
            link(Endpoint(host.name, 0), Endpoint(f"s{edge}", place))
    for pod in range(k):
        for e in range(half):
            for j in range(half):
                up = Endpoint(f"s{pod * half + e + 1}", half + j + 1)
                link(up, Endpoint(f"s{edges + pod * half + j + 1}", e + 1))
    for pod in range(k):
        for j in range(half):
            for c in range(half):
                up = Endpoint(f"s{edges + pod * half + j + 1}", half + c + 1)
                link(up, Endpoint(f"s{edges + aggregations + j * half + c + 1}", pod + 1))
    tiers = ["edge"] * edges + ["aggregation"] * aggregations + ["core"] * cores
    switches = tuple(Switch(f"s{i}", i, slots, tier, target) for i, tier in enumerate(tiers, 1))
    return Topology(name, tuple(hosts), switches, tuple(links))


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
    pairs = sorted((min(edge) + 1, max(edge) + 1) for edge in graph.edges)
    return _flat(name, switches, pairs, hosts_per_switch, slots, target, (rate_bps, delay_ns, loss, queue_packets, mtu))


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
    return _flat(
        name, switches, sorted(pairs), hosts_per_switch, slots, target, (rate_bps, delay_ns, loss, queue_packets, mtu)
    )


def _flat(
    name: str,
    count: int,
    pairs: Iterable[tuple[int, int]],
    hosts_per_switch: int,
    slots: int,
    target: Target,
    link: tuple[int, int, float, int, int],
) -> Topology:
    """Switches of one tier, all with as many hosts, and these links between them."""
    _check_count("hosts_per_switch", hosts_per_switch, 1, 254)
    hosts: list[Host] = []
    links: list[Link] = []
    for switch in range(1, count + 1):
        for place in range(1, hosts_per_switch + 1):
            host = Host(f"h{len(hosts) + 1}", IPv4Address(f"10.0.{switch}.{place}"))
            hosts.append(host)
            links.append(Link(Endpoint(host.name, 0), Endpoint(f"s{switch}", place), *link))
    ports = [hosts_per_switch] * (count + 1)
    for a, b in pairs:
        ports[a], ports[b] = ports[a] + 1, ports[b] + 1
        links.append(Link(Endpoint(f"s{a}", ports[a]), Endpoint(f"s{b}", ports[b]), *link))
    switches = tuple(Switch(f"s{i}", i, slots, None, target) for i in range(1, count + 1))
    return Topology(name, tuple(hosts), switches, tuple(links))


def _check_count(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise TopologyError(f"{name} {value} is not in {least}…{most}")
