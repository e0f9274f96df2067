"""What a batch of telemetry reports 2.0 changes: streams, flows, halves of split reports, links (native, by Numba)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from ...wire.int_md import DOMAIN, HOP, INT_PORT
from ...wire.int_native import KEPT_ITEMS, number_at, plain_at, read_hop, stack_layout, word_at
from ...wire.int_report import GROUP_BYTES, SEQUENCE_BITS, InnerType, ReportFlag
from ...wire.int_shim import DSCP_BIT, PROBE_MARKER
from ...wire.native_code import allocating, entry, native
from ...wire.report_native import INDIVIDUAL_ROW, LAYOUT, fault_of, read_individual
from .link_native import REPORT, take_into

HARDWARE_IDS: Final = 64
"""Of a node; each counts its reports."""
WINDOW: Final = 1024
"""So many numbers behind the highest of a stream a report is late; beyond, it is of another life of its switch."""
REASONS: Final = 256
BYTES_OF_A_REPORT: Final = 16
"""What tells of a link takes no fewer: ports, egress time, and the node or a report's first words."""
MOST_HOPS: Final = 16
"""Of a flow's path."""
FLOWS: Final = 1 << 14
"""So many are remembered; a new one takes the place of the longest silent among those near its own."""
_NEAR: Final = 8
HALVES: Final = 1 << 10
"""Split reports of each node that wait for their other half."""

FAULTS: Final = (
    "none",
    "short",
    "version",
    "length",
    "metadata",
    "type",
    "unknown node",
    "inner packet",
    "stack",
    "stray",
)
"""By index: those of `wire.report_native.Fault`, and what a collector finds besides. A stray is far from its stream's
numbers, or came again with other bytes, and no second one has followed it yet.
"""
_UNKNOWN_NODE: Final = FAULTS.index("unknown node")
_INNER: Final = FAULTS.index("inner packet")
_STACK: Final = FAULTS.index("stack")
_STRAY: Final = FAULTS.index("stray")

STREAM: Final = np.dtype(
    [
        ("begun", "?"),
        ("highest", "i8"),  # sequence number
        ("expected", "i8"),  # numbers from the lowest to the highest
        ("span", "i8"),  # of these, the ones since the switch started
        ("received", "i8"),  # of these
        ("bytes", "i8"),  # UDP payload of those received
        ("duplicates", "i8"),
        ("late", "i8"),  # received after a higher one
        ("restarts", "i8"),
        ("next_stray", "i8"),  # what would prove a restart; −1: nothing
        ("strange", "i8"),  # a number that came again with other bytes, and no higher one since; −1: none
        ("strange_print", "u4"),
        ("begin", "u8"),  # of the numbers 0…63, those taken as late since the highest: another life's, perhaps
    ]
)
"""The reports of one (node, hardware id). Lost are expected − received."""

FLOW: Final = np.dtype(
    [
        ("used", "?"),
        ("source", "u4"),
        ("destination", "u4"),
        ("source_port", "u2"),
        ("destination_port", "u2"),
        ("protocol", "u1"),
        ("hops", "i8"),
        ("heard_ns", "i8"),  # the controller's clock
        ("reports", "i8"),
        ("changes", "i8"),  # of the path
        ("paths", "i8"),  # packets whose whole path is known
        ("path_us", "f8"),  # average of the sums of their latencies
    ]
)

FLOW_HOP: Final = np.dtype(
    [
        ("node", "i8"),  # id
        ("rank", "i8"),  # places of a path in their order: 255 − TTL
        ("ingress_port", "i8"),
        ("egress_port", "i8"),
        ("queue_packets", "i8"),
        ("latency_us", "f8"),  # average; NaN: never told
        ("egress_ns", "i8"),  # the node's clock
        ("heard_ns", "i8"),  # the controller's clock
    ]
)

HALF: Final = np.dtype([("used", "?"), ("number", "i8"), ("is_stack", "?"), ("latency_us", "i8"), ("joined", "?")])
"""What one of a sink's two reports of a packet told of the packet's latency."""

TALLY: Final = np.dtype(
    [
        ("reports", "i8"),  # individual ones that were taken
        ("datagrams", "i8"),  # well-formed and new
        ("bytes", "i8"),  # of all datagrams' UDP payloads
        ("joined", "i8"),
        ("unjoined", "i8"),  # halves whose other half did not come in time
        ("unknown_links", "i8"),  # of a node or port that the topology does not have
    ]
)

