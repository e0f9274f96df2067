"""INT-MD 2.1, in-band telemetry: probes out, finished probes in (docs/design.md §4.4).

A probe is an IPv4/UDP datagram to port 5000::

    Ethernet | IPv4 | UDP | shim 4 B | MD header 12 B | newest hop … oldest hop | payload

Every hop pushes the same `hop_words` words right behind the header. Source: "In-band Network Telemetry (INT) Dataplane
Specification", version 2.1, 2020-11-11, sections "INT over TCP/UDP" and "INT-MD Metadata Header Format".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import WireError
from .frames import DEFAULT_TTL, DSCP_BULK, FRAME_HEADER_BYTES, MTU, encapsulate

INT_PORT: Final = 5000
"""UDP destination port that says "INT follows": the specification's INT_TBD."""

PROBE_PORT: Final = 22342
"""The probes' own UDP destination port, carried in the shim."""

SHIM_BYTES: Final = 4
MD_BYTES: Final = 12
INT_HEADER_BYTES: Final = SHIM_BYTES + MD_BYTES
MD_WORDS: Final = MD_BYTES // 4

TYPE_MD: Final = 1
NPT_UDP_PORT: Final = 1
"""Next protocol type: the shim carries the original UDP destination port."""

INT_VERSION: Final = 2
DISCARD: Final = 0x08
"""D, in the header's first byte: the sink takes the packet out of the fabric, as it does each probe."""

DOMAIN: Final = 0x5745
"""Domain-specific id under which `DomainInstruction` is understood."""

MAX_HOP_WORDS: Final = 31
UNAVAILABLE: Final = -1
"""Value of decoded hop items that the node sent as all ones, or that the probe did not request."""


class Instruction(IntFlag):
    """Bits of the instruction bitmap; the specification's bit 0 is the most significant of 16."""

    NODE_ID = 1 << 15
    PORTS = 1 << 14
    HOP_LATENCY = 1 << 13
    QUEUE = 1 << 12
    INGRESS_TIMESTAMP = 1 << 11
    EGRESS_TIMESTAMP = 1 << 10
    LEVEL2_PORTS = 1 << 9
    UTILISATION = 1 << 8
    BUFFER = 1 << 7
    CHECKSUM_COMPLEMENT = 1 << 0


class DomainInstruction(IntFlag):
    """Bits of the domain-specific instruction bitmap of `DOMAIN`."""

    BYTES_SENT = 1 << 15
    """Bytes sent by the egress port before this packet: 8 bytes."""
    FREE_SLOTS = 1 << 14
    """Aggregation slots of the node that no job has: 4 bytes."""


SUPPORTED: Final = (
    Instruction.NODE_ID
    | Instruction.PORTS
    | Instruction.HOP_LATENCY
    | Instruction.QUEUE
    | Instruction.INGRESS_TIMESTAMP
    | Instruction.EGRESS_TIMESTAMP
    | Instruction.LEVEL2_PORTS
    | Instruction.UTILISATION
)
"""Items that this project's switch program fills; every other requested item is all ones."""

PROBE_INSTRUCTIONS: Final = Instruction.NODE_ID | Instruction.PORTS | Instruction.HOP_LATENCY | Instruction.QUEUE

_TWO_WORDS: Final = int(Instruction.INGRESS_TIMESTAMP | Instruction.EGRESS_TIMESTAMP | Instruction.LEVEL2_PORTS)

_MD: Final = np.dtype(
    [
        ("shim_type", "u1"),  # type 4, next protocol type 2, reserved 2
        ("shim_length", "u1"),  # words behind the shim
        ("original_port", ">u2"),
        ("version_flags", "u1"),  # version 4, D, E, M, reserved 1
        ("reserved", "u1"),
        ("hop_words", "u1"),  # reserved 3, hop ML 5
        ("remaining_hops", "u1"),
        ("instructions", ">u2"),
        ("domain", ">u2"),
        ("domain_instructions", ">u2"),
        ("domain_flags", ">u2"),
    ]
)

