"""The receiving half of a connection: packets in any order become whole messages in the order of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...wire.transport import PacketFlag
from ..array_types import BoolArray, IntArray
from .messages import Head, Value, parse_head, value_of
from .options import TransportOptions


class ReceivedBatch(NamedTuple):
    """Result of a batch of packets."""

    accepted: int
    duplicate: int
    out_of_window: int
    malformed: int
    """Messages that make no sense, though they were whole."""
    messages: list[tuple[Head, Value]]


@dataclass(slots=True)
class _Part:
    """A message of which the first packets have come."""

    head: Head | None
    """None: it makes no sense, and is skipped up to its end."""
    data: NDArray[np.uint8]
    filled: int = 0


class Incoming:
    """Packets from one peer, and the message that they are in the middle of."""

    def __init__(self, options: TransportOptions) -> None:
        self.base = 0
        """The first packet that has not come."""
        self.limit = 0
        """The peer may send packets before this one."""
        self._payload_bytes = options.payload_bytes
        self._size = 1 << (options.window - 1).bit_length()
        self._rows = np.empty((self._size, options.payload_bytes), np.uint8)  # by place modulo the size
        self._lengths = np.zeros(self._size, np.int64)
        self._flags = np.zeros(self._size, np.uint8)
        self._present = np.zeros(self._size, np.bool_)
        self._steps = np.arange(self._size)
        self._part: _Part | None = None
        self.open()

    def open(self) -> None:
        """Let the peer send a window from where the stream is now."""
        self.limit = self.base + self._size

    @property
    def beyond(self) -> BoolArray:
        """Mask of the received packets from `base` on, (n,); empty if there are none."""
        if not self._present.any():
            return self._present[:0]
        return self._present[(self.base + self._steps) % self._size]

    def receive(self, sequences: IntArray, payload: NDArray[np.uint8], flags: NDArray[np.uint8]) -> ReceivedBatch:
        """Take packets (n, size ≤ payload_bytes) at these places of the stream (n,)."""
        inside = sequences < self.base + self._size
        slots = sequences % self._size
        wanted = np.flatnonzero(inside & (sequences >= self.base) & ~self._present[slots])
        if len(wanted) > 1:
            wanted = wanted[np.unique(slots[wanted], return_index=True)[1]]
        size = payload.shape[1]
        into = slots[wanted]
        self._rows[into, :size] = payload[wanted]
        self._lengths[into], self._flags[into], self._present[into] = size, flags[wanted], True
        outside = int(np.count_nonzero(~inside))
        messages, malformed = [], 0
        for message in self._advance():
            if message is None:
                malformed += 1
            else:
                messages.append(message)
        return ReceivedBatch(len(wanted), len(sequences) - outside - len(wanted), outside, malformed, messages)

    def _advance(self) -> Iterator[tuple[Head, Value] | None]:
        """Messages that are whole now; None for each that makes no sense."""
        there = self._present[(self.base + self._steps) % self._size]
        run = self._size if there.all() else int(np.argmin(there))
        while run:
            start = self.base % self._size
            stop = min(start + run, self._size)
            ends = start + 1 + np.flatnonzero(self._flags[start:stop] & PacketFlag.LAST)
            first = start
            for end in [*ends.tolist(), stop]:
                if first < end:
                    yield from self._assemble(first, end)
                    first = end
            self._present[start:stop] = False
            self.base += stop - start
            run -= stop - start

    def _assemble(self, first: int, end: int) -> Iterator[tuple[Head, Value] | None]:
        """Rows of one message, of which the last one may be its end."""
        sizes = self._lengths[first:end]
        is_whole = bool(self._flags[end - 1] & PacketFlag.LAST)
        begins = bool(self._flags[first] & PacketFlag.FIRST)
        skip = 0
        if begins:
            self._part, skip = self._begin(self._rows[first, : sizes[0]])
        part = self._part
        inner = sizes if not is_whole else sizes[:-1]
        if part is None or part.head is None or (inner != self._payload_bytes).any():
            part = _Part(None, np.empty(0, np.uint8))
        else:
            flat = self._rows[first:end].reshape(-1)
            data = flat[skip : (end - first - 1) * self._payload_bytes + int(sizes[-1])]
            stop = part.filled + len(data)
            if stop > len(part.data) or (is_whole and stop < len(part.data)):
                part = _Part(None, np.empty(0, np.uint8))
            else:
                part.data[part.filled : stop] = data
                part.filled = stop
        self._part = None if is_whole else part
        if is_whole:
            yield None if part.head is None else (part.head, value_of(part.head, part.data))

    def _begin(self, payload: NDArray[np.uint8]) -> tuple[_Part, int]:
        """A new message, and how many bytes of its first packet are its head."""
        head = parse_head(payload)
        try:
            data = np.empty(0 if head is None else head.length, np.uint8)
        except MemoryError:
            head, data = None, np.empty(0, np.uint8)
        return _Part(head, data), 0 if head is None else head.head_bytes
