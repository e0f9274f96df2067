"""Updates of the state of the links and their queues by reports (native code, by Numba).

Structured arrays are passed by address: Numba's dispatcher takes hundreds of microseconds per call to inspect their
types, more than a small fabric's reports take.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray
from numpy.typing import NDArray

from ...wire.frames import BULK_PRIORITY
from ...wire.native_code import allocating, native, whole
from .link_records import CLASSES, LINK, QUEUE, REPORT


class LinkArrays(NamedTuple):
    """State of all links, and the times by which reports change it."""

    capacity: NDArray[np.float64]
    """(links,) Bytes/s."""
    states: NDArray[np.void]
    """(links,) of LINK."""
    queues: NDArray[np.void]
    """(links, CLASSES) of QUEUE."""
    time_constant_ns: int
    shortest_ns: int
    """Shortest interval over which a rate is computed."""
    horizon_ns: int
    """Backward steps of a switch's clock up to this are an overtaken report; larger ones are a restart."""


@native
def _update_queue(told: Any, queue: Any, is_late: bool, time_constant_ns: int) -> None:
    """The sample stands for the time since the queue's last one."""
    depth = float(told.queue_packets)
    if is_late:
        if told.queue_packets != -1:
            queue.high, queue.peak = max(queue.high, depth), max(queue.peak, depth)
        return
    dt = told.egress_ns - queue.egress_ns
    anew = not queue.measured or dt < 0
    weight = 1.0 if anew else min(dt, time_constant_ns) / time_constant_ns
    if told.queue_packets != -1:
        queue.depth = depth
        queue.average += weight * (depth - queue.average)
        queue.high = depth if anew else max(queue.high, depth)
        queue.peak = max(queue.peak, depth)
    if told.latency_us != -1:
        queue.sojourn_us += weight * (told.latency_us - queue.sojourn_us)
    if told.queue_packets != -1 or told.latency_us != -1:
        queue.measured, queue.egress_ns = True, told.egress_ns


@native
def _update_rate(told: Any, link: Any, capacity: float, time_constant_ns: int, shortest_ns: int) -> None:
    """Update a link's rate by its counter of bytes sent; `capacity` is in bytes/s."""
    dt = told.egress_ns - link.base_ns
    # a difference of unsigned 64-bit counters, so that a wrapped one is right
    sent = float(np.uint64(told.bytes_sent) - np.uint64(link.bytes_sent))
    possible = sent <= 2 * capacity * dt * 1e-9 + 65_536
    # reports right behind one another: the first has said it all
    twin = link.based and 0 <= dt < shortest_ns and possible
    if link.based and dt >= shortest_ns and possible:
        rate = sent / (dt * 1e-9)
        weight = min(dt, time_constant_ns) / time_constant_ns
        link.rate = link.rate + weight * (rate - link.rate) if link.rated else rate
        link.rated = True
    elif link.based and not twin:
        link.resets += 1
    if not twin:
        link.based, link.bytes_sent, link.base_ns = True, told.bytes_sent, told.egress_ns


@native
def update_one(told: Any, at: int, at_ns: int, heard_ns: int, causal: bool, old: bool, arrays: LinkArrays) -> None:
    """Write a report on a link into the arrays.

    If a switch's clock goes back by up to `horizon_ns`, its report was overtaken, unless it belongs to a probe sent
    after the newest report had come. If it goes back by more, the switch has restarted, unless the sequence number
    shows that the report is old.

    Args:
        told: Record with the last five of REPORT's fields.
        at: Number of the link.
        at_ns: Time when the probe was sent, or when the report came, on the controller's clock in ns.
        heard_ns: Time when the report came, on the controller's clock in ns.
        causal: True if `at_ns` is certainly not later than the measurement.
        old: True if another report of the same node overtook this one.
        arrays: State of all links; changed.
    """
    which = np.uint64(at)  # no place from the end
    link = arrays.states[which]
    queue = arrays.queues[which, np.uint64(told.queue_id if 0 <= told.queue_id < CLASSES else BULK_PRIORITY)]
    behind = link.egress_ns - told.egress_ns
    certain = causal and at_ns > link.heard_ns
    overtaken = causal and at_ns < link.probed_ns
    if link.measured and (overtaken or (behind > 0 and (behind <= arrays.horizon_ns or old) and not certain)):
        link.late += 1
        _update_queue(told, queue, True, arrays.time_constant_ns)
        return
    _update_queue(told, queue, False, arrays.time_constant_ns)
    if told.bytes_sent != -1:
        _update_rate(told, link, arrays.capacity[which], arrays.time_constant_ns, arrays.shortest_ns)
    link.measured = True
    link.reports += 1
    link.egress_ns = told.egress_ns
    link.at_ns = max(link.at_ns, at_ns)
    link.heard_ns = heard_ns
    if causal:
        link.probed_ns = at_ns


@allocating
def link_arrays(  # type: ignore[no-untyped-def]
    capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count
):
    """Return the arrays at the addresses of `LinkState.into`."""
    return LinkArrays(
        carray(capacity, (link_count,), np.float64),
        carray(links, (link_count,), LINK),
        carray(queues, (link_count, CLASSES), QUEUE),
        time_constant_ns,
        shortest_ns,
        horizon_ns,
    )


@whole
def update_links(  # type: ignore[no-untyped-def]
    reports, count, capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count
):
    """Enter reports into the arrays of links.

    Args:
        reports: Address of records of type REPORT.
        count: Number of reports.
        capacity: Address of the rate of each link, float64, in bytes per second.
        time_constant_ns: Time constant of averages, in ns.
        shortest_ns: Shortest time between two reports from which a rate is computed, in ns.
        horizon_ns: Maximum backward step of a switch's clock that is an overtaken report, in ns.
        links: Address of the states of links.
        queues: Address of the states of queues, (links, classes).
        link_count: Number of links.
    """
    arrays = link_arrays(capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count)
    for report in carray(reports, (count,), REPORT):
        update_one(report, report.link, report.at_ns, report.heard_ns, report.causal, report.old, arrays)
    return 0
