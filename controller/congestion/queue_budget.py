"""One queue's budget, from its traffic and the bounds of the queues before it. Pure arithmetic.

rate, control class ──────────▶ service curve ──┐
streams, copies, probes ──────▶ windows ────────┼─▶ QueueInputs ─▶ queue_budget ─▶ LinkBudget: threshold, windows, bound
cross traffic, probes ────────▶ arrival curves ─┘                            or the reason why there is none
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...wire.aggregation import NO_WINDOW_LIMIT
from .cross_traffic import CrossTraffic, Hops, Nic
from .dctcp import dctcp_largest_queue, dctcp_least_queue, dctcp_thresholds
from .network_calculus import (
    NO_TRAFFIC,
    RateLatency,
    TokenBucket,
    aggregate,
    left_by_priority,
    marked_backlog,
    marked_windows,
    output_curve,
    peak_limited_backlog,
    windowed_backlog,
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
    copies: int
    """Packets that workers' repeated rounds may add at once."""
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
    """Reason why the bound is above `wanted`, so that nothing is guaranteed; empty if it is not."""
    wanted: int = NO_WINDOW_LIMIT
    """Q*, or the packets that the queue's buffer holds if that is less."""
    marked: bool = False
    """True if the bound relies on marks."""
    fetches: int = 0
    """Packets of final rounds that hosts of moved jobs fetch from each other."""
    spare: float = math.inf
    """Packets per second of the link that traffic without windows leaves."""

    def refused(self, why: str) -> LinkBudget:
        """Return the same budget without a bound; an earlier refusal stays."""
        return replace(self, bound=math.inf, refusal=self.refusal or why)

    def counting(self, windows: int) -> LinkBudget:
        """Return the same budget for another sum of windows."""
        if math.isinf(self.bound):
            return self
        more = windows - self.windows
        return replace(self, windows=windows, bound=self.bound + (more if self.marked else more / (1 - self.share)))

    def with_burst(self, burst: float, packets: float) -> LinkBudget:
        """Return the same budget while σ is larger by `burst`, and the bound by `packets`."""
        if math.isinf(self.bound):
            return self
        more = replace(self, burst=self.burst + burst, bound=self.bound + packets)
        if more.refusal or math.floor(more.bound) <= self.wanted:
            return more
        refusal = (
            f"a burst of {more.burst:.0f} packets may come that waited under earlier bounds: {more.bound:.0f} packets "
            f"where {self.wanted} are wanted"
        )
        return replace(more, refusal=refusal)


@dataclass(frozen=True, slots=True)
class ProbeTraffic:
    """Telemetry's probes of one link: an arrival curve, and the most that are in the queue at once."""

    count: int = 0
    """P: probes that may be in the queue at once, if it holds at most what its delay was taken for."""
    late: TokenBucket = NO_TRAFFIC
    """Arrival curve in bytes, without one probe of each kind: its burst is what comes early because of earlier
    queues.
    """
    largest_bytes: int = 0
    """Length of the longest frame, on this link."""

    def plus(self, count: int, rate: float, late_s: float, frame_bytes: int) -> ProbeTraffic:
        """Return this traffic and another probe.

        Args:
            count: Number of that probe that may be in the queue at once.
            rate: Its rate in bytes per second.
            late_s: Maximum delay by the queues before this link, in s.
            frame_bytes: Length of its frame on this link.
        """
        late = self.late + output_curve(TokenBucket(0.0, rate), late_s)
        return ProbeTraffic(self.count + count, late, max(self.largest_bytes, frame_bytes))


NO_PROBES: Final = ProbeTraffic()


