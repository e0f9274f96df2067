r"""Telemetry reports 2.0, sent by switches to the collector (docs/design.md §4.5).

A report is an IPv4/UDP datagram to `REPORT_PORT`::

    IPv4 | UDP | group header 8 B | report's first word | INT main contents 8 B | metadata | inner packet, cut
                                                        \_ report type 1 only _________/

Metadata are in the order of their bits, first the baseline's, then the domain's. Lengths count words of four bytes.
This project's switches put one individual report into each datagram; several are allowed, and `decode` reads them all.

Source: "Telemetry Report Format Specification", version 2.0, 2020-10-08, section "Telemetry Report Format". Bulk
parsers use the tables here (`GROUP`, `INDIVIDUAL`, `INT_MAIN`, `ITEMS`); `encode` and `decode` do one datagram at a
time, for tests and debugging.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from types import MappingProxyType
from typing import Final

import numpy as np

from .errors import WireError
from .int_md import DOMAIN

REPORT_PORT: Final = 22343
"""UDP destination port of reports, unless a fabric's file names another one."""

REPORT_VERSION: Final = 2
SEQUENCE_BITS: Final = 22
"""Bits of the sequence number, which counts the reports of one (node, hardware id) to one destination."""

TO_THE_END: Final = 0xFF
"""Report length of a report with this many words or more: it extends to the datagram's end."""

UNAVAILABLE_PORT: Final = 0xFFFF
"""The egress port of a packet that was dropped before it had one."""


class ReportType(IntEnum):
    """RepType: kind of data behind the first word."""

    INNER_ONLY = 0
    INT = 1
    IOAM = 2


class InnerType(IntEnum):
    """InType: kind of data behind the metadata."""

    NONE = 0
    TLV = 1
    DOMAIN = 2
    ETHERNET = 3
    IPV4 = 4
    IPV6 = 5


class ReportFlag(IntFlag):
    """The flags of an individual report, in its fourth byte."""

    DROPPED = 0x80
    """D: a packet was dropped."""
    CONGESTED_QUEUE = 0x40
    """Q: a watched queue's depth or latency crossed its threshold, or moved by its step."""
    TRACKED_FLOW = 0x20
    """F: the packet matched a watchlist, here or where INT was put into it."""
    INTERMEDIATE = 0x10
    """I: a transit node took the stack out of a packet that had no room for more."""


class ReportBit(IntFlag):
    """RepMdBits; the specification's bit 0 (reserved: the node id is in the group header) is the most significant."""

    PORTS = 1 << 14
    HOP_LATENCY = 1 << 13
    QUEUE = 1 << 12
    INGRESS_TIMESTAMP = 1 << 11
    EGRESS_TIMESTAMP = 1 << 10
    LEVEL2_PORTS = 1 << 9
    UTILISATION = 1 << 8
    BUFFER = 1 << 7
    DROP = 1 << 0


class DomainBit(IntFlag):
    """DSMdBits of this project's domain (`int_md.DOMAIN`); the first two are its DS instructions as well."""

    BYTES_SENT = 1 << 15
    FREE_SLOTS = 1 << 14
    PACKET_NUMBER = 1 << 13
    """The sink's number of the packet, only in reports: the same in the report with the upstream stack and in the one
    with the sink's own metadata.
    """


GROUP: Final = np.dtype([("version_hardware_sequence", ">u4"), ("node_id", ">u4")])
"""Version 4 bits, hardware id 6, sequence number 22; node id."""

INDIVIDUAL: Final = np.dtype(
    [
        ("types", "u1"),  # report type 4, inner type 4
        ("length", "u1"),  # words behind these four bytes
        ("metadata_length", "u1"),  # words of metadata
        ("flags", "u1"),  # D, Q, F, I, reserved 4
    ]
)
INT_MAIN: Final = np.dtype(
    [
        ("metadata_bits", ">u2"),
        ("domain", ">u2"),
        ("domain_bits", ">u2"),
        ("domain_status", ">u2"),
    ]
)
"""INT main contents of report type 1, in front of the metadata."""

