"""Updates by a batch of telemetry reports 2.0: streams, flows, halves of split reports, links (native, by Numba)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from ...wire.int_md import DOMAIN, HOP, INT_PORT, MD_BYTES, SHIM_BYTES
from ...wire.int_native import KEPT_ITEMS, byte_at, long_at, plain_at, read_hop, stack_layout, word_at
from ...wire.int_report import GROUP_BYTES, SEQUENCE_BITS, InnerType, ReportFlag
from ...wire.int_shim import DSCP_BIT, MARKER_BYTES, PROBE_MARKER
from ...wire.native_code import entry, native
from ...wire.report_native import LAYOUTS, fault_of, read_individual
from .link_native import CLASSES, LINK, QUEUE, take_one

HARDWARE_IDS: Final = 64
"""Hardware ids of a node; each has its own sequence of reports."""
WINDOW: Final = 1024
"""Distance behind a stream's highest number up to which a report is late; beyond, its switch has restarted."""
REASONS: Final = 256
MAX_HOPS: Final = 16
"""Hops of a flow's path that are remembered at most."""
_FLOW_BITS: Final = 14
FLOWS: Final = 1 << _FLOW_BITS
"""Maximum number of tracked flows; a new one replaces the longest silent of those near its own slot."""
_NEAR: Final = 8
_WAYS: Final = 4
_PLACE_BITS: Final = 10
HALVES: Final = _WAYS << _PLACE_BITS
"""Split reports of each node that wait for their other half: `_WAYS` at each place."""

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
"""Names of faults by index: those of `wire.report_native.Fault`, and further ones of a collector. A stray is far from
its stream's numbers, or came again with other bytes, and no second one has followed it yet.
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
        ("next_stray", "i8"),  # number that would prove a restart; −1: none
        ("strange", "i8"),  # a number that came again with other bytes, and no higher one since; −1: none
        ("strange_print", "u4"),
        ("begin", "u8"),  # of the numbers 0…63, those taken as late since the highest: another life's, perhaps
    ]
)
"""The reports of one (node, hardware id). Lost are expected − received."""

FLOW: Final = np.dtype(
    [
        ("addresses", "u8"),  # source ‖ destination
        ("ports", "u8"),  # source ‖ destination ‖ the protocol's 8 bits
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
        ("egress_ns", "i8"),  # the node's clock; −1: it has told of no time
        ("heard_ns", "i8"),  # the controller's clock
    ]
)

HALF: Final = np.dtype([("used", "?"), ("number", "i8"), ("flow", "u8"), ("is_stack", "?"), ("latency_us", "i8")])
"""Latency of a packet in one of a sink's two reports on it. A number may be another packet's, too."""

TALLY: Final = np.dtype(
    [
        ("reports", "i8"),  # individual ones that were taken
        ("datagrams", "i8"),  # well-formed and new
        ("bytes", "i8"),  # of all datagrams' UDP payloads
        ("joined", "i8"),
        ("unjoined", "i8"),  # halves whose other half did not come in time
        ("unknown_links", "i8"),  # of a node or port that the topology does not have
        ("flows", "i8"),  # that are remembered
    ]
)

_MASK: Final = (1 << SEQUENCE_BITS) - 1
_FARTHEST: Final = 1 << 20
_BEGIN: Final = 64
"""So far below the lowest of its stream a report may be late; farther, it is of another life of its switch."""
_PRINTED: Final = 64
"""Bytes that distinguish a datagram from another with the same number: the head, and the first report's times."""
_IPV4: Final = int(InnerType.IPV4)
_ETHERNET: Final = int(InnerType.ETHERNET)
_DROPPED: Final = int(ReportFlag.DROPPED)
_MARKER: Final = np.int64(PROBE_MARKER)
_ODD: Final = np.uint64(0x9FB21C651E98DF25)
_EVEN: Final = np.uint64(0x9E3779B97F4A7C16)
_FRESH, _OLD, _SEEN, _FAR = range(4)


def _first_place(key: Any, size: Any) -> Any:
    return (np.uint64(key) * _ODD >> np.uint64(32)) & np.uint64(size - 1)


_first_place_of = native(_first_place)


