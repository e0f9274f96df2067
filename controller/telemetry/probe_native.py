"""A batch of finished probes made into reports of links (native code, by Numba), from bytes to the links' state."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import carray
from numpy.typing import NDArray

from ...wire.int_md import DOMAIN, HOP, INT_PORT, KEPT_ITEMS, PROBE
from ...wire.int_native import decode_probes, number_at
from ...wire.native_code import native, whole
from .link_native import link_arrays, update_links, update_one
from .link_records import REPORT
from .probe_format import MAX_HOPS, probe_bytes
from .probe_records import COPIES, LOST, OUTSTANDING, RECEIVED, RECENT, REMEMBERED, SENT, TALLY

_BARE_BYTES: Final = probe_bytes(0)
_HOP_BYTES: Final = probe_bytes(1) - _BARE_BYTES
"""Bytes that each hop adds to a probe's frame."""


@native
def _count(
    hop: Any, number: int, keys: NDArray[np.int64], link_of_key: NDArray[np.int64], cost: NDArray[np.int64]
) -> int:
    """Count a probe on the link of its hop of this number, from 1; return the link, −1 if it is unknown."""
    key = hop.node_id << 16 | hop.egress_port
    place = np.searchsorted(keys, key)
    if place == len(keys) or keys[place] != key:
        return -1
    cost[link_of_key[place], 0] += 1
    cost[link_of_key[place], 1] += _BARE_BYTES + _HOP_BYTES * number
    return int(link_of_key[place])


@native
def _accept(
    data: NDArray[np.uint8],
    probes: NDArray[np.void],
    hops: NDArray[np.void],
    now_ns: int,
    sent: NDArray[np.void],
    keys: NDArray[np.int64],
    link_of_key: NDArray[np.int64],
    reports: NDArray[np.void],
    tally: NDArray[np.void],
    cost: NDArray[np.int64],
    delays_ns: NDArray[np.int64],
    copies: NDArray[np.void],
) -> bool:
    """Mark awaited probes as received, and turn their hops on known links into reports.

    SENT (probes, REMEMBERED); COPIES (probes, RECENT). `cost` (links, 2) has the packets and bytes of probes on each
    link, `delays_ns` the newest delay of each probe. Returns True if the reports are in order already: the oldest
    first.
    """
    filled, ordered = 0, True
    for probe in probes:
        if probe.payload_end - probe.payload_at < 8:
            tally[0].rejected += 1
            continue
        index = number_at(data, probe.payload_at, 4)
        sequence = number_at(data, probe.payload_at + 4, 4)
        if not 0 <= index < len(sent) or sequence < 0:
            tally[0].rejected += 1
            continue
        which = sent[index, sequence % REMEMBERED]
        first = copies[index, sequence % RECENT]
        if which.sequence == sequence and which.fate == RECEIVED and first.sequence == sequence:
            # a link made a copy: behind it counters differ
            for hop_index in range(probe.first_hop, probe.first_hop + min(probe.hops, MAX_HOPS)):
                if hops[hop_index].bytes_sent != first.bytes_sent[hop_index - probe.first_hop]:
                    _count(hops[hop_index], hop_index - probe.first_hop + 1, keys, link_of_key, cost)
        # late is not lost: one that was given up as lost still counts when it comes
        if which.sequence != sequence or (which.fate != OUTSTANDING and which.fate != LOST):
            tally[0].rejected += 1
            continue
        which.fate = RECEIVED
        first.sequence = sequence
        delays_ns[index] = now_ns - which.sent_ns
        for hop_index in range(probe.first_hop, probe.first_hop + probe.hops):
            hop = hops[hop_index]
            if hop_index - probe.first_hop < MAX_HOPS:
                first.bytes_sent[hop_index - probe.first_hop] = hop.bytes_sent
            link = _count(hop, hop_index - probe.first_hop + 1, keys, link_of_key, cost)
            if link < 0:
                tally[0].unknown_hops += 1
                continue
            if hop.bytes_sent == -1 or hop.egress_ns == -1:
                continue
            report = reports[filled]
            report.link = link
            report.at_ns = which.sent_ns
            report.heard_ns = now_ns
            report.causal, report.old = True, False
            report.egress_ns = hop.egress_ns
            report.bytes_sent = hop.bytes_sent
            report.queue_id = hop.queue_id
            report.queue_packets = hop.queue_packets
            report.latency_us = hop.latency_us
            if filled:
                before = reports[filled - 1]
                if report.at_ns < before.at_ns or (
                    report.at_ns == before.at_ns and report.egress_ns < before.egress_ns
                ):
                    ordered = False
            filled += 1
    tally[0].used = filled
    return ordered


@native
def _expire(sent: NDArray[np.void], delays_ns: NDArray[np.int64], before_ns: int) -> None:
    """Mark outstanding probes as lost that were sent before this time by more than their path's newest delay."""
    for index in range(len(sent)):
        for which in sent[index]:
            if which.fate == OUTSTANDING and which.sent_ns < before_ns - delays_ns[index]:
                which.fate = LOST


