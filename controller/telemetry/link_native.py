"""What a batch of finished probes changes in the state of the links (native code, by Numba)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...wire.int_native import number_at

native = njit(cache=True, nogil=True, error_model="numpy")

REMEMBERED: Final = 16
"""Of each probe, the last so many are remembered: for loss, and to refuse what comes twice."""

NOT_SENT, OUTSTANDING, RECEIVED, LOST = range(4)

SENT: Final = np.dtype([("sequence", "i8"), ("sent_ns", "i8"), ("fate", "i1")])
"""What became of one probe; −1: nothing was sent."""

LINK: Final = np.dtype(
    [
        ("measured", "?"),  # at least one report
        ("rated", "?"),  # at least one rate
        ("bytes_sent", "i8"),
        ("egress_ns", "i8"),  # the switch's clock
        ("sent_ns", "i8"),  # the controller's clock, when the newest report's probe was sent
        ("rate", "f8"),  # bytes/s
        ("queue", "f8"),  # packets
        ("latency_us", "f8"),
        ("reports", "i8"),
        ("resets", "i8"),
    ]
)

REPORT: Final = np.dtype([("link", "i8"), ("hop", "i8"), ("sent_ns", "i8"), ("egress_ns", "i8")])
"""One hop of a probe that was awaited: which link it reports on, and where it stands among the batch's hops."""


@native
def accept(
    data: NDArray[np.uint8],
    probes: NDArray[np.void],
    hops: NDArray[np.void],
    sent: NDArray[np.void],
    keys: NDArray[np.int64],
    link_of_key: NDArray[np.int64],
    reports: NDArray[np.void],
) -> tuple[int, int, int]:
    """Probes that are awaited count as received, and their hops that tell of a link become reports.

    SENT (probes of the plan, REMEMBERED); `keys` are node id ‖ port, sorted. How many reports there are, and how many
    probes and hops were of nobody.
    """
    filled = strange = unknown = 0
    for probe in probes:
        if probe.payload_end - probe.payload_at < 8:
            strange += 1
            continue
        index = number_at(data, probe.payload_at, 4)
        sequence = number_at(data, probe.payload_at + 4, 4)
        if not 0 <= index < len(sent) or sequence < 0:
            strange += 1
            continue
        which = sent[index, sequence % REMEMBERED]
        # late is not lost: one that was given up as lost still counts when it comes
        if which.sequence != sequence or (which.fate != OUTSTANDING and which.fate != LOST):
            strange += 1
            continue
        which.fate = RECEIVED
        for at in range(probe.first_hop, probe.first_hop + probe.hops):
            hop = hops[at]
            key = hop.node_id << 16 | hop.egress_port
            place = np.searchsorted(keys, key)
            if place == len(keys) or keys[place] != key:
                unknown += 1
                continue
            if hop.bytes_sent == -1 or hop.egress_ns == -1:
                continue
            report = reports[filled]
            report.link = link_of_key[place]
            report.hop = at
            report.sent_ns = which.sent_ns
            report.egress_ns = hop.egress_ns
            filled += 1
    return filled, strange, unknown


@native
def take(
    reports: NDArray[np.void],
    hops: NDArray[np.void],
    capacity: NDArray[np.float64],
    time_constant_ns: int,
    shortest_ns: int,
    state: NDArray[np.void],
) -> None:
    """Reports, oldest first, into LINK (links,). `capacity` is in bytes/s."""
    for report in reports:
        hop, link = hops[report.hop], state[report.link]
        if link.measured and (
            report.sent_ns < link.sent_ns or (report.sent_ns == link.sent_ns and hop.egress_ns < link.egress_ns)
        ):
            continue
        dt = hop.egress_ns - link.egress_ns
        # a difference of unsigned 64-bit counters, so that a wrapped one is right
        sent = float(np.uint64(hop.bytes_sent) - np.uint64(link.bytes_sent))
        possible = sent <= 2 * capacity[report.link] * dt * 1e-9 + 65_536
        steady = link.measured and dt >= shortest_ns and possible
        # probes that cross a link right behind one another: the first has said it all
        twin = link.measured and 0 <= dt < shortest_ns and possible
        weight = min(max(dt, 0), time_constant_ns) / time_constant_ns
        if steady:
            rate = sent / (dt * 1e-9)
            link.rate = link.rate + weight * (rate - link.rate) if link.rated else rate
            link.rated = True
        if hop.queue_packets != -1 and not twin:
            depth = float(hop.queue_packets)
            link.queue = link.queue + weight * (depth - link.queue) if steady else depth
        if hop.latency_us != -1 and not twin:
            latency = float(hop.latency_us)
            link.latency_us = link.latency_us + weight * (latency - link.latency_us) if steady else latency
        if link.measured and not steady and not twin:
            link.resets += 1
        if not twin:
            link.bytes_sent = hop.bytes_sent
            link.egress_ns = hop.egress_ns
        link.measured = True
        link.reports += 1
        link.sent_ns = report.sent_ns
