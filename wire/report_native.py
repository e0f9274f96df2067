"""Telemetry reports 2.0 taken apart in bulk (native code, by Numba): what `int_report.decode` does, without objects.

The layout of a report's metadata follows from its bits; reports of one kind come in rows, so it is worked out when the
bits change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .int_md import DOMAIN
from .int_native import number_at, plain_at
from .int_report import GROUP_BYTES, INDIVIDUAL_BYTES, INT_MAIN_BYTES, ITEMS, REPORT_VERSION, TO_THE_END
from .native_code import native


class Fault(IntEnum):
    """What is wrong with a datagram that is no report."""

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

KEPT: Final = (
    "ingress_port",
    "egress_port",
    "latency_us",
    "queue_id",
    "queue_packets",
    "ingress_ns",
    "egress_ns",
    "drop_reason",
    "bytes_sent",
    "free_slots",
    "packet_number",
)
"""The metadata that collectors keep, by the names of `int_report.ITEMS`."""

INDIVIDUAL_ROW: Final = np.dtype(
    [("flags", "i8"), ("inner_type", "i8"), ("inner_at", "i8"), ("end", "i8"), *((name, "i8") for name in KEPT)]
)
"""One individual report; −1: it does not say, or says all ones. `inner_at` and `end` are places in the bytes."""

_INT: Final = 1
_MOST_REPORT_TYPE: Final = 2
_MOST_INNER_TYPE: Final = 5


def _plan() -> NDArray[np.int64]:
    """A row for every bit, those of RepMdBits before those of DSMdBits, each from bit 15 on: its words, then for each
    of `KEPT` where it begins in them (−1: it is not there).
    """
    plan = np.full((32, 1 + len(KEPT)), -1, np.int64)
    for item in ITEMS:
        row = plan[16 * item.domain + 15 - (int(item.bit).bit_length() - 1)]
        row[0], at = item.words, 0
        for name, bits in item.fields:
            if name in KEPT:
                row[1 + KEPT.index(name)] = at
            at += bits // 8
    return plan


_PLAN: Final = _plan()
_FIELDS: Final = len(KEPT)

LAYOUT: Final = 3 + _FIELDS
"""How many numbers a layout has: the bits that it is of, its words, and where each of `KEPT` begins (−1: not there)."""


@native
def _lay_out(layout: NDArray[np.int64], bits: int, domain_bits: int) -> None:
    layout[0], layout[1] = bits, domain_bits
    layout[3:] = -1
    words = 0
    for bit in range(32):
        there = bits >> (15 - bit) & 1 if bit < 16 else domain_bits >> (31 - bit) & 1
        if there:
            for field in range(_FIELDS):
                if _PLAN[bit, 1 + field] >= 0:
                    layout[3 + field] = 4 * words + _PLAN[bit, 1 + field]
            words += _PLAN[bit, 0]
    layout[2] = words


@native
def _adopt(data: NDArray[np.uint8], main: int, layout: NDArray[np.int64]) -> bool:
    """Let the layout be that of the report with its INT main contents at `main`; whether the domain is ours."""
    ours = plain_at(data, main + 2) == DOMAIN
    bits, domain_bits = plain_at(data, main), plain_at(data, main + 4) if ours else 0
    if layout[0] != bits or layout[1] != domain_bits:
        _lay_out(layout, bits, domain_bits)
    return bool(ours)


@native
def fault_of(data: NDArray[np.uint8], start: int, end: int, layout: NDArray[np.int64]) -> int:
    """Why the UDP payload from `start` to `end` is no group of reports; 0 where it is one. `layout` is LAYOUT long and
    kept from call to call; at first it is all −1.
    """
    if end - start < GROUP_BYTES + INDIVIDUAL_BYTES:
        return _SHORT
    if data[start] >> 4 != REPORT_VERSION:
        return _VERSION
    at = start + GROUP_BYTES
    while at < end:
        if at + INDIVIDUAL_BYTES > end:
            return _SHORT
        types, words, metadata_words = np.int64(data[at]), np.int64(data[at + 1]), np.int64(data[at + 2])
        at += INDIVIDUAL_BYTES
        behind = end if words == TO_THE_END else int(at + 4 * words)
        if behind > end:
            return _LENGTH
        if types >> 4 > _MOST_REPORT_TYPE or types & 0xF > _MOST_INNER_TYPE:
            return _TYPE
        if types >> 4 == _INT:
            if behind - at < INT_MAIN_BYTES + 4 * metadata_words:
                return _LENGTH
            ours = _adopt(data, at, layout)
            # another domain's metadata have a layout of their own behind the baseline's
            if layout[2] > metadata_words or (ours and layout[2] != metadata_words):
                return _METADATA
        at = behind
    return 0


@native
def read_individual(data: NDArray[np.uint8], at: int, end: int, layout: NDArray[np.int64], row: Any) -> int:
    """The individual report at `at` of a datagram that ends at `end` and has no fault, into an INDIVIDUAL_ROW; where
    the next one begins.
    """
    types, words, metadata_words = np.int64(data[at]), np.int64(data[at + 1]), np.int64(data[at + 2])
    row.flags, row.inner_type = np.int64(data[at + 3]), types & 0xF
    at += INDIVIDUAL_BYTES
    row.end = end if words == TO_THE_END else at + 4 * words
    row.ingress_port = row.egress_port = row.latency_us = row.queue_id = row.queue_packets = -1
    row.ingress_ns = row.egress_ns = row.drop_reason = row.bytes_sent = row.free_slots = row.packet_number = -1
    row.inner_at = at
    if types >> 4 == _INT:
        _adopt(data, at, layout)
        base = at + INT_MAIN_BYTES
        row.inner_at = base + 4 * metadata_words
        row.ingress_port = _short(data, base, layout[3])
        row.egress_port = _short(data, base, layout[4])
        row.latency_us = _word(data, base, layout[5])
        row.queue_id = number_at(data, base + layout[6], 1) if layout[6] >= 0 else np.int64(-1)
        row.queue_packets = number_at(data, base + layout[7], 3) if layout[7] >= 0 else np.int64(-1)
        row.ingress_ns = _long(data, base, layout[8])
        row.egress_ns = _long(data, base, layout[9])
        row.drop_reason = number_at(data, base + layout[10], 1) if layout[10] >= 0 else np.int64(-1)
        row.bytes_sent = _long(data, base, layout[11])
        row.free_slots = _word(data, base, layout[12])
        row.packet_number = _word(data, base, layout[13])
    return int(row.end)


@native
def _short(data: NDArray[np.uint8], base: int, at: int) -> np.int64:
    return number_at(data, base + at, 2) if at >= 0 else np.int64(-1)


@native
def _word(data: NDArray[np.uint8], base: int, at: int) -> np.int64:
    return number_at(data, base + at, 4) if at >= 0 else np.int64(-1)


@native
def _long(data: NDArray[np.uint8], base: int, at: int) -> np.int64:
    return number_at(data, base + at, 8) if at >= 0 else np.int64(-1)
