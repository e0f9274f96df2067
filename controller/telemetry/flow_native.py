"""Flows that reports name: their paths, latencies, and packets reported in two halves (native code, by Numba)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...wire.int_md import INT_PORT, SHIM_BYTES
from ...wire.int_native import byte_at, long_at, plain_at, word_at
from ...wire.int_shim import DSCP_BIT, MARKER_BYTES, PROBE_MARKER
from ...wire.native_code import native

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

_MARKER: Final = np.int64(PROBE_MARKER)
_ODD: Final = np.uint64(0x9FB21C651E98DF25)


class FlowMemory(NamedTuple):
    """All flows that are remembered."""

    numbers: NDArray[np.int32]
    """(FLOWS,) Hash table of addresses and ports: one more than the flow's number; 0: none."""
    states: NDArray[np.void]
    """(FLOWS,) of FLOW."""
    hops: NDArray[np.void]
    """(FLOWS, MAX_HOPS) of FLOW_HOP."""


class NodeSample(NamedTuple):
    """One node's data on a packet; −1 for what it does not report."""

    node: int
    rank: int
    """Position on the path: 255 − TTL."""
    ingress_port: int
    egress_port: int
    queue_packets: int
    latency_us: int
    egress_ns: int
    """The node's clock."""


class AveragingClock(NamedTuple):
    """Times by which samples are averaged."""

    now_ns: int
    time_constant_ns: int
    horizon_ns: int
    """Backward steps of a node's clock up to this are an overtaken report; larger ones are a restart."""


@native
def flow_of(addresses: int, ports: int, flows: FlowMemory, tally: Any) -> np.uint64:
    """Return the number of a flow, assigned if it is new; with too many flows in one place the one heard longest ago
    gives way.

    Flows are numbered consecutively, so that only memory of existing flows is touched.

    Args:
        addresses: Source and destination address, 64 bits.
        ports: Source and destination port, and protocol.
        flows: Memory of all flows; changed.
        tally: Counts, with the number of flows; changed.
    """
    code = np.uint64(addresses) ^ np.uint64(ports) * _ODD
    code = (code ^ code >> np.uint64(32)) * _ODD
    first = code >> np.uint64(64 - _FLOW_BITS)
    oldest, oldest_ns = np.uint64(0), np.int64(0x7FFF_FFFF_FFFF_FFFF)
    for step in range(_NEAR):
        place = (first + np.uint64(step)) & np.uint64(FLOWS - 1)
        number = np.uint64(flows.numbers[place])
        if number == np.uint64(0):
            oldest = np.uint64(tally.flows)
            tally.flows += 1
            flows.numbers[place] = tally.flows
            break
        number -= np.uint64(1)
        flow = flows.states[number]
        if flow.addresses == np.uint64(addresses) and flow.ports == np.uint64(ports):
            return number
        if flow.heard_ns < oldest_ns:
            oldest, oldest_ns = number, flow.heard_ns
    flow = flows.states[oldest]
    flow.addresses, flow.ports = np.uint64(addresses), np.uint64(ports)
    flow.hops = flow.reports = flow.changes = flow.paths = 0
    flow.path_us = 0.0
    return oldest


@native
def _hop_of(flow: Any, hops: NDArray[np.void], node: int, rank: int) -> int:
    """Place of a node in its flow's path, assigned if new; −1: the path is full."""
    count = np.uint64(flow.hops)
    place = count
    for index in range(count):
        if hops[index].node == node:
            place = np.uint64(index)
    if place < count:
        return int(place)
    for index in range(count):
        if hops[index].rank == rank:  # another node stands there now
            place = np.uint64(index)
            flow.changes += 1
            hops[index].node = -1
    if place < count:
        return int(place)
    if count == np.uint64(MAX_HOPS):
        return -1
    flow.hops += 1
    hops[place].node = -1
    return int(place)


@native
def note_hop(flow: Any, hops: NDArray[np.void], sample: NodeSample, clock: AveragingClock) -> None:
    """Write a node's data on a flow into its hop of the path.

    For a node that reports no times the newest latency is kept, not an average.

    Args:
        flow: State of the flow; changed.
        hops: Hops of the flow; changed.
        sample: Data of the node.
        clock: Times by which samples are averaged.
    """
    place = _hop_of(flow, hops, sample.node, sample.rank)
    if place < 0:
        return
    hop = hops[np.uint64(place)]
    anew = hop.node != sample.node
    since_ns = np.int64(-1) if anew else hop.egress_ns
    dt = 0 if sample.egress_ns == -1 or since_ns == -1 else sample.egress_ns - since_ns
    if -clock.horizon_ns <= dt < 0:
        return
    if not anew and hop.egress_port != sample.egress_port:
        flow.changes += 1
    hop.node, hop.rank = sample.node, sample.rank
    hop.ingress_port, hop.egress_port = sample.ingress_port, sample.egress_port
    hop.heard_ns = clock.now_ns
    if anew:
        hop.latency_us, hop.queue_packets = np.nan, -1
    if anew or sample.egress_ns != -1:
        hop.egress_ns = sample.egress_ns
    if sample.queue_packets != -1:
        hop.queue_packets = sample.queue_packets
    if sample.latency_us != -1:
        untold = np.isnan(hop.latency_us)
        whole = since_ns == -1 or dt < 0 or untold
        weight = 1.0 if whole else min(dt, clock.time_constant_ns) / clock.time_constant_ns
        before = 0.0 if untold else hop.latency_us
        hop.latency_us = before + weight * (sample.latency_us - before)


@native
def stack_at(data: NDArray[np.uint8], ip: int, end: int) -> int:
    """Return the offset of the shim of an INT packet whose IPv4 header is at `ip`; −1 if it has none."""
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
def flow_key(data: NDArray[np.uint8], ip: int, end: int, shim: int) -> tuple[np.int64, np.int64]:
    """Return FLOW's addresses and ports of a packet as its hosts know them, without INT's changes.

    Args:
        data: Bytes, uint8.
        ip: Place of the IP header in `data`.
        end: End of the packet.
        shim: Place of INT's shim; −1: the packet has none.

    Returns:
        Addresses, and ports with the protocol; the latter is −1 if the packet is not IPv4.
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
def join(halves: NDArray[np.void], number: int, flow: np.uint64, is_stack: bool, latency_us: int, tally: Any) -> int:
    """Return the sum of a packet's latencies if this half completes it, else −1.

    Numbers count packets or nanoseconds, so all their bits choose the place, where the oldest gives way. No two of 1024
    numbers in a row from a multiple of 1024 share one, so that none gives way to the next 3072.

    Args:
        halves: Halves that the node has reported; changed.
        number: Number of the packet at the node.
        flow: Number of its flow.
        is_stack: True for a report with INT's stack, False for one without.
        latency_us: Latency of this half, in µs; −1: not reported.
        tally: Counts of joined and unjoined halves; changed.
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