GROUP_BYTES: Final = GROUP.itemsize
INDIVIDUAL_BYTES: Final = INDIVIDUAL.itemsize
INT_MAIN_BYTES: Final = INT_MAIN.itemsize


@dataclass(frozen=True, slots=True)
class Item:
    """The metadata that one bit announces: big-endian fields, from the first byte on."""

    bit: int
    domain: bool
    """True if the bit is one of DSMdBits."""
    fields: tuple[tuple[str, int], ...]
    """Names and bits."""

    @property
    def words(self) -> int:
        """Its length in words of 32 bits."""
        return sum(bits for _, bits in self.fields) // 32


def _reserved(bit: int, *, domain: bool = False) -> Item:
    return Item(bit, domain, ((f"{'domain_' if domain else ''}reserved_{15 - bit.bit_length() + 1}", 32),))


ITEMS: Final = (
    _reserved(1 << 15),
    Item(ReportBit.PORTS, False, (("ingress_port", 16), ("egress_port", 16))),
    Item(ReportBit.HOP_LATENCY, False, (("latency_us", 32),)),
    Item(ReportBit.QUEUE, False, (("queue_id", 8), ("queue_packets", 24))),
    Item(ReportBit.INGRESS_TIMESTAMP, False, (("ingress_ns", 64),)),
    Item(ReportBit.EGRESS_TIMESTAMP, False, (("egress_ns", 64),)),
    Item(ReportBit.LEVEL2_PORTS, False, (("ingress_interface", 32), ("egress_interface", 32))),
    Item(ReportBit.UTILISATION, False, (("utilisation", 32),)),
    Item(ReportBit.BUFFER, False, (("buffer_id", 8), ("buffer_occupancy", 24))),
    *(_reserved(1 << bit) for bit in range(6, 0, -1)),
    Item(ReportBit.DROP, False, (("drop_queue_id", 8), ("drop_reason", 8), ("drop_padding", 16))),
    Item(DomainBit.BYTES_SENT, True, (("bytes_sent", 64),)),
    Item(DomainBit.FREE_SLOTS, True, (("free_slots", 32),)),
    Item(DomainBit.PACKET_NUMBER, True, (("packet_number", 32),)),
    *(_reserved(1 << bit, domain=True) for bit in range(12, -1, -1)),
)
"""Every bit of RepMdBits and of our domain's DSMdBits, in the order in which their metadata stand in a report."""


@dataclass(frozen=True, slots=True)
class Report:
    """One individual report."""

    flags: ReportFlag
    metadata: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Values by the names of `ITEMS`; a bit is set where all of its item's names are there. Of another domain than ours
    the baseline's alone."""
    inner_type: InnerType = InnerType.NONE
    inner: bytes = b""
    """The packet from the header that `inner_type` names, in whole words."""
    report_type: ReportType = ReportType.INT
    domain: int = DOMAIN
    domain_status: int = 0


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """One datagram's payload."""

    node_id: int
    sequence: int
    reports: tuple[Report, ...]
    hardware_id: int = 0


def encode(group: ReportGroup) -> bytes:
    """Return a group as the UDP payload that carries it.

    Raises WireError for a number that does not fit its field, an inner packet that is not whole words, or a report of
    255 words or more that is not the last.
    """
    if not 0 <= group.hardware_id < 64 or not 0 <= group.sequence < 1 << SEQUENCE_BITS:
        raise WireError(
            f"hardware id {group.hardware_id} and sequence number {group.sequence} must fit 6 and {SEQUENCE_BITS} bits",
            value=(group.hardware_id, group.sequence),
        )
    parts = [
        (REPORT_VERSION << 28 | group.hardware_id << SEQUENCE_BITS | group.sequence).to_bytes(4, "big"),
        group.node_id.to_bytes(4, "big"),
    ]
    for index, report in enumerate(group.reports):
        body = _body(report)
        words = len(body) // 4
        if words >= TO_THE_END and index < len(group.reports) - 1:
            raise WireError(
                f"a report of {words} words must be the last of its datagram: its length is not told", value=words
            )
        metadata = words - (2 if report.report_type is ReportType.INT else 0) - len(report.inner) // 4
        types = report.report_type << 4 | report.inner_type
        parts += [bytes([types, min(words, TO_THE_END), metadata, int(report.flags)]), body]
    return b"".join(parts)


