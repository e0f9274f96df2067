"""The controller: keeps the switches as the jobs need them, watches the links, and moves jobs when telemetry or a
failure says so.

It reads no clock and starts no timer: its caller says what time it is, wall time or virtual, and makes one call after
the other::

    controller = Controller(topology, routes, sessions, strategy, Options(), now_ns)
    await controller.start()
    messages = await controller.admit(JobSpec(...), now_ns)      # plans for the job's hosts
    ...
    messages = await controller.tick(now_ns)                     # no later than controller.deadline_ns
    controller.moves.held(job, host, held)                       # the hosts' answers, then tick again
    controller.moves.resumed(job, host, generation, now_ns)
    controller.members.heartbeat(job, host, rounds, now_ns)      # every host, now and then: it lives, and how far it is

A host that gets a plan in mid-job (a server that takes over) confirms it as a Resume. A driver of virtual time stops
its clock during `tick`; how many packets that has sent, and how many have come back, `switches` tells.

What goes wrong with one job or one switch stays there: `tick` logs it, tries again, and `jobs.waiting_for` says it.
With `contains_failures` an unexpected exception in work for one job aborts that job (`JobRegistry.failing_alone`).
Messages are sent only after the journal is written; the next tick repeats a failed write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..topologies.model import Endpoint, Topology
from ..topologies.routing import Routes
from ..wire.frames import BULK_PRIORITY
from .congestion import WindowController
from .congestion.bound_log import PROMISES, PromiseChanges, summary
from .congestion.bound_violations import Exceeded
from .congestion.budget import losing_links, window_alone
from .congestion.marking import marked_states, windows_held
from .congestion.undeclared_traffic import Undeclared
from .decisions import Decisions
from .errors import ControllerError, PlanError
from .inference.forest import Forest
from .inference.models import Models
from .int_config.cost import TelemetryCost, telemetry_cost
from .int_config.table_entries import check_int_config, telling_slots, watch_state
from .jobs.background_estimator import BackgroundTrafficEstimator
from .jobs.carried import links_carried
from .jobs.job import RunningJob
from .jobs.job_classes import JobClasses
from .jobs.job_order import JobOrder
from .jobs.journal import Journal
from .jobs.journal_file import JournalFile
from .jobs.membership import JobMembers
from .jobs.migrator import Migrator
from .jobs.re_placement import RePlacementScheduler
from .jobs.registry import JobRegistry
from .jobs.restore import restore_jobs
from .jobs.slow_paths import SlowPaths
from .options import ControllerOptions, Message
from .p4runtime.entries import SwitchState
from .p4runtime.reconcile import Diff, verify
from .p4runtime.session import SwitchSession
from .p4runtime.switches import Switches
from .p4runtime.tables import MARKING
from .placement import Placement
from .placement.strategies import Strategy
from .planning.admission import admitting_states, edge_switches
from .planning.plan import JobPlan, JobSpec, base_state, fabric_state, with_window
from .planning.planner import LinkConditions, Planner
from .telemetry.link_state import LinkState
from .telemetry.prober import Prober
from .telemetry.snapshot import DOUBTED, listed

if TYPE_CHECKING:
    from .telemetry.collector import ReportCollector

__all__ = ["Controller", "ControllerOptions", "Message"]

_log = logging.getLogger(__name__)
_promise_log = logging.getLogger(PROMISES)
_telemetry_log = logging.getLogger(f"{__package__}.telemetry")


def _check_inputs(topology: Topology, sessions: Mapping[str, SwitchSession], options: ControllerOptions) -> None:
    """Check that every switch has a session, and that the fabric can report what `options` requests.

    Raises:
        ControllerError: A switch has no session.
        PlanError: The fabric cannot report this.
    """
    if options.watching is not None:
        check_int_config(topology, options.watching)
    if missing := {s.name for s in topology.switches} - sessions.keys():
        raise ControllerError(
            f"no session with {', '.join(sorted(missing))} of {topology.name}", value=tuple(sorted(missing))
        )


class Controller:
    """One fabric's controller: its parts, and the operations that involve several of them.

    `sessions` must be open; the caller that opened them closes them.

    Attributes:
        topology: The fabric.
        planner: The place that jobs have in the fabric: memory, strategy, routes without what is down.
        switches: The sessions with all switches, and which of these are lost.
        links: State of the links from reports; all readers use its snapshot.
        prober: The probes under way, and which links are down.
        sources: Sources of reports besides the probes: each is called with the time before any decision, and
            updates the links' state.
        reports: Collector of switches' own reports, from their CPU ports and from further receivers.
        int_load: Counts watched packets with INT headers and these headers' bytes on each link, if available.
        int_unread: Counts results whose INT could not be read by hosts' congestion-control laws, if available.
        jobs: The running jobs by number, and why others were aborted.
        models: The switches' models for classification.
        moves: Leads jobs from one generation to the next; receives the hosts' answers to Pause and Resume.
        windows: Queue bounds: windows, thresholds, and their announcements.
        improver: Re-placement of running jobs.
        order: Order of the running jobs, and the traffic class that each should have.
        classes: Changes of running jobs' traffic classes.
        members: Members of the jobs; receives hosts' heartbeats.
        bounded: Callbacks with the time, called whenever bounds may have changed, before anything is sent under
            them.
        exceeded: Queues that telemetry reports with more packets than their bound.
    """

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        sessions: Mapping[str, SwitchSession],
        strategy: Strategy,
        options: ControllerOptions,
        now_ns: int = 0,
        seed: int = 1,
        journal: JournalFile | None = None,
    ) -> None:
        """Create a controller.

        Args:
            topology: The fabric.
            routes: Paths in the fabric.
            sessions: Open P4Runtime sessions, by switch.
            strategy: Placement strategy.
            options: Options of the controller.
            now_ns: Present time on the caller's clock.
            seed: Seed for strategies that draw random numbers.
            journal: Journal whose jobs are resumed: `start` then writes only differences to the switches.

        Raises:
            ControllerError: The journal belongs to another fabric.
            PlanError: This fabric cannot report what `options` requests.
        """
        _check_inputs(topology, sessions, options)
        self.topology = topology
        self.planner = Planner(
            topology,
            routes,
            strategy,
            seed,
            options.improvement,
            options.congestion.bound_packets,
            options.host_turn_ns,
        )
        self.switches = Switches(sessions, options.lease_ns, options.retry_ns, now_ns)
        self.links = LinkState(topology, period_ns=options.probe_period_ns)
        self.prober = Prober(topology, routes, sessions, self.links, options.lease_ns, now_ns)
        self.sources: list[Callable[[int], object]] = []
        self.reports: ReportCollector | None = None
        if options.watching is not None:
            from .telemetry.collector import ReportCollector  # its code is for Numba, which few controllers need

            self.reports = ReportCollector(topology, self.links)
        self.int_load: Callable[[], Mapping[Endpoint, tuple[int, int]]] | None = None
        self.int_unread: Callable[[], int] | None = None
        lease_ns = options.lease_ns if options.host_lease_ns is None else options.host_lease_ns
        self.jobs = JobRegistry(
            topology,
            self.planner,
            lease_ns,
            Journal(journal, topology, self.planner, self.switches.owner),
            contains_failures=options.contains_failures,
        )
        self.models = Models(topology, self.jobs.journal)
        self._decisions = Decisions(aside=options.decide_aside)
        self.moves = Migrator(
            self.jobs,
            self.planner,
            BackgroundTrafficEstimator(self.jobs, self.planner, self.links),
            self._decisions,
            options,
        )
        self.windows = WindowController(
            topology, replace(options.congestion, probe_period_ns=options.probe_period_ns), options.watching
        )
        self._undeclared = Undeclared(topology, routes, self.links, self.windows.options, options.watching, lease_ns)
        self.improver = RePlacementScheduler(self.jobs, self.moves, self.planner, self.windows, self._decisions, now_ns)
        self.order = JobOrder(
            self.jobs, self.planner, self.moves.outlook.conditions_for, options.order, options.order_ns
        )
        at = options.heartbeats_at
        paths = SlowPaths(self.planner, self.links, at) if at is not None else None
        self.classes = JobClasses(self.jobs, self._longest_life_ns)
        self._applies_order = options.apply_order
        self.members = JobMembers(self.jobs, self.moves, paths)
        self.bounded: list[Callable[[int], object]] = []
        self._promises = PromiseChanges(self.windows)
        self.exceeded = Exceeded(self.links, self.windows)
        self._watching = options.watching
        self._down = routes.down
        self._bases = self._base_states(routes)
        self._stale: frozenset[Endpoint] = frozenset()
        self._next_stale_ns: int | None = None
        self._made_of: list[object] = []
        self._made: Mapping[str, SwitchState] = {}
        self._restore(now_ns)

    def _restore(self, now_ns: int) -> None:
        """Resume the journal's jobs, and apply what it says of links and switches."""
        self.prober.link_watch.mark_down(self.jobs.journal.down, now_ns)
        self.switches.mark_lost(self.jobs.journal.lost)
        if self.is_impaired:
            self._update_topology(now_ns)
        restore_jobs(self.topology, self.planner, self.jobs, self.moves, now_ns)
        if self.is_impaired:
            self.moves.update_topology(self.switches.lost, now_ns)

    @property
    def is_impaired(self) -> bool:
        """True while links are down, or switches lost or out of reach."""
        return bool(self.prober.link_watch.down or self.switches.lost or self.planner.out_of_reach)

    def host_groups(self, without: Collection[str] = ()) -> list[list[str]]:
        """Return the hosts that new jobs can run on, in groups that reach each other, the largest first.

        Hosts at a switch that is lost, out of reach, does not hold its target state, or is in `without`, are left out.
        """
        unusable = {*self.switches.lost, *self.switches.out_of_reach, *self.switches.troubles, *without}
        routes = self.planner.routes
        groups: dict[str, list[str]] = {}
        for host in self.topology.hosts:
            switch = self.topology.neighbours(host.name)[0].node
            if switch in unusable or not routes.reaches(host.name, switch):
                continue
            first = next((group for group in groups if routes.reaches(switch, group)), switch)
            groups.setdefault(first, []).append(host.name)
        return sorted(groups.values(), key=len, reverse=True)

    @property
    def deadline_ns(self) -> int:
        """When `tick` has something to do again, if nothing else happens; 0 while something waits for a tick."""
        parts = (
            self.jobs.deadline_ns,
            self.moves.deadline_ns,
            self.improver.deadline_ns,
            self.switches.deadline_ns,
            self._next_stale_ns,
            0 if self.classes.is_due else None,
            self.order.deadline_ns if self._applies_order and self.jobs else None,
        )
        return min([self.prober.deadline_ns, *(deadline for deadline in parts if deadline is not None)])

    async def start(self, now_ns: int = 0) -> Mapping[str, Diff]:
        """Bring every switch to its target state, whatever it holds; return the changes.

        A switch that may hold rounds unknown to this controller gets its program loaded again first. With leases, a
        switch that does not answer is retried until its lease runs out.

        Raises:
            ControllerError: A switch cannot be brought to its target state.
        """
        journal = self.jobs.journal
        await self.switches.claim(journal.owner, forgetful=journal.is_new, had_jobs=bool(self.jobs))
        self.switches.invalidate()
        if self.switches.poll(now_ns):
            self._update_topology(now_ns)
        if self.jobs:
            self.windows.restore(windows_held(await self.switches.read_table(MARKING)))
        diffs = await self._write_switches(now_ns)
        self.switches.raise_trouble(self.switches.answering)
        return diffs

    async def tick(self, now_ns: int) -> list[Message]:
        """Do everything that is due, and return the messages for hosts.

        In order: read reports, detect losses, continue moves, look for better placements, send probes.

        Raises:
            NotPrimary: Another controller has taken over; nothing is done then.
        """
        self._update_readings(now_ns)
        links_changed = self.prober.update(now_ns, partial(links_carried, self.jobs.values(), self.planner.routes))
        if self.switches.poll(now_ns) or links_changed:
            self._update_topology(now_ns)
        self.members.remove_departed(now_ns)
        self.members.end_leases(now_ns)
        self.moves.repair(now_ns)
        self._undeclared.update(now_ns, (job.rounds for job in self.jobs.values()))
        self.windows.undeclared = self._undeclared.shares
        if self._applies_order:
            rankings = self.order.rankings(now_ns)
            wanted = {
                job: BULK_PRIORITY + ranking.traffic_class
                for job, ranking in rankings.items()
                if not self.jobs[job].spec.keeps_class
            }
            self.classes.change(wanted, now_ns)
        await self._write_switches(now_ns)
        self.classes.notify(self._is_troubled, now_ns)
        self.moves.renew(self.switches.pop_restarted())
        self.moves.pace(self.windows.jobs_to_repace)
        self.improver.step(now_ns)
        await self.moves.advance(now_ns, lambda names: self._write_plan(names, now_ns))
        await self.prober.send(now_ns, self.switches.lost)
        self._log_stale(now_ns)
        for line in self.exceeded.poll():
            _promise_log.warning("%s", line)
        self._write_journal()
        return self.jobs.pop_outbox()

    async def admit(self, spec: JobSpec, now_ns: int) -> list[Message]:
        """Place a new job, write it to the switches, and return its hosts' plans.

        A job that does not fit gets fewer slots, or its server alone (`RunningJob.note` says so). A job that cannot
        move, on links without losses, gets no larger window than its queues ever allow it there, since that many rounds
        of exponents precede each sum.

        Raises:
            PlanError, PlacementError: The job cannot run at all.
            ControllerError: A switch or the journal refuses it; the fabric then stays as it was.
        """
        return await self.admit_together([spec], now_ns)

    async def admit_together(self, specs: Sequence[JobSpec], now_ns: int) -> list[Message]:
        """Admit new jobs, all or none, with trees that suit each other; otherwise like `admit`.

        They are placed one after the other and then, if the strategy places jobs jointly, all together.
        """
        for spec in specs:
            if spec.job in self.jobs:
                raise PlanError(f"job {spec.job} runs already; give every job its own number")
        self._update_readings(now_ns)
        wrote = False
        try:
            for spec in specs:
                await self._place(spec, now_ns)
            numbers = [spec.job for spec in specs]
            if len(specs) > 1 and self.moves.options.together:
                await self._place_jointly(numbers, now_ns)
            needed = {name for number in numbers for name in self.jobs[number].plan.switches}
            needed |= {name for spec in specs for name in edge_switches(self.topology, spec)}
            wrote = True
            await self._write_switches(now_ns, again=needed | self.windows.behind)
            self.switches.raise_trouble(sorted(needed))
            if troubles := self.switches.troubles_of(sorted(self.windows.behind)):
                raise troubles[0]
            for number in numbers:
                self.jobs.journal.change(number)
            self._write_journal()
        except Exception as error:
            withdrawn = [spec.job for spec in specs if self.jobs.withdraw(spec.job)]
            if wrote:
                self.windows.withdraw()
                await self._write_switches(now_ns, again=self.switches.sessions)
                _log.warning("job %s is not admitted: %s", ", ".join(map(str, withdrawn)), error)
            for spec in specs:
                self.planner.memory.retain(spec.job)
            raise
        self.moves.pace(self.windows.jobs_to_repace)
        for number in numbers:
            self.jobs.counts.admitted += 1
            self.jobs.aborted.pop(number, None)
            if note := self.jobs[number].note:
                _log.warning("job %d: %s", number, note)
        plans = (self.jobs[number].plan for number in numbers)
        return [Message(host, part) for plan in plans for host, part in plan.host_plans().items()]

    async def _place(self, spec: JobSpec, now_ns: int) -> None:
        """Place a new job around all others; no switch is written yet."""
        around = self.moves.outlook.conditions_for(spec.job, now_ns)
        grant = await self._decisions.make(partial(self.planner.grant, spec, around))
        history = self.planner.history(spec.job)
        plan = self._plan(grant.spec, grant.placement, history.next())
        history.go(plan.generation, plan.switches)
        self.jobs.add(RunningJob(plan, now_ns, grant.note))

    def _plan(self, spec: JobSpec, placement: Placement, generation: int) -> JobPlan:
        """Lay a new job on the fabric, with no larger window than it can use there. Raises PlanError."""
        plan = self.planner.plan(spec, placement, generation)
        if (window := self._window_at_most(plan)) < plan.spec.window:
            plan = self.planner.plan(with_window(plan.spec, window, self.topology), placement, generation)
        return plan

    async def _place_jointly(self, numbers: Collection[int], now_ns: int) -> None:
        """Give new jobs, which no switch has yet, better trees around each other; all others stay.

        Jobs that cannot be evaluated together, or have no room there together, keep their trees.
        """
        jobs = [*self.jobs.values()]
        around = LinkConditions.of(self.moves.outlook.background(now_ns), {})
        new = [job.number in numbers for job in jobs]
        search = self.planner.place_jointly([(job.plan, job.active) for job in jobs], new, around)
        found = await self._decisions.make(search)
        if found.note:
            _log.info("jobs %s: %s", ", ".join(map(str, numbers)), found.note)
        moved = [(jobs[index], placement) for index, placement in found.placements.items()]
        memory = self.planner.memory
        held = {job.number: memory.held(job.number) for job, _ in moved}
        for number in held:
            memory.retain(number)
        try:
            plans = [(job, self._plan(job.spec, placement, job.plan.generation)) for job, placement in moved]
        except ControllerError as error:
            _log.info("jobs %s: not placed jointly: %s", ", ".join(map(str, numbers)), error)
            for number in held:
                memory.retain(number)
            for number, allotments in held.items():
                memory.reoccupy(number, allotments)
            return
        for job, plan in plans:
            job.plan = plan
            self.planner.history(job.number).go(plan.generation, plan.switches)

    async def shares(self, spec: JobSpec, most: int, now_ns: int) -> Sequence[int]:
        """Return the best proportions for dividing a new job among at most `most` jobs, each with a tree of its own.

        They are then admitted, the largest share first.
        """
        self._update_readings(now_ns)
        around = self.moves.outlook.conditions_for(spec.job, now_ns)
        return await self._decisions.make(partial(self.planner.shares, spec, around, most))

    async def finish(self, job: int, now_ns: int = 0) -> None:
        """Take a job from the switches and free what it held. Raises JournalError where that could not be written down;
        the job is gone in any case.
        """
        number = self.jobs[job].number
        self.switches.check_primary()
        self.jobs.remove(number)
        await self._write_switches(now_ns)
        self._write_journal()

    def classify(self, job: int, priority: int, now_ns: int) -> None:
        """Put a running job's messages into another traffic class; the next tick does it, without a pause.

        Nothing happens while packets of its last change may be under way.

        Raises:
            NoSuchJob: The job does not run.
            PlanError: The priority is not one of `frames.JOB_CLASSES`.
        """
        self.classes.change({self.jobs[job].number: priority}, now_ns)

    async def load_model(self, switches: Collection[str], forest: Forest | None, now_ns: int = 0) -> None:
        """Have switches classify by a forest, in place of the one that they have; None: by none.

        Raises:
            TopologyError: The fabric has no such switch.
            ModelError: The program of a switch has no tables for models.
            ControllerError: A switch or the journal refuses it; all then keep the model that they had.
        """
        before = self.models.held
        self.models.place(switches, forest)
        try:
            await self._write_switches(now_ns, again=switches)
            self.switches.raise_trouble(sorted(switches))
            self.models.keep()
        except ControllerError:
            self.models.restore(before)
            await self._write_switches(now_ns, again=switches)
            raise

    async def reroute(self, routes: Routes, now_ns: int = 0) -> Mapping[str, Diff]:
        """Continue with new routes after a link went down or came back: routes, jobs and probes follow.

        A job whose nodes no longer reach each other is moved. Returns the changes of the switches.
        """
        self.switches.check_primary()
        self._down = routes.down
        self._update_topology(now_ns)
        diffs = await self._write_switches(now_ns)
        self._write_journal()
        return diffs

    async def verify(self) -> Mapping[str, Diff]:
        """Read all switches back; the differences by switch, where there are any."""
        desired = self._desired()
        names = sorted(desired.keys() - self.switches.lost)
        diffs = await asyncio.gather(*(verify(self.switches.sessions[n], desired[n]) for n in names))
        return {name: diff for name, diff in zip(names, diffs, strict=True) if diff}

    def telemetry_cost(self, elapsed_ns: int, forwarded: int | None = None) -> TelemetryCost:
        """Return the cost of probes, reports and INT headers on links since the controller began, `elapsed_ns` ago.

        `forwarded`: packets that left switches' ports meanwhile, if counted.
        """
        collector = None if self._watching is None else self._watching.collector
        headers: Mapping[Endpoint, tuple[int, int]] | None = None
        if self.int_load is not None:
            headers = self.int_load()
        elif self._watching is None or not self._watching.puts_headers:
            headers = {}
        return telemetry_cost(
            self.topology,
            self.planner.routes,
            self.links,
            self.prober.reports,
            self.reports,
            collector,
            elapsed_ns,
            forwarded,
            headers,
            None if self.int_unread is None else self.int_unread(),
        )

    # --- operations on several parts ---

    def _is_troubled(self, spec: JobSpec) -> bool:
        """Return whether a switch at the job's hosts does not hold its target state."""
        return bool(self.switches.troubles_of(sorted(edge_switches(self.topology, spec))))

    def _longest_life_ns(self, plan: JobPlan) -> int:
        """Longest time that a packet of a job is under way after a change of its class."""
        windows = self.windows
        return windows.round_trip_ns(plan, at_least=windows.options.bound_packets) + self.moves.options.retry_ns

    def _update_readings(self, now_ns: int) -> None:
        """Update all readings before any decision. Raises NotPrimary."""
        self.switches.check_primary()
        frames = self.switches.pop_packet_ins()
        if self.reports is not None and self._watching is not None:
            frames = self.reports.receive_frames(frames, now_ns, self._watching.port)
        self.prober.receive(frames, now_ns)
        for bring_in in self.sources:
            bring_in(now_ns)
        self.planner.out_of_reach = self.switches.out_of_reach
        for number, generations in self.switches.pop_foreign_generations().items():
            if number not in self.jobs:
                self.planner.history(number).pass_by(generations)

    def _log_stale(self, now_ns: int) -> None:
        """Log links whose readings have become stale, or fresh again; a link that is down is neither, since it is not
        measured.

        The next tick is no later than the next link becomes stale, so that it is logged in time.
        """
        stale = self.links.stale(now_ns)
        if gone := stale - self._stale:
            _telemetry_log.warning("telemetry of %s is %s", listed(gone), DOUBTED)
        if back := (self._stale - stale) & self.links.watched:
            _telemetry_log.warning("telemetry of %s is fresh again", listed(back))
        self._stale = stale
        self._next_stale_ns = self.links.next_stale_ns(now_ns)

    def _update_topology(self, now_ns: int) -> None:
        """Update routes of switches and probes after a change of the fabric; jobs that cannot stay move."""
        self.planner.update_topology(self._down | self.prober.link_watch.down, self.switches.lost)
        routes = self.planner.routes
        self._bases = self._base_states(routes)
        self.prober.update_routes(routes)
        self._undeclared.update_routes(routes)
        self.moves.update_topology(self.switches.lost, now_ns)

    def _base_states(self, routes: Routes) -> Mapping[str, SwitchState]:
        """States of switches without any job."""
        bases = {s.name: base_state(self.topology, routes, s.name) for s in self.topology.switches}
        if self._watching is None:
            return bases
        watched = {name: watch_state(self.topology, routes, name, self._watching) for name in bases}
        return {
            name: SwitchState.of([*base.items.values(), *watched[name].items.values()]) for name, base in bases.items()
        }

    def _desired(self) -> Mapping[str, SwitchState]:
        """Target state of every switch; rebuilt only when some plan has changed."""
        plans = [job.plan for job in self.jobs.values()]
        made_of = [self._bases, self.windows.budgets, self.models.held, *plans]
        if len(made_of) != len(self._made_of) or any(a is not b for a, b in zip(made_of, self._made_of, strict=True)):
            bases = self._bases if self._watching is None else telling_slots(self.topology, self._bases, plans)
            states = admitting_states(self.topology, fabric_state(bases, plans), plans)
            windows = self.windows
            marked = marked_states(self.topology, states, windows.budgets, plans, windows.options, windows.fetches)
            self._made = self.models.added_to(marked)
            self._made_of = made_of
        return self._made

    def _window_at_most(self, plan: JobPlan) -> int:
        """Maximum window of a job.

        A job that may move may be allowed more elsewhere. With lossy links, rounds beyond those in the network let a
        job go on while a lost one is sent again.
        """
        if self.moves.options.solve_period_ns or losing_links(self.topology, plan.max_streams):
            return plan.spec.window
        return window_alone(self.topology, self.planner.routes, plan, self.prober.probes, self.windows.options)

    def _bound_queues(self, now_ns: int) -> None:
        """Compute windows for the present jobs; a job that gets a plan next receives its share with it."""
        plans = (job.plan for job in self.jobs.values())
        fetches = self.moves.fetches(now_ns)
        for plan in self.windows.update(self.planner.routes, plans, self.prober.probes, now_ns, fetches):
            self.jobs[plan.spec.job].plan = plan
        for tell in self.bounded:
            tell(now_ns)
        if _promise_log.isEnabledFor(logging.INFO):
            for line in summary(self._promises.pop_changes()):
                _promise_log.info("%s", line)

    async def _write_switches(self, now_ns: int, again: Iterable[str] = ()) -> Mapping[str, Diff]:
        """Bring the switches to their target state; those in `again` even if they have just refused."""
        self.jobs.ended = False
        self._bound_queues(now_ns)
        diffs = await self.switches.write_states(self._desired(), now_ns, frozenset(again))
        self.windows.note_held(self.switches.holding, now_ns)
        return diffs

    async def _write_plan(self, names: Collection[str], now_ns: int) -> list[ControllerError]:
        """A job's next plan is due in these switches; why some of them do not hold it, or others not the windows that
        it counts on.
        """
        await self._write_switches(now_ns, again={*names, *self.windows.behind})
        return self.switches.troubles_of(sorted({*names, *self.windows.behind}))

    def _write_journal(self) -> None:
        """Write changes to the journal before they are sent to anyone. Raises JournalError; the next call tries
        again.
        """
        self.jobs.journal.write_fabric(self.prober.link_watch.down, self.switches.lost)
        self.jobs.write_journal()