HOP: Final = np.dtype(
    [
        ("node_id", "i8"),
        ("ingress_port", "i8"),
        ("egress_port", "i8"),
        ("latency_us", "i8"),
        ("queue_id", "i8"),
        ("queue_packets", "i8"),
        ("ingress_ns", "i8"),
        ("egress_ns", "i8"),
        ("bytes_sent", "i8"),
    ]
)
"""One hop's record; `UNAVAILABLE` marks what the node could not say or was not asked."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Items pushed by one node; None for items that it sent as all ones or that were not requested."""

    node_id: int | None
    ingress_port: int | None
    egress_port: int | None
    latency_us: int | None
    queue_id: int | None
    queue_packets: int | None
    """Depth of the egress queue at dequeue, in packets."""
    ingress_ns: int | None
    egress_ns: int | None
    bytes_sent: int | None
    """Bytes sent by the egress port since the switch started, including this packet as it arrived in egress."""


KEPT_ITEMS: Final = 7
"""Node, ports, latency, queue, two timestamps, bytes sent: the items of a HOP."""

PROBE: Final = np.dtype(
    [
        ("source", "u4"),  # IPv4 address
        ("source_port", "u2"),
        ("original_port", "u2"),
        ("hop_limit_exceeded", "?"),  # E: some node found no remaining hops and pushed nothing
        ("mtu_exceeded", "?"),  # M: some node pushed nothing because the packet would have outgrown the MTU
        ("remaining_hops", "u1"),
        ("hops", "i8"),
        ("first_hop", "i8"),  # where they begin among all hops of the batch
        ("payload_at", "i8"),  # behind the stack, in the batch's bytes
        ("payload_end", "i8"),
    ]
)
"""Record of one finished probe without its hops."""


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """n finished probes, in the order in which they came, whatever they asked for."""

    records: NDArray[np.void]
    """(n,): a record PROBE of each."""
    hops: NDArray[np.void]
    """HOP: those of the first probe in the order of its path, then those of the next."""
    data: NDArray[np.uint8]
    """The batch's bytes, uint8."""
    rejected: int
    """Frames that were no probe: not IPv4/UDP to the INT port, not INT-MD 2.x with the original port in the shim, or
    with lengths that contradict each other.
    """

    def __len__(self) -> int:
        return len(self.records)

    def path(self, index: int) -> tuple[Hop, ...]:
        """Return the hops of one probe."""
        names = HOP.names
        assert names is not None
        first = int(self.records["first_hop"][index])
        return tuple(
            Hop(**{name: None if record[name] == UNAVAILABLE else int(record[name]) for name in names})
            for record in self.hops[first : first + int(self.records["hops"][index])]
        )

    def payload(self, index: int) -> bytes:
        """Return bytes that one probe carries behind its stack."""
        return self.data[int(self.records["payload_at"][index]) : int(self.records["payload_end"][index])].tobytes()


def item_words(bit: int) -> int:
    """Return words that one bit of the instruction bitmap asks for; a reserved bit asks for one, as specified."""
    return 2 if bit & _TWO_WORDS else 1


def hop_words(instructions: int, domain_instructions: int = 0) -> int:
    """Hop ML: words that each hop pushes. Of the domain's items bytes sent has two words, unassigned ones have one."""
    words = sum(item_words(1 << bit) for bit in range(16) if instructions >> bit & 1)
    return words + domain_instructions.bit_count() + bool(domain_instructions & DomainInstruction.BYTES_SENT)


