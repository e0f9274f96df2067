"""Batches of aggregation messages as columns: taken apart and vetted on the way in, put together on the way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import (
    CHUNK_BITS,
    CHUNKS,
    HEADER_BYTES,
    LANES,
    MessageType,
    internet_checksum,
    message_bytes,
    present_width,
    version_type,
)
from ...wire.fields import BY_NAME, HEADER_WORDS, REDUCED, WORD_BITS
from ...wire.frames import Datagrams
from ..array_types import BoolArray, IntArray
from .counters import Counters

Column = int | NDArray[np.integer[Any]]
"""One value for all rows, or one per row."""

_TYPE_MASK: Final = 0x0F


class _Column:
    """Position of a field in the headers' words; as an attribute of `Messages`, the field's values (n,)."""

    def __init__(self, name: str) -> None:
        field = BY_NAME[name]
        self.word, self.shift = field.word, field.shift
        self._mask = field.mask if field.shift + field.bits < WORD_BITS else 0  # 0: nothing is above it

    def __get__(self, messages: Messages, owner: type[Messages]) -> IntArray:
        return self.of(messages.words)

    def of(self, words: IntArray) -> IntArray:
        """Return its values (n,) in words (HEADER_WORDS, n)."""
        column: IntArray = words[self.word]
        if self.shift:
            column = column >> self.shift
        return column & self._mask if self._mask else column


_VERSION_TYPE: Final = _Column("version_type")
_JOB: Final = _Column("job")
_TAG: Final = _Column("tag")
_CONTRIBUTORS: Final = _Column("contributors")
_SLOT: Final = _Column("slot")
_WIDTH: Final = _Column("reserved")
_CHECKSUM: Final = _Column("checksum")
_JOB_BYTES: Final = slice(BY_NAME["job"].offset, BY_NAME["job"].offset + 2)
_JOB_PLACES: Final = np.array([256, 1])

ROW: Final = {field.name: index for index, field in enumerate(REDUCED)}
"""Row of each field in `Messages.reduced`."""
_REDUCED_WORDS: Final = np.array([field.word for field in REDUCED])
_REDUCED_SHIFTS: Final = np.array([[field.shift] for field in REDUCED])
_REDUCED_MASKS: Final = np.array([[field.mask] for field in REDUCED])
_NEUTRAL: Final = np.array([[field.neutral] for field in REDUCED])
_PLACES: Final = np.zeros((HEADER_WORDS, len(REDUCED)), np.int64)
"""Times `Messages.reduced`, as a product of matrices: the words that these fields make."""
_PLACES[_REDUCED_WORDS, np.arange(len(REDUCED))] = 1 << _REDUCED_SHIFTS[:, 0]


def _runs() -> list[tuple[np.ufunc, slice]]:
    """The reductions, with the rows of `Messages.reduced` that each is for."""
    runs, start = [], 0
    for ufunc, fields in groupby(REDUCED, lambda field: field.ufunc):
        end = start + len(list(fields))
        runs.append((ufunc, slice(start, end)))
        start = end
    return runs


_RUNS: Final = _runs()


def _well_formed_table(has_lanes: bool) -> BoolArray:
    table = np.zeros(256, np.bool_)
    table[[version_type(kind) for kind in MessageType if kind.has_lanes == has_lanes]] = True
    return table


_WELL_FORMED: Final = {has_lanes: _well_formed_table(has_lanes) for has_lanes in (False, True)}


@dataclass(slots=True)
class Messages:
    """n received messages that passed the tests of `open_messages`."""

    words: IntArray
    """The headers' 32-bit words, (HEADER_WORDS, n), from which the properties below take columns (n,)."""
    lanes: NDArray[np.int32] | None
    """(n, lanes); None for messages without lanes."""
    addresses: NDArray[np.uint32]
    kinds: IntArray
    int_headers: NDArray[np.uint8] | None = None
    """INT headers; see `Datagrams.int_headers`."""

    tag = _TAG
    flags = _Column("flags")
    contributors = _CONTRIBUTORS
    slot = _SLOT
    window = _Column("window")
    exponent = _Column("exponent")
    weight = _Column("weight")
    check = _Column("check")

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def chunks(self) -> IntArray:
        """Chunk number of each message, (n,): the low bits of its tag."""
        return self.tag & (CHUNKS - 1)

    @property
    def reduced(self) -> IntArray:
        """The fields that nodes reduce, (len(REDUCED), n), in the order of the table."""
        columns: IntArray = self.words.take(_REDUCED_WORDS, 0)
        columns >>= _REDUCED_SHIFTS
        columns &= _REDUCED_MASKS
        return columns

    def only(self, keep: BoolArray | IntArray) -> Messages:
        """Return the rows that `keep` selects."""
        return Messages(
            self.words[:, keep],
            None if self.lanes is None else self.lanes[keep],
            self.addresses[keep],
            self.kinds[keep],
            rows_of(self.int_headers, keep),
        )