def _body(report: Report) -> bytes:
    """The bytes behind a report's first word."""
    if len(report.inner) % 4:
        raise WireError(
            f"the inner packet of a report has {len(report.inner)} bytes, which are not whole words",
            value=len(report.inner),
        )
    if report.report_type is not ReportType.INT:
        return report.inner
    bits, domain_bits, metadata = 0, 0, b""
    for item in ITEMS:
        if not all(name in report.metadata for name, _ in item.fields):
            continue
        bits |= 0 if item.domain else item.bit
        domain_bits |= item.bit if item.domain else 0
        for name, width in item.fields:
            value = report.metadata[name]
            if not 0 <= value < 1 << width:
                raise WireError(f"{value} does not fit {width} bits", place=name, value=value)
            metadata += value.to_bytes(width // 8, "big")
    main = np.zeros(1, INT_MAIN)
    main["metadata_bits"], main["domain"], main["domain_bits"] = bits, report.domain, domain_bits
    main["domain_status"] = report.domain_status
    return main.tobytes() + metadata + report.inner


def decode(payload: bytes) -> ReportGroup | None:
    """Decode a report datagram's UDP payload; None if it is no report, or its lengths contradict each other.

    Metadata of another domain are left out, as their layout is unknown.
    """
    if len(payload) < GROUP_BYTES + INDIVIDUAL_BYTES or payload[0] >> 4 != REPORT_VERSION:
        return None
    first = int.from_bytes(payload[:4], "big")
    reports = []
    at = GROUP_BYTES
    while at < len(payload):
        if at + INDIVIDUAL_BYTES > len(payload):
            return None
        types, words, metadata_words, flags = payload[at : at + INDIVIDUAL_BYTES]
        at += INDIVIDUAL_BYTES
        end = len(payload) if words == TO_THE_END else at + 4 * words
        if end > len(payload):
            return None
        report = _individual(types, metadata_words, flags, payload[at:end])
        if report is None:
            return None
        reports.append(report)
        at = end
    return ReportGroup(
        node_id=int.from_bytes(payload[4:8], "big"),
        sequence=first & (1 << SEQUENCE_BITS) - 1,
        reports=tuple(reports),
        hardware_id=first >> SEQUENCE_BITS & 0x3F,
    )


def _individual(types: int, metadata_words: int, flags: int, body: bytes) -> Report | None:
    """Decode one individual report from the bytes behind its first word."""
    if types >> 4 > ReportType.IOAM or types & 0xF > InnerType.IPV6:
        return None
    report_type, inner_type, kept = ReportType(types >> 4), InnerType(types & 0xF), ReportFlag(flags & 0xF0)
    if report_type is not ReportType.INT:
        return Report(kept, {}, inner_type, body, report_type)
    behind = INT_MAIN_BYTES + 4 * metadata_words
    if len(body) < behind:
        return None
    (main,) = np.frombuffer(body, INT_MAIN, 1)
    domain = int(main["domain"])
    metadata: dict[str, int] = {}
    at = INT_MAIN_BYTES
    for item in ITEMS:
        if item.domain and domain != DOMAIN:
            continue
        if not int(main["domain_bits" if item.domain else "metadata_bits"]) & item.bit:
            continue
        for name, width in item.fields:
            metadata[name] = int.from_bytes(body[at : at + width // 8], "big")
            at += width // 8
    if at > behind or (domain == DOMAIN and at != behind):
        return None
    return Report(kept, metadata, inner_type, body[behind:], report_type, domain, int(main["domain_status"]))
