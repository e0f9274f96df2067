"""A batch of finished probes made into reports of links (native code, by Numba), from bytes to the links' state."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from ...wire.int_md import DOMAIN, HOP, INT_PORT, PROBE
from ...wire.int_native import decode_probes, number_at
from ...wire.native_code import entry, native
from .link_native import REPORT, update_into
from .probes import MAX_HOPS, probe_bytes

REMEMBERED: Final = 64
"""Number of probes of a kind that are tracked: a later one counts when it comes, and duplicates are refused."""

NOT_SENT, OUTSTANDING, RECEIVED, LOST = range(4)

SENT: Final = np.dtype([("sequence", "i8"), ("sent_ns", "i8"), ("fate", "i1")])
"""Fate of one probe; −1: nothing was sent."""

RECENT: Final = 16
"""Number of probes of a kind whose counters are kept, by which copies are recognised."""

COPIES: Final = np.dtype([("sequence", "i8"), ("bytes_sent", "i8", (MAX_HOPS,))])
"""A probe that has come, and the counter of bytes that it had at each of its hops."""

_BARE_BYTES: Final = probe_bytes(0)
_HOP_BYTES: Final = probe_bytes(1) - _BARE_BYTES
"""Bytes that each hop adds to a probe's frame."""

TALLY: Final = np.dtype([("used", "i8"), ("rejected", "i8"), ("unknown_hops", "i8")])
"""Counts of used reports, of frames that were no probe of ours, and of hops with an unknown node or port."""


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


@entry(
    types.void(
        types.voidptr,
        types.voidptr,
        types.int64,
        types.int64,
        types.int64,
        types.voidptr,
        types.int64,
        types.voidptr,
        types.voidptr,
        types.int64,
        types.voidptr,
        types.voidptr,
        types.voidptr,
        types.voidptr,
        types.voidptr,
        types.int64,
        types.int64,
        types.int64,
        types.voidptr,
        types.voidptr,
        types.int64,
    ),
)
def _collect(  # type: ignore[no-untyped-def]
    bytes_at, ends_at, frames, now_ns, before_ns, sent_at, sent_count, keys_at, link_of_key_at, key_count, tally_at,
    cost_at, delays_at, copies_at, capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count
):  # fmt: skip
    ends = carray(ends_at, (frames,), np.int64)
    size = ends[-1] if frames else 0
    data = carray(bytes_at, (size,), np.uint8)
    sent = carray(sent_at, (sent_count, REMEMBERED), SENT)
    tally = carray(tally_at, (1,), TALLY)
    delays_ns = carray(delays_at, (sent_count,), np.int64)
    probes, hops = np.empty(frames, PROBE), np.empty(size // 4, HOP)  # a hop has a word at least
    taken, filled = decode_probes(data, ends, INT_PORT, DOMAIN, probes, hops)
    reports = np.empty(filled, REPORT)
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
    reports = reports[: tally[0].used]
    if not ordered:
        # of one link the oldest first, whatever order they came in; between links the order means nothing
        reports = reports[np.argsort(reports["egress_ns"], kind="mergesort")]
        reports = reports[np.argsort(reports["at_ns"], kind="mergesort")]
    update_into(reports, capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count)


collect: Final = _collect.ctypes
"""Native entry point. Arguments, arrays by address:

- frames: bytes, ends, number of frames
- times: now, and the time before which outstanding probes are lost
- probes: SENT, number of probes
- links: keys, links of keys, number of keys
- counts: TALLY, packets and bytes on links
- newest delays of the probes
- COPIES
- `LinkState.into`
"""
