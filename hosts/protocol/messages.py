"""Batches of aggregation messages as columns: taken apart and vetted on the way in, put together on the way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...wire.aggregation import (
    CHUNK_BITS,
    CHUNKS,
    HEADER_BYTES,
    LANE_COEFFICIENTS,
    MESSAGE_BYTES,
    MessageType,
    internet_checksum,
    linear_check,
    version_type,
)
from ...wire.frames import Datagrams
from ..array_types import BoolArray, IntArray
from .counters import Counters

Column = int | NDArray[np.integer[Any]]
"""One value for all rows, or one per row."""

TYPE_MASK: Final = 0x0F
_JOB: Final = slice(2, 4)
"""Where a message has its job's number, big-endian."""
_JOB_PLACES: Final = np.array([256, 1])


def _well_formed_table(size: int) -> BoolArray:
    table = np.zeros(256, np.bool_)
    table[[version_type(kind) for kind in MessageType if kind.size == size]] = True
    return table


_WELL_FORMED: Final = {size: _well_formed_table(size) for size in (HEADER_BYTES, MESSAGE_BYTES)}


@dataclass(slots=True)
class Messages:
    """n received messages that passed the tests of `open_messages`."""

    words: IntArray
    """The headers' 32-bit words, (n, 7), from which the properties below take columns (n,)."""
    lanes: NDArray[np.int32] | None
    """(n, LANES); None for messages without lanes."""
    addresses: NDArray[np.uint32]
    kinds: IntArray

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def flags(self) -> IntArray:
        return self.words[:, 0] >> 16 & 0xFF

    @property
    def chunks(self) -> IntArray:
        return self.words[:, 1] & (CHUNKS - 1)

    @property
    def contributors(self) -> IntArray:
        return self.words[:, 2]

    @property
    def slot(self) -> IntArray:
        return self.words[:, 3] >> 16

    @property
    def window(self) -> IntArray:
        return self.words[:, 3] & 0xFFFF

    @property
    def exponent(self) -> IntArray:
        return self.words[:, 4] >> 24

    @property
    def weight(self) -> IntArray:
        return self.words[:, 5]

    @property
    def check(self) -> IntArray:
        return self.words[:, 6]

    def only(self, keep: BoolArray | IntArray) -> Messages:
        """The rows that `keep` selects."""
        return Messages(
            self.words[keep],
            None if self.lanes is None else self.lanes[keep],
            self.addresses[keep],
            self.kinds[keep],
        )

    def pass_check(self) -> BoolArray:
        """Whether each message's linear check is that of its lanes and weight."""
        right = weight_check(self.weight) if self.lanes is None else linear_check(self.lanes, self.weight)
        good: BoolArray = self.check == right
        return good


def weight_check(weight: ArrayLike) -> NDArray[np.uint32]:
    """The linear check of a message without lanes: r₂₅₆·weight mod 2³²."""
    check: NDArray[np.uint32] = np.asarray(weight).astype(np.uint32) * LANE_COEFFICIENTS[-1]
    return check


def open_messages(datagrams: Datagrams, job: int, generation: int, counters: Counters) -> Messages | None:
    """Take datagrams of one size apart.

    What is malformed, damaged in its header, or of another job or generation is dropped and counted; None when nothing
    is left.
    """
    payload, addresses = datagrams.payload, datagrams.addresses
    total = len(addresses)
    counters.received += total
    well_formed = _WELL_FORMED.get(payload.shape[1])
    if well_formed is None or not total:
        counters.malformed += total
        return None
    lanes: NDArray[np.int32] | None = None
    if payload.shape[1] == MESSAGE_BYTES:
        lanes = payload[:, HEADER_BYTES:].view(">i4").astype(np.int32)
    words = payload[:, :HEADER_BYTES].view(">u4").astype(np.int64)
    first, checksums = words[:, 0], words[:, 4] & 0xFFFF
    formed = well_formed[first >> 24]
    sound = checksums == internet_checksum(np.add.reduce(words, 1) - checksums)
    ours = first & 0xFFFF == job
    current = words[:, 1] >> CHUNK_BITS == generation
    messages = Messages(words, lanes, addresses, first >> 24 & TYPE_MASK)
    good = formed & sound & ours & current
    if np.count_nonzero(good) == total:
        return messages
    counters.malformed += total - int(np.count_nonzero(formed))
    sound &= formed
    ours &= sound
    counters.bad_checksum += int(np.count_nonzero(formed)) - int(np.count_nonzero(sound))
    counters.unknown_job += int(np.count_nonzero(sound)) - int(np.count_nonzero(ours))
    counters.stale_generation += int(np.count_nonzero(ours)) - int(np.count_nonzero(good))
    return messages.only(good) if np.count_nonzero(good) else None


class MessageWriter:
    """Puts messages together for one job, generation and number of slots."""

    def __init__(self, job: int, generation: int, slots: int) -> None:
        self._job = job
        self._generation_bits = generation << CHUNK_BITS
        self._slot_mask = slots - 1

    def write(
        self,
        kind: MessageType,
        rounds: IntArray,
        *,
        contributors: int,
        weight: Column,
        check: Column,
        exponent: Column,
        flags: Column = 0,
        window: Column = 0xFFFF,
        lanes: NDArray[np.int32] | None = None,
    ) -> NDArray[np.uint8]:
        """Payloads uint8 (n, size) for `rounds` (n,).

        Other columns are scalars or (n,); `lanes` is (n, LANES) where the type has them.
        """
        count = len(rounds)
        words = np.empty((count, HEADER_BYTES // 4), np.int64)  # as in `Messages`
        words[:, 0] = np.left_shift(flags, 16, dtype=np.int64) + (version_type(kind) << 24 | self._job)
        words[:, 1] = rounds & (CHUNKS - 1) | self._generation_bits
        words[:, 2] = contributors
        words[:, 3] = ((rounds & self._slot_mask) << 16) + window
        words[:, 4] = np.left_shift(exponent, 24, dtype=np.int64)
        words[:, 5] = weight
        words[:, 6] = check
        words[:, 4] += internet_checksum(np.add.reduce(words, 1))
        header = words.astype(">u4").view(np.uint8)
        if lanes is None:
            return header
        payload = np.empty((count, MESSAGE_BYTES), np.uint8)
        payload[:, :HEADER_BYTES] = header
        payload[:, HEADER_BYTES:].view(">i4")[...] = lanes
        return payload


def by_job(datagrams: Datagrams, jobs: Sequence[int]) -> list[tuple[int, Datagrams]]:
    """Datagrams of one size, by the job of this host that they are for; what is for none goes to the first, whose core
    counts it. Nowhere, where the host has no job.
    """
    if len(jobs) < 2 or datagrams.payload.shape[1] < _JOB.stop:
        return [(job, datagrams) for job in jobs[:1]]
    numbers = datagrams.payload[:, _JOB].astype(np.int64) @ _JOB_PLACES
    numbers[~np.isin(numbers, jobs)] = jobs[0]
    found = np.unique(numbers).tolist()
    if len(found) == 1:
        return [(found[0], datagrams)]
    rows = [(job, numbers == job) for job in found]
    return [(job, Datagrams(datagrams.addresses[row], datagrams.payload[row])) for job, row in rows]
