"""Each queue's budget: the maximum number of packets in it, and the windows of its streams that follow.

    topology, streams of jobs ─┐
    declared cross traffic ────┼─▶ link_budgets ─▶ one LinkBudget per egress port: threshold, windows, and a bound
    probes ────────────────────┘                   or the reason why there is none

A queue without cross traffic divides Q* among its streams. With cross traffic, bursts that gather in one queue arrive
in the next, so the windows of all such queues are raised together, as long as each of them keeps its bound and jobs
keep enough once they are marked. Then each queue's marking threshold is raised as far as its bound and those behind it
allow. Equal windows are equal rates only for equal round trips, so jobs divide a queue's windows in proportion to their
round trips (`shares`).
"""

from __future__ import annotations

import itertools
import math
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from ...topologies.model import Endpoint, Link, Topology
from ...topologies.routing import Routes
from ...wire.aggregation import NO_WINDOW_LIMIT
from ...wire.frames import BULK_PRIORITY
from ..planning.plan import JobPlan, round_bytes
from ..telemetry.probe_format import probe_bytes
from ..telemetry.probes import Probe
from .cross_traffic import (
    CrossTraffic,
    DeclaredPair,
    cross_traffic,
    declared_pairs,
    hop_by_hop,
    listed,
    probe_way,
    windows_on,
    with_undeclared,
)
from .options import CongestionOptions
from .queue_budget import (
    NO_PROBES,
    LinkBudget,
    ProbeTraffic,
    QueueInputs,
    bulk_service,
    inlet_packets,
    nic_delay_s,
    queue_budget,
)
from .shares import fair_windows

DETECTED_FROM: Final = 0.1
"""Share of a link's rate left to probes, heartbeats, and retransmissions: undeclared traffic is detected above it."""
_MAX_REFERENCE: Final = 7 / 8
"""Upper limit for undeclared traffic, as a fraction of link rate; larger estimates are clamped."""


@dataclass(frozen=True, slots=True)
class JobStreams:
    """Input of `link_budgets` for one job."""

    count: Mapping[Endpoint, int]
    """Copies of its gradient stream that each directed link may carry."""
    window: int
    """W: maximum window of its workers."""
    round_trips_ns: Mapping[Endpoint, int] = field(default_factory=dict)
    """Minimum round-trip time of any of its streams over a link, in empty queues, by link."""
    round_trip_ns: int = 0
    """Round-trip time of its farthest worker."""
    copies: Mapping[Endpoint, int] = field(default_factory=dict)
    """Packets that a message sent again adds at once, by link."""
    classes: tuple[int, ...] = (BULK_PRIORITY,)
    """Traffic classes that its packets may have."""
    fetches: Mapping[Endpoint, int] = field(default_factory=dict)
    """Packets of rounds that its hosts fetch from each other after a move, by link."""

    @property
    def links(self) -> Collection[Endpoint]:
        """Links that its packets may cross."""
        return self.count.keys() | self.fetches.keys()

    @classmethod
    def of(cls, plan: JobPlan, fetches: Mapping[Endpoint, int] = MappingProxyType({})) -> JobStreams:
        """Return the streams of a job's plan, with the packets that its hosts may fetch from each other."""
        return cls(
            plan.max_streams,
            plan.spec.window,
            plan.round_trips_ns,
            plan.round_trip_ns,
            plan.max_copies,
            plan.spec.classes,
            fetches,
        )