def hash_table(keys: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """(a power of two, 2): these keys, none below 0, with their values, where `_found` finds them. Searching a row of
    them would take a branch for each step, of which every other one is guessed wrongly.
    """
    size = 4 << len(keys).bit_length()  # mostly found at the first place
    table = np.full((size, 2), -1, np.int64)
    for key, value, place in zip(keys.tolist(), values.tolist(), _first_place(keys, size).tolist(), strict=True):
        while table[place, 1] >= 0:
            place = (place + 1) % size
        table[place] = key, value
    return table


@native
def _found(table: NDArray[np.int64], key: int) -> int:
    """The value of this key; −1: it has none."""
    place = _first_place_of(key, len(table))
    while table[place, 0] != key:
        if table[place, 1] < 0:
            return -1
        place = (place + np.uint64(1)) & np.uint64(len(table) - 1)
    return int(table[place, 1])


@native
def _print_of(data: NDArray[np.uint8], start: int, end: int) -> np.uint32:
    """Fingerprint that copies share and other reports with the same number do not: of first bytes and length; never
    0.
    """
    odd = _ODD
    code = np.uint64(end - start) * odd
    if end - start >= _PRINTED:
        for place in range(0, _PRINTED, 8):  # as many as are known beforehand take no loop
            odd += _EVEN
            code += np.uint64(long_at(data, start + place)) * odd  # no product waits for another
    else:
        for at in range(start, end - 7, 8):
            odd += _EVEN
            code += np.uint64(long_at(data, at)) * odd
    return np.uint32(code >> np.uint64(32) | np.uint64(1))


@native
def _restart(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> None:
    """The stream goes on with this number, as if it were its first."""
    seen[:] = 0
    seen[np.uint64(sequence & (WINDOW - 1))] = mark
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
    lowest, highest = first, sequence
    if max(first, sequence) < WINDOW:
        lowest, highest = 0, max(first, sequence)
        for place in range(WINDOW):
            if place < _BEGIN and begin >> np.uint64(place) & np.uint64(1):
                highest = max(highest, place)
            else:
                seen[place] = 0
    else:
        if (sequence - first) & _MASK > _MASK >> 1:
            lowest, highest = sequence, first
        seen[:] = 0
    seen[np.uint64(first & (WINDOW - 1))] = first_mark
    seen[np.uint64(sequence & (WINDOW - 1))] = mark
    stream.highest = highest
    stream.span = ((highest - lowest) & _MASK) + 1
    stream.expected += stream.span
    stream.received += 2
    stream.restarts += 1
    stream.next_stray = stream.strange = -1
    stream.begin = 0


@native
def _follow(stream: Any, seen: NDArray[np.uint32], sequence: int, mark: np.uint32) -> int:
    """Classify a report's number: new, new but overtaken, a copy, or possibly of a restarted switch.

    `mark` is its fingerprint, and `seen` has those of the stream's numbers. A copy has the bytes of the first. A
    restart is proved when two numbers have come again with other bytes, or two in a row are far from all others (as in
    RFC 3550, appendix A.1).
    """
    if not stream.begun:
        stream.begun, stream.highest, stream.expected, stream.received, stream.span = True, sequence, 1, 1, 1
        stream.next_stray = stream.strange = -1
        seen[np.uint64(sequence & (WINDOW - 1))] = mark
        return _FRESH
    ahead = (sequence - stream.highest) & _MASK
    if ahead > _MASK >> 1:
        ahead -= _MASK + 1
    if 0 < ahead <= _FARTHEST:
        for number in range(max(1, ahead - WINDOW + 1), ahead):  # numbers left out
            seen[np.uint64((stream.highest + number) & (WINDOW - 1))] = 0
        seen[np.uint64(sequence & (WINDOW - 1))] = mark
        stream.highest = sequence
        stream.expected += ahead
        stream.span += ahead
        stream.received += 1
        stream.strange = -1
        stream.begin = 0
        return _FRESH
    if -WINDOW < ahead <= 0 and -ahead < stream.span + _BEGIN:
        known = seen[np.uint64(sequence & (WINDOW - 1))]
        if known == 0:
            seen[np.uint64(sequence & (WINDOW - 1))] = mark
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
def _flow_of(addresses: int, ports: int, numbers: NDArray[np.int32], flows: NDArray[np.void], tally: Any) -> np.uint64:
    """Number of the flow with these addresses and ports, assigned if new.

    `numbers` (FLOWS,) is a hash table of its packets' fields; 0: none, else one more than the flow's number. Flows are
    numbered consecutively, so that only memory of existing flows is touched.
    """
    code = np.uint64(addresses) ^ np.uint64(ports) * _ODD
    code = (code ^ code >> np.uint64(32)) * _ODD
    first = code >> np.uint64(64 - _FLOW_BITS)
    oldest, oldest_ns = np.uint64(0), np.int64(0x7FFF_FFFF_FFFF_FFFF)
    for step in range(_NEAR):
        place = (first + np.uint64(step)) & np.uint64(FLOWS - 1)
        number = np.uint64(numbers[place])
        if number == np.uint64(0):
            oldest = np.uint64(tally.flows)
            tally.flows += 1
            numbers[place] = tally.flows
            break
        number -= np.uint64(1)
        flow = flows[number]
        if flow.addresses == np.uint64(addresses) and flow.ports == np.uint64(ports):
            return number
        if flow.heard_ns < oldest_ns:
            oldest, oldest_ns = number, flow.heard_ns
    flow = flows[oldest]
    flow.addresses, flow.ports = np.uint64(addresses), np.uint64(ports)
    flow.hops = flow.reports = flow.changes = flow.paths = 0
    flow.path_us = 0.0
    return oldest


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
    """Write a node's data on a flow into its hop of the path; `hops` are the flow's.

    For a node that reports no times the newest latency is kept, not an average.
    """
    count = np.uint64(flow.hops)
    place = count
    for at in range(count):
        if hops[at].node == node:
            place = np.uint64(at)
    if place == count:
        for at in range(count):
            if hops[at].rank == rank:  # another node stands there now
                place = np.uint64(at)
                flow.changes += 1
                hops[at].node = -1
        if place == count:
            if count == np.uint64(MAX_HOPS):
                return
            flow.hops += 1
            hops[place].node = -1
    hop = hops[place]
    anew = hop.node != node
    since_ns = np.int64(-1) if anew else hop.egress_ns
    dt = 0 if egress_ns == -1 or since_ns == -1 else egress_ns - since_ns
    if -horizon_ns <= dt < 0:
        return
    if not anew and hop.egress_port != egress_port:
        flow.changes += 1
    hop.node, hop.rank, hop.ingress_port, hop.egress_port = node, rank, ingress_port, egress_port
    hop.heard_ns = now_ns
    if anew:
        hop.latency_us, hop.queue_packets = np.nan, -1
    if anew or egress_ns != -1:
        hop.egress_ns = egress_ns
    if queue_packets != -1:
        hop.queue_packets = queue_packets
    if latency_us != -1:
        untold = np.isnan(hop.latency_us)
        weight = 1.0 if since_ns == -1 or dt < 0 or untold else min(dt, time_constant_ns) / time_constant_ns
        before = 0.0 if untold else hop.latency_us
        hop.latency_us = before + weight * (latency_us - before)


@native
def _stack_at(data: NDArray[np.uint8], ip: int, end: int) -> int:
    """Offset of the shim of an INT packet whose IPv4 header is at `ip`; −1 if it has none."""
    protocol = byte_at(data, ip + 9)
    if protocol != 17 and protocol != 6:
        return -1
    behind = ip + 28 if protocol == 17 else ip + 40
    if end < behind + SHIM_BYTES:
        return -1
    if protocol == 17 and plain_at(data, ip + 22) == INT_PORT:
        return behind
    if end >= behind + MARKER_BYTES + SHIM_BYTES and long_at(data, behind) == _MARKER:
        return behind + MARKER_BYTES
    return behind if byte_at(data, ip + 1) >> 2 & DSCP_BIT else -1


@native
def _join(halves: NDArray[np.void], number: int, flow: np.uint64, is_stack: bool, latency_us: int, tally: Any) -> int:
    """The sum of a packet's latencies where this half completes it, else −1. `halves` are the node's.

    Numbers count packets or nanoseconds, so all their bits choose the place, where the oldest gives way. No two of 1024
    numbers in a row from a multiple of 1024 share one, so that none gives way to the next 3072.
    """
    folded = number ^ number >> _PLACE_BITS ^ number >> 2 * _PLACE_BITS ^ number >> 3 * _PLACE_BITS
    first = (folded & (1 << _PLACE_BITS) - 1) * _WAYS
    for way in range(_WAYS):
        half = halves[first + way]
        if half.used and half.number == number and half.flow == flow and half.is_stack != is_stack:
            total = -1 if half.latency_us < 0 or latency_us < 0 else half.latency_us + latency_us
            tally.joined += 1
            half.used = False
            return int(total)
    last = 0
    while last < _WAYS - 1 and halves[first + last].used:
        last += 1
    tally.unjoined += halves[first + last].used
    for way in range(last, 0, -1):  # the newest stands first
        halves[first + way] = halves[first + way - 1]
    half = halves[first]
    half.used, half.number, half.flow, half.is_stack, half.latency_us = True, number, flow, is_stack, latency_us
    return -1


@native
def _note_link(
    told: Any,
    node: int,
    is_old: bool,
    now_ns: int,
    link_table: NDArray[np.int64],
    capacity: NDArray[np.float64],
    time_constant_ns: int,
    shortest_ns: int,
    horizon_ns: int,
    links: NDArray[np.void],
    queues: NDArray[np.void],
    tally: Any,
) -> None:
    """Apply a report or a hop of this node to its link."""
    if told.egress_port == -1 or told.egress_ns == -1:
        return
    link = _found(link_table, node << 16 | told.egress_port)
    if link < 0:
        tally.unknown_links += 1
        return
    take_one(
        told, link, now_ns, now_ns, False, is_old,
        capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues,
    )  # fmt: skip


@native
def _flow_key(data: NDArray[np.uint8], ip: int, end: int, shim: int) -> tuple[np.int64, np.int64]:
    """FLOW's addresses and ports of the packet at `ip` as its hosts know them, without INT's changes.

    Ports are −1 if it is not IPv4.
    """
    if end - ip < 20 or byte_at(data, ip) != 0x45:
        return np.int64(0), np.int64(-1)
    protocol, ports = byte_at(data, ip + 9), np.int64(0)
    if (protocol == 6 or protocol == 17) and end - ip >= 24:
        ports = word_at(data, ip + 20)
    if shim >= 0:
        npt = byte_at(data, shim) >> 2 & 3
        if npt == 1:
            ports = ports & 0xFFFF_0000 | plain_at(data, shim + 2)
        elif npt == 2:
            protocol = byte_at(data, shim + 3)
            inner = shim + SHIM_BYTES + 4 * byte_at(data, shim + 1)
            ports = word_at(data, inner) if end >= inner + 4 else np.int64(0)
    return long_at(data, ip + 12), ports << 8 | protocol


@native
def _take_datagrams(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    now_ns: int,
    node_table: NDArray[np.int64],
    link_table: NDArray[np.int64],
    streams: NDArray[np.void],
    seen: NDArray[np.uint32],
    numbers: NDArray[np.int32],
    flows: NDArray[np.void],
    flow_hops: NDArray[np.void],
    halves: NDArray[np.void],
    free_slots: NDArray[np.int64],
    drops: NDArray[np.int64],
    faults: NDArray[np.int64],
    tally: Any,
    layouts: NDArray[np.int64],
    items: NDArray[np.int64],
    hop: Any,
    capacity: NDArray[np.float64],
    time_constant_ns: int,
    shortest_ns: int,
    horizon_ns: int,
    links: NDArray[np.void],
    queues: NDArray[np.void],
) -> None:
    for number in range(np.uint64(len(starts))):
        start = starts[number]
        end = start + lengths[number]
        tally.bytes += lengths[number]
        fault = fault_of(data, start, end, layouts)
        if fault:
            faults[fault] += 1
            continue
        head = word_at(data, start)
        node_id = word_at(data, start + 4)
        at_node = _found(node_table, node_id)
        if at_node < 0:
            faults[_UNKNOWN_NODE] += 1
            continue
        node = np.uint64(at_node)
        hardware = np.uint64(head >> SEQUENCE_BITS & (HARDWARE_IDS - 1))
        stream = streams[hardware, node]
        fate = _follow(stream, seen[hardware, node], head & _MASK, _print_of(data, start, end))
        if fate != _FRESH and fate != _OLD:
            faults[_STRAY] += fate == _FAR
            continue
        tally.datagrams += 1
        stream.bytes += end - start
        is_old = fate == _OLD
        back_ns = np.int64(1) << 62 if is_old else horizon_ns
        at = start + GROUP_BYTES
        while at < end:
            row = read_individual(data, at, end, layouts)
            at = row.end
            tally.reports += 1
            if row.free_slots != -1:
                free_slots[node] = row.free_slots
            if row.flags & _DROPPED and row.drop_reason != -1:
                drops[node, np.uint64(row.drop_reason)] += 1
            _note_link(
                row, node_id, is_old, now_ns, link_table,
                capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, tally,
            )  # fmt: skip
            ip = row.inner_at + (14 if row.inner_type == _ETHERNET else 0)
            if row.inner_type != _IPV4 and row.inner_type != _ETHERNET:
                continue
            shim = _stack_at(data, ip, row.end) if row.end - ip >= 20 else -1
            addresses, ports = _flow_key(data, ip, row.end, shim)
            if ports < 0:
                faults[_INNER] += 1
                continue
            place = _flow_of(addresses, ports, numbers, flows, tally)
            flow, path = flows[place], flow_hops[place]
            flow.heard_ns = now_ns
            flow.reports += 1
            ttl = byte_at(data, ip + 8)
            total = np.int64(-1)
            is_stack = False
            if shim >= 0 and byte_at(data, shim) >> 4 == 1:
                md = shim + SHIM_BYTES
                stack_at = md + MD_BYTES
                stack_words = byte_at(data, shim + 1) - MD_BYTES // 4
                words = byte_at(data, md + 2) & 0x1F if stack_at <= row.end else np.int64(0)
                if (
                    stack_words < 0
                    or stack_at + 4 * stack_words > row.end
                    or (stack_words > 0 and (words == 0 or stack_words % words))
                    or not stack_layout(data, md, DOMAIN, items)
                ):
                    faults[_STACK] += 1
                    continue
                count = stack_words // words if words else np.int64(0)
                is_stack = bool(count > 0)
                if is_stack:
                    total = np.int64(0)
                for newest in range(count):
                    read_hop(data, stack_at + 4 * words * newest, items, hop)
                    total = np.int64(-1) if total < 0 or hop.latency_us < 0 else total + hop.latency_us
                    if hop.node_id == -1:
                        continue
                    _note_link(
                        hop, hop.node_id, is_old, now_ns, link_table,
                        capacity, time_constant_ns, shortest_ns, horizon_ns, links, queues, tally,
                    )  # fmt: skip
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
                    total = np.int64(-1) if total < 0 or row.latency_us < 0 else total + row.latency_us
            if row.packet_number != -1:
                told_us = total if is_stack else row.latency_us
                total = _join(halves[node], row.packet_number, place, is_stack, told_us, tally)
            if total >= 0:
                flow.paths += 1
                flow.path_us += (total - flow.path_us) / min(flow.paths, 16)


@entry(
    types.void(
        types.voidptr, types.int64, types.voidptr, types.voidptr, types.int64, types.int64,
        types.voidptr, types.int64, types.int64, types.voidptr, types.int64,
        types.voidptr, types.voidptr, types.voidptr, types.voidptr, types.voidptr, types.voidptr,
        types.voidptr, types.voidptr, types.voidptr, types.voidptr,
        types.voidptr, types.voidptr, types.voidptr,
        types.voidptr, types.int64, types.int64, types.int64, types.voidptr, types.voidptr, types.int64,
    ),
)  # fmt: skip
def _take_reports(  # type: ignore[no-untyped-def]
    bytes_at, size, starts_at, lengths_at, count, now_ns,
    node_table_at, node_places, node_count, link_table_at, link_places,
    streams_at, seen_at, numbers_at, flows_at, flow_hops_at, halves_at,
    free_slots_at, drops_at, faults_at, tally_at,
    layouts_at, items_at, hop_at,
    capacity_at, time_constant_ns, shortest_ns, horizon_ns, links_at, queues_at, link_count,
):  # fmt: skip
    _take_datagrams(
        carray(bytes_at, (size,), np.uint8),
        carray(starts_at, (count,), np.int64),
        carray(lengths_at, (count,), np.int64),
        now_ns,
        carray(node_table_at, (node_places, 2), np.int64),
        carray(link_table_at, (link_places, 2), np.int64),
        carray(streams_at, (HARDWARE_IDS, node_count), STREAM),
        carray(seen_at, (HARDWARE_IDS, node_count, WINDOW), np.uint32),
        carray(numbers_at, (FLOWS,), np.int32),
        carray(flows_at, (FLOWS,), FLOW),
        carray(flow_hops_at, (FLOWS, MAX_HOPS), FLOW_HOP),
        carray(halves_at, (node_count, HALVES), HALF),
        carray(free_slots_at, (node_count,), np.int64),
        carray(drops_at, (node_count, REASONS), np.int64),
        carray(faults_at, (len(FAULTS),), np.int64),
        carray(tally_at, (1,), TALLY)[0],
        carray(layouts_at, LAYOUTS, np.int64),
        carray(items_at, (KEPT_ITEMS,), np.int64),
        carray(hop_at, (1,), HOP)[0],
        carray(capacity_at, (link_count,), np.float64),
        time_constant_ns,
        shortest_ns,
        horizon_ns,
        carray(links_at, (link_count,), LINK),
        carray(queues_at, (link_count, CLASSES), QUEUE),
    )


take_reports: Final = _take_reports.ctypes
"""Native entry point; arguments by address: bytes, their number, start of each datagram's UDP payload, its lengths,
number of datagrams, now. Then the hash table of nodes by id, its places, number of nodes; that of links by node id ‖
port, its places; STREAM and seen by hardware id and node, the flows' numbers, FLOW, FLOW_HOP, HALF. Last, free slots,
drops, faults, TALLY; layouts of reports, room for one of a stack and for a HOP; and `LinkState.into`.
"""
