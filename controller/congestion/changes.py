"""Windows over time: as jobs come and go they shrink at once and grow late, so that what is in flight never exceeds a
budget.

    streams of jobs ─▶ link_budgets ─┬─ lower than now ─▶ in force at once; who comes anew holds back until all obey
                                     └─ higher ─────────▶ in force when the packets of the larger past have gone

A worker obeys a lowered window with its next result, or forgets its window within a lease where none comes: so all do
after a lease and the longest round trip. The state machine reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ...wire.aggregation import NO_WINDOW_LIMIT
from ...wire.control import Pacing
from ..planning.plan import JobPlan, round_bytes
from ..telemetry.probes import Probe
from .budget import CongestionOptions, JobStreams, LinkBudget, link_budgets


@dataclass(frozen=True, slots=True)
class _Remains:
    """A plan that no host follows any more, whose packets may still be in queues."""

    plan: JobPlan
    until_ns: int

    def packets(self, link: Endpoint) -> int:
        """The most of them that may be in a link's queue."""
        return self.plan.most_streams.get(link, 0) * self.plan.pacing.window


@dataclass(frozen=True, slots=True)
class _Known:
    """All that `Windows.follow` changes."""

    budgets: Mapping[Endpoint, LinkBudget]
    targets: Mapping[Endpoint, LinkBudget]
    plans: Mapping[int, JobPlan]
    remains: tuple[_Remains, ...]
    obeyed_ns: int
    """From when on all workers obey the windows in force."""
    inputs: tuple[object, ...]


