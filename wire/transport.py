"""Packets of the point-to-point transport (docs/design.md §2.5): a header, and a part of a message or of an answer.

::

    packets ─▶ rows without a check ─▶ FrameCheck.seal ─▶ UDP port 22346
    rows ─▶ heads_of ─▶ FrameCheck.of compared with the `check` column

Every packet has a 64-bit check over header, payload and both addresses. With a job's key it is a message authentication
code (keyed BLAKE2b, RFC 7693), without one a checksum.
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum, IntFlag
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .fields import FieldReduction, HeaderField, in_order
from .frames import IPV4_BYTES, MTU, UDP_BYTES

TRANSPORT_PORT: Final = 22346
VERSION: Final = 1


class PacketType(IntEnum):
    """Values of the header's `type`."""

    DATA = 1
    ACK = 2
    OPEN = 3
    OPENED = 4


class PacketFlag(IntFlag):
    """Bits of the header's `flags`."""

    FIRST = 1
    LAST = 2
    ASK = 4
    CLOSED = 8


FIELDS: Final = in_order(
    HeaderField(
        "version_type", 8, FieldReduction.NONE, "version 1; the type table below", (("version", 4), ("type", 4))
    ),
    HeaderField(
        "flags", 8, FieldReduction.NONE, "0x01 first packet of a message, 0x02 last, 0x04 asks for an ACK, 0x08 closed"
    ),
    HeaderField("job", 16, FieldReduction.NONE, "1…65535, in the place where aggregation messages have it"),
    HeaderField("epoch", 32, FieldReduction.NONE, "the sender's start of this connection; never 0"),
    HeaderField("peer_epoch", 32, FieldReduction.NONE, "the receiver's; 0 in OPEN"),
    HeaderField("sequence", 32, FieldReduction.NONE, "DATA: place in the stream, ACK: first missing one; modulo 2³²"),
    HeaderField(
        "order",
        32,
        FieldReduction.NONE,
        "DATA: transmissions before this one, ACK: one above the largest received; modulo 2³²",
    ),
    HeaderField("check", 64, FieldReduction.NONE, "BLAKE2b of addresses, header and payload, keyed with the job's key"),
)
HEADER: Final = np.dtype([(field.name, field.storage) for field in FIELDS])
HEADER_BYTES: Final = HEADER.itemsize
"""28."""
PAYLOAD_BYTES: Final = MTU - IPV4_BYTES - UDP_BYTES - HEADER_BYTES
"""1444: the payload of a packet that fills the MTU."""
SEQUENCES: Final = 1 << 32

_CHECK_AT: Final = HEADER_BYTES - 8
_CHECK_BYTES: Final = 8
_PREFIX: Final = struct.Struct(">III")
_PERSON: Final = b"weir transport"


def packets(
    payload: NDArray[np.uint8],
    *,
    kind: PacketType,
    job: int,
    epoch: int,
    peer_epoch: int,
    flags: ArrayLike = 0,
    sequence: ArrayLike = 0,
    order: ArrayLike = 0,
) -> NDArray[np.uint8]:
    """Put a header with a `check` of 0 in front of each payload (docs/design.md §2.5).

    `flags`, `sequence` and `order` are integers, one for all rows or one per row (n,).

    Args:
        payload: Payloads, uint8 (n, size).
        kind: Type of all packets.
        job: Number of the job, 1…65535.
        epoch: Epoch of the sender.
        peer_epoch: Epoch of the receiver; 0 in OPEN.
        flags: Flags of each packet.
        sequence: Place in the stream of any size; the field has it modulo 2³².
        order: Number of transmissions before of any size; the field has it modulo 2³².

    Returns:
        Packets, uint8 (n, 28 + size).
    """
    rows, size = payload.shape
    out = np.empty((rows, HEADER_BYTES + size), np.uint8)
    out[:, HEADER_BYTES:] = payload
    heads = np.zeros(rows, HEADER)
    heads["version_type"] = VERSION << 4 | kind
    heads["flags"] = flags
    heads["job"] = job
    heads["epoch"] = epoch
    heads["peer_epoch"] = peer_epoch
    heads["sequence"] = np.asarray(sequence) % SEQUENCES
    heads["order"] = np.asarray(order) % SEQUENCES
    out[:, :HEADER_BYTES] = heads.view(np.uint8).reshape(rows, HEADER_BYTES)
    return out


def heads_of(payload: NDArray[np.uint8]) -> NDArray[np.void]:
    """Return the headers of packets (n, size ≥ 28) as HEADER records (n,); a copy."""
    heads: NDArray[np.void] = np.ascontiguousarray(payload[:, :HEADER_BYTES]).view(HEADER)[:, 0]
    return heads


def extended(low: NDArray[Any], near: int) -> NDArray[np.int64]:
    """Return the 64-bit numbers that end in these 32 bits (n,) and are nearest to `near`; never below 0."""
    distance = (low.astype(np.int64) - near + (SEQUENCES >> 1)) % SEQUENCES - (SEQUENCES >> 1)
    numbers: NDArray[np.int64] = near + distance
    return np.where(numbers < 0, numbers + SEQUENCES, numbers)


class FrameCheck:
    """The check of one job's packets."""

    def __init__(self, key: str) -> None:
        """`key`: the job's, hexadecimal; "": there is none, and the check finds damage only."""
        secret = bytes.fromhex(key)
        self._key = hashlib.blake2b(secret, person=_PERSON, digest_size=32).digest() if secret else b""
        self._begun = lru_cache(maxsize=1024)(self._begin)

    def _begin(self, source: int, destination: int, high: int) -> Any:
        prefix = _PREFIX.pack(source, destination, high)
        return hashlib.blake2b(prefix, key=self._key, person=_PERSON, digest_size=_CHECK_BYTES)

    def of(
        self, rows: NDArray[np.uint8], *, source: int, destination: int, sequences: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Return the checks of packets, whatever their field `check` holds.

        Args:
            rows: Packets from the transport's header on, uint8 (n, size).
            source: IPv4 address of the sender, as a 32-bit number.
            destination: IPv4 address of the receiver, as a 32-bit number.
            sequences: 64-bit sequence numbers (n,), of which the headers have the lower half. So packets of different
                rounds of the 32 bits have different checks.

        Returns:
            Checks, uint64 (n,).
        """
        digests = []
        for row, high in zip(np.ascontiguousarray(rows), (sequences >> 32).tolist(), strict=True):
            digest = self._begun(source, destination, high).copy()
            digest.update(row[:_CHECK_AT])
            digest.update(row[HEADER_BYTES:])
            digests.append(digest.digest())
        return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)

    def seal(
        self, rows: NDArray[np.uint8], *, source: int, destination: int, sequences: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """Write the checks into packets, in place.

        Args:
            rows: Packets from the transport's header on, uint8 (n, size).
            source: IPv4 address of the sender, as a 32-bit number.
            destination: IPv4 address of the receiver, as a 32-bit number.
            sequences: 64-bit sequence numbers (n,), of which the headers have the lower half.

        Returns:
            `rows`.
        """
        checks = self.of(rows, source=source, destination=destination, sequences=sequences)
        rows[:, _CHECK_AT:HEADER_BYTES] = checks.astype(">u8").view(np.uint8).reshape(len(rows), _CHECK_BYTES)
        return rows
