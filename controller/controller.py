"""The controller: keeps the switches as the jobs need them, watches the links, and moves jobs when telemetry or a
failure says so.

It reads no clock and starts no timer: its caller says what time it is, wall time or virtual, and makes one call after
the other::

    controller = Controller(topology, routes, sessions, strategy, Options(), now_ns)
    await controller.start()
    messages = await controller.admit(JobSpec(...), now_ns)      # plans for the job's hosts
    ...
    messages = await controller.tick(now_ns)                     # no later than controller.deadline_ns
    controller.held(job, host, held)                             # the hosts' answers, then tick again
    controller.resumed(job, host, generation)
    controller.heartbeat(job, host, rounds, now_ns)              # every host, now and then: it lives, and how far it is

A host that gets a plan in mid-job (a server that takes over) confirms it as a Resume. A driver of virtual time stops
its clock during `tick`. What a tick has sent is in `packet_outs_sent`; once the fabric has sent packets to the
controller, `drain` waits until they have all arrived.

What goes wrong with one job or one switch stays there: `tick` logs it, tries again, and `waiting_for` says it. What
cannot be written to the journal nobody is told: the next tick tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..topologies.model import Endpoint, Topology
from ..topologies.routing import Routes
from ..wire.aggregation import MESSAGE_BYTES, next_generation
from ..wire.control import Held
from ..wire.frames import FRAME_HEADER_BYTES
from .errors import ControllerError, NotPrimary, PlanError
from .jobs.job import RunningJob
from .jobs.journal import Journal
from .jobs.journal_file import JournalFile
from .jobs.moves import Phase
from .jobs.registry import Counts, JobRegistry, server_plan
from .options import Message, Options
from .p4runtime.entries import SwitchState
from .p4runtime.reconcile import Diff, verify
from .p4runtime.session import SwitchSession
from .p4runtime.switches import Switches
from .placement import Placement
from .placement.strategies import Strategy
from .planning.memory import FabricMemory
from .planning.plan import JobPlan, JobSpec, base_state, fabric_state
from .planning.planner import Planner
from .telemetry.link_state import Snapshot, Telemetry, own_traffic
from .telemetry.prober import Prober
from .telemetry.probes import Probe

__all__ = ["Controller", "Message", "Options"]

_log = logging.getLogger(__name__)


class Controller:
    """One fabric's controller. `sessions` are open; whoever opened them closes them."""

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        sessions: Mapping[str, SwitchSession],
        strategy: Strategy,
        options: Options,
        now_ns: int = 0,
        seed: int = 1,
        journal: JournalFile | None = None,
    ) -> None:
        """`seed` is for strategies that draw. With a `journal`, the jobs in it go on: `start` then writes to the
        switches no more than what differs.

        Raises ControllerError for a journal of another fabric.
        """
        if missing := {s.name for s in topology.switches} - sessions.keys():
            raise ControllerError(f"no session with {', '.join(sorted(missing))} of {topology.name}")
        self.topology = topology
        self.sessions = sessions
        self._planner = Planner(topology, routes, strategy, seed)
        self._switches = Switches(sessions, options.lease_ns, options.retry_ns, now_ns)
        self._journal = Journal(journal, topology, self._planner)
        self._registry = JobRegistry(topology, self._planner, options, self._journal)
        self._down = routes.down
        self._prober = Prober(topology, routes, sessions, options.probe_period_ns, options.lease_ns, now_ns)
        self._bases = {s.name: base_state(topology, routes, s.name) for s in topology.switches}
        self._made_of: list[object] = []
        self._made: Mapping[str, SwitchState] = {}
        self._next_solve_ns = now_ns + options.solve_period_ns
        self._to_consider: deque[int] = deque()
        """Jobs whose turn has come to be placed better."""
        self._prober.link_watch.take_for_down(self._journal.down, now_ns)
        self._switches.take_for_lost(self._journal.lost)
        self._registry.restore(now_ns)
        if self.links_down or self._switches.lost:
            self._follow(now_ns)

    # --- what is ---

    @property
    def options(self) -> Options:
        return self._registry.options

    @options.setter
    def options(self, options: Options) -> None:
        """But for `lease_ns`, `retry_ns` of switches and `probe_period_ns`, which stay."""
        self._registry.options = options

    @property
    def jobs(self) -> Mapping[int, JobPlan]:
        """The plan in force of every job."""
        return {number: job.plan for number, job in self._registry.jobs.items()}

    @property
    def states(self) -> Mapping[int, RunningJob]:
        """All that is known of every job, to be read."""
        return self._registry.jobs

    @property
    def counts(self) -> Counts:
        return replace(self._registry.counts, leases=len(self._registry.leases))

    @property
    def telemetry(self) -> Telemetry:
        return self._prober.telemetry

    @property
    def probes(self) -> tuple[Probe, ...]:
        """Those that are sent every period."""
        return self._prober.probes

    @property
    def memory(self) -> FabricMemory:
        return self._planner.memory

    @property
    def strategy(self) -> Strategy:
        """How jobs are placed from now on."""
        return self._planner.strategy

    @strategy.setter
    def strategy(self, strategy: Strategy) -> None:
        self._planner.strategy = strategy

    @property
    def lost_switches(self) -> frozenset[str]:
        return self._switches.lost

    @property
    def links_down(self) -> frozenset[Endpoint]:
        """Both ends of every link between switches that lets no probe through."""
        return self._prober.link_watch.down

    @property
    def packet_outs_sent(self) -> Mapping[str, int]:
        """By switch."""
        return {name: session.packet_outs_sent for name, session in self.sessions.items()}

    @property
    def packet_ins_received(self) -> Mapping[str, int]:
        return {name: session.packet_ins_received for name, session in self.sessions.items()}

    @property
    def deadline_ns(self) -> int:
        """When `tick` has something to do again, if nothing else happens; 0 while something waits for a tick."""
        deadlines = [self._prober.deadline_ns]
        if self.options.solve_period_ns:
            deadlines.append(0 if self._to_consider else self._next_solve_ns)
        deadlines += [d for d in (self._registry.deadline_ns, self._switches.deadline_ns) if d is not None]
        return min(deadlines)

    @property
    def aborted(self) -> Mapping[int, str]:
        """Jobs that were aborted, and why."""
        return self._registry.aborted

    def waiting_for(self, job: int, now_ns: int) -> str:
        """One sentence for people: what the job waits for, and since when. Raises ControllerError for a job that has
        ended or never was.
        """
        return self._registry.waiting_for(job, now_ns)

    def note(self, job: int) -> str:
        """What the job was not given as asked for, and why; empty where it was."""
        return self._registry.job(job).note

    def snapshot(self, now_ns: int, job: int | None = None) -> Snapshot:
        """What is known of the links; with a job, without its own traffic."""
        own: Mapping[Endpoint, float] = {}
        if job is not None:
            running = self._registry.job(job)
            own = own_traffic(running.plan.streams, running.rounds_per_second, FRAME_HEADER_BYTES + MESSAGE_BYTES)
        return self.telemetry.snapshot(now_ns, own)

    # --- switches ---

    async def start(self, now_ns: int = 0) -> Mapping[str, Diff]:
        """Bring every switch to what it should hold, whatever it holds; what that took. Raises ControllerError where
        one cannot be brought there; with leases, one that does not answer is tried again until its lease runs out.
        """
        self._switches.forget()
        self._switches.look(now_ns)
        diffs = await self._write(now_ns)
        answering = [n for n, session in self.sessions.items() if session.is_up or self.options.lease_ns is None]
        self._switches.raise_trouble(answering)
        return diffs

    async def drain(self, packet_ins: Mapping[str, int], timeout_s: float = 5.0) -> None:
        """Wait until so many packet-ins have arrived by switch, since its session began. Raises ControllerError if
        they do not.
        """
        sessions = self.sessions
        await asyncio.gather(*(sessions[n].drain(count, timeout_s) for n, count in packet_ins.items()))

    async def verify(self) -> Mapping[str, Diff]:
        """Read all switches back; the differences by switch, where there are any."""
        desired = self._desired()
        names = sorted(desired.keys() - self._switches.lost)
        diffs = await asyncio.gather(*(verify(self.sessions[n], desired[n]) for n in names))
        return {name: diff for name, diff in zip(names, diffs, strict=True) if diff}

    async def reroute(self, routes: Routes, now_ns: int = 0) -> Mapping[str, Diff]:
        """Go on without the links that these routes avoid, after a link went down or came back: routes, jobs and
        probes follow; what was written. A job whose nodes no longer reach each other is moved.
        """
        self._check_primary()
        self._down = routes.down
        self._follow(now_ns)
        diffs = await self._write(now_ns)
        self._save()
        return diffs

    # --- jobs ---

    async def admit(self, spec: JobSpec, now_ns: int) -> list[Message]:
        """Place a new job, write it to the switches, and return its hosts' plans. A job that does not fit gets fewer
        slots, or its server alone (`note` says so).

        Raises PlanError or PlacementError where it cannot run at all, ControllerError where a switch or the journal
        refuses it; the fabric then stays as it was.
        """
        if spec.job in self._registry.jobs:
            raise PlanError(f"job {spec.job} runs already; give every job its own number")
        self._check_primary()
        self._prober.collect(now_ns)
        self._planner.out_of_reach = self._switches.out_of_reach
        try:
            grant = self._planner.grant(spec, self.snapshot(now_ns))
            history = self._planner.history(spec.job)
            plan = self._planner.plan(grant.spec, grant.placement, history.next())
            history.go(plan.generation, plan.switches)
            self._registry.jobs[spec.job] = RunningJob(plan, now_ns, grant.note)
            await self._write(now_ns, again=plan.switches)
            self._switches.raise_trouble(plan.switches)
            self._journal.change(spec.job)
            self._save()
        except ControllerError as error:
            if self._registry.jobs.pop(spec.job, None) is not None:
                await self._write(now_ns, again=self.sessions)
                _log.warning("job %d is not admitted: %s", spec.job, error)
            self.memory.retain(spec.job)
            raise
        self._registry.counts.admitted += 1
        self._registry.aborted.pop(spec.job, None)
        if grant.note:
            _log.warning("job %d: %s", spec.job, grant.note)
        return self._plans(plan)

    async def finish(self, job: int, now_ns: int = 0) -> None:
        """Take a job from the switches and free what it held. Raises JournalError where that could not be written down;
        the job is gone in any case.
        """
        self._registry.job(job)
        self._check_primary()
        self._registry.remove(job)
        await self._write(now_ns)
        self._save()

    def keep(self, job: int, data: Mapping[str, Any]) -> None:
        """Keep the caller's own data (JSON) with a job, also in the journal, in place of what was kept before."""
        self._registry.keep(job, data)

    def kept(self, job: int) -> Mapping[str, Any]:
        return self._registry.job(job).kept

    def move(self, job: int, now_ns: int, placement: Placement | None = None, why: str = "asked to") -> None:
        """Begin to move a job to a placement, or to a new generation of its own one (a stuck round, a lost host).

        Raises PlanError when the placement is not possible; the job then stays. Does nothing while the job is moving.
        """
        running = self._registry.job(job)
        if running.move is not None:
            return
        if placement is not None:
            try:
                self._planner.plan(running.spec, placement, next_generation(running.plan.generation))
            except PlanError:
                self.memory.retain(job, running.plan.switches)
                raise
        self._registry.begin(job, running, why, now_ns, placement)

    async def tick(self, now_ns: int) -> list[Message]:
        """Do what is due: take reports, see who is lost, go on with moves, look for better placements, send probes.
        What to tell the hosts.

        Raises NotPrimary once another controller has taken over, and does nothing then.
        """
        self._check_primary()
        self._prober.collect(now_ns)
        self._planner.out_of_reach = self._switches.out_of_reach
        links_changed = self._prober.link_watch.look(now_ns)
        if self._switches.look(now_ns) or links_changed:
            self._follow(now_ns)
        self._registry.let_go(now_ns)
        self._registry.end_leases(now_ns)
        self._registry.repair(now_ns)
        await self._write(now_ns)
        self._renew_after_restarts()
        if self.options.solve_period_ns and now_ns >= self._next_solve_ns and not self._to_consider:
            self._next_solve_ns = now_ns + self.options.solve_period_ns
            self._to_consider.extend(self._registry.jobs)
        self._consider(now_ns)
        for number in list(self._registry.jobs):
            if self._registry.poll(number, now_ns):
                await self._settle(number, now_ns)
        await self._prober.send(now_ns, self._switches.lost)
        self._save()
        messages, self._registry.outbox = self._registry.outbox, []
        return messages

    # --- what hosts say ---

    def heartbeat(self, job: int, host: str, rounds: int, now_ns: int, *, waiting: bool = True) -> None:
        """A host of the job lives; for a worker also: how many rounds it has completed, and whether it waits for more
        (it does not while it computes). Its lease begins with the first.

        From two of a worker's the controller knows how fast the job goes, so that its own traffic is not taken for
        others' when it is placed anew; and when it is stuck (`Options.stuck_ns`). A host that is out of the job by now
        is told so. Raises ControllerError for a host that was never in it.
        """
        self._registry.heartbeat(job, host, rounds, now_ns, waiting)

    def leave(self, job: int, host: str, now_ns: int) -> None:
        """A host is done with the job. Nobody fails by that: the others go on without it, and the job is finished when
        no worker is left. Raises ControllerError for a host that was never in it.
        """
        self._registry.leave(job, host)

    def fail(self, job: int, host: str, why: str, now_ns: int) -> None:
        """A host gives up, and cannot come back: the others go on without it, or are told why they cannot, as the
        job's policy has it. Raises ControllerError for a host that was never in it.
        """
        self._registry.fail(job, host, why, now_ns)

    def held(self, job: int, host: str, held: Held) -> None:
        """A host's answer to Pause. Raises ControllerError for a host that was never in the job."""
        self._registry.held(job, host, held)

    def resumed(self, job: int, host: str, generation: int) -> None:
        """A host goes on in this generation. A copy of an earlier confirmation changes nothing."""
        self._registry.resumed(job, host, generation)

    # --- what moves ---

    def _consider(self, now_ns: int) -> None:
        """Begin to move the next job whose turn it is, if it would be clearly better off elsewhere, by fresh telemetry.

        One in a tick: a placement may take long, and what all hosts say waits for the end of a tick.
        """
        while self._to_consider:
            number = self._to_consider.popleft()
            job = self._registry.jobs.get(number)
            if job is None or job.move is not None or now_ns - job.moved_ns < self.options.dwell_ns:
                continue
            links = self.snapshot(now_ns, number)
            if not links.is_fresh:
                continue
            try:
                if (better := self._planner.better(job.plan, job.active, links, self.options.improvement)) is not None:
                    self.move(number, now_ns, better, "a faster placement")
            except ControllerError as error:
                _log.warning("job %d stays where it is: %s", number, error)
            return

    async def _settle(self, number: int, now_ns: int) -> None:
        """Write the next generation for those who are left, and let them go on by it."""
        job = self._registry.jobs[number]
        assert job.move is not None
        try:
            target = job.target or job.plan.placement
            if not self._planner.stands(target, job.spec, job.active):
                target, job.note = self._planner.place(job.spec, job.active, self.snapshot(now_ns, number))
            job.plan = self._planner.plan(job.spec, target, next_generation(job.move.generation))
        except ControllerError as error:
            self._registry.has_no_place(number, job, error, now_ns)
            return
        self._planner.history(number).go(job.plan.generation, job.plan.switches)
        await self._write(now_ns, again=job.plan.switches)
        if trouble := self._switches.trouble(job.plan.switches):
            job.trouble, job.retry_at_ns = trouble, now_ns + self.options.retry_ns
        else:
            self._registry.settle(number, now_ns)

    def _check_primary(self) -> None:
        """What another controller has done since, this one does not know: it must not act by what it remembers."""
        if deposed := [name for name, session in self.sessions.items() if session.deposed]:
            raise NotPrimary(
                f"another controller has taken over {', '.join(deposed)} with a higher election id; "
                "this one leaves the fabric alone. Start it anew, from the journal, to have it take over again"
            )

    # --- switches, links ---

    def _follow(self, now_ns: int) -> None:
        """The fabric has changed: new routes for switches and probes; jobs stay if they can, else they move."""
        lost = self._switches.lost
        self._planner.follow(self._down | self.links_down, lost)
        routes = self._planner.routes
        self._bases = {s.name: base_state(self.topology, routes, s.name) for s in self.topology.switches}
        self._prober.follow(routes)
        for number, job in self._registry.jobs.items():
            plan = job.plan
            if self._planner.stands(plan.placement, plan.spec, plan.placement.aggregators):
                job.plan = self._planner.plan(plan.spec, plan.placement, plan.generation)
                continue
            used = sorted(lost & {*plan.switches, plan.placement.root})
            why = f"{', '.join(used)} is lost" if used else "its nodes do not reach each other any more"
            if job.move is None:
                self._registry.begin(number, job, why, now_ns)
            elif job.move.phase is Phase.RESUMING:
                job.renew = why

    def _renew_after_restarts(self) -> None:
        for name in sorted(self._switches.take_restarted()):
            for job in self._registry.jobs.values():
                if name in job.plan.switches and (job.move is None or job.move.phase is Phase.RESUMING):
                    job.renew = f"{name} has started anew"

    def _desired(self) -> Mapping[str, SwitchState]:
        """What every switch should hold; made anew only when some plan has changed."""
        plans = [job.plan for job in self._registry.jobs.values()]
        made_of = [self._bases, self.options.marking, *plans]
        if len(made_of) != len(self._made_of) or any(a is not b for a, b in zip(made_of, self._made_of, strict=True)):
            self._made = fabric_state(self.topology, self._bases, plans, self.options.marking)
            self._made_of = made_of
        return self._made

    async def _write(self, now_ns: int, again: Iterable[str] = ()) -> Mapping[str, Diff]:
        """Bring the switches to what they should hold; those in `again` even if they have just refused."""
        self._registry.ended = False
        return await self._switches.write(self._desired(), now_ns, frozenset(again))

    def _save(self) -> None:
        """Write down what has changed, before anyone is told of it. Raises JournalError; the next call tries again."""
        self._journal.write_fabric(self.links_down, self._switches.lost)
        self._journal.write_jobs(self._registry.jobs)

    # --- names ---

    def _plans(self, plan: JobPlan) -> list[Message]:
        messages = [Message(name, worker) for name, worker in plan.workers.items()]
        if plan.spec.server is not None:
            messages.insert(0, Message(plan.spec.server, server_plan(plan)))
        return messages