_MASK: Final = (1 << SEQUENCE_BITS) - 1
_FARTHEST: Final = 1 << 20
_BEGIN: Final = 64
"""So far below the lowest of its stream a report may be late; farther, it is of another life of its switch."""
_PRINTED: Final = 64
"""Bytes of a datagram that tell it from another with the same number: the head, and the first report's times."""
_IPV4: Final = int(InnerType.IPV4)
_ETHERNET: Final = int(InnerType.ETHERNET)
_DROPPED: Final = int(ReportFlag.DROPPED)
_MARKER: Final = np.int64(PROBE_MARKER)
_FRESH, _OLD, _SEEN, _FAR = range(4)


@native
def _print_of(data: NDArray[np.uint8], start: int, end: int) -> np.uint32:
    """What a copy has and another report with the same number has not: of the first bytes and the length; never 0."""
    odd = np.uint64(0x9FB21C651E98DF25)
    code = np.uint64(end - start) * odd
    for at in range(start, min(end, start + _PRINTED) - 7, 8):
        odd += np.uint64(0x9E3779B97F4A7C16)
        code += np.uint64(word_at(data, at) << 32 | word_at(data, at + 4)) * odd  # no product waits for another
    return np.uint32(code >> np.uint64(32) | np.uint64(1))


@native
def _restart(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> None:
    """The stream goes on with this number, as if it were its first."""
    seen[:] = 0
    seen[sequence % WINDOW] = mark
    stream.highest = sequence
    stream.expected += 1
    stream.received += 1
    stream.span = 1
    stream.restarts += 1
    stream.next_stray = stream.strange = -1
    stream.begin = 0


@native
def _live_again(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> None:
    """The stream goes on with another life of its switch, which two strange numbers have shown, this one and
    `stream.strange`. It began at 0 where they are low; then what was taken as late meanwhile was this life's.
    """
    first, first_mark, begin = stream.strange, stream.strange_print, stream.begin
    lowest = min(first, sequence)
    highest = max(first, sequence)
    if highest < WINDOW:
        lowest = 0
        for place in range(WINDOW):
            if place >= _BEGIN or not begin >> np.uint64(place) & np.uint64(1):
                seen[place] = 0
    else:
        seen[:] = 0
    seen[first % WINDOW] = first_mark
    seen[sequence % WINDOW] = mark
    stream.highest = highest
    stream.span = highest - lowest + 1
    stream.expected += stream.span
    stream.received += 2
    stream.restarts += 1
    stream.next_stray = stream.strange = -1
    stream.begin = 0


@native
def _follow(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> int:
    """Whether a report with this number is new, new but overtaken, a copy, or of another life of its switch, maybe.
    `mark` is its print, and `seen` has those of the stream's numbers.

    A copy has the bytes of the first. Another life has shown when two numbers have come again with other bytes, or
    two in a row are far from all others (as in RFC 3550, appendix A.1).
    """
    if not stream.begun:
        stream.begun, stream.highest, stream.expected, stream.received, stream.span = True, sequence, 1, 1, 1
        stream.next_stray = stream.strange = -1
        seen[sequence % WINDOW] = mark
        return _FRESH
    ahead = (sequence - stream.highest) & _MASK
    if ahead > _MASK >> 1:
        ahead -= _MASK + 1
    if 0 < ahead <= _FARTHEST:
        for number in range(max(1, ahead - WINDOW + 1), ahead + 1):
            seen[(stream.highest + number) & _MASK & (WINDOW - 1)] = 0
        seen[sequence % WINDOW] = mark
        stream.highest = sequence
        stream.expected += ahead
        stream.span += ahead
        stream.received += 1
        stream.strange = -1
        stream.begin = 0
        return _FRESH
    if -WINDOW < ahead <= 0 and -ahead < stream.span + _BEGIN:
        known = seen[sequence % WINDOW]
        if known == 0:
            seen[sequence % WINDOW] = mark
            before = max(0, 1 - ahead - stream.span)  # it is lower than the lowest
            stream.expected += before
            stream.span += before
            stream.received += 1
            stream.late += 1
            if sequence < _BEGIN:
                stream.begin |= np.uint64(1) << np.uint64(sequence)
            return _OLD
        if known == mark or (sequence == stream.strange and mark == stream.strange_print):
            stream.duplicates += 1
            return _SEEN
        if stream.strange >= 0 and stream.strange != sequence:
            _live_again(stream, seen, sequence, mark)
            return _FRESH
        stream.strange, stream.strange_print = sequence, mark
        return _FAR
    if sequence == stream.next_stray:
        _restart(stream, seen, sequence, mark)
        return _FRESH
    stream.next_stray = (sequence + 1) & _MASK
    return _FAR


@native
def _flow_at(flows: NDArray[np.void], key: NDArray[np.int64]) -> int:
    """The place of the flow with this 5-tuple, which is made where it is not there."""
    code = np.uint64(14695981039346656037)
    for part in key:
        code = (code ^ np.uint64(part)) * np.uint64(1099511628211)
        code ^= code >> np.uint64(29)
    first = np.int64(code & np.uint64(FLOWS - 1))
    oldest, oldest_ns = first, np.int64(0x7FFF_FFFF_FFFF_FFFF)
    for step in range(_NEAR):
        place = (first + step) & (FLOWS - 1)
        flow = flows[place]
        if not flow.used:
            oldest = place
            break
        if (
            flow.source == key[0]
            and flow.destination == key[1]
            and flow.protocol == key[2]
            and flow.source_port == key[3]
            and flow.destination_port == key[4]
        ):
            return int(place)
        if flow.heard_ns < oldest_ns:
            oldest, oldest_ns = place, flow.heard_ns
    flow = flows[oldest]
    flow.used = True
    flow.source, flow.destination, flow.protocol = key[0], key[1], key[2]
    flow.source_port, flow.destination_port = key[3], key[4]
    flow.hops = flow.reports = flow.changes = flow.paths = 0
    flow.path_us = 0.0
    return int(oldest)


@native
def _note_hop(
    flow: Any,
    hops: NDArray[np.void],
    node: int,
    rank: int,
    ingress_port: int,
    egress_port: int,
    queue_packets: int,
    latency_us: int,
    egress_ns: int,
    now_ns: int,
    time_constant_ns: int,
    horizon_ns: int,
) -> None:
    """What a node says of a flow, into its hop of the path. `hops` are the flow's."""
    place = -1
    for at in range(flow.hops):
        if hops[at].node == node:
            place = at
    if place < 0:
        for at in range(flow.hops):
            if hops[at].rank == rank:  # another node stands there now
                place = at
                flow.changes += 1
                hops[at].node = -1
        if place < 0:
            if flow.hops == MOST_HOPS:
                return
            place = flow.hops
            flow.hops += 1
            hops[place].node = -1
    hop = hops[place]
    anew = hop.node != node
    dt = 0 if anew or egress_ns == -1 else egress_ns - hop.egress_ns
    if not anew and -horizon_ns <= dt < 0:
        return
    if not anew and hop.egress_port != egress_port:
        flow.changes += 1
    hop.node, hop.rank, hop.ingress_port, hop.egress_port = node, rank, ingress_port, egress_port
    hop.heard_ns = now_ns
    if anew:
        hop.latency_us, hop.queue_packets = np.nan, -1
    if egress_ns != -1:
        hop.egress_ns = egress_ns
    if queue_packets != -1:
        hop.queue_packets = queue_packets
    if latency_us != -1:
        weight = 1.0 if anew or dt < 0 or np.isnan(hop.latency_us) else min(dt, time_constant_ns) / time_constant_ns
        before = 0.0 if np.isnan(hop.latency_us) else hop.latency_us
        hop.latency_us = before + weight * (latency_us - before)


@native
def _stack_at(data: NDArray[np.uint8], ip: int, end: int) -> int:
    """Where the shim of an INT packet is whose IPv4 header is at `ip`; −1 where it has none."""
    if data[ip + 9] == 17:
        behind = ip + 28
        if end >= behind and plain_at(data, ip + 22) == INT_PORT:
            return behind
    elif data[ip + 9] == 6:
        behind = ip + 40
    else:
        return -1
    if end >= behind + 8 and number_at(data, behind, 8) == _MARKER:
        return behind + 8
    if data[ip + 1] >> 2 & DSCP_BIT and end >= behind + 4:
        return behind
    return -1


@native
def _join(halves: NDArray[np.void], number: int, is_stack: bool, latency_us: int, tally: Any) -> int:
    """The sum of a packet's latencies where this half completes it, else −1. `halves` are the node's."""
    half = halves[number % HALVES]
    if half.used and half.number == number and half.is_stack != is_stack:
        total = -1 if half.latency_us < 0 or latency_us < 0 else half.latency_us + latency_us
        tally.joined += not half.joined
        half.used, half.joined = False, True
        return int(total)
    tally.unjoined += half.used
    half.used, half.joined, half.number = True, False, number
    half.is_stack, half.latency_us = is_stack, latency_us
    return -1


@native
def _note_link(
    reports: NDArray[np.void],
    filled: int,
    keys: NDArray[np.int64],
    link_of_key: NDArray[np.int64],
    node: int,
    source: Any,
    is_old: bool,
    now_ns: int,
    tally: Any,
) -> int:
    """What a report or a hop says of its link, as a REPORT; how many there are then."""
    if source.egress_port == -1 or source.egress_ns == -1:
        return filled
    key = node << 16 | source.egress_port
    place = np.searchsorted(keys, key)
    if place == len(keys) or keys[place] != key:
        tally.unknown_links += 1
        return filled
    report = reports[filled]
    report.link, report.causal, report.old = link_of_key[place], False, is_old
    report.at_ns = report.heard_ns = now_ns
    report.egress_ns, report.bytes_sent = source.egress_ns, source.bytes_sent
    report.queue_id, report.queue_packets, report.latency_us = (
        source.queue_id,
        source.queue_packets,
        source.latency_us,
    )
    return filled + 1


@native
def _key_of(data: NDArray[np.uint8], ip: int, end: int, shim: int, key: NDArray[np.int64]) -> bool:
    """The 5-tuple of the packet at `ip` as its hosts know it, without what INT put into it."""
    if end - ip < 20 or data[ip] != 0x45:
        return False
    key[0] = word_at(data, ip + 12)
    key[1] = word_at(data, ip + 16)
    key[2] = data[ip + 9]
    key[3] = key[4] = 0
    if (key[2] == 6 or key[2] == 17) and end - ip >= 24:
        key[3], key[4] = plain_at(data, ip + 20), plain_at(data, ip + 22)
    if shim >= 0:
        npt = data[shim] >> 2 & 3
        if npt == 1:
            key[4] = plain_at(data, shim + 2)
        elif npt == 2:
            key[2] = data[shim + 3]
            inner = shim + 4 + 4 * np.int64(data[shim + 1])
            key[3] = key[4] = 0
            if end >= inner + 4:
                key[3], key[4] = plain_at(data, inner), plain_at(data, inner + 2)
    return True


@allocating
def _take_datagrams(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    now_ns: int,
    nodes: NDArray[np.int64],
    keys: NDArray[np.int64],
    link_of_key: NDArray[np.int64],
    streams: NDArray[np.void],
    seen: NDArray[np.uint32],
    flows: NDArray[np.void],
    flow_hops: NDArray[np.void],
    halves: NDArray[np.void],
    free_slots: NDArray[np.int64],
    drops: NDArray[np.int64],
    faults: NDArray[np.int64],
    tally: Any,
    reports: NDArray[np.void],
    time_constant_ns: int,
    horizon_ns: int,
) -> int:
    """How many REPORTs were written."""
    layout = np.full(LAYOUT, -1, np.int64)
    row = np.zeros(1, INDIVIDUAL_ROW)[0]
    hop = np.zeros(1, HOP)[0]
    at_items = np.empty(KEPT_ITEMS, np.int64)
    key = np.empty(5, np.int64)
    filled = 0
    for number in range(len(starts)):
        start = starts[number]
        end = start + lengths[number]
        tally.bytes += lengths[number]
        fault = fault_of(data, start, end, layout)
        if fault:
            faults[fault] += 1
            continue
        head = word_at(data, start)
        node_id = word_at(data, start + 4)
        node = np.searchsorted(nodes, node_id)
        if node == len(nodes) or nodes[node] != node_id:
            faults[_UNKNOWN_NODE] += 1
            continue
        hardware = head >> SEQUENCE_BITS & (HARDWARE_IDS - 1)
        mark = _print_of(data, start, end)
        fate = _follow(streams[node, hardware], seen[node, hardware], head & _MASK, mark)
        if fate != _FRESH and fate != _OLD:
            faults[_STRAY] += fate == _FAR
            continue
        tally.datagrams += 1
        streams[node, hardware].bytes += end - start
        is_old = fate == _OLD
        back_ns = np.int64(1) << 62 if is_old else horizon_ns
        at = start + GROUP_BYTES
        while at < end:
            at = read_individual(data, at, end, layout, row)
            tally.reports += 1
            if row.free_slots != -1:
                free_slots[node] = row.free_slots
            if row.flags & _DROPPED and row.drop_reason != -1:
                drops[node, row.drop_reason] += 1
            filled = _note_link(reports, filled, keys, link_of_key, node_id, row, is_old, now_ns, tally)
            ip = row.inner_at + (14 if row.inner_type == _ETHERNET else 0)
            if row.inner_type != _IPV4 and row.inner_type != _ETHERNET:
                continue
            shim = _stack_at(data, ip, row.end) if row.end - ip >= 20 else -1
            if not _key_of(data, ip, row.end, shim, key):
                faults[_INNER] += 1
                continue
            place = _flow_at(flows, key)
            flow, path = flows[place], flow_hops[place]
            flow.heard_ns = now_ns
            flow.reports += 1
            ttl = np.int64(data[ip + 8])
            total = -1
            is_stack = False
            if shim >= 0 and data[shim] >> 4 == 1:
                md = shim + 4
                stack_words = np.int64(data[shim + 1]) - 3
                words = np.int64(data[md + 2]) & 0x1F if md + 12 <= row.end else 0
                stack_end = md + 12 + 4 * stack_words
                if (
                    stack_words < 0
                    or stack_end > row.end
                    or (stack_words > 0 and (words == 0 or stack_words % words))
                    or not stack_layout(data, md, DOMAIN, at_items)
                ):
                    faults[_STACK] += 1
                    continue
                count = stack_words // words if words else 0
                is_stack = bool(count > 0)
                if is_stack:
                    total = 0
                for newest in range(count):
                    read_hop(data, md + 12 + 4 * words * newest, at_items, hop)
                    total = -1 if total < 0 or hop.latency_us < 0 else total + hop.latency_us
                    if hop.node_id == -1:
                        continue
                    filled = _note_link(reports, filled, keys, link_of_key, hop.node_id, hop, is_old, now_ns, tally)
                    _note_hop(
                        flow, path, hop.node_id, 255 - ttl - 1 - newest, hop.ingress_port, hop.egress_port,
                        hop.queue_packets, hop.latency_us, hop.egress_ns, now_ns, time_constant_ns, back_ns,
                    )  # fmt: skip
            if row.egress_port != -1 or row.latency_us != -1:
                _note_hop(
                    flow, path, node_id, 255 - ttl, row.ingress_port, row.egress_port, row.queue_packets,
                    row.latency_us, row.egress_ns, now_ns, time_constant_ns, back_ns,
                )  # fmt: skip
                if is_stack:  # both halves in one report
                    total = -1 if total < 0 or row.latency_us < 0 else total + row.latency_us
            if row.packet_number != -1:
                total = _join(halves[node], row.packet_number, is_stack, total if is_stack else row.latency_us, tally)
            if total >= 0:
                flow.paths += 1
                flow.path_us += (total - flow.path_us) / min(flow.paths, 16)
    return filled


@entry(
    types.void(
        types.voidptr, types.int64, types.voidptr, types.voidptr, types.int64, types.int64, types.voidptr,
        types.voidptr, types.int64, types.voidptr, types.voidptr, types.int64,
        types.voidptr, types.voidptr, types.voidptr, types.voidptr, types.voidptr,
        types.voidptr, types.voidptr, types.voidptr, types.voidptr,
        types.voidptr, types.int64, types.int64, types.int64, types.voidptr, types.voidptr, types.int64,
    ),
)  # fmt: skip
def _take_reports(  # type: ignore[no-untyped-def]
    bytes_at, size, starts_at, lengths_at, count, now_ns, reports_at,
    nodes_at, node_count, keys_at, link_of_key_at, key_count,
    streams_at, seen_at, flows_at, flow_hops_at, halves_at,
    free_slots_at, drops_at, faults_at, tally_at,
    capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count,
):  # fmt: skip
    reports = carray(reports_at, (size // BYTES_OF_A_REPORT,), REPORT)
    filled = _take_datagrams(
        carray(bytes_at, (size,), np.uint8),
        carray(starts_at, (count,), np.int64),
        carray(lengths_at, (count,), np.int64),
        now_ns,
        carray(nodes_at, (node_count,), np.int64),
        carray(keys_at, (key_count,), np.int64),
        carray(link_of_key_at, (key_count,), np.int64),
        carray(streams_at, (node_count, HARDWARE_IDS), STREAM),
        carray(seen_at, (node_count, HARDWARE_IDS, WINDOW), np.uint32),
        carray(flows_at, (FLOWS,), FLOW),
        carray(flow_hops_at, (FLOWS, MOST_HOPS), FLOW_HOP),
        carray(halves_at, (node_count, HALVES), HALF),
        carray(free_slots_at, (node_count,), np.int64),
        carray(drops_at, (node_count, REASONS), np.int64),
        carray(faults_at, (len(FAULTS),), np.int64),
        carray(tally_at, (1,), TALLY)[0],
        reports,
        time_constant_ns,
        horizon_ns,
    )
    take_into(reports[:filled], capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, link_count)


take_reports: Final = _take_reports.ctypes
"""By addresses: (bytes, how many, where each datagram's UDP payload starts, its lengths, how many, now, REPORTs to
write to; node ids ascending, how many; keys, links of keys, how many; STREAM, seen, FLOW, FLOW_HOP, HALF; free slots,
drops, faults, TALLY; and what `LinkState.into` says).
"""
