"""Each queue's budget: how many packets it may hold, and so what windows its streams may have.

    topology, streams of jobs ─┐
    declared cross traffic ────┼─▶ link_budgets ─▶ one LinkBudget per egress port: threshold, windows, and a bound
    probes ────────────────────┘                   or why there is none

A queue without cross traffic divides Q* among its streams. Where others' packets cross, bursts that gather in one queue
arrive in the next, so the windows of all such queues are raised together, as long as each of them keeps its bound.
Equal windows are equal rates only where round trips are equal, so jobs divide what a queue's windows may come to in the
measure of theirs (`shares`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ...wire.aggregation import NO_WINDOW_LIMIT
from ..errors import PlanError
from ..planning.plan import JobPlan, round_bytes
from ..telemetry.probes import Probe
from .cross_traffic import Crossing, Uncontrolled, Windowed, cross_traffic, windows_on
from .formulas import (
    burst_behind,
    dctcp_largest_queue,
    dctcp_least_queue,
    dctcp_thresholds,
    inlet_queue,
    marked_window_queue,
    marked_windows,
    pacing_gap_ns,
    population_queue,
)
from .shares import fair_windows


class Marks(StrEnum):
    """What of a queue is compared with its threshold K, by which switches mark."""

    DEPTH = "depth"
    """Packets that are there at enqueue."""
    SOJOURN = "sojourn"
    """How long a packet has waited: what K packets take to be sent."""
    VIRTUAL = "virtual"
    """Packets that would be there if the link were slower than it is."""


WALL_CLOCK_LEASE_NS: Final = 100_000_000
"""Of windows where hosts are processes: longer than a busy machine keeps one from its turn, as a rule, and no longer
than a job may be held back when another is there.
"""


@dataclass(frozen=True, slots=True)
class CongestionOptions:
    """What is promised, and what may be counted on."""

    bound_packets: int = 64
    """Q*: what no egress queue of the bulk class is to exceed."""
    uncontrolled: tuple[Uncontrolled, ...] = ()
    """What others may send, as far as it obeys no window."""
    lease_ns: int = 0
    """A worker that has had no result for so long begins again with one round, so that a window that was lowered
    meanwhile is known to be obeyed by then; 0: windows last.
    """
    windows_obeyed: bool = True
    """Whether workers obey explicit windows. Else they go by marks or round trips, nothing is promised of a queue that
    they cross, and no worker is policed by its window.
    """
    marks: Marks = Marks.DEPTH
    """What is marked by. Who obeys explicit windows hears of the depth in any case, as the bound is made with that."""
    virtual_share: float = 0.95
    """γ: drain rate of the virtual queue, as a share of the link's."""
    windowed: tuple[Windowed, ...] = ()
    """What others may have under way, as far as their receivers limit it."""

    def __post_init__(self) -> None:
        if not 1 <= self.bound_packets < 1 << 19:
            raise PlanError(f"congestion: bound_packets {self.bound_packets} is not in 1…524287")
        if not 0 < self.virtual_share <= 1:
            raise PlanError(f"congestion: virtual_share {self.virtual_share} is not above 0 and at most 1")
        if self.lease_ns < 0:
            raise PlanError(f"congestion: lease_ns {self.lease_ns} is negative")


@dataclass(frozen=True, slots=True)
class LinkBudget:
    """What one egress queue is promised, and the inputs."""

    link: Endpoint
    threshold: int
    """K: a packet that finds so many in the queue is marked."""
    window: int
    """Rounds in flight of each stream that crosses, at most."""
    congested_window: int
    """The same for who has met K packets or more."""
    bound: float
    """The most packets that the queue will hold; infinite where nothing can be said."""
    streams: int
    """N: copies of jobs' gradient streams that may cross."""
    windows: int
    """ΣW: what all their windows come to; less than N·W where other queues on the way hold some streams to less, more
    while packets of streams that are gone may be there.
    """
    probes: int
    """Telemetry's own packets that may be in the queue at once."""
    share: float
    """u: declared uncontrolled traffic, as a share of the link's rate."""
    burst: float
    """σ: packets of it that may come at once."""
    others: int
    """ΣM: packets that others may have in the network by windows of their own."""
    gap_ns: int
    """Between two rounds of each stream; 0 where windows are enough."""
    formula: str
    """Of the bound."""
    refusal: str
    """Why the bound is above Q*, so that Q* is not promised; empty where it is."""
    marked: bool = False
    """Whether the bound counts on marks."""

    def counting(self, windows: int) -> LinkBudget:
        """The same where all windows come to so many."""
        if math.isinf(self.bound):
            return self
        more = windows - self.windows
        return replace(self, windows=windows, bound=self.bound + (more if self.marked else more / (1 - self.share)))


