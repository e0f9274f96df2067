"""In-band telemetry as INT-MD 2.1 has it: probes out, finished probes in (docs/design.md §4.4).

A probe is an IPv4/UDP datagram to port 5000::

    Ethernet | IPv4 | UDP | shim 4 B | MD header 12 B | newest hop … oldest hop | payload

Every hop pushes the same `hop_words` words right behind the header. Source: "In-band Network Telemetry (INT) Dataplane
Specification", version 2.1, 2020-11-11, sections "INT over TCP/UDP" and "INT-MD Metadata Header Format".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import WireError
from .frames import DEFAULT_TTL, DSCP_BULK, FRAME_HEADER_BYTES, MTU, decapsulate, encapsulate

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
DOMAIN: Final = 0x5745
"""Domain-specific id under which `DomainInstruction` is understood."""

MAX_HOP_WORDS: Final = 31
UNAVAILABLE: Final = -1
"""In decoded hops: the node sent all ones, or the probe did not ask."""


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


SUPPORTED: Final = (
    Instruction.NODE_ID
    | Instruction.PORTS
    | Instruction.HOP_LATENCY
    | Instruction.QUEUE
    | Instruction.INGRESS_TIMESTAMP
    | Instruction.EGRESS_TIMESTAMP
)
"""What this project's switch program fills; it answers every other bit with all ones."""

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
    """What one node pushed; None where it sent all ones or was not asked."""

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
    """By the egress port since the switch started, this packet as it arrived in egress included."""


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """n finished probes that asked for the same and crossed equally many hops."""

    source: NDArray[np.uint32]
    """(n,) IPv4 addresses."""
    source_port: NDArray[np.uint16]
    original_port: NDArray[np.uint16]
    hop_limit_exceeded: NDArray[np.bool_]
    """E: some node found no remaining hops and pushed nothing."""
    mtu_exceeded: NDArray[np.bool_]
    """M: some node pushed nothing because the packet would have outgrown the MTU."""
    remaining_hops: NDArray[np.uint8]
    hops: NDArray[np.void]
    """HOP (n, hops), in the order of the path: first hop first."""
    payload: NDArray[np.uint8]
    """(n, bytes) behind the stack."""

    def __len__(self) -> int:
        return len(self.source)

    def path(self, index: int) -> tuple[Hop, ...]:
        """The hops of one probe."""
        names = HOP.names
        assert names is not None
        return tuple(
            Hop(**{name: None if record[name] == UNAVAILABLE else int(record[name]) for name in names})
            for record in self.hops[index]
        )


def item_words(bit: int) -> int:
    """Words that one bit of the instruction bitmap asks for; a reserved bit asks for one, as specified."""
    return 2 if bit & _TWO_WORDS else 1