class Windows:
    """The windows in force on every egress queue."""

    def __init__(self, topology: Topology, options: CongestionOptions) -> None:
        self.options = options
        self._topology = topology
        self._known = self._before = _Known({}, {}, {}, (), 0, ())
        self._held: Mapping[Endpoint, tuple[int, int]] = {}

    @property
    def budgets(self) -> Mapping[Endpoint, LinkBudget]:
        """What is in force."""
        return self._known.budgets

    @property
    def obeyed_ns(self) -> int:
        """From when on no packets are in the network that larger windows of before allowed, or plans of before."""
        return max([self._known.obeyed_ns, *(each.until_ns for each in self._known.remains)])

    def follow(self, routes: Routes, plans: Iterable[JobPlan], probes: Iterable[Probe], now_ns: int) -> list[JobPlan]:
        """The jobs that run, as they are now; those among them, paced, whose hosts are to have another pacing than
        their plan says. A job's number and generation tell whether it is new: then it is told its pacing with its plan.
        """
        plans, probes = tuple(plans), tuple(probes)
        laid = ((plan.spec.job, plan.generation, tuple(sorted(plan.most_streams.items()))) for plan in plans)
        inputs = (routes, probes, *laid)
        if inputs != self._known.inputs:
            self._before = self._known
            targets = link_budgets(self._topology, routes, [JobStreams.of(p) for p in plans], probes, self.options)
            self._known = replace(self._known, targets=targets, inputs=inputs)
            self._shrink(plans, now_ns)
        known = self._known
        if known.budgets is not known.targets and now_ns >= known.obeyed_ns and not self._remaining(now_ns):
            self._known = known = replace(known, budgets=known.targets)
        changed = []
        following = {}
        for plan in plans:
            before = known.plans.get(plan.spec.job)
            if before is None or before.generation != plan.generation:
                plan = replace(plan, pacing=self._pacing(plan, now_ns))
                changed.append(plan)
            elif plan.pacing != before.pacing:  # laid anew in the same generation, whose hosts know their pacing
                plan = replace(plan, pacing=before.pacing)
                changed.append(plan)
            following[plan.spec.job] = plan
        self._known = replace(self._known, plans=following)
        return changed

    def take_up(self, held: Mapping[Endpoint, tuple[int, int]]) -> None:
        """A controller that was started anew begins with the windows that the switches have, since nobody knows what
        workers obeyed them when.
        """
        self._held = held

    def withdraw(self) -> None:
        """The last change did not happen: no host was told of it."""
        self._known = self._before

    def _remaining(self, now_ns: int) -> tuple[_Remains, ...]:
        return tuple(each for each in self._known.remains if each.until_ns > now_ns)

    def _shrink(self, plans: tuple[JobPlan, ...], now_ns: int) -> None:
        """Take the lower of the windows in force and those that are to be, and note who does not obey them yet."""
        known = self._known
        if not known.budgets:
            budgets = {link: _lower(target, self._held.get(link)) for link, target in known.targets.items()}
            self._known = replace(known, budgets=budgets if self._held else known.targets)
            if self._held:
                wait_ns = max((self.round_trip_ns(plan) for plan in plans), default=0) + self.options.lease_ns
                self._known = replace(self._known, obeyed_ns=now_ns + wait_ns)
            return
        generations = {plan.spec.job: plan.generation for plan in plans}
        stay = {job: plan for job, plan in known.plans.items() if generations.get(job) == plan.generation}
        left = tuple(
            _Remains(plan, now_ns + self.round_trip_ns(plan)) for job, plan in known.plans.items() if job not in stay
        )
        lowered = any(
            target.window < known.budgets[link].window
            for link, target in known.targets.items()
            if any(link in plan.most_streams for plan in stay.values())
        )
        both = (*known.plans.values(), *plans)
        before_ns = max((self.round_trip_ns(plan) for plan in both), default=0)
        budgets = {
            link: _lower(target, (known.budgets[link].window, known.budgets[link].congested_window))
            for link, target in known.targets.items()
        }
        remains = (*self._remaining(now_ns), *left)
        self._known = known = replace(known, budgets=budgets, remains=remains)
        if lowered:
            wait_ns = max(before_ns, *(self.round_trip_ns(plan) for plan in both)) + self.options.lease_ns
            self._known = replace(known, obeyed_ns=max(known.obeyed_ns, now_ns + wait_ns))

    def _pacing(self, plan: JobPlan, now_ns: int) -> Pacing:
        mine = [self.budgets[link] for link in plan.most_streams if link in self.budgets]
        window = min((budget.window for budget in mine), default=NO_WINDOW_LIMIT)
        if not self.options.windows_obeyed:  # a burst of all at the start fits, whatever they do then
            window = min(
                (max(1, self.options.bound_packets // max(1, budget.streams)) for budget in mine), default=window
            )
        until_ns = self._known.obeyed_ns
        remaining = self._remaining(now_ns)
        for each in remaining:
            as_long = [other for other in remaining if other.until_ns >= each.until_ns]
            for budget in mine:
                packets = sum(other.packets(budget.link) for other in as_long)
                if each.packets(budget.link) and packets + budget.bound > self.options.bound_packets:
                    until_ns = max(until_ns, each.until_ns)
        return Pacing(
            window=max(1, min(window, plan.spec.window)),
            hold_ns=max(0, until_ns - now_ns),
            lease_ns=self.options.lease_ns,
            gap_ns=max((budget.gap_ns for budget in mine), default=0),
            round_trip_ns=self.round_trip_ns(plan),
        )

    def round_trip_ns(self, plan: JobPlan) -> int:
        """The longest that a round may be under way: the path itself, and the fullest queues that it can meet."""
        frame_bits = 8e9 * round_bytes(self._topology)
        waits = sorted(
            (
                (min(budget.bound, self._topology.link_at(link).queue_packets) + 1)
                * frame_bits
                / self._topology.link_at(link).rate_bps
                for link in plan.most_streams
                if (budget := self.budgets.get(link)) is not None
            ),
            reverse=True,
        )
        return plan.round_trip_ns + int(sum(waits[: plan.hops]))


def _lower(budget: LinkBudget, windows: tuple[int, int] | None) -> LinkBudget:
    """A budget with windows that are no larger than these, where streams cross."""
    if windows is None or not budget.streams:
        return budget
    window, congested = windows
    return replace(budget, window=min(budget.window, window), congested_window=min(budget.congested_window, congested))
