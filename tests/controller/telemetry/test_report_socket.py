"""Reports through a UDP socket on loopback."""

from __future__ import annotations

import select
import socket

import pytest

from weir.controller.errors import ControllerError
from weir.controller.telemetry.report_socket import BATCH, ReportSocket
from weir.tests.controller.telemetry.test_collector import LINK, CollectorRig, datagram, measured
from weir.tests.support.errors import raises


def test_many_reports_are_received_at_a_time() -> None:
    rig = CollectorRig()
    with (
        ReportSocket(rig.collector, 0) as reports,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        assert reports.poll(0) == 0
        total = 3 * BATCH + 5
        for number in range(total):
            sender.sendto(datagram("s1", number, **measured(number)), ("127.0.0.1", reports.port))
        sender.sendto(b"no report" * 400, ("127.0.0.1", reports.port))
        taken = 0
        while taken <= total and select.select([reports], [], [], 10)[0]:
            taken += reports.poll(1_000_000 * total)
        assert (taken, reports.kernel_drops) == (total + 1, 0)
        with raises(ControllerError, place="telemetry reports", value=f"127.0.0.1:{reports.port}"):
            ReportSocket(rig.collector, reports.port)
    (stream,) = rig.collector.streams()
    assert (stream.received, stream.lost) == (total, 0)
    assert rig.collector.faults == {"version": 1}
    assert rig.links.snapshot(1_000_000 * total).links[LINK].rate_bps == pytest.approx(200e6)