@dataclass(frozen=True, slots=True)
class _Queue:
    """The inputs of one queue."""

    link: Endpoint
    rate_bps: int
    streams: int
    probes: int
    crossings: tuple[Crossing, ...]
    others: int
    """Packets that others' own windows let be in the network."""
    frame_bytes: int
    """The largest frame that may wait there."""
    limit: int
    """Packets beyond which it drops."""
    round_trip_ns: int
    """The least of a round of any stream that crosses."""
    inlets: int
    """Links by which others come."""
    inlet_packets: float
    """What these can bring while this link sends its largest packet."""

    @property
    def frame_s(self) -> float:
        """The time that the largest frame takes."""
        return 8 * self.frame_bytes / self.rate_bps

    @property
    def share(self) -> float:
        return sum(crossing.stream.packets_per_second for crossing in self.crossings) * self.frame_s


@dataclass(frozen=True, slots=True)
class JobStreams:
    """What `link_budgets` is told of one job."""

    count: Mapping[Endpoint, int]
    """Copies of its gradient stream that each directed link may carry."""
    window: int
    """W: what its workers never exceed."""
    round_trips_ns: Mapping[Endpoint, int] = field(default_factory=dict)
    """By link: the least that a round of any of its streams is away, in empty queues."""
    round_trip_ns: int = 0
    """Of its worker that is farthest away."""

    @classmethod
    def of(cls, plan: JobPlan) -> JobStreams:
        return cls(plan.most_streams, plan.spec.window, plan.round_trips_ns, plan.round_trip_ns)