def hop_words(instructions: int, domain_instructions: int = 0) -> int:
    """Hop ML: words that each hop pushes. Of the domain's items bytes sent has two words, unassigned ones have one."""
    words = sum(item_words(1 << bit) for bit in range(16) if instructions >> bit & 1)
    return words + domain_instructions.bit_count() + bool(domain_instructions & DomainInstruction.BYTES_SENT)


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
    """One probe with an empty stack, ready to be sent as a packet-out. Addresses and MACs are integers.

    Raises WireError when a hop would push more than 31 words or the hop limit is not one of 8 bits.
    """
    words = hop_words(instructions, domain_instructions)
    if words > MAX_HOP_WORDS:
        raise WireError(f"these instructions ask each hop for {words} words; hop ML holds at most {MAX_HOP_WORDS}")
    if not 0 <= remaining_hops <= 0xFF:
        raise WireError(f"remaining_hops {remaining_hops} does not fit 8 bits; it is 0…255")
    header = np.zeros(1, _MD)
    header["shim_type"] = TYPE_MD << 4 | NPT_UDP_PORT << 2
    header["shim_length"] = MD_WORDS
    header["original_port"] = PROBE_PORT
    header["version_flags"] = INT_VERSION << 4
    header["hop_words"] = words
    header["remaining_hops"] = remaining_hops
    header["instructions"] = instructions
    header["domain"] = DOMAIN if domain_instructions else 0
    header["domain_instructions"] = domain_instructions
    body = np.frombuffer(header.tobytes() + payload, np.uint8)[None]
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
    """How many hops of so many words a probe can carry before M or the shim's length field stops it."""
    fixed = FRAME_HEADER_BYTES - 14 + INT_HEADER_BYTES + payload_bytes
    return min((MTU - fixed) // (4 * words), (0xFF - MD_WORDS) // words)


def parse(frames: NDArray[np.uint8]) -> tuple[list[Probes], int]:
    """Decode probes of equal length. (n, length) uint8 → one `Probes` per layout among them, and the number rejected.

    Rejected are frames that are not IPv4/UDP to the INT port, not INT-MD 2.x with the original port in the shim, or
    whose lengths contradict each other.
    """
    datagrams, rejects = decapsulate(frames)
    rejected = rejects.total
    if datagrams.payload.shape[1] < INT_HEADER_BYTES:
        return [], rejected + len(datagrams)
    headers = np.ascontiguousarray(datagrams.payload[:, :INT_HEADER_BYTES]).view(_MD)[:, 0]
    stack_words = headers["shim_length"].astype(np.int64) - MD_WORDS
    per_hop = headers["hop_words"].astype(np.int64) & 0x1F
    good = (
        (datagrams.destination_ports == INT_PORT)
        & (headers["shim_type"] & 0xFC == TYPE_MD << 4 | NPT_UDP_PORT << 2)
        & (headers["version_flags"] >> 4 == INT_VERSION)
        & (stack_words >= 0)
        & (4 * stack_words <= datagrams.payload.shape[1] - INT_HEADER_BYTES)
        & (stack_words % np.maximum(per_hop, 1) == 0)
        & ((per_hop > 0) | (stack_words == 0))
    )
    layout = (
        headers["instructions"].astype(np.int64) << 32
        | headers["domain"].astype(np.int64) << 48
        | headers["domain_instructions"].astype(np.int64) << 16
        | headers["shim_length"].astype(np.int64) << 8
        | per_hop
    )
    batches: list[Probes] = []
    for value in np.unique(layout[good]):
        rows = good & (layout == value)
        batch = headers[rows]
        first = batch[0]
        known_domain = first["domain"] == DOMAIN
        domain_instructions = int(first["domain_instructions"]) if known_domain else 0
        words = int(per_hop[rows][0])
        asked = hop_words(int(first["instructions"]), domain_instructions)
        # a domain that is not ours may push items of its own behind the baseline ones
        if asked > words or (known_domain and asked < words):
            rejected += len(batch)
            continue
        stack = datagrams.payload[rows, INT_HEADER_BYTES:]
        count = int(first["shim_length"]) - MD_WORDS
        hops = stack[:, : 4 * count].reshape(len(batch), count // max(words, 1), 4 * words)
        batches.append(
            Probes(
                source=datagrams.addresses[rows],
                source_port=datagrams.source_ports[rows],
                original_port=batch["original_port"].astype(np.uint16),
                hop_limit_exceeded=batch["version_flags"] & 0x04 != 0,
                mtu_exceeded=batch["version_flags"] & 0x02 != 0,
                remaining_hops=batch["remaining_hops"].copy(),
                hops=_decode_hops(hops[:, ::-1], int(first["instructions"]), domain_instructions),
                payload=stack[:, 4 * count :],
            )
        )
    return batches, rejected + int(np.count_nonzero(~good))


def parse_frames(frames: Iterable[bytes]) -> tuple[list[Probes], int]:
    """`parse` for frames of any lengths: those of one length are decoded together."""
    by_length: dict[int, list[bytes]] = {}
    for frame in frames:
        by_length.setdefault(len(frame), []).append(frame)
    batches: list[Probes] = []
    rejected = 0
    for length, same in by_length.items():
        found, bad = parse(np.frombuffer(b"".join(same), np.uint8).reshape(len(same), length))
        batches += found
        rejected += bad
    return batches, rejected


def _decode_hops(stack: NDArray[np.uint8], instructions: int, domain_instructions: int) -> NDArray[np.void]:
    """(n, hops, bytes per hop) uint8 → HOP (n, hops)."""
    # as numbers and not as records, which NumPy is slow to copy
    hops: NDArray[np.void] = np.full((*stack.shape[:2], HOP.itemsize // 8), UNAVAILABLE, np.int64).view(HOP)[..., 0]
    offset = 0

    def take(width: int) -> NDArray[np.int64]:
        """The next `width` bytes as integers, all ones replaced by UNAVAILABLE."""
        nonlocal offset
        # widening from the right keeps one path for 1, 2, 3, 4 and 8 bytes
        wide = np.zeros((*stack.shape[:2], 8), np.uint8)
        wide[..., 8 - width :] = stack[..., offset : offset + width]
        offset += width
        values: NDArray[Any] = wide.view(">u8")[..., 0]
        ones = values == (1 << 8 * width) - 1
        signed: NDArray[np.int64] = values.astype(np.int64)
        signed[ones] = UNAVAILABLE
        return signed

    fields = {
        Instruction.NODE_ID: (("node_id", 4),),
        Instruction.PORTS: (("ingress_port", 2), ("egress_port", 2)),
        Instruction.HOP_LATENCY: (("latency_us", 4),),
        Instruction.QUEUE: (("queue_id", 1), ("queue_packets", 3)),
        Instruction.INGRESS_TIMESTAMP: (("ingress_ns", 8),),
        Instruction.EGRESS_TIMESTAMP: (("egress_ns", 8),),
    }
    for bit in (1 << position for position in range(15, 0, -1)):
        if not instructions & bit:
            continue
        if bit & SUPPORTED:
            for name, width in fields[Instruction(bit)]:
                hops[name] = take(width)
        else:
            offset += 4 * item_words(bit)
    if domain_instructions & DomainInstruction.BYTES_SENT:
        hops["bytes_sent"] = take(8)
    return hops
