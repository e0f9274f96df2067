"""Frames of the exercises of p4lang/tutorials, and the hosts at which their solutions deliver them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

BROADCAST: Final = "ff:ff:ff:ff:ff:ff"


@dataclass(frozen=True, slots=True)
class Step:
    """A frame that a host sends."""

    host: str
    frame: Packet
    at: tuple[str, ...] = ()
    """Hosts that receive it."""
    after: str = ""
    """Line of the controller, a regular expression, that comes first."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Frames of an exercise, and the parts of its answers to compare."""

    steps: Sequence[Step]
    ignored: Sequence[slice] = ()
    """Bytes of all frames that differ from run to run."""
    told: Sequence[str] = ()
    """Lines of the controller, regular expressions, to compare. flowcache's counters are left out: the program counts
    packet-outs by a header that they do not have, whose content bmv2 takes from an earlier packet."""
    awaited: Sequence[str] = ()
    """Those that it is to print after the frames."""


def ipv4(source: str, target: str, layer: Packet | None = None, *, mac: str = BROADCAST, **fields: object) -> Packet:
    """An IPv4 packet, by default of UDP with a payload of 20 bytes."""
    inner = UDP(sport=1234, dport=4321) if layer is None else layer
    return Ether(src="08:00:00:00:01:11", dst=mac) / IP(src=source, dst=target, id=7, **fields) / inner / Raw(bytes(20))


def calculation(operation: str, left: int, right: int) -> Packet:
    words = b"P4\x01" + operation.encode() + left.to_bytes(4, "big") + right.to_bytes(4, "big") + bytes(4)
    return Ether(src="08:00:00:00:01:01", dst="00:04:00:00:00:00", type=0x1234) / Raw(words + b" ")


def tunnelled(number: int) -> Packet:
    inner = ipv4("10.0.1.1", "10.0.2.2").payload
    header = (0x0800).to_bytes(2, "big") + number.to_bytes(2, "big")
    return Ether(src="08:00:00:00:01:11", dst=BROADCAST, type=0x1212) / Raw(header + bytes(inner))


def routed(ports: Sequence[int]) -> Packet:
    """A frame with a stack of ports, the last of which has the first bit set."""
    stack = b"".join((port | (at == len(ports) - 1) << 15).to_bytes(2, "big") for at, port in enumerate(ports))
    inner = bytes(ipv4("10.0.1.1", "10.0.2.2").payload)
    return Ether(src="08:00:00:00:01:11", dst=BROADCAST, type=0x1234) / Raw(stack + inner)


def probe(ports: Sequence[int]) -> Packet:
    return Ether(src="08:00:00:00:01:11", dst=BROADCAST, type=0x0812) / Raw(bytes([0, *ports]))


def traced(target: str) -> Packet:
    """A packet with IP's option 31, in which switches note their number and queue."""
    option = IPOption(bytes([31, 4, 0, 0]))
    return ipv4("10.0.1.1", target, options=[option])


def tcp(source: str, target: str, flags: str, sport: int = 4000, dport: int = 80) -> Packet:
    return ipv4(source, target, TCP(sport=sport, dport=dport, flags=flags))


H1, H2, H3, H4 = "10.0.1.1", "10.0.2.2", "10.0.3.3", "10.0.4.4"
_HOPS: Final = (4, 1, 4, 1, 3, 2, 3, 2, 1)
"""Egress ports of the exercise's own probe: twice round the pod and back to h1."""
_PROBE_TIMES: Final = tuple(slice(15 + 18 * hop + 6, 15 + 18 * (hop + 1)) for hop in range(len(_HOPS)))
_INSTALLED: Final = "Installed egress tunnel rule on s1"


_COUNTERS: Final = tuple(
    rf"s{switch} MyIngress\.{side}TunnelCounter {tunnel}: {packets} packets .*"
    for switch, side, tunnel, packets in [
        (1, "ingress", 100, 2),
        (2, "egress", 100, 2),
        (2, "ingress", 200, 1),
        (1, "egress", 200, 1),
    ]
)


def _flow(switch: str, source: str, target: str) -> str:
    return rf"For switch {switch} flow \(SA={source}, DA={target}, proto=17\) added table entry .*"