def link_budgets(
    topology: Topology,
    routes: Routes,
    jobs: Sequence[JobStreams],
    probes: Iterable[Probe],
    options: CongestionOptions,
    undeclared: Mapping[Endpoint, float] = MappingProxyType({}),
    unbounded: Collection[Endpoint] = (),
) -> Mapping[Endpoint, LinkBudget]:
    """Compute the budget of every switch's egress port.

    Args:
        topology: The fabric.
        routes: Its routes.
        jobs: Streams of the running jobs.
        probes: Telemetry's probes.
        options: The requested bound, and declared traffic.
        undeclared: Undeclared traffic that telemetry sees, as shares of link rates. Windows leave room for it if the
            options say so, but such links have no bound.
        unbounded: Links whose queues have no bound for another reason. Only their buffers limit how long they delay
            what crosses other queues after them.
    """
    probes = tuple(probes)
    losing = _losing(topology, jobs)
    full = frozenset({*losing, *undeclared, *unbounded})
    crossing = cross_traffic(routes, options.uncontrolled)
    probing = probes_on(routes, probes, options, full)
    settled = [replace(job, fetches={}) for job in jobs]
    while True:
        queues = _queues(topology, routes, settled, probing, options, crossing, undeclared, full)
        totals, used = _fitting_windows(queues, jobs, options)
        budgets = _marked_late(queues, totals, used, options)
        if any(job.fetches for job in jobs):
            queues = _queues(topology, routes, jobs, probing, options, crossing, undeclared, full)
            budgets = _with_fetches(budgets, queues, totals, used, options)
        # a queue above Q* delays probes for longer than was assumed, and more of them meet
        above = full | {link for link, budget in budgets.items() if budget.refusal}
        before, probing = probing, probes_on(routes, probes, options, above)
        if probing == before:
            break
        full = above
    kept = {link: _without_promise(budget, losing.get(link, frozenset())) for link, budget in budgets.items()}
    pairs = declared_pairs(routes, options.uncontrolled, options.windowed) if undeclared else {}
    return _without_undeclared(kept, undeclared, crossing, pairs, topology)


def _queues(
    topology: Topology,
    routes: Routes,
    jobs: Sequence[JobStreams],
    probing: Mapping[Endpoint, ProbeTraffic],
    options: CongestionOptions,
    crossing: Mapping[Endpoint, CrossTraffic],
    undeclared: Mapping[Endpoint, float],
    full: Collection[Endpoint],
) -> list[QueueInputs]:
    """Inputs of every switch's egress queue; only the buffers of `full` links limit their delays."""
    windowed = windows_on(routes, options.windowed)
    queues = []
    for link in topology.directed_links:
        if topology.is_switch(link.node):
            there, with_windows = crossing.get(link), windowed.get(link, ())
            probe_traffic = probing.get(link, NO_PROBES)
            frames = [
                round_bytes(topology),
                probe_traffic.largest_bytes,
                *(queue.packet_bytes for queue in with_windows),
            ]
            if there:
                frames.append(there.largest_bytes)
            largest_bytes = max(frames) + options.int_bytes
            streams = sum(job.count.get(link, 0) for job in jobs)
            cable = topology.link_at(link)
            if link in undeclared and options.makes_room:
                inlets = (far for port, far in topology.neighbours(link.node).items() if port != link.port)
                declared = _declared_share(there, largest_bytes, cable.rate_bps) if there else 0.0
                share = min(undeclared[link], max(0.0, _MAX_REFERENCE - declared))
                there = with_undeclared(there, share * cable.rate_bps, largest_bytes, inlets)
            trips = [job.round_trips_ns.get(link, 0) for job in jobs if link in job.count]
            queues.append(
                QueueInputs(
                    link,
                    cable.rate_bps,
                    streams,
                    probe_traffic,
                    there,
                    sum(queue.packets for queue in with_windows),
                    sum(job.copies.get(link, 0) for job in jobs),
                    largest_bytes,
                    cable.queue_packets,
                    min(options.bound_packets, cable.queue_packets),
                    min(trips, default=0),
                    inlet_packets(topology, link, there, largest_bytes) if there else 0.0,
                    link in full,
                    sum(job.fetches.get(link, 0) for job in jobs),
                )
            )
    return _behind_nics(queues, crossing, options)


def _behind_nics(
    queues: Sequence[QueueInputs],
    crossing: Mapping[Endpoint, CrossTraffic],
    options: CongestionOptions,
    ended: Mapping[Endpoint, int] = MappingProxyType({}),
) -> list[QueueInputs]:
    """Return the inputs with the delays of hosts' NICs, whose packets may also be those of `ended` streams."""
    nics = {own: nic for there in crossing.values() for own, nic in there.nics.items()}
    ports = {queue.link: replace(queue, streams=queue.streams + ended.get(queue.link, 0)) for queue in queues}
    delays_s = {own: nic_delay_s(nic, ports[nic.port], options) for own, nic in nics.items()}
    return [replace(queue, nic_delays_s=delays_s) for queue in queues]


def _declared_share(crossing: CrossTraffic, frame_bytes: int, rate_bps: int) -> float:
    """Share of the rate that the control class leaves, if all frames had this length."""
    return crossing.curve.rate / bulk_service(rate_bps, frame_bytes, crossing.control).rate


