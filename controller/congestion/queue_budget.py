"""One queue's budget, from its traffic and the bounds of the queues before it. Pure arithmetic.

rate, streams, probes ────────┐ declared cross traffic ───────┼─▶ Queue ─▶ queue_budget ─▶ LinkBudget: threshold,
windows, and a bound windows, threshold, delays ───┘                            or the reason why there is none
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...topologies.model import Endpoint, Topology
from ...wire.aggregation import NO_WINDOW_LIMIT
from .cross_traffic import NO_CONTROL, ControlTraffic, CrossTraffic, Hops, Nic
from .formulas import (
    dctcp_largest_queue,
    dctcp_least_queue,
    dctcp_thresholds,
    inlet_queue,
    marked_window_queue,
    marked_windows,
    pacing_gap_ns,
    population_queue,
)
from .options import CongestionOptions


@dataclass(frozen=True, slots=True)
class LinkBudget:
    """Bound of one egress queue, and its inputs."""

    link: Endpoint
    threshold: int
    """K: a packet that finds this many packets in the queue is marked."""
    window: int
    """Rounds in flight of each stream that crosses, at most."""
    congested_window: int
    """w: rounds in flight, at most, of each stream that has met K packets or more."""
    bound: float
    """The most packets that the queue will hold; infinite where nothing can be said."""
    streams: int
    """N: copies of jobs' gradient streams that may cross."""
    windows: int
    """ΣW: sum of all their windows; less than N·W if other queues on the path limit some streams more, more while
    packets of ended streams may be there.
    """
    probes: int
    """Telemetry's own packets that may be in the queue at once."""
    share: float
    """u: uncontrolled traffic, declared or seen, as a share of the link's rate."""
    burst: float
    """σ: packets of it that may come at once."""
    others: int
    """ΣM: packets that others may have in the network by windows of their own."""
    gap_ns: int
    """Between two rounds of each stream; 0 where windows are enough."""
    formula: str
    """Formula of the bound, in the symbols of docs/queue-bounds.md."""
    refusal: str
    """Reason why the bound is above Q*, so that Q* is not guaranteed; empty if it is."""
    marked: bool = False
    """True if the bound relies on marks."""

    def refused(self, why: str) -> LinkBudget:
        """The same budget without a bound; an earlier refusal stays."""
        return replace(self, bound=math.inf, refusal=self.refusal or why)

    def counting(self, windows: int) -> LinkBudget:
        """The same budget for another sum of windows."""
        if math.isinf(self.bound):
            return self
        more = windows - self.windows
        return replace(self, windows=windows, bound=self.bound + (more if self.marked else more / (1 - self.share)))


@dataclass(frozen=True)
class Queue:
    """Inputs of one queue; derived values are computed once."""

    link: Endpoint
    rate_bps: int
    streams: int
    probes: int
    crossing: CrossTraffic | None
    others: int
    """Packets that others' own windows let be in the network."""
    frame_bytes: int
    """The largest frame that may wait there."""
    limit: int
    """Packets beyond which it drops."""
    round_trip_ns: int
    """The least of a round of any stream that crosses."""
    inlet_packets: float
    """Packets that the inlets of cross traffic can bring while this link sends its largest packet."""
    nic_delays_s: Mapping[Endpoint, float] = field(default_factory=dict)
    """Maximum waiting time at the NICs that cross traffic passed before (`nic_delay_s`), by the hosts' links."""

    @cached_property
    def control(self) -> ControlTraffic:
        """Traffic that precedes all waiting packets."""
        return self.crossing.control if self.crossing else NO_CONTROL

    @cached_property
    def left(self) -> float:
        """1 − h: the part of the link that the control class leaves."""
        return self.control.left(self.rate_bps)

    @cached_property
    def frame_s(self) -> float:
        """Transmission time of the largest frame, at the rate that the control class leaves."""
        return 8 * self.frame_bytes / (self.rate_bps * self.left)

    @cached_property
    def ahead(self) -> float:
        """σ_h: number of packets that wait because of a burst of the control class."""
        return self.control.packets(self.frame_bytes, self.rate_bps)

    @cached_property
    def share(self) -> float:
        return self.crossing.share(self.frame_bytes, self.rate_bps) if self.crossing else 0.0


