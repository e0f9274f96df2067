"""Reports of progress: none is lost but merged, and the rate and the bytes stay below their limits."""

from __future__ import annotations

from typing import Final

from weir.hosts.drivers.report_pacer import INTERVAL_S, ReportPacer
from weir.wire import control_pb2 as pb
from weir.wire.control import MAX_COUNT, MAX_STAGE, JobReport
from weir.wire.control_messages import report_message

LINK_BPS: Final = 100e6
FRAMES_BYTES: Final = 5 + 9 + 2 * (14 + 20 + 32 + 20 + 4)
"""gRPC's and HTTP/2's headers, then Ethernet with gap and preamble, IP and TCP with options, of data and its ACK."""


def step(number: int) -> JobReport:
    return JobReport(
        number, 100 - number, "warm-up", 1.0 / (1 + number), compute_ns=10, exposed_ns=2, bytes=4, waiting_ns=3
    )


def test_slow_steps_are_reported_one_by_one() -> None:
    pacer = ReportPacer()
    assert [pacer.add(step(number), number * INTERVAL_S * 1.01) for number in range(5)] == list(map(step, range(5)))


def test_fast_steps_share_a_report_and_no_time_or_byte_is_lost() -> None:
    pacer = ReportPacer()
    sent = [pacer.add(step(number), number * INTERVAL_S / 8) for number in range(60)]
    sent.append(pacer.rest())
    told = [report for report in sent if report is not None]
    assert told[-1].step == 59
    assert len(told) <= 60 / 8 + 2
    assert (sum(report.steps for report in told), sum(report.compute_ns for report in told)) == (60, 600)
    sums = {name: sum(getattr(report, name) for report in told) for name in ("exposed_ns", "bytes", "waiting_ns")}
    assert sums == {"exposed_ns": 120, "bytes": 240, "waiting_ns": 180}


def test_nothing_is_left_after_the_rest() -> None:
    pacer = ReportPacer()
    pacer.add(step(0), 0.0)
    assert pacer.rest() is None
    pacer.add(step(1), 0.0)
    assert pacer.rest() == step(1)
    assert pacer.rest() is None


def test_the_largest_report_takes_below_a_thousandth_of_a_link() -> None:
    largest = JobReport(MAX_COUNT, MAX_COUNT, "s" * MAX_STAGE, 0.1, 0.1, 1, *[MAX_COUNT] * 4)
    size = pb.FromHost(report=report_message(largest)).ByteSize() + FRAMES_BYTES
    assert 8 * size / INTERVAL_S < 0.001 * LINK_BPS
