"""Windows over time: they shrink at once and grow late, so that packets in flight never exceed a budget.

    streams of jobs ─▶ link_budgets ─┬─ lower than now ─▶ in force at once; new jobs wait until all have applied it
                                     └─ higher ─────────▶ in force when packets of earlier windows are gone

A worker applies a lowered window with its next result, or resets its window within a lease without results. So all have
applied it after a lease and the longest round trip. Earlier marks, and smaller windows after a mark, count as lowered
windows, too. If a switch refuses the write, that time begins when it accepts it (`note_held`). Gaps between rounds are
sent with plans alone, so another gap requires another generation of the job (`jobs_to_repace`). The state machine reads
no clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ...wire.aggregation import NO_WINDOW_LIMIT
from ...wire.control import Pacing
from ...wire.frames import BULK_PRIORITY, JOB_CLASSES
from ..int_config.settings import IntConfig
from ..planning.plan import JobPlan
from ..telemetry.probes import Probe
from .budget import JobStreams, bursts_behind, largest_frame_bytes, link_budgets, losing_links, without_dropped
from .class_priority import raised_links, without_delayed
from .cross_traffic import DeclaredPair, declared_pairs
from .options import CongestionOptions
from .queue_budget import LinkBudget
from .reported import crossed_by_reports, with_reports, without_reported

NOT_YET: Final = 1 << 62
"""Sentinel: never."""


@dataclass(frozen=True, slots=True)
class _Remains:
    """A plan that no host follows any more, whose packets may still be in queues."""

    plan: JobPlan
    window: int
    """The most rounds that each of its workers had in the network."""
    left_ns: int
    """When its hosts had left it."""
    until_ns: int

    def packets(self, link: Endpoint) -> int:
        """Return the most of them that may be in a link's queue, besides copies."""
        return self.plan.max_streams.get(link, 0) * self.window


@dataclass(frozen=True, slots=True)
class _Known:
    """All that `WindowController.follow` changes."""

    budgets: Mapping[Endpoint, LinkBudget] = field(default_factory=dict)
    targets: Mapping[Endpoint, LinkBudget] = field(default_factory=dict)
    plans: Mapping[int, JobPlan] = field(default_factory=dict)
    windows: Mapping[int, int] = field(default_factory=dict)
    """Maximum number of rounds in the network per worker, by job; larger than the target while workers have not applied
    it.
    """
    fetches: Mapping[int, Mapping[Endpoint, int]] = field(default_factory=dict)
    """Packets of rounds that hosts fetch from each other after a move, by job and link."""
    told_ns: Mapping[int, int] = field(default_factory=dict)
    """Time at which the job's hosts received the plan, by job; nothing was sent under it before."""
    remains: tuple[_Remains, ...] = ()
    fits_ns: Mapping[Endpoint, int] = field(default_factory=dict)
    """Time from which the remaining packets of a link fit next to its streams, for links where they do not yet."""
    obeyed_ns: int = 0
    """Time from which all workers have applied the windows in force."""
    settled_ns: int = 0
    """Time from which no packet sent under an earlier bound is under way."""
    drains_ns: Mapping[Endpoint, int] = field(default_factory=dict)
    """Time that a queue needs after all obey until its new, smaller bound holds, by link (`_drain_ns`)."""
    held: Mapping[Endpoint, float] = field(default_factory=dict)
    """Largest number of packets that such a queue may hold until then."""
    bursts: Mapping[Endpoint, tuple[float, float]] = field(default_factory=dict)
    """Packets by which σ of a link and its bound are larger until queues before it have drained."""
    draining: Mapping[Endpoint, LinkBudget] = field(default_factory=dict)
    """The targets with these bursts."""
    changed_ns: int = 0
    """Time of the last change of the budgets."""
    inputs: tuple[object, ...] = ()