def queue_budget(
    queue: Queue,
    level: int,
    largest: int | None,
    marked_from: int,
    known: Mapping[Endpoint, LinkBudget],
    queues: Mapping[Endpoint, Queue],
    options: CongestionOptions,
) -> LinkBudget:
    """Compute one queue's budget.

    Args:
        queue: Inputs of the queue.
        level: Maximum sum of all windows that cross it.
        largest: Largest of these windows; None: all are the same.
        marked_from: Lowest threshold.
        known: Budgets of the queues before it.
        queues: Inputs of all queues.
        options: The requested bound.
    """
    share, streams = queue.share, queue.streams

    def delay_s(hops: Hops) -> float:
        return sum(max(map(link_delay_s, hop)) for hop in hops)

    def link_delay_s(link: Endpoint) -> float:
        if (late_s := queue.nic_delays_s.get(link)) is not None:
            return late_s
        # a queue that waits for this one in a ring of paths is taken at Q* first, then at what it was found to hold
        packets = known[link].bound if link in known else options.bound_packets
        return (min(packets, queues[link].limit) + 1 + queues[link].ahead) * queues[link].frame_s

    burst = queue.crossing.burst_behind(delay_s) if queue.crossing else 0.0
    others = burst + queue.probes + queue.ahead
    more, ahead = "ΣM + " if queue.others else "", " + σ_h" if queue.ahead else ""
    window, total = NO_WINDOW_LIMIT, 0
    if streams:
        window = min(max(level // streams, 1) if largest is None else largest, NO_WINDOW_LIMIT - 1)
        total = streams * window if largest is None else level
    threshold, congested, by_marks = max(options.bound_packets // 4, 1), window, False
    bound, formula = population_queue(total + queue.others, share, others), f"(ΣW + {more}σ{ahead})/(1 − u)"
    if queue.crossing is None:
        formula = f"ΣW + {more}probes"
    elif share < 1 and not streams and not queue.others:
        brought = queue.inlet_packets / queue.left
        bound = inlet_queue(burst, share, len(queue.crossing.inlets), brought) + queue.probes + queue.ahead
        formula = f"σ − (1 − u)(σ − L)/(R − u) + 1 + probes{ahead}"
    elif share < 1 and streams:
        # of others' round trips nothing is known, but that they wait in this queue
        product = 0.0 if queue.others else queue.round_trip_ns / 1e9 / queue.frame_s
        threshold = max(marked_from, math.ceil(((streams + queue.others) / (1 - share) - product) / queue.left))
        # marked packets may leave before cross traffic arrives: K packets take that time if nothing precedes them
        left = marked_windows(threshold * queue.left, share, product) - queue.others
        slowed = min(window, max(1, int(left // streams)))
        marked = marked_window_queue(threshold, total, streams * slowed, others + queue.others)
        if marked < bound:
            bound, formula, congested, by_marks = marked, f"K + ΣW + Σw + {more}σ{ahead}", slowed, True
    refusal, gap_ns = "", 0
    if streams and not options.windows_obeyed:
        product = queue.round_trip_ns / 1e9 / queue.frame_s
        kept = dctcp_thresholds(options.bound_packets, product, streams)
        threshold = max(kept, default=max(1, options.bound_packets - streams))
        window, congested, by_marks = NO_WINDOW_LIMIT, NO_WINDOW_LIMIT, False
        most = dctcp_largest_queue(threshold, streams)
        least = max(0.0, dctcp_least_queue(product, threshold, streams))
        bound = math.inf
        refusal = (
            f"{streams} streams obey no window; flows of DCTCP in step, marked from K = {threshold} on, would hold "
            f"{least:.0f} to {most:.0f} packets there"
        )
    elif queue.crossing and share >= 1:
        bound = math.inf
        what = f"{queue.crossing.rate_bps / 1e6:g} Mbit/s"
        if queue.crossing.rate_bps < queue.rate_bps * queue.left:  # short frames, each of which counts as a long one
            what = f"{queue.crossing.packets_per_second:,.0f} packets a second, of {queue.frame_bytes} bytes at most,"
        refusal = f"{what} may come that obey no window, on a link of {queue.rate_bps / 1e6:g} Mbit/s"
        if ahead:
            refusal += f", of which the control class may take {queue.control.rate_bps / 1e6:g}"
    elif math.isinf(others):
        bound, refusal = math.inf, "nothing limits how long others wait, at their hosts or for the control class"
    elif math.floor(bound) > options.bound_packets:
        windows = f"{queue.others} packets of others' own windows, " if queue.others else ""
        refusal = (
            f"{streams} streams, {windows}{queue.probes} probes and a burst of {burst:.0f} packets may meet: "
            f"{bound:.0f} packets where {options.bound_packets} are wanted"
        )
        if streams and window == 1:
            gap_ns = pacing_gap_ns(streams, queue.frame_bytes, queue.rate_bps * queue.left, share)
    return LinkBudget(
        queue.link,
        threshold,
        window,
        congested,
        bound,
        streams,
        total,
        queue.probes,
        share,
        burst,
        queue.others,
        gap_ns,
        formula,
        refusal,
        by_marks,
    )


def nic_delay_s(nic: Nic, back: Queue, options: CongestionOptions) -> float:
    """Maximum waiting time of declared traffic at its host's NIC, with jobs' packets and those of other windows.

    All of these have a part in the queue of the port `back` to the host: jobs at most Q* packets, or one of each
    stream. Infinite if nothing limits it.
    """
    windows = float(back.others)
    if back.streams:
        windows += max(options.bound_packets, back.streams) if options.windows_obeyed else math.inf
    control, frame_bytes = nic.control, max(nic.largest_bytes, back.frame_bytes)
    if not windows and nic.destinations == 1 and not control.rate_bps:
        return 0.0
    frame_s = 8 * frame_bytes / (back.rate_bps * control.left(back.rate_bps))
    burst = nic.burst_packets + control.packets(frame_bytes, back.rate_bps)
    return population_queue(windows, nic.packets_per_second * frame_s, burst) * frame_s


def inlet_packets(topology: Topology, link: Endpoint, crossing: CrossTraffic, frame_bytes: int) -> float:
    """Number of packets that the inlets of cross traffic can bring while this link sends its largest."""
    rate_bps = sum(topology.link_at(end).rate_bps for end in crossing.inlets)
    return rate_bps / topology.link_at(link).rate_bps * frame_bytes / crossing.smallest_bytes
