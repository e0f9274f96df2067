"""Sequence numbers of report streams: losses, late reports, copies and restarts of switches (native, by Numba)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...wire.int_native import long_at
from ...wire.int_report import SEQUENCE_BITS
from ...wire.native_code import native

HARDWARE_IDS: Final = 64
"""Hardware ids of a node; each has its own sequence of reports."""
WINDOW: Final = 1024
"""Distance behind a stream's highest number up to which a report is late; beyond, its switch has restarted."""

STREAM: Final = np.dtype(
    [
        ("begun", "?"),
        ("highest", "i8"),  # sequence number
        ("expected", "i8"),  # numbers from the lowest to the highest
        ("span", "i8"),  # of these, the ones since the switch started
        ("received", "i8"),  # of these
        ("bytes", "i8"),  # UDP payload of those received
        ("duplicates", "i8"),
        ("late", "i8"),  # received after a higher one
        ("restarts", "i8"),
        ("next_stray", "i8"),  # number that would prove a restart; −1: none
        ("strange", "i8"),  # a number that came again with other bytes, and no higher one since; −1: none
        ("strange_print", "u4"),
        ("begin", "u8"),  # of the numbers 0…63, those taken as late since the highest: another life's, perhaps
    ]
)
"""The reports of one (node, hardware id). Lost are expected − received."""

SEQUENCE_MASK: Final = (1 << SEQUENCE_BITS) - 1
_FARTHEST: Final = 1 << 20
_BEGIN: Final = 64
"""So far below the lowest of its stream a report may be late; farther, it is of another life of its switch."""
_PRINTED: Final = 64
"""Bytes that distinguish a datagram from another with the same number: the head, and the first report's times."""
_ODD: Final = np.uint64(0x9FB21C651E98DF25)
_EVEN: Final = np.uint64(0x9E3779B97F4A7C16)
FRESH, OLD, SEEN, FAR = range(4)
"""Classes of a report's number: new, new but overtaken, a copy, or possibly of a restarted switch."""


@native
def fingerprint(data: NDArray[np.uint8], start: int, end: int) -> np.uint32:
    """Return the fingerprint that copies share and other reports with the same number do not: of first bytes and
    length; never 0.
    """
    odd = _ODD
    code = np.uint64(end - start) * odd
    if end - start >= _PRINTED:
        for place in range(0, _PRINTED, 8):  # as many as are known beforehand take no loop
            odd += _EVEN
            code += np.uint64(long_at(data, start + place)) * odd  # no product waits for another
    else:
        for index in range(start, end - 7, 8):
            odd += _EVEN
            code += np.uint64(long_at(data, index)) * odd
    return np.uint32(code >> np.uint64(32) | np.uint64(1))


@native
def _restart(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> None:
    """The stream goes on with this number, as if it were its first."""
    seen[:] = 0
    seen[np.uint64(sequence & (WINDOW - 1))] = mark
    stream.highest = sequence
    stream.expected += 1
    stream.received += 1
    stream.span = 1
    stream.restarts += 1
    stream.next_stray = stream.strange = -1
    stream.begin = 0


@native
def _live_again(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> None:
    """The stream goes on with another life of its switch, which two strange numbers have shown, this one and
    `stream.strange`. It began at 0 where they are low; then what was taken as late meanwhile was this life's.
    """
    first, first_mark, begin = stream.strange, stream.strange_print, stream.begin
    lowest, highest = first, sequence
    if max(first, sequence) < WINDOW:
        lowest, highest = 0, max(first, sequence)
        for place in range(WINDOW):
            if place < _BEGIN and begin >> np.uint64(place) & np.uint64(1):
                highest = max(highest, place)
            else:
                seen[place] = 0
    else:
        if (sequence - first) & SEQUENCE_MASK > SEQUENCE_MASK >> 1:
            lowest, highest = sequence, first
        seen[:] = 0
    seen[np.uint64(first & (WINDOW - 1))] = first_mark
    seen[np.uint64(sequence & (WINDOW - 1))] = mark
    stream.highest = highest
    stream.span = ((highest - lowest) & SEQUENCE_MASK) + 1
    stream.expected += stream.span
    stream.received += 2
    stream.restarts += 1
    stream.next_stray = stream.strange = -1
    stream.begin = 0


@native
def classify(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> int:
    """Classify the sequence number of a report.

    A copy has the bytes of the first. A restart is proved when two numbers have come again with other bytes, or two in
    a row are far from all others (as in RFC 3550, appendix A.1).

    Args:
        stream: State of the stream; changed.
        seen: Fingerprints of the stream's last numbers, uint32 (WINDOW,); changed.
        sequence: Sequence number.
        mark: Fingerprint of the report.

    Returns:
        FRESH, OLD, SEEN or FAR.
    """
    if not stream.begun:
        stream.begun, stream.highest, stream.expected, stream.received, stream.span = True, sequence, 1, 1, 1
        stream.next_stray = stream.strange = -1
        seen[np.uint64(sequence & (WINDOW - 1))] = mark
        return FRESH
    ahead = (sequence - stream.highest) & SEQUENCE_MASK
    if ahead > SEQUENCE_MASK >> 1:
        ahead -= SEQUENCE_MASK + 1
    if 0 < ahead <= _FARTHEST:
        for number in range(max(1, ahead - WINDOW + 1), ahead):  # numbers left out
            seen[np.uint64((stream.highest + number) & (WINDOW - 1))] = 0
        seen[np.uint64(sequence & (WINDOW - 1))] = mark
        stream.highest = sequence
        stream.expected += ahead
        stream.span += ahead
        stream.received += 1
        stream.strange = -1
        stream.begin = 0
        return FRESH
    if -WINDOW < ahead <= 0 and -ahead < stream.span + _BEGIN:
        known = seen[np.uint64(sequence & (WINDOW - 1))]
        if known == 0:
            seen[np.uint64(sequence & (WINDOW - 1))] = mark
            before = max(0, 1 - ahead - stream.span)  # it is lower than the lowest
            stream.expected += before
            stream.span += before
            stream.received += 1
            stream.late += 1
            if sequence < _BEGIN:
                stream.begin |= np.uint64(1) << np.uint64(sequence)
            return OLD
        if known == mark or (sequence == stream.strange and mark == stream.strange_print):
            stream.duplicates += 1
            return SEEN
        if stream.strange >= 0 and stream.strange != sequence:
            _live_again(stream, seen, sequence, mark)
            return FRESH
        stream.strange, stream.strange_print = sequence, mark
        return FAR
    if sequence == stream.next_stray:
        _restart(stream, seen, sequence, mark)
        return FRESH
    stream.next_stray = (sequence + 1) & SEQUENCE_MASK
    return FAR