def link_budgets(
    topology: Topology, routes: Routes, jobs: Sequence[JobStreams], probes: Iterable[Probe], options: CongestionOptions
) -> Mapping[Endpoint, LinkBudget]:
    """The budget of every switch's egress port."""
    crossing = cross_traffic(routes, options.uncontrolled)
    windowed = windows_on(routes, options.windowed)
    probing = probes_on(routes, probes)
    queues = []
    for link in topology.directed_links:
        if topology.is_switch(link.node):
            crossings, with_windows = crossing.get(link, ()), windowed.get(link, ())
            frames = (
                round_bytes(topology),
                *(one.stream.packet_bytes for one in crossings),
                *(each.packet_bytes for each in with_windows),
            )
            streams = sum(job.count.get(link, 0) for job in jobs)
            cable = topology.link_at(link)
            trips = [job.round_trips_ns.get(link, 0) for job in jobs if link in job.count]
            queues.append(
                _Queue(
                    link,
                    cable.rate_bps,
                    streams,
                    probing.get(link, 0),
                    crossings,
                    sum(each.packets for each in with_windows),
                    max(frames),
                    cable.queue_packets,
                    min(trips, default=0),
                    *_inlets(topology, link, crossings, max(frames)),
                )
            )
    # windows as large as the bound allows, with marks as early as they may come
    least = max(options.bound_packets // 16, 1)
    most = {queue.link: _room(queue, options) for queue in queues if not queue.crossings}
    # what the windows at each crossed queue may come to
    best = _largest(
        1,
        options.bound_packets if len(most) < len(queues) else 1,
        lambda level: _at_levels(queues, most, level, least, options),
        options,
    )
    # what a job cannot have on one link it does not need on the others
    equal = {link: one.window for link, one in best.items()}
    levels = {link: max(most.get(link, 0), one.window * one.streams) for link, one in best.items()}
    frames_ns = {queue.link: 1e9 * queue.frame_s for queue in queues}
    own = fair_windows(jobs, equal, levels, frames_ns)
    used: dict[Endpoint, int] = {}
    totals: dict[Endpoint, int] = {}
    for job, window in zip(jobs, own, strict=True):
        for link, count in job.count.items():
            used[link] = max(used.get(link, 1), window)
            totals[link] = totals.get(link, 0) + count * window
    # then marks as late as the bound allows: the fuller a queue may be, the less its streams are held back in vain
    budgets = _largest(
        least,
        options.bound_packets,
        lambda threshold: _at_levels(queues, totals, 0, threshold, options, used),
        options,
    )
    losing = _losing(topology, jobs)
    return {link: _without_promise(budget, losing.get(link, frozenset())) for link, budget in budgets.items()}


def _room(queue: _Queue, options: CongestionOptions) -> int:
    """What the windows of a queue that no leaky bucket crosses may come to. Where others' own windows leave less than a
    round for each stream nothing can be promised, and streams are not held to less in vain.
    """
    room = options.bound_packets - queue.probes
    return room - queue.others if room - queue.others >= max(1, queue.streams) else room


def losing_links(topology: Topology, links: Iterable[Endpoint]) -> frozenset[Endpoint]:
    """Those that are known to lose frames."""
    return frozenset(link for link in links if topology.link_at(link).loss)


def _losing(topology: Topology, jobs: Iterable[JobStreams]) -> Mapping[Endpoint, frozenset[Endpoint]]:
    """By link: of the jobs that cross it, the links that are known to lose frames, where there are any."""
    found: dict[Endpoint, frozenset[Endpoint]] = {}
    for job in jobs:
        lossy = losing_links(topology, job.count)
        if lossy:
            found |= {link: lossy | found[link] if link in found else lossy for link in job.count}
    return found


def _without_promise(budget: LinkBudget, lossy: Collection[Endpoint]) -> LinkBudget:
    """The budget, without its promise where jobs that cross lose frames: each worker sends for itself what it misses,
    and switches do not sum that.
    """
    if budget.refusal or not lossy:
        return budget
    where = f"{min(lossy)} and {len(lossy) - 1} more" if len(lossy) > 1 else f"{min(lossy)}"
    return replace(
        budget, refusal=f"frames are lost on its jobs' ways (at {where}), and what is sent again is not summed"
    )


def _largest(
    low: int, high: int, budgets: Callable[[int], Mapping[Endpoint, LinkBudget]], options: CongestionOptions
) -> Mapping[Endpoint, LinkBudget]:
    """The budgets of the largest number in low…high with which all queues keep the bound that keep it with `low`."""
    best = budgets(low)
    while low < high:
        middle = (low + high + 1) // 2
        found = budgets(middle)
        if _kept(found, best, options):
            low, best = middle, found
        else:
            high = middle - 1
    return best


def _inlets(topology: Topology, link: Endpoint, crossings: Sequence[Crossing], frame_bytes: int) -> tuple[int, float]:
    """Links by which others come, and how many packets these can bring while this one sends its largest."""
    into = set[Endpoint]()
    for one in crossings:
        source = one.stream.source
        before = one.upstream[-1] if one.upstream else [Endpoint(source, p) for p in topology.neighbours(source)]
        into.update(end for end in before if topology.peer(end).node == link.node)
    rate_bps = sum(topology.link_at(end).rate_bps for end in into)
    smallest = min((one.stream.packet_bytes for one in crossings), default=frame_bytes)
    return len(into), rate_bps / topology.link_at(link).rate_bps * frame_bytes / smallest


def _kept(
    found: Mapping[Endpoint, LinkBudget], before: Mapping[Endpoint, LinkBudget], options: CongestionOptions
) -> bool:
    """Whether all queues are within the bound, but for those of which nothing could be promised before."""
    return all(one.bound <= options.bound_packets or before[link].refusal for link, one in found.items())


def probes_on(routes: Routes, probes: Iterable[Probe]) -> Mapping[Endpoint, int]:
    """How many probes may be in each link's queue at once: one of each that may cross it, as it takes less than a
    period.
    """
    count: dict[Endpoint, int] = {}
    for probe in probes:
        first = Endpoint(probe.switch, probe.port)
        far = routes.topology.peer(first).node
        onward = (
            routes.shares(far, probe.destination)
            if far != probe.destination and routes.reaches(far, probe.destination)
            else {}
        )
        for link in {first, *onward}:
            count[link] = count.get(link, 0) + 1
    return count


def _at_levels(
    queues: Sequence[_Queue],
    levels: Mapping[Endpoint, int],
    level: int,
    threshold: int,
    options: CongestionOptions,
    windows: Mapping[Endpoint, int] | None = None,
) -> Mapping[Endpoint, LinkBudget]:
    """Budgets where the windows at each queue may come to its level, or to `level` if it has none, and where others
    cross, packets are marked from `threshold` on; upstream queues first. `windows` are the largest of each queue; None:
    its streams have the same.
    """
    known: dict[Endpoint, LinkBudget] = {}
    by_link = {queue.link: queue for queue in queues}

    def solve(queue: _Queue, path: frozenset[Endpoint]) -> None:
        for one in queue.crossings:
            for link in (link for hop in one.upstream for link in hop):
                if link not in known and link not in path:
                    solve(by_link[link], path | {queue.link})
        window = None if windows is None else windows.get(queue.link)
        known[queue.link] = _budget(queue, levels.get(queue.link, level), window, threshold, known, by_link, options)

    for queue in queues:
        if queue.link not in known:
            solve(queue, frozenset())
    return known


def _budget(
    queue: _Queue,
    level: int,
    largest: int | None,
    marked_from: int,
    known: Mapping[Endpoint, LinkBudget],
    queues: Mapping[Endpoint, _Queue],
    options: CongestionOptions,
) -> LinkBudget:
    """One queue's budget; `level` is what all windows that cross may come to together, `largest` the largest of them;
    None: all are the same.
    """
    share, streams = queue.share, queue.streams
    burst = 0.0
    for one in queue.crossings:
        # a queue that waits for this one in a ring of paths is taken at Q*, which holds as long as all keep theirs
        delay_s = sum(
            max(
                (min(known[link].bound if link in known else options.bound_packets, queues[link].limit) + 1)
                * queues[link].frame_s
                for link in hop
            )
            for hop in one.upstream
        )
        burst += burst_behind(one.stream.burst_packets, one.stream.packets_per_second, delay_s)
    others = burst + queue.probes
    more = "ΣM + " if queue.others else ""
    window, total = NO_WINDOW_LIMIT, 0
    if streams:
        window = min(max(level // streams, 1) if largest is None else largest, NO_WINDOW_LIMIT - 1)
        total = streams * window if largest is None else level
    threshold, congested, by_marks = max(options.bound_packets // 4, 1), window, False
    bound, formula = population_queue(total + queue.others, share, others), f"(ΣW + {more}σ)/(1 − u)"
    if not queue.crossings:
        formula = f"ΣW + {more}probes"
    elif share < 1 and not streams and not queue.others:
        bound = inlet_queue(burst, share, queue.inlets, queue.inlet_packets) + queue.probes
        formula = "σ − (1 − u)(σ − L)/(R − u) + 1 + probes"
    elif share < 1 and streams:
        # of others' round trips nothing is known, but that they wait in this queue
        product = 0.0 if queue.others else queue.round_trip_ns / 1e9 / queue.frame_s
        threshold = max(marked_from, math.ceil((streams + queue.others) / (1 - share) - product))
        left = marked_windows(threshold, share, product) - queue.others
        slowed = min(window, max(1, int(left // streams)))
        marked = marked_window_queue(threshold, total, streams * slowed, others + queue.others)
        if marked < bound:
            bound, formula, congested, by_marks = marked, f"K + ΣW + Σw + {more}σ", slowed, True
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
    elif share >= 1:
        bound = math.inf
        rate = sum(one.stream.rate_bps for one in queue.crossings)
        refusal = f"{rate / 1e6:g} Mbit/s may come that obey no window, on a link of {queue.rate_bps / 1e6:g} Mbit/s"
    elif math.floor(bound) > options.bound_packets:
        windows = f"{queue.others} packets of others' own windows, " if queue.others else ""
        refusal = (
            f"{streams} streams, {windows}{queue.probes} probes and a burst of {burst:.0f} packets may meet: "
            f"{bound:.0f} packets where {options.bound_packets} are wanted"
        )
        if streams and window == 1:
            gap_ns = pacing_gap_ns(streams, queue.frame_bytes, queue.rate_bps, share)
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
