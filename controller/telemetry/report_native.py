"""Updates by a batch of telemetry reports 2.0: streams, flows, halves of split reports, links (native, by Numba)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from ...wire.int_md import DOMAIN, HOP, KEPT_ITEMS, MD_BYTES, SHIM_BYTES
from ...wire.int_native import byte_at, read_hop, stack_layout, word_at
from ...wire.int_report import GROUP_BYTES, SEQUENCE_BITS, InnerType, ReportFlag
from ...wire.native_code import entry, native
from ...wire.report_native import LAYOUTS, fault_of, read_individual
from .flow_native import (
    FLOW,
    FLOW_HOP,
    FLOWS,
    HALF,
    HALVES,
    MAX_HOPS,
    AveragingClock,
    FlowMemory,
    NodeSample,
    flow_key,
    flow_of,
    join,
    note_hop,
    stack_at,
)
from .link_native import LinkArrays, update_one
from .link_records import CLASSES, LINK, QUEUE
from .stream_native import FAR, FRESH, HARDWARE_IDS, OLD, SEQUENCE_MASK, STREAM, WINDOW, classify, fingerprint

REASONS: Final = 256

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

_IPV4: Final = int(InnerType.IPV4)
_ETHERNET: Final = int(InnerType.ETHERNET)
_DROPPED: Final = int(ReportFlag.DROPPED)
_ODD: Final = np.uint64(0x9FB21C651E98DF25)
_NO_HORIZON: Final = 1 << 62
_BAD_STACK: Final = -2


class NodeArrays(NamedTuple):
    """Arrays by node."""

    table: NDArray[np.int64]
    """Hash table of node ids."""
    streams: NDArray[np.void]
    """(HARDWARE_IDS, nodes) of STREAM."""
    seen: NDArray[np.uint32]
    """(HARDWARE_IDS, nodes, WINDOW) Fingerprints of the streams' numbers."""
    halves: NDArray[np.void]
    """(nodes, HALVES) of HALF."""
    free_slots: NDArray[np.int64]
    """(nodes,)"""
    drops: NDArray[np.int64]
    """(nodes, REASONS)"""


class Scratch(NamedTuple):
    """Room for what is being read."""

    layouts: NDArray[np.int64]
    """LAYOUTS: layouts of reports."""
    items: NDArray[np.int64]
    """(KEPT_ITEMS,) Layout of one stack."""
    hop: NDArray[np.void]
    """(1,) of HOP."""


class Books(NamedTuple):
    """All that reports change."""

    nodes: NodeArrays
    link_table: NDArray[np.int64]
    """Hash table of links by node id ‖ egress port."""
    links: LinkArrays
    flows: FlowMemory
    scratch: Scratch
    faults: NDArray[np.int64]
    """(faults,) Number of datagrams or reports with each fault."""
    tally: NDArray[np.void]
    """(1,) of TALLY."""


def _first_place(key: Any, size: Any) -> Any:
    return (np.uint64(key) * _ODD >> np.uint64(32)) & np.uint64(size - 1)


_first_place_of = native(_first_place)