def md_header(port: int, instructions: int, domain_instructions: int, *, remaining_hops: int, flags: int = 0) -> bytes:
    """Return the shim and header with an empty stack, which stand in front of a payload to a UDP port.

    Args:
        port: Original UDP destination port.
        instructions: Bitmap of the baseline instructions, 16 bits.
        domain_instructions: Bitmap of instructions of Weir's domain, 16 bits; 0: the header names no domain.
        remaining_hops: Maximum number of hops that push metadata, 0…255.
        flags: Flags of the header, such as DISCARD.

    Raises:
        WireError: A hop would push more than 31 words, or the hop limit does not fit 8 bits.
    """
    words = hop_words(instructions, domain_instructions)
    if words > MAX_HOP_WORDS:
        raise WireError(
            f"these instructions ask each hop for {words} words; hop ML holds at most {MAX_HOP_WORDS}", value=words
        )
    if not 0 <= remaining_hops <= 0xFF:
        raise WireError(
            f"{remaining_hops} does not fit 8 bits; it is 0…255", place="remaining_hops", value=remaining_hops
        )
    header = np.zeros(1, _MD)
    header["shim_type"] = TYPE_MD << 4 | NPT_UDP_PORT << 2
    header["shim_length"] = MD_WORDS
    header["original_port"] = port
    header["version_flags"] = INT_VERSION << 4 | flags
    header["hop_words"] = words
    header["remaining_hops"] = remaining_hops
    header["instructions"] = instructions
    header["domain"] = DOMAIN if domain_instructions else 0
    header["domain_instructions"] = domain_instructions
    return header.tobytes()


def probe_frame(
    *,
    source: int,
    destination: int,
    source_mac: int,
    destination_mac: int,
    source_port: int = PROBE_PORT,
    instructions: int = PROBE_INSTRUCTIONS,
    domain_instructions: int = DomainInstruction.BYTES_SENT,
    remaining_hops: int = 16,
    payload: bytes = b"",
    dscp: int = DSCP_BULK,
    ttl: int = DEFAULT_TTL,
) -> bytes:
    """Return one probe with an empty stack, ready to be sent as a packet-out.

    Args:
        source: IPv4 address of the sender, as an integer.
        destination: IPv4 address of the receiver.
        source_mac: Ethernet address of the sender, as an integer.
        destination_mac: Ethernet address of the next hop.
        source_port: UDP port of the sender.
        instructions: INT instruction bitmap, 16 bits.
        domain_instructions: Bitmap of the items of Weir's domain.
        remaining_hops: Maximum number of hops that add metadata, 0…255.
        payload: Bytes behind the INT header.
        dscp: Code point, 0…63.
        ttl: Time to live, 0…255.

    Returns:
        The frame, Ethernet header included.

    Raises:
        WireError: A hop would push more than 31 words, or the hop limit is not one of 8 bits.
    """
    header = md_header(PROBE_PORT, instructions, domain_instructions, remaining_hops=remaining_hops, flags=DISCARD)
    body = np.frombuffer(header + payload, np.uint8)[None]
    return encapsulate(
        body,
        source=source,
        destination=destination,
        source_mac=source_mac,
        destination_mac=destination_mac,
        source_port=source_port,
        destination_port=INT_PORT,
        dscp=dscp,
        ttl=ttl,
    ).tobytes()


def hops_that_fit(words: int, payload_bytes: int = 0) -> int:
    """Return the number of hops of `words` words that a packet to INT_PORT can carry before M or the shim's length
    field stops it.
    """
    fixed = FRAME_HEADER_BYTES - 14 + INT_HEADER_BYTES + payload_bytes
    return min((MTU - fixed) // (4 * words), (0xFF - MD_WORDS) // words)


def parse_frames(frames: Iterable[bytes]) -> Probes:
    """Decode finished probes. Other frames are counted, and left out."""
    from .int_native import decoded  # its code is for Numba, which hosts do without

    together = list(frames)
    ends = np.cumsum(np.fromiter(map(len, together), np.int64, len(together)))
    data = np.frombuffer(b"".join(together), np.uint8)
    each, hops = np.empty(len(together), PROBE), np.empty(len(data) // 4, HOP)  # a hop has a word at least
    taken, filled = decoded(data, ends, INT_PORT, DOMAIN, KEPT_ITEMS, each, hops)
    return Probes(each[:taken], hops[:filled], data, len(together) - taken)
