"""The aggregation header, its messages, its two checksums and its serial numbers (docs/design.md §2.2 and §3.1).

A message is a header of the `FIELDS`, and behind it, in the types that have lanes, 256 big-endian int32. Batches of
messages are NumPy structured arrays: `MESSAGE` (header and lanes) or `HEADER` alone, and the fields of a batch are its
columns::

    messages = np.zeros(n, MESSAGE)
    messages["header"]["job"] = 7
    set_checksum(messages["header"])
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import WireError
from .fields import BY_NAME, FIELDS, PARTS

LANES: Final = 256
"""Most int32 lanes of a message. A switch sums messages of as many lanes as its program was compiled for."""

WIDTH_LANES: Final = 32
"""Lanes in a unit of the field `reserved`, in PRESENT."""

HEADER: Final = np.dtype([(field.name, field.storage) for field in FIELDS])
MESSAGE: Final = np.dtype([("header", HEADER), ("lanes", ">i4", (LANES,))])

HEADER_BYTES: Final = HEADER.itemsize
LANE_BYTES: Final = 4 * LANES
MESSAGE_BYTES: Final = HEADER_BYTES + LANE_BYTES
"""Size of the largest message."""

AGGREGATION_PORT: Final = 22341
"""UDP destination port of every aggregation message (0x5745)."""

VERSION: Final = 1
NO_WINDOW_LIMIT: Final = BY_NAME["window"].neutral
EXPONENT_BIAS: Final = 127
FAN_IN: Final = BY_NAME["contributors"].bits
"""Most children of a node: one bit each in `contributors`."""

CHUNK_BITS: Final = dict(PARTS)["chunk"]
CHUNKS: Final = 1 << CHUNK_BITS
GENERATION_BITS: Final = dict(PARTS)["generation"]
GENERATIONS: Final = 1 << GENERATION_BITS
FIRST_GENERATION: Final = 1
"""Generations run 1…255 and skip 0."""


class MessageType(IntEnum):
    """Type of an aggregation message (docs/design.md §2.2)."""

    CONTRIBUTION = 1
    RESULT = 2
    SCALE = 3
    SCALE_RESULT = 4
    FETCH = 5
    FETCHED = 6
    SCALE_FETCHED = 7
    PRESENT = 8
    DONE = 9

    @property
    def has_lanes(self) -> bool:
        """True if messages of the type carry lanes behind the header."""
        return self in TYPES_WITH_LANES

    @property
    def size(self) -> int:
        """Bytes of a message of this type, the UDP header not counted."""
        return MESSAGE_BYTES if self.has_lanes else HEADER_BYTES


TYPES_WITH_LANES: Final = frozenset({MessageType.CONTRIBUTION, MessageType.RESULT, MessageType.FETCHED})


class MessageFlag(IntFlag):
    """Flags of an aggregation message."""

    CONGESTION = 0x01
    RETRANSMISSION = 0x02
    LANES = 0x04
    WANTED = 0x08


_WORDS: Final = np.dtype([("words", ">u2", (HEADER_BYTES // 2,))])
_CHECKSUM_WORD: Final = BY_NAME["checksum"].offset // 2

LANE_COEFFICIENTS: Final[NDArray[np.uint32]] = (
    np.uint64(0x9E3779B1) * (2 * np.arange(LANES + 1, dtype=np.uint64) + 1) & np.uint64(0xFFFFFFFF)
).astype(np.uint32)
"""rᵢ of the linear check, all odd: 256 for the lanes, and the last for the weight."""

Integers = TypeVar("Integers", int, NDArray[np.signedinteger[Any]])


def message_bytes(lanes: int) -> int:
    """Return bytes of a message with `lanes` lanes, without the UDP header."""
    return HEADER_BYTES + 4 * lanes


def present_width(lanes: int) -> int:
    """Return the value of `reserved` in PRESENT, for messages with `lanes` lanes."""
    return lanes // WIDTH_LANES


def version_type(kind: MessageType) -> int:
    """Return the first byte of a message of this type."""
    return VERSION << 4 | kind


# --- checksums ---


def internet_checksum(totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the Internet checksum (RFC 1071) of data with the sum `totals` of 16-bit words, which is not 0.

    End-around carry is addition modulo 65,535, and as a sum that is not 0 folds to 1…65,535, its complement is the
    negative modulo 65,535: 0…65,534. As 2¹⁶ is 1 in that ring, the sum may as well be of 32-bit words.
    """
    sums: NDArray[np.int64] = -totals % 0xFFFF
    return sums