@native
def _is_older(reports: NDArray[np.void], one: int, other: int) -> bool:
    """Order of two reports: by their probes' times, then by their switches' clocks."""
    a, b = reports[np.uint64(one)], reports[np.uint64(other)]
    return bool(a.at_ns < b.at_ns or (a.at_ns == b.at_ns and a.egress_ns < b.egress_ns))


@native
def _sort(reports: NDArray[np.void], orders: NDArray[np.int64]) -> int:
    """Sort reports, the oldest first, by a stable merge sort.

    Args:
        reports: Records of type REPORT.
        orders: Numbers of the reports in the first row, and room for as many in the second, int64; changed.

    Returns:
        The row with the reports' numbers in order.
    """
    count = len(reports)
    row, width = 0, 1
    while width < count:
        order, other = orders[row], orders[1 - row]
        for start in range(0, count, 2 * width):
            middle, end = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for place in range(start, end):
                if left < middle and (right == end or not _is_older(reports, order[right], order[left])):
                    other[place] = order[left]
                    left += 1
                else:
                    other[place] = order[right]
                    right += 1
        row, width = 1 - row, 2 * width
    return row


@whole
def collect(  # type: ignore[no-untyped-def]
    bytes_at, ends_at, frames, now_ns, before_ns, layout_at, probes_at, hops_at, reports_at, order_at,
    sent_at, sent_count, keys_at, link_of_key_at, key_count, tally_at, cost_at, delays_at, copies_at,
    capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count
):  # fmt: skip
    """Take a batch of frames from the switches' CPU ports.

    Args:
        bytes_at: Frames, one after the other, uint8; this and all other `_at` are addresses.
        ends_at: End of each frame, int64.
        frames: Number of frames.
        now_ns: Present time, in ns.
        before_ns: Time before which outstanding probes were sent that are lost, in ns.
        layout_at: Room for KEPT_ITEMS int64.
        probes_at: Room for a PROBE per frame.
        hops_at: Room for a HOP per four bytes.
        reports_at: Room for a REPORT per four bytes.
        order_at: Room for two int64 per four bytes.
        sent_at: SENT, (probes, REMEMBERED).
        sent_count: Number of probes.
        keys_at: Keys of links, ascending, int64.
        link_of_key_at: Links of the keys, int64.
        key_count: Number of keys.
        tally_at: TALLY.
        cost_at: Packets and bytes of probes per link, int64 (links, 2).
        delays_at: Newest delay of each probe, int64.
        copies_at: COPIES, (probes, RECENT).
        capacity: This and the following ones as `update_links`.
        time_constant_ns: Time constant of averages, in ns.
        shortest_ns: Shortest time between two reports from which a rate is computed, in ns.
        horizon_ns: Maximum backward step of a switch's clock that is an overtaken report, in ns.
        links: Address of the states of links.
        queues: Address of the states of queues.
        link_count: Number of links.
    """
    ends = carray(ends_at, (frames,), np.int64)
    size = ends[-1] if frames else 0
    data = carray(bytes_at, (size,), np.uint8)
    sent = carray(sent_at, (sent_count, REMEMBERED), SENT)
    tally = carray(tally_at, (1,), TALLY)
    delays_ns = carray(delays_at, (sent_count,), np.int64)
    room = size // 4  # a hop has a word at least
    probes, hops = carray(probes_at, (frames,), PROBE), carray(hops_at, (room,), HOP)
    layout = carray(layout_at, (KEPT_ITEMS,), np.int64)
    taken, filled = decode_probes(data, ends, INT_PORT, DOMAIN, layout, probes, hops)
    reports = carray(reports_at, (room,), REPORT)
    tally[0].rejected += frames - taken
    ordered = _accept(
        data,
        probes[:taken],
        hops[:filled],
        now_ns,
        sent,
        carray(keys_at, (key_count,), np.int64),
        carray(link_of_key_at, (key_count,), np.int64),
        reports,
        tally,
        carray(cost_at, (link_count, 2), np.int64),
        delays_ns,
        carray(copies_at, (sent_count, RECENT), COPIES),
    )
    _expire(sent, delays_ns, before_ns)
    used = tally[0].used
    orders = carray(order_at, (2, room), np.int64)
    for place in range(used):
        orders[0, place] = place
    # of one link the oldest first, whatever order they came in; between links the order means nothing
    row = 0 if ordered else _sort(reports[:used], orders)
    arrays = link_arrays(capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count)
    for place in range(used):
        report = reports[np.uint64(orders[row, place])]
        update_one(report, report.link, report.at_ns, report.heard_ns, report.causal, report.old, arrays)
    return 0


__all__ = ["collect", "update_links"]
