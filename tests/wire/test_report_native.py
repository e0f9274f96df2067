"""The bulk parser of telemetry reports says of any bytes what `decode` says of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from weir.tests.wire.test_int_report import groups
from weir.wire import int_report
from weir.wire.int_report import ITEMS, Report, ReportGroup
from weir.wire.report_native import KEPT, LAYOUTS, Fault, Individual, fault_of, read_individual

WIDTHS = {name: bits for item in ITEMS for name, bits in item.fields}


def in_bulk(payload: bytes, layouts: NDArray[np.int64]) -> tuple[Fault, list[Individual]]:
    data = np.frombuffer(b"before" + payload + b"behind", np.uint8)
    at, end = len("before"), len("before") + len(payload)
    fault = Fault(fault_of(data, at, end, layouts))
    rows = []
    at += int_report.GROUP_BYTES
    while not fault and at < end:
        rows.append(read_individual(data, at, end, layouts))
        at = rows[-1].end
    return fault, rows


def expected_of(report: Report) -> list[int]:
    values = [report.metadata.get(name, -1) for name in KEPT]
    return [
        -1 if value == (1 << WIDTHS[name]) - 1 else int(np.uint64(value).astype(np.int64)) if value >= 0 else -1
        for name, value in zip(KEPT, values, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(groups, min_size=1, max_size=3))
def test_well_formed_reports(several: list[ReportGroup]) -> None:
    layouts = np.full(LAYOUTS, -1, np.int64)
    for group in several:
        payload = int_report.encode(group)
        decoded = int_report.decode(payload)
        assert decoded is not None
        fault, rows = in_bulk(payload, layouts)
        assert fault is Fault.NONE
        assert [list(row[4:]) for row in rows] == [expected_of(report) for report in decoded.reports]
        inner = [(b"before" + payload)[row.inner_at : row.end] for row in rows]
        assert inner == [report.inner for report in decoded.reports]
        assert [row.flags & 0xF0 for row in rows] == [int(report.flags) for report in decoded.reports]


@settings(max_examples=60, deadline=None)
@given(groups, st.data())
def test_damaged_reports(group: ReportGroup, data: st.DataObject) -> None:
    payload = bytearray(int_report.encode(group))
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, min(len(payload), 40) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))] if data.draw(st.booleans()) else payload)
    decoded = int_report.decode(cut)
    fault, rows = in_bulk(cut, np.full(LAYOUTS, -1, np.int64))
    assert (fault is Fault.NONE) == (decoded is not None)
    if decoded is not None:
        assert [list(row[4:]) for row in rows] == [expected_of(report) for report in decoded.reports]


def test_errors_are_counted_by_kind() -> None:
    sound = ReportGroup(7, 1, (Report(int_report.ReportFlag(0), {"latency_us": 5}, inner=bytes(8)),))
    payload = int_report.encode(sound)
    layouts = np.full(LAYOUTS, -1, np.int64)

    def kind(damaged: bytes) -> Fault:
        return in_bulk(damaged, layouts)[0]

    assert kind(payload) is Fault.NONE
    assert kind(b"") is kind(payload[:11]) is kind(payload + b"\x00\x00") is Fault.SHORT
    assert kind(b"\x10" + payload[1:]) is Fault.VERSION
    assert kind(payload[:-4]) is Fault.LENGTH
    assert kind(payload[:10] + b"\x09" + payload[11:]) is Fault.LENGTH
    assert kind(payload[:10] + b"\x02" + payload[11:]) is Fault.METADATA
    assert kind(payload[:8] + b"\x30" + payload[9:]) is kind(payload[:8] + b"\x16" + payload[9:]) is Fault.TYPE
    other = int_report.encode(replace(sound, reports=(replace(sound.reports[0], domain=1),)))
    assert kind(other[:10] + b"\x02" + other[11:]) is Fault.NONE  # words of another domain stand behind ours