def hash_table(keys: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a table (a power of two, 2) of these keys, none below 0, with their values, where `_found` finds them.
    Searching a row of them would take a branch for each step, of which every other one is guessed wrongly.
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
def _note_link(told: Any, node: int, is_old: bool, now_ns: int, books: Books) -> None:
    """Apply a report or a hop of this node to its link."""
    if told.egress_port == -1 or told.egress_ns == -1:
        return
    link = _found(books.link_table, node << 16 | told.egress_port)
    if link < 0:
        books.tally[0].unknown_links += 1
        return
    update_one(told, link, now_ns, now_ns, False, is_old, books.links)


@native
def _read_stack(
    data: NDArray[np.uint8],
    shim: int,
    end: int,
    is_old: bool,
    clock: AveragingClock,
    place: np.uint64,
    rank: int,
    books: Books,
) -> tuple[Any, Any]:
    """Take the hops of the INT stack behind `shim`, newest first.

    Args:
        data: The datagrams.
        shim: Offset of the stack's shim.
        end: End of the report.
        is_old: True if a later report of the node came before.
        clock: Times by which samples are averaged.
        place: The flow's number.
        rank: Position of the reporting node on the path.
        books: Arrays to update.

    Returns:
        Number of hops, `_BAD_STACK` if the stack is malformed, and the sum of their latencies in µs, −1 if a hop
        reports none.
    """
    md = shim + SHIM_BYTES
    first = md + MD_BYTES
    stack_words = byte_at(data, shim + 1) - MD_BYTES // 4
    words = byte_at(data, md + 2) & 0x1F if first <= end else np.int64(0)
    if (
        stack_words < 0
        or first + 4 * stack_words > end
        or (stack_words > 0 and (words == 0 or stack_words % words))
        or not stack_layout(data, md, DOMAIN, books.scratch.items)
    ):
        return np.int64(_BAD_STACK), np.int64(-1)
    flow, path = books.flows.states[place], books.flows.hops[place]
    count = stack_words // words if words else np.int64(0)
    total = np.int64(0) if count > 0 else np.int64(-1)
    hop = books.scratch.hop[0]
    for newest in range(count):
        read_hop(data, first + 4 * words * newest, books.scratch.items, hop)
        total = np.int64(-1) if total < 0 or hop.latency_us < 0 else total + hop.latency_us
        if hop.node_id == -1:
            continue
        _note_link(hop, hop.node_id, is_old, clock.now_ns, books)
        sample = NodeSample(
            hop.node_id, rank - 1 - newest, hop.ingress_port, hop.egress_port,
            hop.queue_packets, hop.latency_us, hop.egress_ns,
        )  # fmt: skip
        note_hop(flow, path, sample, clock)
    return count, total


@native
def _read_flow(
    data: NDArray[np.uint8], row: Any, node: np.uint64, node_id: int, is_old: bool, clock: AveragingClock, books: Books
) -> None:
    """Apply an individual report to the flow of the packet in it, and to the links of its INT stack."""
    tally = books.tally[0]
    ip = row.inner_at + (14 if row.inner_type == _ETHERNET else 0)
    if row.inner_type != _IPV4 and row.inner_type != _ETHERNET:
        return
    shim = stack_at(data, ip, row.end) if row.end - ip >= 20 else -1
    addresses, ports = flow_key(data, ip, row.end, shim)
    if ports < 0:
        books.faults[_INNER] += 1
        return
    place = flow_of(addresses, ports, books.flows, tally)
    flow, path = books.flows.states[place], books.flows.hops[place]
    flow.heard_ns = clock.now_ns
    flow.reports += 1
    rank = 255 - byte_at(data, ip + 8)
    count, total = np.int64(0), np.int64(-1)
    if shim >= 0 and byte_at(data, shim) >> 4 == 1:
        count, total = _read_stack(data, shim, row.end, is_old, clock, place, rank, books)
        if count == _BAD_STACK:
            books.faults[_STACK] += 1
            return
    is_stack = bool(count > 0)
    if row.egress_port != -1 or row.latency_us != -1:
        sample = NodeSample(
            node_id, rank, row.ingress_port, row.egress_port, row.queue_packets, row.latency_us, row.egress_ns
        )
        note_hop(flow, path, sample, clock)
        if is_stack:  # both halves in one report
            total = np.int64(-1) if total < 0 or row.latency_us < 0 else total + row.latency_us
    if row.packet_number != -1:
        half_us = total if is_stack else row.latency_us
        total = join(books.nodes.halves[node], row.packet_number, place, is_stack, half_us, tally)
    if total >= 0:
        flow.paths += 1
        flow.path_us += (total - flow.path_us) / min(flow.paths, 16)


@native
def _read_datagram(data: NDArray[np.uint8], start: int, end: int, now_ns: int, books: Books) -> None:
    """Take one datagram's reports, or count its fault."""
    nodes, tally = books.nodes, books.tally[0]
    tally.bytes += end - start
    fault = fault_of(data, start, end, books.scratch.layouts)
    if fault:
        books.faults[fault] += 1
        return
    head = word_at(data, start)
    node_id = word_at(data, start + 4)
    at_node = _found(nodes.table, node_id)
    if at_node < 0:
        books.faults[_UNKNOWN_NODE] += 1
        return
    node = np.uint64(at_node)
    hardware = np.uint64(head >> SEQUENCE_BITS & (HARDWARE_IDS - 1))
    stream = nodes.streams[hardware, node]
    fate = classify(stream, nodes.seen[hardware, node], head & SEQUENCE_MASK, fingerprint(data, start, end))
    if fate != FRESH and fate != OLD:
        books.faults[_STRAY] += fate == FAR
        return
    tally.datagrams += 1
    stream.bytes += end - start
    is_old = fate == OLD
    horizon_ns: Any = np.int64(_NO_HORIZON) if is_old else books.links.horizon_ns
    clock = AveragingClock(now_ns, books.links.time_constant_ns, horizon_ns)
    at = start + GROUP_BYTES
    while at < end:
        row = read_individual(data, at, end, books.scratch.layouts)
        at = row.end
        tally.reports += 1
        if row.free_slots != -1:
            nodes.free_slots[node] = row.free_slots
        if row.flags & _DROPPED and row.drop_reason != -1:
            nodes.drops[node, np.uint64(row.drop_reason)] += 1
        _note_link(row, node_id, is_old, now_ns, books)
        _read_flow(data, row, node, node_id, is_old, clock, books)


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
def _read_reports(  # type: ignore[no-untyped-def]
    bytes_at, size, starts_at, lengths_at, count, now_ns,
    node_table_at, node_places, node_count, link_table_at, link_places,
    streams_at, seen_at, numbers_at, flows_at, flow_hops_at, halves_at,
    free_slots_at, drops_at, faults_at, tally_at,
    layouts_at, items_at, hop_at,
    capacity_at, time_constant_ns, shortest_ns, horizon_ns, links_at, queues_at, link_count,
):  # fmt: skip
    books = Books(
        NodeArrays(
            carray(node_table_at, (node_places, 2), np.int64),
            carray(streams_at, (HARDWARE_IDS, node_count), STREAM),
            carray(seen_at, (HARDWARE_IDS, node_count, WINDOW), np.uint32),
            carray(halves_at, (node_count, HALVES), HALF),
            carray(free_slots_at, (node_count,), np.int64),
            carray(drops_at, (node_count, REASONS), np.int64),
        ),
        carray(link_table_at, (link_places, 2), np.int64),
        LinkArrays(
            carray(capacity_at, (link_count,), np.float64),
            carray(links_at, (link_count,), LINK),
            carray(queues_at, (link_count, CLASSES), QUEUE),
            time_constant_ns,
            shortest_ns,
            horizon_ns,
        ),
        FlowMemory(
            carray(numbers_at, (FLOWS,), np.int32),
            carray(flows_at, (FLOWS,), FLOW),
            carray(flow_hops_at, (FLOWS, MAX_HOPS), FLOW_HOP),
        ),
        Scratch(
            carray(layouts_at, LAYOUTS, np.int64), carray(items_at, (KEPT_ITEMS,), np.int64), carray(hop_at, (1,), HOP)
        ),
        carray(faults_at, (len(FAULTS),), np.int64),
        carray(tally_at, (1,), TALLY),
    )
    starts, lengths = carray(starts_at, (count,), np.int64), carray(lengths_at, (count,), np.int64)
    data = carray(bytes_at, (size,), np.uint8)
    for number in range(np.uint64(count)):
        _read_datagram(data, starts[number], starts[number] + lengths[number], now_ns, books)


read_reports: Final = _read_reports.ctypes
"""Native entry point; arguments by address: bytes, their number, start of each datagram's UDP payload, its lengths,
number of datagrams, now. Then the hash table of nodes by id, its places, number of nodes; that of links by node id ‖
port, its places; STREAM and seen by hardware id and node, the flows' numbers, FLOW, FLOW_HOP, HALF. Last, free slots,
drops, faults, TALLY; layouts of reports, room for one of a stack and for a HOP; and `LinkState.into`.
"""