PLANS: Final[Mapping[str, Plan]] = {
    "basic": Plan(
        [
            Step("h1", ipv4(H1, H2), ("h2",)),
            Step("h1", ipv4(H1, H4, ttl=3), ("h4",)),
            Step("h3", tcp(H3, H1, "S"), ("h1",)),
            Step("h1", ipv4(H1, "10.0.9.9")),
            Step("h1", Ether(dst=BROADCAST, type=0x0806) / Raw(bytes(28))),
        ]
    ),
    "basic_tunnel": Plan(
        [
            Step("h1", ipv4(H1, H2), ("h2",)),
            Step("h1", tunnelled(3), ("h3",)),
            Step("h1", tunnelled(2), ("h2",)),
            Step("h1", tunnelled(4)),
        ]
    ),
    "calc": Plan([Step("h1", calculation(sign, 0xFFFFFFF0, 77), ("h1",) if sign != "*" else ()) for sign in "+-&|^*"]),
    "ecn": Plan([Step("h1", ipv4(H1, H2, tos=tos), ("h2",)) for tos in (0, 1, 2, 3, 0xB8)]),
    "firewall": Plan(
        [
            Step("h3", tcp(H3, H1, "S")),
            Step("h1", tcp(H1, H3, "S"), ("h3",)),
            Step("h3", tcp(H3, H1, "SA", 80, 4000), ("h1",)),
            Step("h3", tcp(H3, H1, "SA", 81, 4000)),
            Step("h1", tcp(H1, H2, "S"), ("h2",)),
            Step("h3", ipv4(H3, H1), ("h1",)),
        ]
    ),
    "flowcache": Plan(
        [
            Step("h1", ipv4(H1, H2), ("h2",), after="Replication written on s3"),
            Step("h1", ipv4(H1, H2), ("h2",), after=_flow("s2", H1, H2)),
            Step("h3", ipv4(H3, H1), ("h1",)),
            Step("h3", ipv4(H3, H1), ("h1",), after=_flow("s1", H3, H1)),
        ],
        told=(r"For switch .*", r"Deleted flow_cache entry on .*", r"decodePacketInMetadata: .*"),
        awaited=tuple(
            rf"Deleted flow_cache entry on {switch}\. \(SA={source}, .*"
            for switch, source in [("s1", H1), ("s2", H1), ("s3", H3), ("s1", H3)]
        ),
    ),
    "link_monitor": Plan(
        [
            Step("h1", ipv4(H1, H4), ("h4",)),
            Step("h1", ipv4(H1, H2), ("h2",)),
            Step("h1", probe(_HOPS), ("h1",)),
            Step("h4", ipv4(H4, H1), ("h1",)),
            Step("h1", probe(_HOPS), ("h1",)),
        ],
        ignored=_PROBE_TIMES,
    ),
    "load_balance": Plan(
        [
            *(
                Step("h1", tcp(H1, "10.0.0.1", "S", sport, 1234), ("h2|h3",))
                for sport in (49152, 49153, 50000, 51111, 60000, 65535)
            ),
            Step("h1", tcp(H1, "10.0.0.2", "S")),
            Step("h1", ipv4(H1, "10.0.0.1", ttl=0)),
        ]
    ),
    "mri": Plan([Step("h1", traced(H2), ("h2",)), Step("h1", traced(H3), ("h3",)), Step("h1", ipv4(H1, H2), ("h2",))]),
    "multicast": Plan(
        [
            Step("h1", ipv4("10.0.0.1", "10.0.0.9"), ("h2", "h3", "h4")),
            Step("h4", ipv4("10.0.0.4", "10.0.0.9"), ("h1", "h2", "h3")),
            Step("h1", ipv4("10.0.0.1", "10.0.0.3", mac="08:00:00:00:03:33"), ("h3",)),
            Step("h1", ipv4("10.0.0.1", "10.0.0.1", mac="08:00:00:00:01:11")),
        ]
    ),
    "p4runtime": Plan(
        [
            Step("h1", ipv4(H1, H2), ("h2",), after=_INSTALLED),
            Step("h2", ipv4(H2, H1), ("h1",)),
            Step("h1", ipv4(H1, H2, ttl=2), ("h2",)),
            Step("h1", ipv4(H1, H3)),
        ],
        told=(r"MyIngress\.\w+: .*", *_COUNTERS),
        awaited=_COUNTERS,
    ),
    "qos": Plan(
        [
            Step("h1", ipv4(H1, H2, tos=1), ("h2",)),
            Step("h1", tcp(H1, H2, "S"), ("h2",)),
            Step("h1", ipv4(H1, H3, Raw(b"other"), tos=7, proto=99), ("h3",)),
        ]
    ),
    "source_routing": Plan(
        [
            Step("h1", routed([2, 3, 2, 2, 1]), ("h2",)),
            Step("h1", routed([3, 1]), ("h3",)),
            Step("h1", routed([1]), ("h1",)),
            Step("h1", ipv4(H1, H2)),
        ]
    ),
}