def rows_of(int_headers: NDArray[np.uint8] | None, keep: BoolArray | IntArray) -> NDArray[np.uint8] | None:
    """Return some messages' INT, where they have any."""
    return None if int_headers is None else int_headers[keep]


def reduced_columns(count: int, **columns: Column) -> IntArray:
    """Make columns like `Messages.reduced` from the named fields, each a scalar or (count,); the others are neutral."""
    reduced = np.empty((len(REDUCED), count), np.int64)
    reduced[...] = _NEUTRAL
    for name, values in columns.items():
        reduced[ROW[name]] = values
    return reduced


def reduce_into(held: IntArray, arriving: IntArray) -> None:
    """Reduce two batches of `Messages.reduced`, message by message, into the first."""
    for ufunc, rows in _RUNS:
        ufunc(held[rows], arriving[rows], out=held[rows])
    held &= _REDUCED_MASKS


class LaneScratch:
    """Memory for the lanes of received messages, used again and again: new pages cost more than the lanes in them."""

    def __init__(self) -> None:
        self._lanes = np.empty((0, 0), np.int32)

    def of(self, lanes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return a copy of lanes (n, lanes) of any byte order, valid until the next call."""
        count, width = lanes.shape
        if len(self._lanes) < count or self._lanes.shape[1] != width:
            self._lanes = np.empty(lanes.shape, np.int32)
        copied = self._lanes[:count]
        copied[...] = lanes
        return copied


def open_messages(
    datagrams: Datagrams,
    job: int,
    generation: int,
    counters: Counters,
    lanes_of_job: int = LANES,
    scratch: LaneScratch | None = None,
) -> Messages | None:
    """Parse datagrams of one size.

    Malformed datagrams, those with a damaged header, and those of another job or generation are dropped and counted.

    Args:
        datagrams: Received datagrams.
        job: Number of the job.
        generation: Generation of the job's plan.
        counters: Counters of this host, which are updated.
        lanes_of_job: Lanes of the job's messages that have lanes.
        scratch: Memory for the lanes; None: memory of their own.

    Returns:
        The messages, valid until the scratch is used again; None if there are none left.
    """
    payload, addresses = datagrams.payload, datagrams.addresses
    total = len(addresses)
    counters.received += total
    has_lanes = payload.shape[1] == message_bytes(lanes_of_job)
    if not (has_lanes or payload.shape[1] == HEADER_BYTES) or not total:
        counters.malformed += total
        return None
    well_formed = _WELL_FORMED[has_lanes]
    lanes: NDArray[np.int32] | None = None
    if has_lanes:
        lanes = (scratch or LaneScratch()).of(payload[:, HEADER_BYTES:].view(">i4"))
    words = payload[:, :HEADER_BYTES].view(">u4").T.astype(np.int64, order="C")
    first, checksums = _VERSION_TYPE.of(words), _CHECKSUM.of(words)
    formed = well_formed[first]
    sound = checksums == internet_checksum(np.add.reduce(words, 0) - checksums)  # wherever in its word it is
    ours = _JOB.of(words) == job
    current = _TAG.of(words) >> CHUNK_BITS == generation
    messages = Messages(words, lanes, addresses, first & _TYPE_MASK, datagrams.int_headers)
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

    def __init__(self, job: int, generation: int, slots: int, lanes: int = LANES) -> None:
        """Create the writer.

        Args:
            job: Number of the job.
            generation: Generation of its plan, below 2⁸.
            slots: Its slots in each switch, a power of two.
            lanes: Lanes of its messages.
        """
        self._job = job
        self._width = present_width(lanes)
        self._generation_bits = generation << CHUNK_BITS
        self._slot_mask = slots - 1
        self._words: dict[tuple[MessageType, int], IntArray] = {}
        """Constant header words of messages, by type and contributors, (HEADER_WORDS, 1)."""

    def write(
        self,
        kind: MessageType,
        rounds: IntArray,
        *,
        contributors: int,
        reduced: IntArray,
        lanes: NDArray[np.int32] | None = None,
    ) -> NDArray[np.uint8]:
        """Return messages of one type.

        Args:
            kind: Type of the messages.
            rounds: Round of each message, (n,).
            contributors: Bitmap of the receiving node's children, the same in all messages.
            reduced: Fields that nodes reduce, (len(REDUCED), n), as in `Messages.reduced`.
            lanes: Lanes (n, lanes); None for types without lanes.

        Returns:
            UDP payloads, uint8 (n, size).
        """
        words: IntArray = _PLACES @ reduced  # as in `Messages`
        words += self._common(kind, contributors)
        words[_TAG.word] += rounds & (CHUNKS - 1)  # which ends its word, as the checksum does
        words[_SLOT.word] += (rounds & self._slot_mask) << _SLOT.shift
        words[_CHECKSUM.word] += internet_checksum(np.add.reduce(words, 0))
        header = words.T.astype(">u4", order="C").view(np.uint8)
        if lanes is None:
            return header
        payload = np.empty((len(rounds), message_bytes(lanes.shape[1])), np.uint8)
        payload[:, :HEADER_BYTES] = header
        payload[:, HEADER_BYTES:].view(">i4")[...] = lanes
        return payload

    def _common(self, kind: MessageType, contributors: int) -> IntArray:
        words = self._words.get((kind, contributors))
        if words is None:
            words = self._words[kind, contributors] = np.zeros((HEADER_WORDS, 1), np.int64)
            for column, value in (
                (_VERSION_TYPE, version_type(kind)),
                (_JOB, self._job),
                (_TAG, self._generation_bits),
                (_CONTRIBUTORS, contributors),
                (_WIDTH, self._width if kind is MessageType.PRESENT else 0),
            ):
                words[column.word] += value << column.shift
        return words


def by_job(datagrams: Datagrams, jobs: Sequence[int]) -> list[tuple[int, Datagrams]]:
    """Group datagrams of one size by the job of this host that they name.

    Datagrams of other jobs go to the first job, whose core counts them; without any job they are dropped.
    """
    if len(jobs) < 2:
        return [(job, datagrams) for job in jobs]
    numbers = job_numbers(datagrams)
    numbers[~np.isin(numbers, jobs)] = jobs[0]
    found = np.unique(numbers).tolist()
    if len(found) == 1:
        return [(found[0], datagrams)]
    rows = [(job, numbers == job) for job in found]
    headers = datagrams.int_headers
    return [
        (job, Datagrams(datagrams.addresses[row], datagrams.payload[row], int_headers=rows_of(headers, row)))
        for job, row in rows
    ]


def job_numbers(datagrams: Datagrams) -> IntArray:
    """Return the job number that each datagram names, (n,); 0, which is no job's, if the datagram is too short."""
    if datagrams.payload.shape[1] < _JOB_BYTES.stop:
        return np.zeros(len(datagrams), np.int64)
    numbers: IntArray = datagrams.payload[:, _JOB_BYTES].astype(np.int64) @ _JOB_PLACES
    return numbers