@dataclass(frozen=True)
class QueueInputs:
    """Inputs of one queue; derived values are computed once."""

    link: Endpoint
    rate_bps: int
    streams: int
    probing: ProbeTraffic
    crossing: CrossTraffic | None
    others: int
    """Packets that others' own windows let be in the network."""
    copies: int
    """Packets that one repeated round of each job adds."""
    frame_bytes: int
    """The largest frame that may wait there."""
    limit: int
    """Packets beyond which it drops."""
    wanted: int
    """Q*, or `limit` if that is less: a queue that drops makes workers send again what no bound counts."""
    round_trip_ns: int
    """The least of a round of any stream that crosses."""
    inlet_packets: float
    """Packets that the inlets of cross traffic can bring while this link sends its largest packet."""
    unbounded: bool = False
    """True if no bound holds for a reason that its budget does not know, so that only its buffer limits its delay."""
    fetches: int = 0
    """Packets of final rounds that hosts of moved jobs fetch from each other."""
    nic_delays_s: Mapping[Endpoint, float] = field(default_factory=dict)
    """Maximum waiting time at the NICs that cross traffic passed before (`nic_delay_s`), by the hosts' links."""

    @cached_property
    def link_rate(self) -> float:
        """C, in packets of the largest frame per second."""
        return self.rate_bps / (8 * self.frame_bytes)

    @cached_property
    def service(self) -> RateLatency:
        """Service curve of the bulk class, in packets of the largest frame."""
        return bulk_service(self.rate_bps, self.frame_bytes, self.crossing.control if self.crossing else NO_TRAFFIC)

    @cached_property
    def left(self) -> float:
        """1 − h: the part of the link that the control class leaves."""
        return self.service.rate / self.link_rate

    @cached_property
    def ahead(self) -> float:
        """σ_h: number of packets that wait because of a burst of the control class."""
        return self.service.blocked

    @cached_property
    def share(self) -> float:
        """u: uncontrolled traffic as a share of the rate that the control class leaves, if all frames were the
        largest.
        """
        return self.crossing.curve.rate / self.service.rate if self.crossing else 0.0

    @cached_property
    def probes(self) -> TokenBucket:
        """Arrival curve of probes, in packets of the largest frame: P + σ_P, and their bytes' rate."""
        return TokenBucket(self.probing.count) + self.probing.late.per(self.frame_bytes)

    @cached_property
    def probe_share(self) -> float:
        """u_P: probes' bytes as a share of the rate that the control class leaves."""
        return self.probes.rate / self.service.rate


