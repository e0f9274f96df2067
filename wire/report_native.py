"""Bulk decoder of telemetry reports 2.0 (native code, by Numba): `int_report.decode` without objects.

The layout of a report's metadata follows from its bits. It is worked out once for each kind of report that comes; a
fabric has few.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .int_md import DOMAIN
from .int_native import byte_at, long_at, word_at
from .int_report import GROUP_BYTES, INDIVIDUAL_BYTES, INT_MAIN_BYTES, ITEMS, REPORT_VERSION, TO_THE_END
from .native_code import native


class Fault(IntEnum):
    """Reason why a datagram is no report."""

    NONE = 0
    SHORT = 1
    """Too short for a group header and a report's first word, or it ends within one."""
    VERSION = 2
    LENGTH = 3
    """A report's length goes beyond the datagram, or is too short for what it contains."""
    METADATA = 4
    """The metadata's length is not what its bits announce."""
    TYPE = 5
    """An unknown type of report or of inner packet."""


_SHORT: Final = int(Fault.SHORT)
_VERSION: Final = int(Fault.VERSION)
_LENGTH: Final = int(Fault.LENGTH)
_METADATA: Final = int(Fault.METADATA)
_TYPE: Final = int(Fault.TYPE)


class Individual(NamedTuple):
    """One individual report. From `ingress_port` on, by the names of `int_report.ITEMS`; −1: all ones, or not there."""

    flags: int
    inner_type: int
    inner_at: int
    """Offset of its inner packet."""
    end: int
    """Offset of the next report."""
    ingress_port: int
    egress_port: int
    latency_us: int
    queue_id: int
    queue_packets: int
    ingress_ns: int
    egress_ns: int
    drop_reason: int
    bytes_sent: int
    free_slots: int
    packet_number: int


_INT: Final = 1
_MAX_REPORT_TYPE: Final = 2
_MAX_INNER_TYPE: Final = 5

KEPT: Final = Individual._fields[4:]
"""The metadata that collectors keep."""

_ITEMS: Final = (
    "ingress_port",
    "latency_us",
    "queue_id",
    "ingress_ns",
    "egress_ns",
    "drop_queue_id",
    "bytes_sent",
    "free_slots",
    "packet_number",
)
"""The items with `KEPT`, each by its first field: its others stand in the same word."""
_PORTS, _LATENCY, _QUEUE, _CAME, _WENT, _DROP, _SENT, _FREE, _NUMBER = range(2, 2 + len(_ITEMS))

_KINDS: Final = 16
LAYOUTS: Final = (_KINDS, 2 + len(_ITEMS))
"""The shape of the layouts of metadata, by kind of report: the bits that it is of, its words, and where each of the
items that are kept begins (−1: it is not there)."""


def _plan() -> NDArray[np.int64]:
    """Plan of every bit, RepMdBits before DSMdBits, each from bit 15 on: the words that it announces, and the index of
    their place in a layout (−1: none).
    """
    plan = np.zeros((32, 2), np.int64)
    for item in ITEMS:
        first = item.fields[0][0]
        row = 16 * item.domain + 15 - (int(item.bit).bit_length() - 1)
        plan[row] = item.words, 2 + _ITEMS.index(first) if first in _ITEMS else -1
    return plan


_PLAN: Final = _plan()


@native
def _lay_out(layouts: NDArray[np.int64], kind: int, bits: int) -> None:
    layouts[kind, 0] = bits
    layouts[kind, 2:] = -1
    words = 0
    for bit in range(32):
        if bits >> (31 - bit) & 1:
            if _PLAN[bit, 1] >= 0:
                layouts[kind, _PLAN[bit, 1]] = 4 * words
            words += _PLAN[bit, 0]
    layouts[kind, 1] = words


@native
def _kind_of(main: int, layouts: NDArray[np.int64]) -> np.uint64:
    """Index of the layout of a report with these INT main contents. It is created if missing."""
    bits = main >> 32 & 0xFFFF_0000
    if main >> 32 & 0xFFFF == DOMAIN:
        bits |= main >> 16 & 0xFFFF
    kind = np.uint64(bits * 0x9E3779B1 >> 32 & (_KINDS - 1))
    if layouts[kind, 0] != bits:
        _lay_out(layouts, kind, bits)
    return kind


@native
def _reported(value: int, bits: int) -> np.int64:
    """−1 for all ones."""
    return np.int64(-1) if value == (1 << bits) - 1 else np.int64(value)