def checksum(headers: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the Internet checksum (RFC 1071) of each header with its checksum field taken as zero. HEADER (n,) →
    (n,).

    A header that is all zeros gets 0, not 0xFFFF; with its version of 0 it is malformed anyway.
    """
    words = headers.view(_WORDS)["words"]
    return internet_checksum(words.sum(axis=-1, dtype=np.int64) - words[..., _CHECKSUM_WORD])


def set_checksum(headers: NDArray[np.void]) -> None:
    """Write each header's checksum in place. HEADER (n,), which may be a field of a larger record."""
    headers["checksum"] = checksum(headers)


def has_valid_checksum(headers: NDArray[np.void]) -> NDArray[np.bool_]:
    """True for each header that carries exactly the checksum that `set_checksum` would write. HEADER (n,) → (n,)."""
    valid: NDArray[np.bool_] = headers["checksum"] == checksum(headers)
    return valid


def linear_check(lanes: NDArray[Any], weight: NDArray[Any]) -> NDArray[np.uint32]:
    """Return Σ rᵢ·vᵢ + r₂₅₆·weight mod 2³²: linear, so the check of a wrapped sum is the wrapped sum of the checks.

    lanes: integers (n, lanes) of any byte order; weight: integers (n,). Returns uint32 (n,). Where there are fewer than
    256 lanes, it is as if the others were 0.
    """
    values = lanes.view(np.uint32) if lanes.dtype == np.int32 else lanes.astype(np.uint32)
    check: NDArray[np.uint32] = np.einsum("ij,j->i", values, LANE_COEFFICIENTS[: values.shape[1]])
    check += LANE_COEFFICIENTS[LANES] * np.asarray(weight).astype(np.uint32)
    return check


def is_well_formed(headers: NDArray[np.void], size: int) -> NDArray[np.bool_]:
    """True for each header whose version, type and `size` (message bytes behind the UDP header) agree. HEADER (n,) →
    (n,).
    """
    well_formed: NDArray[np.bool_] = np.isin(headers["version_type"], _FIRST_BYTES_BY_SIZE.get(size, ()))
    return well_formed


_FIRST_BYTES_BY_SIZE: Final = {
    size: np.array([version_type(kind) for kind in MessageType if kind.size == size], np.uint8)
    for size in (HEADER_BYTES, MESSAGE_BYTES)
}


# --- tags and serial numbers ---


def make_tag(generation: int, round_number: Integers) -> Integers:
    """Return the tag of a round: generation in the high 8 bits, chunk = round mod 2²⁴ in the low 24."""
    return generation << CHUNK_BITS | round_number & (CHUNKS - 1)


def split_tag(tag: Integers) -> tuple[Integers, Integers]:
    """Return (generation, chunk) of a tag. Arrays should be signed: `headers["tag"].astype(np.int64)`."""
    return tag >> CHUNK_BITS, tag & (CHUNKS - 1)


def chunk_distance(ahead: Integers, behind: Integers) -> Integers:
    """Return the distance from `behind` to `ahead` as 24-bit serial numbers: −2²³ … 2²³ − 1; positive when newer.

    Arrays must be signed. After RFC 1982, except that half the circle counts as older, as it does in the switch.
    """
    return (ahead - behind + CHUNKS // 2) % CHUNKS - CHUNKS // 2


def generation_distance(ahead: Integers, behind: Integers) -> Integers:
    """Return the distance from `behind` to `ahead` as 8-bit serial numbers: −128 … 127; positive when newer."""
    return (ahead - behind + GENERATIONS // 2) % GENERATIONS - GENERATIONS // 2


def round_near(chunk: Integers, reference: int) -> Integers:
    """Return the round with this chunk that is nearest to the round `reference`; it may be negative near a stream's
    start.
    """
    return reference + (chunk - reference + CHUNKS // 2) % CHUNKS - CHUNKS // 2


def next_generation(generation: int) -> int:
    """Return the generation after this one: 255 is followed by 1."""
    return generation % (GENERATIONS - 1) + 1


MAX_ROUNDS: Final = 1 << 48
"""Maximum number of a job's rounds: a year of ten million a second."""


def check_rounds(place: str, rounds: int) -> None:
    """Check a number of rounds that a host has sent. Raises WireError beyond `MAX_ROUNDS`."""
    if rounds > MAX_ROUNDS:
        raise WireError(f"round {rounds} is out of range", place=place, value=rounds, allowed=("integers 0 to 2^48",))