def bulk_service(rate_bps: int, frame_bytes: int, control: TokenBucket) -> RateLatency:
    """Return the service curve that the control class leaves of a link, in packets of this length; `control` is in
    bytes.
    """
    return left_by_priority(rate_bps / (8 * frame_bytes), control.per(frame_bytes), 1)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound of a queue, and its reason."""

    packets: float
    formula: str
    threshold: int
    congested_window: int
    marked: bool = False


def queue_budget(
    queue: QueueInputs,
    level: int,
    largest: int | None,
    marked_from: int,
    known: Mapping[Endpoint, LinkBudget],
    queues: Mapping[Endpoint, QueueInputs],
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
    cross = _cross_curve(queue, known, queues, options)
    burst = cross.burst
    window, total = NO_WINDOW_LIMIT, 0
    if queue.streams:
        if queue.streams > queue.wanted:  # not even a round of each fits, so that all must wait for gaps
            level = queue.streams
        window = min(max(level // queue.streams, 1) if largest is None else largest, NO_WINDOW_LIMIT - 1)
        total = queue.streams * window if largest is None else level
    bound = _bound_of(queue, cross, window, total, marked_from)
    refusal, gap_ns = "", 0
    if queue.streams and not options.windows_obeyed:
        window = NO_WINDOW_LIMIT
        bound, refusal = _without_windows(queue, bound, options)
    elif queue.crossing and queue.share + queue.probe_share >= 1:
        bound, refusal = replace(bound, packets=math.inf), _overload(queue, queue.crossing)
    elif math.isinf(burst + queue.probing.count + queue.ahead):
        bound = replace(bound, packets=math.inf)
        refusal = "nothing limits how long others wait, at their hosts or for the control class"
    elif math.floor(bound.packets) > queue.wanted:
        windows = f"{queue.others} packets of others' own windows, " if queue.others else ""
        copies = f"{queue.copies} copies, " if queue.copies else ""
        fetches = f"{queue.fetches} packets of rounds that moved jobs fetch, " if queue.fetches else ""
        refusal = (
            f"{queue.streams} streams, {windows}{copies}{fetches}{queue.probing.count} probes and a burst of "
            f"{burst:.0f} packets may meet: {bound.packets:.0f} packets where "
            + (
                f"{queue.wanted} are wanted"
                if queue.wanted == options.bound_packets
                else f"the buffer holds {queue.limit}"
            )
        )
        if queue.streams and window == 1:
            gap_ns = pacing_gap_ns(queue.streams, queue.service, queue.share)
    return LinkBudget(
        link=queue.link,
        threshold=bound.threshold,
        window=window,
        congested_window=bound.congested_window,
        bound=bound.packets,
        streams=queue.streams,
        windows=total,
        copies=queue.copies,
        probes=queue.probing.count,
        share=queue.share,
        burst=burst,
        others=queue.others,
        gap_ns=gap_ns,
        formula=bound.formula,
        refusal=refusal,
        wanted=queue.wanted,
        marked=bound.marked,
        fetches=queue.fetches,
        spare=max(0.0, 1 - queue.share - queue.probe_share) * queue.service.rate,
    )


def _cross_curve(
    queue: QueueInputs,
    known: Mapping[Endpoint, LinkBudget],
    queues: Mapping[Endpoint, QueueInputs],
    options: CongestionOptions,
) -> TokenBucket:
    """Return the arrival curve of cross traffic, in packets, after the queues and NICs that it passed before."""

    def delay_s(hops: Hops) -> float:
        return sum(max(map(link_delay_s, hop)) for hop in hops)

    def link_delay_s(link: Endpoint) -> float:
        if (late_s := queue.nic_delays_s.get(link)) is not None:
            return late_s
        # a queue that waits for this one in a ring of paths is taken at Q* first, then at what it was found to hold
        packets = known[link].bound if link in known else options.bound_packets
        if queues[link].unbounded:
            packets = math.inf
        return (min(packets, queues[link].limit) + 1) / queues[link].service.rate + queues[link].service.latency_s

    return queue.crossing.curve_behind(delay_s) if queue.crossing else NO_TRAFFIC


def _bound_of(queue: QueueInputs, cross: TokenBucket, window: int, total: int, marked_from: int) -> _Bound:
    """Return the least bound that holds: by windows alone, by the inlets of cross traffic, or by marks."""
    copies = ("copies + " if queue.copies else "") + ("fetches + " if queue.fetches else "")
    more, ahead = "ΣM + " if queue.others else "", " + σ_h" if queue.ahead else ""
    windows = f"ΣW + {more}{copies}probes"
    formula = windows if queue.crossing is None else f"({windows} + σ{ahead})/(1 − u)"
    in_windows = total + queue.others + queue.copies + queue.fetches + queue.probing.count
    packets = windowed_backlog(in_windows, cross, queue.service)
    by_windows = _Bound(packets, formula, max(queue.wanted // 4, 1), window)
    if queue.crossing is None or queue.share + queue.probe_share >= 1:
        return by_windows
    if queue.streams:
        return _by_marks(queue, by_windows, cross, total, marked_from)
    if queue.others:
        return by_windows
    links = math.inf if queue.crossing.from_within else len(queue.crossing.inlets)
    inlets = TokenBucket(links, queue.inlet_packets * queue.link_rate)
    with_probes = TokenBucket(cross.burst, cross.rate + queue.probes.rate)
    alone = peak_limited_backlog(with_probes, inlets, queue.service)
    packets = alone + queue.fetches + queue.probes.burst + queue.ahead
    return replace(by_windows, packets=packets, formula=f"σ − (1 − u)(σ − L)/(R − u) + 1 + {copies}probes{ahead}")


def _by_marks(queue: QueueInputs, by_windows: _Bound, cross: TokenBucket, total: int, marked_from: int) -> _Bound:
    """Return the bound by marked windows if it is less than that by full windows; marks start at its threshold."""
    window = by_windows.congested_window
    # of others' round trips nothing is known, but that they wait in this queue
    product = 0.0 if queue.others else queue.round_trip_ns / 1e9 * queue.service.rate
    share = queue.share + queue.probe_share
    least = ((queue.streams + queue.others) / (1 - share) - product) / queue.left
    threshold = max(marked_from, math.ceil(least))
    # marked packets may leave before cross traffic arrives: K packets take that time if nothing precedes them
    left = marked_windows(threshold * queue.left, share, product) - queue.others
    slowed = min(window, max(1, int(left // queue.streams)))
    others = aggregate((cross, queue.probes, TokenBucket(queue.others + queue.fetches)))
    marked = marked_backlog(threshold, total, queue.streams * slowed, others, queue.service)
    if marked >= by_windows.packets:
        return replace(by_windows, threshold=threshold)
    more = ("ΣM + " if queue.others else "") + ("fetches + " if queue.fetches else "")
    ahead = " + σ_h" if queue.ahead else ""
    return _Bound(marked, f"K + ΣW + Σw + {more}probes + σ{ahead}", threshold, slowed, marked=True)


def _without_windows(queue: QueueInputs, bound: _Bound, options: CongestionOptions) -> tuple[_Bound, str]:
    """Return DCTCP's threshold without a bound, and the reason: no stream obeys a window."""
    product = queue.round_trip_ns / 1e9 * queue.service.rate
    kept = dctcp_thresholds(options.bound_packets, product, queue.streams)
    threshold = max(kept, default=max(1, options.bound_packets - queue.streams))
    most = dctcp_largest_queue(threshold, queue.streams)
    least = max(0.0, dctcp_least_queue(product, threshold, queue.streams))
    reason = (
        f"{queue.streams} streams obey no window; flows of DCTCP in step, marked from K = {threshold} on, would hold "
        f"{least:.0f} to {most:.0f} packets there"
    )
    return _Bound(math.inf, bound.formula, threshold, NO_WINDOW_LIMIT), reason