class WindowController:
    """The windows in force on every egress queue."""

    def __init__(self, topology: Topology, options: CongestionOptions, watching: IntConfig | None = None) -> None:
        """Create the state machine; `watching` is the switches' configuration of telemetry reports."""
        self.options = with_reports(options, topology, watching)
        self._topology = topology
        self._watching = watching
        self._known = self._before = _Known()
        self._held: Mapping[Endpoint, tuple[int, int]] | None = None
        self._written: Mapping[Endpoint, LinkBudget] = {}
        self._noted: tuple[Mapping[Endpoint, LinkBudget], Collection[str]] = ({}, ())
        self.declared: Mapping[Endpoint, tuple[DeclaredPair, ...]] = {}
        """Declared traffic of each link, by the routes of the budgets."""
        self.undeclared: Mapping[Endpoint, float] = MappingProxyType({})
        """Undeclared traffic detected on links, as shares of their rates."""
        self.behind: frozenset[str] = frozenset()
        """Switches whose tables allow more than the windows in force, since a write failed: until they are written, no
        new job may send, and no window grows.
        """

    @property
    def budgets(self) -> Mapping[Endpoint, LinkBudget]:
        """Budgets in force. Bounds include packets of ended streams unless new jobs wait until those are gone."""
        return self._known.budgets

    @property
    def fetches(self) -> Mapping[int, Mapping[Endpoint, int]]:
        """Packets of rounds that hosts fetch from each other after a move, by job and link."""
        return self._known.fetches

    @property
    def obeyed_ns(self) -> int:
        """Time from which no packets sent under larger windows or earlier plans are in the network."""
        if self.behind:
            return NOT_YET
        return max([self._known.obeyed_ns, *(remain.until_ns for remain in self._known.remains)])

    @property
    def drained_ns(self) -> Mapping[Endpoint, int]:
        """Time until which an earlier, larger bound of a queue is in force, by link: packets of traffic without windows
        may have gathered under it. Other queues have new bounds from `obeyed_ns` on.
        """
        gone_ns = max(self.obeyed_ns, self._known.changed_ns)
        return {link: gone_ns + drain_ns for link, drain_ns in self._known.drains_ns.items()}

    def _undrained(self, now_ns: int) -> Mapping[Endpoint, float]:
        """Packets that queues may hold which have not drained yet, by link."""
        drained_ns = self.drained_ns
        return {link: held for link, held in self._known.held.items() if drained_ns.get(link, 0) > now_ns}

    def update(
        self,
        routes: Routes,
        plans: Iterable[JobPlan],
        probes: Iterable[Probe],
        now_ns: int,
        fetches: Mapping[int, Mapping[Endpoint, int]] = MappingProxyType({}),
    ) -> list[JobPlan]:
        """Update the running jobs. A job whose number or generation is new gets its pacing with its plan.

        Args:
            routes: Routes of the fabric.
            plans: Plans of all running jobs.
            probes: Telemetry's probes.
            now_ns: Present time, in ns.
            fetches: Packets of rounds that hosts of moved jobs fetch from each other, by job and link.

        Returns:
            Plans with new pacing, for paced jobs whose hosts need another pacing than their plan's.
        """
        plans, probes = tuple(plans), tuple(probes)
        laid = (
            (plan.spec.job, plan.generation, plan.spec.classes, tuple(sorted(plan.max_streams.items())))
            for plan in plans
        )
        inputs = (routes, probes, self.undeclared, fetches, *laid)
        taken_up = self._held is not None and not self._known.budgets
        if inputs != self._known.inputs:
            self._before = self._known
            streams = [JobStreams.of(plan, fetches.get(plan.spec.job, {})) for plan in plans]
            self.declared = declared_pairs(routes, self.options.uncontrolled, self.options.windowed)
            reported = crossed_by_reports(self._topology, routes, self._watching)
            targets = link_budgets(self._topology, routes, streams, probes, self.options, self.undeclared, reported)
            targets = without_reported(targets, reported, self._watching)
            targets = without_dropped(targets, self._topology, streams)
            targets = without_delayed(targets, routes, streams, probes, self.options)
            undrained = self._undrained(now_ns)
            self._decrease(plans, targets, now_ns)
            held = self._find_held(undrained)
            self._delay_bursts(routes, streams, tuple(probes), held)
            self._drain(held, now_ns)
            self._known = replace(self._known, inputs=inputs, fetches=fetches)
        known = self._known
        obeyed = now_ns >= known.obeyed_ns and not self.behind
        waits = bool(known.bursts) and not known.bursts.keys().isdisjoint(self._undrained(now_ns))
        goal = known.draining if waits else known.targets
        if known.budgets is not goal and obeyed and not self._remaining(now_ns):
            self._known = known = replace(known, budgets=goal)
        changed = []
        following, windows, told_ns = {}, {}, {}
        for plan in plans:
            job, window = plan.spec.job, self._window(plan)
            before = known.plans.get(job)
            told_ns[job] = known.told_ns.get(job, now_ns)
            if before is None or before.generation != plan.generation:
                told = replace(plan, pacing=self._pacing(plan, now_ns))
                if taken_up:
                    told = replace(told, pacing=replace(told.pacing, gap_ns=plan.pacing.gap_ns))
                plan, told_ns[job] = told, now_ns
                changed.append(plan)
            else:
                if plan.pacing != before.pacing:  # laid anew in the same generation, whose hosts know their pacing
                    plan = replace(plan, pacing=before.pacing)
                    changed.append(plan)
                if now_ns < known.obeyed_ns:
                    window = max(window, known.windows[job])
            following[job], windows[job] = plan, window
        self._known = replace(known, plans=following, windows=windows, told_ns=told_ns)
        return changed

    @property
    def class_bounds(self) -> Mapping[tuple[Endpoint, int], int]:
        """Bounds of queues of classes above bulk, in packets, by egress port and priority.

        Such a queue holds messages alone, at most a window of each stream that may have the class, and their copies. It
        has a bound if no higher class meets any of its jobs, which could make their rounds late and so repeated, and if
        workers obey windows on links that lose nothing.
        """
        plans = [*self._known.plans.values(), *(remain.plan for remain in self._known.remains)]
        if all(max(plan.spec.classes) <= BULK_PRIORITY for plan in plans):
            return {}
        windows = [self._known.windows.get(plan.spec.job, plan.spec.window) for plan in self._known.plans.values()]
        windows += [remain.window for remain in self._known.remains]
        fetches = [self._known.fetches.get(job, {}) for job in self._known.plans]
        fetches += [{} for _ in self._known.remains]
        raised = raised_links(map(JobStreams.of, plans, fetches))
        bounds: dict[tuple[Endpoint, int], int] = {}
        without: set[tuple[Endpoint, int]] = set()
        for plan, window, fetched in zip(plans, windows, fetches, strict=True):
            classes = [priority for priority in plan.spec.classes if priority > BULK_PRIORITY]
            if not classes:
                continue
            first = not any(raised[link] > min(classes) for link in (*plan.max_streams, *fetched))
            kept = first and self.options.windows_obeyed and not losing_links(self._topology, plan.max_streams)
            for link in plan.max_streams.keys() | fetched.keys():
                if not self._topology.is_switch(link.node):
                    continue
                for priority in classes:
                    packets = plan.max_streams.get(link, 0) * window + plan.max_copies.get(link, 0)
                    packets += fetched.get(link, 0)
                    bounds[link, priority] = bounds.get((link, priority), 0) + packets
                    if not kept or bounds[link, priority] > self._most_in_class(link):
                        without.add((link, priority))
        return {queue: bound for queue, bound in bounds.items() if queue not in without}

    def _most_in_class(self, link: Endpoint) -> float:
        """Packets of the highest class at a link with which no round is repeated: see `_min_timeout_ns`."""
        waited = (self.options.bound_packets + 1) / _slowness(self._topology) - 3
        return min(waited, self._topology.link_at(link).queue_packets)

    @property
    def jobs_to_repace(self) -> Mapping[int, int]:
        """Required gap of each job whose hosts have another one.

        While some jobs have to slow down, only these are returned: no job speeds up before they have.
        """
        due = {job: self._gap_ns(plan) for job, plan in self._known.plans.items()}
        told = {job: plan.pacing.gap_ns for job, plan in self._known.plans.items()}
        slower = {job: gap_ns for job, gap_ns in due.items() if gap_ns > told[job]}
        return slower or {job: gap_ns for job, gap_ns in due.items() if gap_ns < told[job]}

    def restore(self, held: Mapping[Endpoint, tuple[int, int]]) -> None:
        """Start with the windows found in the switches and the gaps in the jobs' plans, after a restart of the
        controller.

        It is unknown when workers applied them.
        """
        self._held = held

    def withdraw(self) -> None:
        """Undo the last change, which was sent to no host."""
        self._known = self._before

    def note_held(self, switches: Collection[str], now_ns: int) -> None:
        """Record that exactly these switches hold the present entries; call after each write.

        A switch that refused a part has either the old or the new entries, so the larger window counts.
        """
        known, written = self._known, dict[Endpoint, LinkBudget]()
        if known.budgets is self._noted[0] and switches == self._noted[1]:
            return
        self._noted = (known.budgets, switches)
        for link, budget in known.budgets.items():
            if link.node in switches:
                written[link] = budget
            elif link in self._written:
                written[link] = _looser(self._written[link], budget)
        self._written = written
        behind = self._find_behind()
        if self.behind and not behind:
            wait_ns = max(map(self.round_trip_ns, known.plans.values()), default=0) + self.options.lease_ns
            self._known = replace(known, obeyed_ns=max(known.obeyed_ns, now_ns + wait_ns))
        self.behind = behind

    def _find_behind(self) -> frozenset[str]:
        """Switches by which some worker may exceed the windows in force, or be marked later than the bounds assume."""
        budgets, written, behind = self.budgets, self._written, set[str]()
        for plan in self._known.plans.values():
            allowed = {link: _window_of(written.get(link)) for link in plan.max_streams if link in budgets}
            if min([plan.spec.window, *allowed.values()]) > self._window(plan):
                behind |= {link.node for link, window in allowed.items() if window > budgets[link].window}
        for link, budget in budgets.items():
            if budget.marked and (link not in written or _marks_less(written[link], budget)):
                behind.add(link.node)
        return frozenset(behind)

    def _remaining(self, now_ns: int) -> tuple[_Remains, ...]:
        return tuple(remain for remain in self._known.remains if remain.until_ns > now_ns)

    def _decrease(self, plans: tuple[JobPlan, ...], targets: Mapping[Endpoint, LinkBudget], now_ns: int) -> None:
        """Apply the smaller of the windows in force and the target windows, and note workers that have not applied them
        yet.
        """
        known = self._known
        if not known.budgets:
            self._start(plans, targets, now_ns)
            return
        generations = {plan.spec.job: plan.generation for plan in plans}
        stay = {job: plan for job, plan in known.plans.items() if generations.get(job) == plan.generation}
        left = tuple(
            _Remains(plan, known.windows[job], now_ns, now_ns + self.round_trip_ns(plan))
            for job, plan in known.plans.items()
            if job not in stay
        )
        both = (*known.plans.values(), *plans)
        before_ns = max((self.round_trip_ns(plan) for plan in both), default=0)
        budgets = {link: _lowered(target, known.budgets[link]) for link, target in targets.items()}
        remains = (*self._remaining(now_ns), *left)
        self._known = lowered = replace(known, targets=targets, budgets=budgets, remains=remains, changed_ns=now_ns)
        self._count_what_remains(plans)
        # where more may be in the queues than before, it takes longer
        longer = ((remain, remain.left_ns + self.round_trip_ns(remain.plan)) for remain in remains)
        remains = tuple(replace(each, until_ns=max(each.until_ns, until_ns)) for each, until_ns in longer)
        self._known = replace(lowered, remains=remains)
        self._count_what_remains(plans)
        wait_ns = max(before_ns, *(self.round_trip_ns(plan) for plan in both), 0) + self.options.lease_ns
        settled_ns = max(known.settled_ns, now_ns + wait_ns)
        obeyed_ns = settled_ns if _lowers(known, stay, targets, now_ns) else self._known.obeyed_ns
        self._known = replace(self._known, settled_ns=settled_ns, obeyed_ns=obeyed_ns)

    def _find_held(self, undrained: Mapping[Endpoint, float]) -> Mapping[Endpoint, float]:
        """Return the packets that queues may hold now, by link, where these are more than the target's bound."""
        known, before = self._known, self._before.budgets
        held = {}
        for link, target in known.targets.items():
            bounds = [budgets[link] for budgets in (before, known.budgets) if link in budgets]
            most = max(math.inf if each.refusal else each.bound for each in bounds)
            most = max(most, undrained.get(link, 0))
            if target.share and not target.refusal and most > target.bound:
                held[link] = min(most, self._topology.link_at(link).queue_packets)
        return held

    def _delay_bursts(
        self,
        routes: Routes,
        streams: Sequence[JobStreams],
        probes: Sequence[Probe],
        held: Mapping[Endpoint, float],
    ) -> None:
        """Add to the bounds what declared traffic brings at once behind queues that hold more than their targets."""
        known = self._known
        if not (self.options.uncontrolled and (held or known.remains)):
            self._known = replace(known, bursts={}, draining=known.targets)
            return
        ended = Counter[Endpoint]()
        for remain in known.remains:
            ended.update(remain.plan.max_streams)
        bursts = bursts_behind(self._topology, routes, streams, probes, self.options, known.targets, held, ended)
        budgets, draining = (
            {link: budget.with_burst(*bursts.get(link, (0, 0))) for link, budget in each.items()}
            for each in (known.budgets, known.targets)
        )
        self._known = replace(known, bursts=bursts, budgets=budgets, draining=draining)
        # packets of ended jobs may take longer through fuller queues
        remains, later_ns = [], 0
        for remain in known.remains:
            until_ns = max(remain.until_ns, remain.left_ns + self.round_trip_ns(remain.plan))
            later_ns = max(later_ns, until_ns - remain.until_ns)
            remains.append(replace(remain, until_ns=until_ns))
        fits_ns = {link: fit_ns + later_ns for link, fit_ns in known.fits_ns.items()}
        self._known = replace(self._known, remains=tuple(remains), fits_ns=fits_ns)

    def _drain(self, held: Mapping[Endpoint, float], now_ns: int) -> None:
        """Note the times that queues need after all obey until their smaller bounds hold.

        Queues drain one after the other: what one has gathered comes to the next in a burst.
        """
        known = self._known
        held = dict(held)
        for link in known.bursts:
            if not known.targets[link].refusal:
                held[link] = max(held.get(link, 0), self._most_held(known.draining[link]))
        own = {link: self._drain_ns(known.targets[link], packets) for link, packets in held.items()}
        drains_ns = {}
        for link in own:
            links = {link}.union(*(pair.links for pair in self.declared.get(link, ())))
            drains_ns[link] = sum(own.get(each, 0) for each in links)
        self._known = replace(known, drains_ns=drains_ns, held=held)

    def _most_held(self, budget: LinkBudget) -> float:
        return min(math.inf if budget.refusal else budget.bound, self._topology.link_at(budget.link).queue_packets)

    def _drain_ns(self, target: LinkBudget, held: float) -> int:
        """Return the time until a queue that holds so many packets obeys a smaller bound.

        Windows count packets in the network, so bounds by windows alone hold at once. Packets of other traffic leave at
        the rate that is spare (docs/queue-bounds.md §14).
        """
        packets = (held + target.bound) * (1 + math.log(max(held, 2)) if target.marked else 1)
        return math.ceil(1e9 * packets / target.spare)

    def _start(self, plans: tuple[JobPlan, ...], targets: Mapping[Endpoint, LinkBudget], now_ns: int) -> None:
        """Put the first windows in force: the targets, or no more than the switches were found to hold."""
        held = self._held or {}
        budgets = {link: _held(target, held.get(link)) for link, target in targets.items()}
        self._known = replace(self._known, targets=targets, budgets=budgets if held else targets)
        if held:
            wait_ns = max((self.round_trip_ns(plan) for plan in plans), default=0) + self.options.lease_ns
            self._known = replace(self._known, obeyed_ns=now_ns + wait_ns)

    def _count_what_remains(self, plans: tuple[JobPlan, ...]) -> None:
        """Update each link's sum of windows in force, plus remaining packets of ended streams as far as they fit within
        Q*.

        New jobs wait until the rest is gone, too.
        """
        known = self._known
        totals: dict[Endpoint, int] = {}
        present = {plan.spec.job: plan.max_copies for plan in plans}
        for plan in plans:
            window = self._window(plan)
            for link, count in plan.max_streams.items():
                totals[link] = totals.get(link, 0) + count * window
        budgets, fits_ns = dict(known.budgets), dict[Endpoint, int]()
        last_first = sorted(known.remains, key=lambda remain: remain.until_ns, reverse=True)
        for link, total in totals.items():
            if link not in budgets:
                continue  # a host's own
            budget = budgets[link].counting(total)
            for each in last_first:
                if packets := each.packets(link):
                    # a new generation sends no copies before those of the old one are gone
                    copies = present.get(each.plan.spec.job, {}).get(link, 0)
                    packets += max(0, each.plan.max_copies.get(link, 0) - copies)
                    together = budget.counting(budget.windows + packets)
                    if together.bound > together.wanted:
                        fits_ns[link] = each.until_ns
                        break
                    budget = together
            budgets[link] = budget
        self._known = replace(known, budgets=budgets, fits_ns=fits_ns)

    def _window(self, plan: JobPlan) -> int:
        """W of its workers, as the switches have it now."""
        allowed = (self.budgets[link].window for link in plan.max_streams if link in self.budgets)
        return max(1, min(plan.spec.window, min(allowed, default=NO_WINDOW_LIMIT)))

    def _gap_ns(self, plan: JobPlan) -> int:
        return max((self.budgets[link].gap_ns for link in plan.max_streams if link in self.budgets), default=0)

    def _pacing(self, plan: JobPlan, now_ns: int) -> Pacing:
        known, window = self._known, self._window(plan)
        if not self.options.windows_obeyed:  # a burst of all at the start fits, whatever they do then
            streams = max(
                (known.budgets[link].streams for link in plan.max_streams if link in known.budgets), default=1
            )
            window = min(window, max(1, self.options.bound_packets // max(1, streams)))
        until_ns = max([known.obeyed_ns, *(known.fits_ns.get(link, 0) for link in plan.max_streams)])
        return Pacing(
            window=window,
            hold_ns=max(0, until_ns - now_ns),
            lease_ns=self.options.lease_ns,
            gap_ns=self._gap_ns(plan),
            round_trip_ns=self._min_timeout_ns(plan, now_ns),
        )

    def _min_timeout_ns(self, plan: JobPlan, now_ns: int) -> int:
        """Maximum time that a round may be under way whichever jobs come: no retransmission is sent earlier.

        Otherwise workers would resend rounds that are only late, and no bound covers such copies. Nor is any sent while
        packets of the job's earlier generations are under way. 0 if its links lose frames: there are no bounds then,
        and recovery should be fast.
        """
        if losing_links(self._topology, plan.max_streams) or self._overflows(plan):
            return 0
        own = [remain.until_ns - now_ns for remain in self._known.remains if remain.plan.spec.job == plan.spec.job]
        return max([self.round_trip_ns(plan, at_least=self.options.bound_packets), *own])

    def _overflows(self, plan: JobPlan) -> bool:
        """Return True if a buffer on the job's ways cannot take a round of each stream at once."""
        return self.options.windows_obeyed and any(
            self.budgets[link].streams > self._topology.link_at(link).queue_packets
            for link in plan.max_streams
            if link in self.budgets
        )

    def round_trip_ns(self, plan: JobPlan, at_least: float = 0) -> int:
        """Return the maximum time that a round may be under way: the path itself, and the fullest queues on it.

        Each queue holds `at_least` packets or more, all of the largest frame size.
        """
        frame_bits = 8e9 * largest_frame_bytes(self._topology, self.options)
        slowness = _slowness(self._topology) if max(plan.spec.classes) > BULK_PRIORITY else 1
        waits = []
        for link in plan.max_streams:
            if link in self.budgets:
                cable = self._topology.link_at(link)
                most = max(self.budgets[link].bound, self._known.targets[link].bound, at_least)
                waits.append(slowness * (min(most, cable.queue_packets) + 1) * frame_bits / cable.rate_bps)
        waits.sort(reverse=True)
        return plan.round_trip_ns + int(sum(waits[: plan.hops]))


def _slowness(topology: Topology) -> float:
    """Factor by which the highest class of jobs may be slower than on a link of its own, beside four lower ones."""
    share = max(switch.target.minimum_share for switch in topology.switches)
    return 1 / (1 - share) ** (len(JOB_CLASSES) - 1)


def _lowers(known: _Known, stay: Mapping[int, JobPlan], targets: Mapping[Endpoint, LinkBudget], now_ns: int) -> bool:
    """Return True if some worker of the jobs that stay must send less than it may by the windows in force."""
    # jobs whose plan was sent at this very instant have had no result yet, and so no marks
    heard = {link for job, plan in stay.items() if known.told_ns[job] < now_ns for link in plan.max_streams}
    crossed = {link for plan in stay.values() for link in plan.max_streams}
    return any(
        (link in crossed and _asks_for_less(target, known.budgets[link]))
        or (link in heard and _marks_more(target, known.budgets[link]))
        for link, target in targets.items()
    )


def _asks_for_less(target: LinkBudget, before: LinkBudget) -> bool:
    """Return True if a crossing stream must send less than before, marked or not."""
    return target.window < before.window or target.gap_ns > before.gap_ns


def _marks_more(target: LinkBudget, before: LinkBudget) -> bool:
    """Return True if a crossing stream must send less than before when it is marked, or is marked earlier."""
    return target.congested_window < before.congested_window or (target.marked and target.threshold < before.threshold)


def _window_of(written: LinkBudget | None) -> int:
    """Window that a port allows; a port without a budget has not been written yet."""
    return NO_WINDOW_LIMIT if written is None else written.window


def _marks_less(one: LinkBudget, other: LinkBudget) -> bool:
    """Return True if `one` marks later than `other`, or leaves marked streams more."""
    return one.threshold > other.threshold or one.congested_window > other.congested_window


def _looser(one: LinkBudget, other: LinkBudget) -> LinkBudget:
    """Combination of two budgets of a link, with the larger limit of both in each part."""
    return replace(
        one,
        window=max(one.window, other.window),
        congested_window=max(one.congested_window, other.congested_window),
        threshold=max(one.threshold, other.threshold),
    )


def _lowered(target: LinkBudget, before: LinkBudget) -> LinkBudget:
    """A budget with windows that are no larger than those in force before, where streams cross; nor are gaps smaller,
    and marks that bounds count on do not come later.
    """
    lowered = _held(target, (before.window, before.congested_window))
    if not target.streams:
        return target
    less = target.streams * (target.congested_window - lowered.congested_window) if target.marked else 0
    return replace(
        lowered,
        threshold=min(target.threshold, before.threshold) if before.marked else target.threshold,
        gap_ns=max(target.gap_ns, before.gap_ns),
        bound=target.bound - less,
    )


def _held(budget: LinkBudget, windows: tuple[int, int] | None) -> LinkBudget:
    """A budget with windows that are no larger than these, where streams cross."""
    if windows is None or not budget.streams:
        return budget
    window, congested = windows
    return replace(budget, window=min(budget.window, window), congested_window=min(budget.congested_window, congested))
