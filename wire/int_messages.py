"""Aggregation messages that carry INT-MD, of which hosts are source and sink: link data for congestion-control laws.

::

    Ethernet | IPv4 | UDP to 5000 | shim 4 B | MD header 12 B | newest hop … oldest hop | message

Every hop pushes 28 bytes: node id, ports, queue, egress time, bytes sent. Switches sum such a message by the part
behind its stack; a round's output has the stack of the message that completed it (docs/design.md §4.4).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .frames import Datagrams, Rejects, decapsulate, frame_headers
from .int_md import (
    INT_HEADER_BYTES,
    INT_PORT,
    DomainInstruction,
    Instruction,
    hop_words,
    hops_that_fit,
    md_header,
)

INSTRUCTIONS: Final = Instruction.NODE_ID | Instruction.PORTS | Instruction.QUEUE | Instruction.EGRESS_TIMESTAMP
DOMAIN_INSTRUCTIONS: Final = DomainInstruction.BYTES_SENT

LINK_HOP: Final = np.dtype(
    [
        ("node_id", ">u4"),
        ("ingress_port", ">u2"),
        ("egress_port", ">u2"),
        ("queue_id", "u1"),
        ("queue_packets", "u1", (3,)),
        ("egress_ns", ">u8"),
        ("bytes_sent", ">u8"),
    ]
)
"""Items pushed by one hop, as on the wire; the queue's depth in packets is a 24-bit number."""

_SHIM_LENGTH: Final = 1
_REMAINING_HOPS: Final = 7
_DOMAIN_FLAGS: Final = slice(14, INT_HEADER_BYTES)
_DEPTH: Final = np.array([1 << 16, 1 << 8, 1])


def max_hops(message_bytes: int) -> int:
    """Return the number of switches that can push into a message of `message_bytes` bytes within the MTU of 1500."""
    return hops_that_fit(hop_words(INSTRUCTIONS, DOMAIN_INSTRUCTIONS), message_bytes)


def link_request(port: int, hops: int) -> bytes:
    """Return the shim and header, with an empty stack, that request a LINK_HOP of each of `hops` hops, before
    messages to this port.
    """
    return md_header(port, INSTRUCTIONS, DOMAIN_INSTRUCTIONS, remaining_hops=hops)


def read_links(headers: NDArray[np.uint8], port: int) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Return the hops of n stacks, LINK_HOP (n, hops), newest first, and a mask of the valid ones.

    A stack is valid if it holds the items of `link_request` with a word of every node on the way. `headers` is (n,
    size), as `Datagrams.int_headers`.
    """
    rows, size = headers.shape
    hops, rest = divmod(size - INT_HEADER_BYTES, LINK_HOP.itemsize)
    if rest:  # also where it is shorter than the header, which is shorter than a hop
        return np.empty((rows, 0), LINK_HOP), np.zeros(rows, np.bool_)
    expected = np.frombuffer(link_request(port, 0), np.uint8).copy()
    expected[_SHIM_LENGTH] = size // 4 - 1
    wrong = headers[:, :INT_HEADER_BYTES] != expected
    wrong[:, _REMAINING_HOPS] = False
    wrong[:, _DOMAIN_FLAGS] = False
    stack = np.ascontiguousarray(headers[:, INT_HEADER_BYTES:])
    return stack.view(LINK_HOP).reshape(rows, hops), ~wrong.any(1)


def depths(hops: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the queues' depths in packets, of LINK_HOP of any shape."""
    found: NDArray[np.int64] = hops["queue_packets"] @ _DEPTH
    return found


def embed(datagrams: Datagrams) -> Datagrams:
    """Return datagrams with their INT as part of the payload, for a FrameWriter that writes to INT_PORT."""
    if datagrams.int_headers is None:
        return datagrams
    return Datagrams(datagrams.addresses, np.concatenate([datagrams.int_headers, datagrams.payload], axis=1))


def carry_int(frames: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True for each frame, of 42 bytes at least, that is marked as carrying INT. (n, length) uint8 → (n,)."""
    marked: NDArray[np.bool_] = frame_headers(frames)["destination_port"] == INT_PORT
    return marked


def extract(frames: NDArray[np.uint8], address: int, port: int) -> tuple[list[Datagrams], Rejects]:
    """Return the datagrams in frames of equal length to INT_PORT, with their INT apart, each element of one size; as
    `decapsulate`, with the port that the shim names. (n, length) uint8.
    """
    datagrams, rejects = decapsulate(frames, address)
    payload = datagrams.payload
    rows, room = payload.shape
    elsewhere = (datagrams.source_ports != port) | (datagrams.destination_ports != INT_PORT)
    sizes = np.zeros(rows, np.int64)
    if room >= INT_HEADER_BYTES:
        shim = np.frombuffer(link_request(port, 0), np.uint8)
        wrong = (payload[:, [0, 2, 3]] != shim[[0, 2, 3]]).any(1)
        sizes = 4 * (payload[:, _SHIM_LENGTH].astype(np.int64) + 1)
        sizes *= ~(elsewhere | wrong | (sizes > room))
    foreign = int(np.count_nonzero(elsewhere))
    garbled = int(np.count_nonzero(sizes < INT_HEADER_BYTES)) - foreign
    out = []
    for size in np.unique(sizes[sizes >= INT_HEADER_BYTES]).tolist():
        of = sizes == size
        out.append(Datagrams(datagrams.addresses[of], payload[of, size:], int_headers=payload[of, :size]))
    return out, rejects + Rejects(other_port=foreign, bad_int=garbled)