def _overload(queue: QueueInputs, crossing: CrossTraffic) -> str:
    """Return the reason why cross traffic that fills the link leaves no bound."""
    amount = f"{crossing.rate_bps / 1e6:g} Mbit/s"
    if (
        queue.share >= 1 and crossing.rate_bps < queue.rate_bps * queue.left
    ):  # short frames, each of which counts as a long one
        amount = f"{crossing.curve.rate:,.0f} packets a second, of {queue.frame_bytes} bytes at most,"
    reason = f"{amount} may come that obey no window, on a link of {queue.rate_bps / 1e6:g} Mbit/s"
    if queue.share < 1:
        reason += f", and {8 * queue.probing.late.rate / 1e6:.3g} Mbit/s of probes"
    if queue.ahead:
        reason += f", of which the control class may take {8 * crossing.control.rate / 1e6:g}"
    return reason


def nic_delay_s(nic: Nic, back: QueueInputs, options: CongestionOptions) -> float:
    """Return the maximum waiting time of declared traffic at its host's NIC, with jobs' packets and those of other
    windows.

    All of these have a part in the queue of the port `back` to the host: jobs at most Q* packets, or one of each
    stream. Infinite if nothing limits it.
    """
    windows = float(back.others + back.fetches)
    if back.streams:
        windows += max(options.bound_packets, back.streams) if options.windows_obeyed else math.inf
    frame_bytes = max(nic.largest_bytes, back.frame_bytes)
    if not windows and nic.destinations == 1 and not nic.control.rate:
        return 0.0
    service = bulk_service(back.rate_bps, frame_bytes, nic.control)
    return windowed_backlog(windows, nic.curve, service) / service.rate


def pacing_gap_ns(flows: int, service: RateLatency, share: float = 0.0) -> int:
    """Return the time between two packets of each of N flows that share what others leave of a link."""
    return math.ceil(round(1e9 * flows / (service.rate * max(1 - share, 0.01)), 3))


def inlet_packets(topology: Topology, link: Endpoint, crossing: CrossTraffic, frame_bytes: int) -> float:
    """Return the number of packets that the inlets of cross traffic can bring while a link sends its largest one.

    Args:
        topology: The fabric.
        link: The link.
        crossing: Its cross traffic.
        frame_bytes: Length of the largest frame of the link.
    """
    rate_bps = sum(topology.link_at(end).rate_bps for end in crossing.inlets)
    return rate_bps / topology.link_at(link).rate_bps * frame_bytes / crossing.smallest_bytes
