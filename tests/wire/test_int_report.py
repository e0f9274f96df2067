"""Telemetry reports 2.0: the specification's example byte by byte, round trips of any report, and scapy as a
reference.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether

from weir.tests.support.errors import raises
from weir.wire import WireError, int_report
from weir.wire.int_md import DOMAIN
from weir.wire.int_report import ITEMS, InnerType, Report, ReportFlag, ReportGroup, ReportType
from weir.wire.scapy_layers import ReportGroup as ReportLayer

NOTHING = ReportFlag(0)
NAMES = {item: [name for name, _ in item.fields] for item in ITEMS}
flags = st.sets(st.sampled_from(list(ReportFlag))).map(lambda some: ReportFlag(sum(some)))
words = st.integers(0, 20).flatmap(lambda count: st.binary(min_size=4 * count, max_size=4 * count))


@st.composite
def reports(draw: st.DrawFn) -> Report:
    inner = draw(words)
    inner_type = draw(st.sampled_from([InnerType.ETHERNET, InnerType.IPV4])) if inner else InnerType.NONE
    if draw(st.booleans()):
        return Report(draw(flags), {}, inner_type, inner, ReportType.INNER_ONLY)
    chosen = draw(st.sets(st.sampled_from(ITEMS)))
    metadata = {
        name: draw(st.integers(0, 2**bits - 1)) for item in ITEMS if item in chosen for name, bits in item.fields
    }
    return Report(draw(flags), metadata, inner_type, inner, domain_status=draw(st.integers(0, 0xFFFF)))


groups = st.builds(
    ReportGroup,
    node_id=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 2**22 - 1),
    reports=st.lists(reports(), min_size=1, max_size=4).map(tuple),
    hardware_id=st.integers(0, 63),
)


def test_the_specifications_example() -> None:
    """Section "Example with Baseline Metadata and Truncated IPv4": ports and queue, IPv4 and TCP headers."""
    inner = bytes(IP(src="10.0.0.1", dst="10.0.0.2") / TCP())
    report = Report(
        ReportFlag.TRACKED_FLOW,
        {"ingress_port": 7, "egress_port": 9, "queue_id": 0, "queue_packets": 33},
        InnerType.IPV4,
        inner,
        domain=0,
    )
    expected = struct.pack("!II", 2 << 28 | 5 << 22 | 1234, 77)
    expected += (
        bytes([0x14, 14, 2, 0x20]) + struct.pack("!HHHH", 0x5000, 0, 0, 0) + struct.pack("!HHI", 7, 9, 33) + inner
    )
    assert int_report.encode(ReportGroup(77, 1234, (report,), 5)) == expected


@given(groups)
def test_there_and_back(group: ReportGroup) -> None:
    assert int_report.decode(int_report.encode(group)) == group


@given(groups)
def test_scapy_reads_the_same(group: ReportGroup) -> None:
    payload = int_report.encode(group)
    layer = (Ether(bytes(Ether() / IP() / UDP(dport=int_report.REPORT_PORT) / payload)))[ReportLayer]
    assert (layer.version, layer.hardware_id, layer.sequence) == (2, group.hardware_id, group.sequence)
    assert layer.node_id == group.node_id
    assert len(layer.reports) == len(group.reports)
    for seen, report in zip(layer.reports, group.reports, strict=True):
        assert (seen.report_type, seen.inner_type) == (report.report_type, report.inner_type)
        assert int(seen.flags) == report.flags
        assert seen.inner == report.inner
        if report.report_type is ReportType.INT:
            assert (seen.domain, seen.domain_status) == (DOMAIN, report.domain_status)
            assert seen.items() == report.metadata
    assert bytes(layer) == payload


@given(groups, st.data())
def test_truncated_and_damaged_reports_never_raise(group: ReportGroup, data: st.DataObject) -> None:
    payload = bytearray(int_report.encode(group))
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    del payload[data.draw(st.integers(0, len(payload))) :]
    int_report.decode(bytes(payload))


@pytest.mark.parametrize("spoil", ["version 1", "cut", "longer than it says", "more metadata than words"])
def test_contradictions_are_no_report(spoil: str) -> None:
    payload = bytearray(int_report.encode(ReportGroup(1, 2, (Report(NOTHING, {"latency_us": 5}),))))
    match spoil:
        case "version 1":
            payload[0] = 0x10
        case "cut":
            del payload[-4:]
        case "longer than it says":
            payload += b"\0\0"
        case _:
            payload[10] = 2
    assert int_report.decode(bytes(payload)) is None


def test_a_report_of_255_words_goes_on_to_the_end() -> None:
    for inner_words, length in ((252, 254), (253, 255), (300, 255)):
        group = ReportGroup(1, 2, (Report(NOTHING, {}, InnerType.IPV4, bytes(4 * inner_words)),))
        payload = int_report.encode(group)
        assert payload[9] == length
        assert int_report.decode(payload) == group
    long = Report(NOTHING, {}, InnerType.IPV4, bytes(4 * 300))
    with raises(WireError, value=302):
        int_report.encode(ReportGroup(1, 2, (long, long)))


def test_values_out_of_range_are_refused() -> None:
    with raises(WireError, place="latency_us", value=4294967296):
        int_report.encode(ReportGroup(1, 2, (Report(NOTHING, {"latency_us": 2**32}),)))
    with raises(WireError, value=(0, 4194304)):
        int_report.encode(ReportGroup(1, 2**22, ()))
    with raises(WireError, value=3):
        int_report.encode(ReportGroup(1, 2, (Report(NOTHING, {}, InnerType.IPV4, b"abc"),)))


def test_bits_and_lengths_are_the_specifications() -> None:
    """Section "Individual Report Main Contents for RepType 1": 4 octets a bit, 8 for bits 4, 5 and 6."""
    baseline = [item for item in ITEMS if not item.domain]
    domain = [item for item in ITEMS if item.domain]
    assert [item.bit for item in baseline] == [item.bit for item in domain] == [0x8000 >> bit for bit in range(16)]
    assert [item.words for item in baseline] == [1, 1, 1, 1, 2, 2, 2] + [1] * 9
    assert [item.words for item in domain] == [2] + [1] * 15
    assert len({name for item in ITEMS for name in NAMES[item]}) == sum(len(names) for names in NAMES.values())