@native
def fault_of(data: NDArray[np.uint8], start: int, end: int, layouts: NDArray[np.int64]) -> int:
    """Return the reason why a UDP payload is no group of reports, as a number.

    Args:
        data: Bytes, uint8.
        start: Begin of the payload.
        end: End of the payload.
        layouts: Cache of the layouts by instructions, kept from call to call; all −1 at the start.

    Returns:
        Number of the fault; 0: the payload is a group of reports.
    """
    if end - start < GROUP_BYTES + INDIVIDUAL_BYTES:
        return _SHORT
    if byte_at(data, start) >> 4 != REPORT_VERSION:
        return _VERSION
    at = start + GROUP_BYTES
    while at < end:
        if at + INDIVIDUAL_BYTES > end:
            return _SHORT
        first = word_at(data, at)
        words, metadata_words = first >> 16 & 0xFF, first >> 8 & 0xFF
        at += INDIVIDUAL_BYTES
        behind = end if words == TO_THE_END else at + 4 * words
        if behind > end:
            return _LENGTH
        if first >> 28 > _MAX_REPORT_TYPE or first >> 24 & 0xF > _MAX_INNER_TYPE:
            return _TYPE
        if first >> 28 == _INT:
            if behind - at < INT_MAIN_BYTES + 4 * metadata_words:
                return _LENGTH
            main = long_at(data, at)
            announced = layouts[_kind_of(main, layouts), 1]
            # another domain's metadata have a layout of their own behind the baseline's
            if announced > metadata_words or (announced != metadata_words and main >> 32 & 0xFFFF == DOMAIN):
                return _METADATA
        at = behind
    return 0


@native
def read_individual(data: NDArray[np.uint8], start: int, end: int, layouts: NDArray[np.int64]) -> Individual:
    """Return one individual report of a datagram without a fault.

    Args:
        data: Bytes, uint8.
        start: Begin of the individual report.
        end: End of the datagram.
        layouts: Cache of the layouts, as for `fault_of`.

    Returns:
        Its items; −1: the report lacks the item, or the switch did not know it.
    """
    first = word_at(data, start)
    words = first >> 16 & 0xFF
    start += INDIVIDUAL_BYTES
    behind = end if words == TO_THE_END else start + 4 * words
    inner_at = start
    ingress_port = egress_port = latency_us = queue_id = queue_packets = -1
    ingress_ns = egress_ns = drop_reason = bytes_sent = free_slots = packet_number = -1
    if first >> 28 == _INT:
        kind = _kind_of(long_at(data, start), layouts)
        base = start + INT_MAIN_BYTES
        inner_at = base + 4 * (first >> 8 & 0xFF)
        if layouts[kind, _PORTS] >= 0:
            ports = word_at(data, base + layouts[kind, _PORTS])
            ingress_port, egress_port = _reported(ports >> 16, 16), _reported(ports & 0xFFFF, 16)
        if layouts[kind, _LATENCY] >= 0:
            latency_us = _reported(word_at(data, base + layouts[kind, _LATENCY]), 32)
        if layouts[kind, _QUEUE] >= 0:
            queue = word_at(data, base + layouts[kind, _QUEUE])
            queue_id, queue_packets = _reported(queue >> 24, 8), _reported(queue & 0xFF_FFFF, 24)
        if layouts[kind, _CAME] >= 0:
            ingress_ns = long_at(data, base + layouts[kind, _CAME])
        if layouts[kind, _WENT] >= 0:
            egress_ns = long_at(data, base + layouts[kind, _WENT])
        if layouts[kind, _DROP] >= 0:
            drop_reason = _reported(byte_at(data, base + layouts[kind, _DROP] + 1), 8)
        if layouts[kind, _SENT] >= 0:
            bytes_sent = long_at(data, base + layouts[kind, _SENT])
        if layouts[kind, _FREE] >= 0:
            free_slots = _reported(word_at(data, base + layouts[kind, _FREE]), 32)
        if layouts[kind, _NUMBER] >= 0:
            packet_number = _reported(word_at(data, base + layouts[kind, _NUMBER]), 32)
    return Individual(
        flags=first & 0xFF,
        inner_type=first >> 24 & 0xF,
        inner_at=inner_at,
        end=behind,
        ingress_port=ingress_port,
        egress_port=egress_port,
        latency_us=latency_us,
        queue_id=queue_id,
        queue_packets=queue_packets,
        ingress_ns=ingress_ns,
        egress_ns=egress_ns,
        drop_reason=drop_reason,
        bytes_sent=bytes_sent,
        free_slots=free_slots,
        packet_number=packet_number,
    )