def window_alone(
    topology: Topology, routes: Routes, plan: JobPlan, probes: Iterable[Probe], options: CongestionOptions
) -> int:
    """Return the window that a job may have in a network without other jobs.

    Args:
        topology: The fabric.
        routes: Its routes.
        plan: Plan of the job.
        probes: Telemetry's probes.
        options: Options of congestion control.

    Returns:
        Window in rounds, at most the one that the job requests.
    """
    if not options.windows_obeyed:
        return plan.spec.window
    budgets = link_budgets(topology, routes, [JobStreams.of(plan)], probes, options)
    return min([plan.spec.window, *(budgets[link].window for link in plan.max_streams if link in budgets)])


def _fitting_windows(
    queues: Sequence[QueueInputs], jobs: Sequence[JobStreams], options: CongestionOptions
) -> tuple[Mapping[Endpoint, int], Mapping[Endpoint, int]]:
    """Return the sum of all windows that cross each link, and the largest of them, by link.

    With cross traffic, larger windows force earlier marks, and an early mark leaves a job less. So these are the
    largest windows with which each queue keeps its bound and every job has enough left once it is marked. If there are
    none, they are the windows that maximise the minimum (left/needed) ratio over jobs.
    """
    least = _min_threshold(options)
    most = {queue.link: _room(queue, options) for queue in queues if queue.crossing is None}
    frames_ns = {queue.link: 1e9 / queue.service.rate for queue in queues}
    by_link = {queue.link: queue for queue in queues}

    def windows_at(level: int) -> tuple[Mapping[Endpoint, int], Mapping[Endpoint, int]]:
        each = _at_levels(queues, most, level, {}, least, options)
        # a job limited by one link does not need more on the others
        equal = {link: budget.window for link, budget in each.items()}
        levels = {link: max(most.get(link, 0), budget.window * budget.streams) for link, budget in each.items()}
        totals: dict[Endpoint, int] = {}
        used: dict[Endpoint, int] = {}
        for job, window in zip(jobs, fair_windows(jobs, equal, levels, frames_ns), strict=True):
            for link, count in job.count.items():
                used[link] = max(used.get(link, 1), window)
                totals[link] = totals.get(link, 0) + count * window
        return totals, used

    def left_at(level: int) -> float:
        _, budgets = _largest(
            least, options.bound_packets, _by_threshold(queues, *windows_at(level), {}, options), options
        )
        return min([_ENOUGH, *(_left(job, by_link, budgets) for job in jobs)])

    if not jobs or len(most) == len(queues):
        return windows_at(1)
    highest, _ = _largest(
        1, options.bound_packets, lambda level: _at_levels(queues, most, level, {}, least, options), options
    )
    step = max(1, highest // _LEVELS)
    level = max(range(highest, 0, -step), key=left_at)
    return windows_at(max(range(min(highest, level + step - 1), max(0, level - step), -1), key=left_at))


_ENOUGH: Final = 2.0
"""Window left to a marked job, as a multiple of its bandwidth-delay product in empty queues: the same amount again may
wait in the queues on its path.
"""
_LEVELS: Final = 16
"""Windows that are tried before those around the best of them are."""


def _min_threshold(options: CongestionOptions) -> int:
    return max(options.bound_packets // 16, 1)


def _left(job: JobStreams, queues: Mapping[Endpoint, QueueInputs], budgets: Mapping[Endpoint, LinkBudget]) -> float:
    """Smallest window of a marked job on its path, as a multiple of its bandwidth-delay product next to all others.

    Infinite if no cross traffic meets its path, or if the queues that meet it have no bound.
    """
    left, packets_per_second = math.inf, math.inf
    for queue in (queues[link] for link in job.count if link in queues):  # the others are hosts'
        if queue.share < 1:
            packets_per_second = min(packets_per_second, (1 - queue.share) * queue.service.rate / queue.streams)
            if queue.crossing and not budgets[queue.link].refusal:
                left = min(left, budgets[queue.link].congested_window)
    return left / max(1.0, packets_per_second * job.round_trip_ns / 1e9)


def _room(queue: QueueInputs, options: CongestionOptions) -> int:
    """Largest sum of windows of a queue without steady cross traffic.

    If others' own windows leave less than a round for each stream there is no bound, and streams are not reduced in
    vain.
    """
    room = queue.wanted - queue.probing.count - queue.copies
    return room - queue.others if room - queue.others >= max(1, queue.streams) else room


def losing_links(topology: Topology, links: Iterable[Endpoint]) -> frozenset[Endpoint]:
    """Return those that are known to lose frames."""
    return frozenset(link for link in links if topology.link_at(link).loss)


def _losing(topology: Topology, jobs: Iterable[JobStreams]) -> Mapping[Endpoint, frozenset[Endpoint]]:
    """Lossy links of the jobs that cross each link; links without such jobs are missing."""
    losing: dict[Endpoint, frozenset[Endpoint]] = {}
    for job in jobs:
        lossy = losing_links(topology, job.count)
        if lossy:
            losing |= {link: lossy | losing[link] if link in losing else lossy for link in job.count}
    return losing


def _without_promise(budget: LinkBudget, lossy: Collection[Endpoint]) -> LinkBudget:
    """Return the budget, without its bound if crossing jobs lose frames.

    After a loss each worker resends by itself, and switches do not sum resent messages.
    """
    if not lossy:
        return budget
    where = f"{min(lossy)} and {len(lossy) - 1} more" if len(lossy) > 1 else f"{min(lossy)}"
    return budget.refused(f"frames are lost on its jobs' ways (at {where}), and what is sent again is not summed")


def without_dropped(
    budgets: Mapping[Endpoint, LinkBudget], topology: Topology, jobs: Iterable[JobStreams]
) -> Mapping[Endpoint, LinkBudget]:
    """Return the budgets, without the bounds of queues whose jobs may lose packets in another queue, which has none.

    After a loss each worker resends by itself, and switches do not sum resent messages.
    """
    dropping = {
        link
        for link, budget in budgets.items()
        if budget.refusal and budget.bound > topology.link_at(link).queue_packets
    }
    if not dropping:
        return budgets
    refused = dict(budgets)
    for job in jobs:
        if where := dropping & job.count.keys():
            why = f"jobs may lose packets at {min(where)}, whose queue has no bound; what is sent again is not summed"
            for link in job.count.keys() & budgets.keys() - dropping:
                refused[link] = replace(refused[link], refusal=refused[link].refusal or why)
    return refused


def _without_undeclared(
    budgets: Mapping[Endpoint, LinkBudget],
    undeclared: Mapping[Endpoint, float],
    crossing: Mapping[Endpoint, CrossTraffic],
    pairs: Mapping[Endpoint, tuple[DeclaredPair, ...]],
    topology: Topology,
) -> Mapping[Endpoint, LinkBudget]:
    """Return the budgets without the bounds of links that carry undeclared traffic, whose bursts are unknown.

    Links behind them that carry declared traffic, which it delays, lose their bounds, too. A pair of hosts may send
    more than its declaration says if all its links carry undeclared traffic, or are too fast for that much to be
    detected; then the reason names it.
    """
    if not undeclared:
        return budgets
    refused = dict(budgets)
    for link, budget in budgets.items():
        if link in undeclared:
            excess_bps = undeclared[link] * topology.link_at(link).rate_bps
            seen = (
                f"telemetry sees some {undeclared[link]:.0%} of the link ({excess_bps / 1e6:.3g} Mbit/s) taken by what "
                "nobody declared"
            )
            suspects = [
                pair
                for pair in pairs.get(link, ())
                if all(
                    each in undeclared or excess_bps <= DETECTED_FROM * topology.link_at(each).rate_bps
                    for each in pair.links
                )
            ]
            if suspects:
                seen += f", or by more than was declared of {listed(suspects)}"
            refused[link] = replace(budget, bound=math.inf, refusal=seen)
        elif before := [
            link_before
            for link_before in (crossing[link].upstream if link in crossing else ())
            if link_before in undeclared
        ]:
            behind = f"others come to it by {before[0]}, where telemetry sees what nobody declared"
            refused[link] = budget.refused(behind)
    return refused


def _largest(
    low: int, high: int, budgets: Callable[[int], Mapping[Endpoint, LinkBudget]], options: CongestionOptions
) -> tuple[int, Mapping[Endpoint, LinkBudget]]:
    """The largest number in low…high with which all queues keep the bound that keep it with `low`, and its budgets."""
    best = budgets(low)
    while low < high:
        middle = (low + high + 1) // 2
        budget_by_link = budgets(middle)
        if _kept(budget_by_link, best, options):
            low, best = middle, budget_by_link
        else:
            high = middle - 1
    return low, best


def _marked_late(
    queues: Sequence[QueueInputs],
    totals: Mapping[Endpoint, int],
    used: Mapping[Endpoint, int],
    options: CongestionOptions,
) -> Mapping[Endpoint, LinkBudget]:
    """Budgets with the marks of each queue as late as all bounds allow: the fuller a queue may be, the less its streams
    are held back in vain. All thresholds grow together; where the bound of a queue is reached, its own goes no further,
    and if that is not enough, neither do those of the queues by which others come to it.
    """
    least = _min_threshold(options)
    by_link = {queue.link: queue for queue in queues}
    stopped: dict[Endpoint, int] = {}
    growing = {queue.link for queue in queues if queue.crossing and queue.streams}
    at = _by_threshold(queues, totals, used, stopped, options)
    level, budgets = least, at(least)
    before = budgets
    while growing:
        level, budgets = _largest(level, options.bound_packets, at, options)
        if level == options.bound_packets:
            break
        further = at(level + 1)
        over = {link for link, queue in further.items() if _broken(queue, before[link], options)}
        ends = over & growing or _upstream(over, by_link) & growing or growing
        stopped |= dict.fromkeys(ends, level)
        growing -= ends
    return budgets


def _with_fetches(
    budgets: Mapping[Endpoint, LinkBudget],
    queues: Sequence[QueueInputs],
    totals: Mapping[Endpoint, int],
    used: Mapping[Endpoint, int],
    options: CongestionOptions,
) -> Mapping[Endpoint, LinkBudget]:
    """Return the budgets with the same windows and marks, and the bounds that hold while moved jobs fetch rounds.

    The packets are few and pass once, so windows leave no room for them. `queues` count them.
    """
    marked_from = {link: budget.threshold if budget.marked else NO_WINDOW_LIMIT for link, budget in budgets.items()}
    found = _at_levels(queues, totals, 0, marked_from, NO_WINDOW_LIMIT, options, used)
    return {
        link: replace(
            budget,
            bound=found[link].bound,
            burst=found[link].burst,
            formula=found[link].formula,
            refusal=found[link].refusal or budget.refusal,
            fetches=found[link].fetches,
        )
        for link, budget in budgets.items()
    }


def bursts_behind(
    topology: Topology,
    routes: Routes,
    jobs: Sequence[JobStreams],
    probes: Iterable[Probe],
    options: CongestionOptions,
    targets: Mapping[Endpoint, LinkBudget],
    held: Mapping[Endpoint, float],
    ended: Mapping[Endpoint, int],
) -> Mapping[Endpoint, tuple[float, float]]:
    """Compute how much burstier declared traffic may be while earlier bounds of queues are in force.

    Theorem 4 of docs/queue-bounds.md with D of the larger bound of each queue.

    Args:
        topology: The fabric.
        routes: Its routes.
        jobs: Streams of the running jobs.
        probes: Telemetry's probes.
        options: The declared traffic.
        targets: Budgets of these jobs alone.
        held: Largest number of packets that each queue may hold now, by link.
        ended: Number of streams of ended jobs whose packets may be in the network, by link.

    Returns:
        Packets by which σ and the bound exceed those of the targets, by link; links without a difference are missing.
    """
    crossing = cross_traffic(routes, options.uncontrolled)
    full = frozenset(link for link, budget in targets.items() if budget.refusal)
    probing = probes_on(routes, probes, options, full)
    queues = _queues(topology, routes, jobs, probing, options, crossing, {}, full)

    def budgets(queues: Sequence[QueueInputs], held: Mapping[Endpoint, float]) -> Mapping[Endpoint, LinkBudget]:
        by_link, found = {queue.link: queue for queue in queues}, dict[Endpoint, LinkBudget]()

        def budget(queue: QueueInputs, before: Mapping[Endpoint, LinkBudget]) -> LinkBudget:
            target = targets[queue.link]
            marked_from = target.threshold if target.marked else NO_WINDOW_LIMIT
            own = queue_budget(queue, target.windows, target.window, marked_from, before, by_link, options)
            found[queue.link] = own
            return replace(own, bound=max(own.bound, held.get(queue.link, 0)))

        _upstream_first(by_link, budget, {}, options)
        return found

    before, after = budgets(queues, {}), budgets(_behind_nics(queues, crossing, options, ended), held)
    return {
        link: (after[link].burst - budget.burst, after[link].bound - budget.bound)
        for link, budget in before.items()
        if budget.burst < after[link].burst and budget.bound < math.inf
    }


def _by_threshold(
    queues: Sequence[QueueInputs],
    totals: Mapping[Endpoint, int],
    used: Mapping[Endpoint, int],
    stopped: Mapping[Endpoint, int],
    options: CongestionOptions,
) -> Callable[[int], Mapping[Endpoint, LinkBudget]]:
    """Return a function from a threshold of all queues that have not `stopped` at another one to their budgets.

    Queues without steady cross traffic are the same for each threshold.
    """
    apart = [queue for queue in queues if queue.crossing is None]
    known = _at_levels(apart, totals, 0, {}, 0, options, used)
    return lambda threshold: _at_levels(queues, totals, 0, stopped, threshold, options, used, known)


def _upstream(links: Collection[Endpoint], queues: Mapping[Endpoint, QueueInputs]) -> set[Endpoint]:
    """All queues that others have crossed before these."""
    upstream, ahead = set[Endpoint](), set(links)
    while ahead:
        crossing = queues[ahead.pop()].crossing
        if crossing:
            ahead |= set(crossing.upstream) - upstream
            upstream |= set(crossing.upstream)
    return upstream


def _kept(
    found: Mapping[Endpoint, LinkBudget], before: Mapping[Endpoint, LinkBudget], options: CongestionOptions
) -> bool:
    """Return True if all queues are within the bound, except those that had no bound before."""
    return not any(_broken(queue, before[link], options) for link, queue in found.items())


def _broken(found: LinkBudget, before: LinkBudget, options: CongestionOptions) -> bool:
    """Return True if a queue that had a bound before exceeds it."""
    return found.bound > found.wanted and not before.refusal


def probes_on(
    routes: Routes, probes: Iterable[Probe], options: CongestionOptions, full: Collection[Endpoint] = ()
) -> Mapping[Endpoint, ProbeTraffic]:
    """Return the traffic of probes on each link that they cross.

    Each probe that may cross a link counts as often as it is sent while one gets through it.

    Args:
        routes: Routes of the fabric.
        probes: Telemetry's probes.
        options: Options of congestion control, with the period of probes and the bound Q* that queues are taken to
            hold.
        full: Links whose queues are taken to hold as many packets as their buffers do.
    """
    topology, found = routes.topology, dict[Endpoint, ProbeTraffic]()
    frame_bytes, period_ns = largest_frame_bytes(topology, options), options.probe_period_ns
    for probe in probes:
        away_ns = 0.0
        for number, links in enumerate(probe_way(routes, probe), 1):
            late_s, length = away_ns / 1e9, probe_bytes(number)
            away_ns += max(
                _longest_wait_ns(topology.link_at(link), link in full, options, frame_bytes) for link in links
            )
            at_once = 1 + int(away_ns // period_ns) if period_ns else 1
            rate = 1e9 * length / period_ns if period_ns else 0.0
            for link in links:
                found[link] = found.get(link, NO_PROBES).plus(at_once, rate, late_s, length)
    return found


def _longest_wait_ns(cable: Link, is_full: bool, options: CongestionOptions, frame_bytes: int) -> float:
    """Longest time in a queue that holds Q* packets, or all that its buffer takes, and on its link."""
    return _through_ns(cable, cable.queue_packets if is_full else options.bound_packets, frame_bytes)


def longest_life_ns(routes: Routes, source: str, destination: str, frame_bytes: int) -> int:
    """Return the longest time in ns that a packet and its acknowledgement can be in the network, whatever other traffic
    there is.

    Every queue on the way is taken as full. The time that hosts take to answer is not included.

    Args:
        routes: Routes of the fabric.
        source: Host that sends the packet.
        destination: Host that sends the acknowledgement.
        frame_bytes: Length of the largest frames, which fill the queues.
    """
    total_ns = 0.0
    for way in ((source, destination), (destination, source)):
        if routes.reaches(*way):
            for links in hop_by_hop(routes, routes.shares(*way), way[1]):
                cables = map(routes.topology.link_at, links)
                total_ns += max(_through_ns(cable, cable.queue_packets, frame_bytes) for cable in cables)
    return math.ceil(total_ns)


def largest_frame_bytes(topology: Topology, options: CongestionOptions) -> int:
    """Return the largest frame that may wait in any queue: a job's round, or a frame of declared traffic, with INT."""
    steady = (traffic.packet_bytes for traffic in options.uncontrolled)
    yielding = (traffic.packet_bytes for traffic in options.windowed)
    return max([round_bytes(topology), *steady, *yielding]) + options.int_bytes


def _through_ns(link: Link, packets: int, frame_bytes: int) -> float:
    """Maximum time from a packet's arrival at a link's queue of `packets` packets until it is at the other end."""
    return (min(packets, link.queue_packets) + 1) * 8e9 * frame_bytes / link.rate_bps + link.delay_ns


def _at_levels(
    queues: Sequence[QueueInputs],
    levels: Mapping[Endpoint, int],
    level: int,
    thresholds: Mapping[Endpoint, int],
    threshold: int,
    options: CongestionOptions,
    windows: Mapping[Endpoint, int] | None = None,
    known: Mapping[Endpoint, LinkBudget] = MappingProxyType({}),
) -> Mapping[Endpoint, LinkBudget]:
    """Budgets where the windows at each queue may come to its level, or to `level` if it has none, and where others
    cross, packets are marked from its threshold on, or from `threshold` if it has none; upstream queues first.
    `windows` are the largest of each queue; None: its streams have the same. `known` are taken as they are.
    """
    by_link = {queue.link: queue for queue in queues}

    def budget(queue: QueueInputs, before: Mapping[Endpoint, LinkBudget]) -> LinkBudget:
        at, window = levels.get(queue.link, level), None if windows is None else windows.get(queue.link)
        return queue_budget(queue, at, window, thresholds.get(queue.link, threshold), before, by_link, options)

    return _upstream_first(by_link, budget, known, options)


_BudgetBehind = Callable[[QueueInputs, Mapping[Endpoint, LinkBudget]], LinkBudget]
"""Function from a queue and the budgets of the queues before it to its budget; missing queues are assumed to hold
Q*.
"""


def _upstream_first(
    queues: Mapping[Endpoint, QueueInputs],
    budget: _BudgetBehind,
    known: Mapping[Endpoint, LinkBudget],
    options: CongestionOptions,
) -> Mapping[Endpoint, LinkBudget]:
    """Return the budgets of all queues, each computed from those before it.

    In a ring of paths some queue is computed before one upstream of it, which is assumed to hold Q*. If its own bound
    turns out larger, the assumption is raised, until no bound is above it: then no queue can be the first to exceed its
    own. This ends, since each turn doubles the raise, and no queue delays by more than its buffer holds.
    """
    taken: dict[Endpoint, LinkBudget] = {}
    for turn in itertools.count():
        budget_by_link, asked = _in_turn(queues, budget, known, taken)
        limits = {link: taken[link].bound if link in taken else options.bound_packets for link in asked}
        more = {
            link: budget_by_link[link].bound + 2**turn
            for link, limit in limits.items()
            if budget_by_link[link].bound > limit
        }
        if not more:
            break
        taken |= {link: replace(budget_by_link[link], bound=bound) for link, bound in more.items()}
    return budget_by_link


def _in_turn(
    queues: Mapping[Endpoint, QueueInputs],
    budget: _BudgetBehind,
    known: Mapping[Endpoint, LinkBudget],
    taken: dict[Endpoint, LinkBudget],
) -> tuple[Mapping[Endpoint, LinkBudget], set[Endpoint]]:
    """The budgets, where those of some links are `taken` so until they are found; and all links that others' budgets
    needed before they were found.
    """
    budget_by_link, asked = dict(known), set[Endpoint]()

    def solve(queue: QueueInputs, path: frozenset[Endpoint]) -> None:
        upstream = queue.crossing.upstream if queue.crossing else ()
        for link in upstream:
            if link not in budget_by_link and link not in path:
                solve(queues[link], path | {queue.link})
        asked.update(link for link in upstream if link not in budget_by_link)
        budget_by_link[queue.link] = budget(queue, ChainMap(budget_by_link, taken) if taken else budget_by_link)

    for link, queue in queues.items():
        if link not in budget_by_link:
            solve(queue, frozenset())
    return budget_by_link, asked
