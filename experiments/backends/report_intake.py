"""Telemetry reports that come to the collector's host through the fabric, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.fabric import Wake
from ...wire.frames import FRAME_HEADER_BYTES, decapsulate, frame_headers

if TYPE_CHECKING:
    from ...controller.telemetry.collector import ReportCollector


def receive_reports(wake: Wake, collector: ReportCollector, *, address: int, port: int, now_ns: int) -> Wake:
    """Pass reports among a host's frames to the collector.

    Args:
        wake: Frames that the host received.
        collector: Collector of the reports.
        address: IPv4 address that reports are sent to, as a number.
        port: UDP port that reports are sent to.
        now_ns: Present time, in ns.

    Returns:
        The wake with all other frames.
    """
    others, times_ns = [], []
    for frames, arrived_ns in zip(wake.frames, wake.times_ns, strict=True):
        if frames.shape[1] < FRAME_HEADER_BYTES:
            others.append(frames)
            times_ns.append(arrived_ns)
            continue
        is_report = frame_headers(frames)["destination_port"] == port
        datagrams, _ = decapsulate(frames[is_report], address, port)
        if count := len(datagrams):
            size = datagrams.payload.shape[1]
            lengths = np.full(count, size, np.int64)
            payload = np.ascontiguousarray(datagrams.payload).reshape(-1)
            starts = size * np.arange(count, dtype=np.int64)
            collector.receive_batch(payload, starts, lengths, count, now_ns)
        others.append(frames[~is_report])
        times_ns.append(arrived_ns[~is_report])
    return replace(wake, frames=others, times_ns=times_ns)
