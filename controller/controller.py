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

What goes wrong with one job or one switch stays there: `tick` logs it, tries again, and `waiting_for` says it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.entries import SwitchState
from controller.errors import ControllerError, NotPrimary, PlanError
from controller.jobs import Progress, RunningJob
from controller.leases import Leases
from controller.memory import FabricMemory
from controller.moves import Move, Phase
from controller.options import Message, Options
from controller.placement import Placement
from controller.plan import FailurePolicy, JobPlan, JobSpec, base_state, fabric_state
from controller.planner import Planner
from controller.probes import ProbeFrames, plan_probes
from controller.reconcile import Diff, verify
from controller.session import SwitchSession
from controller.strategies import Strategy
from controller.switches import Switches
from controller.telemetry import Snapshot, Telemetry, own_traffic
from topologies.model import Endpoint, Topology
from topologies.routing import Routes
from wire.aggregation import FIRST_GENERATION, MESSAGE_BYTES, next_generation
from wire.control import Abort, Held, ServerPlan, WorkerPlan
from wire.frames import FRAME_HEADER_BYTES

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
    ) -> None:
        """`seed` is for strategies that draw."""
        if missing := {s.name for s in topology.switches} - sessions.keys():
            raise ControllerError(f"no session with {', '.join(sorted(missing))} of {topology.name}")
        self.topology = topology
        self.options = options
        self.aborted: dict[int, str] = {}
        """Jobs that were aborted, and why."""
        self.sessions = sessions
        self._planner = Planner(topology, routes, strategy, seed)
        self._switches = Switches(sessions, options.lease_ns, options.retry_ns)
        self._leases = Leases[tuple[int, str]](options.lease_ns)
        self._down = routes.down
        self.probes = plan_probes(topology, routes)
        self.telemetry = Telemetry(topology, self.probes, period_ns=options.probe_period_ns)
        self._frames = ProbeFrames(topology, self.probes)
        self._bases = {s.name: base_state(topology, routes, s.name) for s in topology.switches}
        self._jobs: dict[int, RunningJob] = {}
        self._outbox: list[Message] = []
        self._dirty = False
        """A job has ended that the switches still hold."""
        self._next_probe_ns = now_ns
        self._next_solve_ns = now_ns + options.solve_period_ns
        self._host_at = {int(host.address): host.name for host in topology.hosts}

    # --- what is ---

    @property
    def jobs(self) -> Mapping[int, JobPlan]:
        """The plan in force of every job."""
        return {number: job.plan for number, job in self._jobs.items()}

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
    def packet_outs_sent(self) -> Mapping[str, int]:
        """By switch."""
        return {name: session.packet_outs_sent for name, session in self.sessions.items()}

    @property
    def packet_ins_received(self) -> Mapping[str, int]:
        return {name: session.packet_ins_received for name, session in self.sessions.items()}

    @property
    def deadline_ns(self) -> int:
        """When `tick` has something to do again, if nothing else happens; 0 while something waits for a tick."""
        deadlines = [self._next_probe_ns]
        if self.options.solve_period_ns:
            deadlines.append(self._next_solve_ns)
        deadlines += [d for d in (self._leases.deadline_ns, self._switches.deadline_ns) if d is not None]
        for job in self._jobs.values():
            if job.move is not None:
                deadline = job.move.deadline_ns
                deadlines.append(job.retry_at_ns if deadline is None else deadline)
            elif job.renew:
                deadlines.append(0)
        return 0 if self._outbox or self._dirty else min(deadlines)

    def waiting_for(self, job: int, now_ns: int) -> str:
        """One sentence for people: what the job waits for, and since when. Raises ControllerError for a job that has
        ended or never was.
        """
        if job in self.aborted:
            return f"job {job}: aborted: {self.aborted[job]}"
        running = self._job(job)
        leased = self.options.lease_ns is not None
        expected = {h for h in running.hosts if leased and not self._leases.lives((job, h)) and h not in running.silent}
        return running.waiting_for(now_ns, self._host_at, frozenset(expected))

    def note(self, job: int) -> str:
        """What the job was not given as asked for, and why; empty where it was."""
        return self._job(job).note

    def snapshot(self, now_ns: int, job: int | None = None) -> Snapshot:
        """What is known of the links; with a job, without its own traffic."""
        own: Mapping[Endpoint, float] = {}
        if job is not None:
            running = self._job(job)
            own = own_traffic(running.plan.streams, running.rounds_per_second, FRAME_HEADER_BYTES + MESSAGE_BYTES)
        return self.telemetry.snapshot(now_ns, own)

    # --- switches ---

    async def start(self, now_ns: int = 0) -> Mapping[str, Diff]:
        """Bring every switch to what it should hold, whatever it holds; what that took. Raises ControllerError where
        one cannot be brought there.
        """
        self._switches.forget()
        diffs = await self._write(now_ns)
        self._switches.raise_trouble()
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
        return await self._write(now_ns)

    # --- jobs ---

    async def admit(self, spec: JobSpec, now_ns: int) -> list[Message]:
        """Place a new job, write it to the switches, and return its hosts' plans. A job that does not fit gets fewer
        slots, or its server alone (`note` says so).

        Raises PlanError or PlacementError where it cannot run at all, ControllerError where a switch refuses it; the
        fabric then stays as it was.
        """
        if spec.job in self._jobs:
            raise PlanError(f"job {spec.job} runs already; give every job its own number")
        self._check_primary()
        self._collect(now_ns)
        try:
            grant = self._planner.grant(spec, self.snapshot(now_ns))
            plan = self._planner.plan(grant.spec, grant.placement, FIRST_GENERATION)
            self._jobs[spec.job] = RunningJob(plan, now_ns, grant.note)
            await self._write(now_ns, again=plan.switches)
            self._switches.raise_trouble(plan.switches)
        except ControllerError as error:
            if self._jobs.pop(spec.job, None) is not None:
                await self._write(now_ns, again=self.sessions)
                _log.warning("job %d is not admitted: %s", spec.job, error)
            self.memory.retain(spec.job)
            raise
        self.aborted.pop(spec.job, None)
        if grant.note:
            _log.warning("job %d: %s", spec.job, grant.note)
        return self._plans(plan)

    async def finish(self, job: int, now_ns: int = 0) -> None:
        """Take a job from the switches and free what it held."""
        self._job(job)
        self._check_primary()
        self._remove(job)
        await self._write(now_ns)

    def heartbeat(self, job: int, host: str, rounds: int, now_ns: int, *, waiting: bool = True) -> None:
        """A host of the job lives; for a worker also: how many rounds it has completed, and whether it waits for more
        (it does not while it computes).

        From two of a worker's the controller knows how fast the job goes, so that its own traffic is not taken for
        others' when it is placed anew; and when it is stuck (`Options.stuck_ns`). A host that is out of the job by now
        is told so. Raises ControllerError for a host that was never in it.
        """
        running = self._job(job)
        self._check_part(running, host)
        if (why := running.gone.get(host)) is not None:
            if host not in running.left:
                self._outbox.append(Message(host, Abort(job, f"{why}; the job went on without {host}")))
            return
        self._leases.renew((job, host), now_ns)
        running.silent.pop(host, None)
        if host not in running.spec.workers:
            return
        seen = running.progress.get(host)
        if seen is None:
            running.progress[host] = Progress(rounds, now_ns, now_ns, waiting)
        else:
            seen.report(rounds, now_ns, waiting)

    def leave(self, job: int, host: str, now_ns: int) -> None:
        """A host is done with the job. Nobody fails by that: the others go on without it, and the job is finished when
        no worker is left. Raises ControllerError for a host that was never in it.
        """
        running = self._job(job)
        self._check_part(running, host)
        self._leases.end((job, host))
        running.silent.pop(host, None)
        running.left.add(host)

    def move(self, job: int, now_ns: int, placement: Placement | None = None, why: str = "asked to") -> None:
        """Begin to move a job to a placement, or to a new generation of its own one (a stuck round, a lost host).

        Raises PlanError when the placement is not possible; the job then stays. Does nothing while the job is moving.
        """
        running = self._job(job)
        if running.move is not None:
            return
        if placement is not None:
            try:
                self._planner.plan(running.spec, placement, next_generation(running.plan.generation))
            except PlanError:
                self.memory.retain(job, running.plan.switches)
                raise
        self._begin(job, running, why, now_ns, placement)

    def held(self, job: int, host: str, held: Held) -> None:
        """A host's answer to Pause."""
        running = self._job(job)
        self._check_part(running, host)
        if running.move is None or host in running.gone:
            return
        try:
            running.move.held(self._address(host), held)
        except ControllerError as error:
            self._abort(job, str(error))

    def resumed(self, job: int, host: str, generation: int) -> None:
        """A host goes on in this generation. A copy of an earlier confirmation changes nothing."""
        if (move := self._job(job).move) is not None:
            move.resumed(self._address(host), generation)

    async def tick(self, now_ns: int) -> list[Message]:
        """Do what is due: take reports, see who is lost, go on with moves, look for better placements, send probes.
        What to tell the hosts.

        Raises NotPrimary once another controller has taken over, and does nothing then.
        """
        self._check_primary()
        self._collect(now_ns)
        if self._switches.look(now_ns):
            self._follow(now_ns)
        self._let_go(now_ns)
        self._end_leases(now_ns)
        self._repair(now_ns)
        await self._write(now_ns)
        self._renew_after_restarts()
        if self.options.solve_period_ns and now_ns >= self._next_solve_ns:
            self._next_solve_ns = now_ns + self.options.solve_period_ns
            self._consider(now_ns)
        for number, job in list(self._jobs.items()):
            await self._go_on(number, job, now_ns)
        if now_ns >= self._next_probe_ns:
            self._next_probe_ns = now_ns + self.options.probe_period_ns
            await self._probe(now_ns)
        messages, self._outbox = self._outbox, []
        return messages

    # --- who is lost ---

    def _end_leases(self, now_ns: int) -> None:
        for number, host in self._leases.expire(now_ns):
            job = self._jobs[number]
            lease_ns = self.options.lease_ns or 0
            if job.must_wait_for(host):
                job.silent[host] = now_ns - lease_ns
                if job.move is None:
                    self._begin(number, job, f"{host} is silent", now_ns)
            else:
                self._lose(number, job, {host: f"{host} was silent for {lease_ns / 1e9:g} s"}, now_ns)

    def _lose(self, number: int, job: RunningJob, hosts: Mapping[str, str], now_ns: int) -> None:
        """These hosts failed and are out for good: go on without them as the job's policy has it."""
        lost = {host: why for host, why in hosts.items() if host not in job.gone}
        if not lost:
            return
        why = "; ".join(lost.values())
        _log.warning("job %d: %s", number, why)
        workers = [host for host in lost if host in job.spec.workers]
        self._take_out(number, job, lost)
        if not job.active:
            self._abort(number, f"{why}; no worker is left")
        elif workers and job.spec.policy is FailurePolicy.ABORT:
            self._abort(number, f"{why}, and the job's policy is to abort")
        elif workers and len(job.active) < job.spec.least_workers:
            self._abort(number, f"{why}; {len(job.active)} workers are left, and it needs {job.spec.least_workers}")
        else:
            self._go_without(number, job, lost, why, now_ns)

    def _take_out(self, number: int, job: RunningJob, hosts: Mapping[str, str]) -> None:
        """Out for good. A server is followed by the first spare host that lives, if there is any."""
        spec = job.spec
        job.gone.update(hosts)
        for host in hosts:
            self._leases.end((number, host))
            job.silent.pop(host, None)
        spares, server = tuple(s for s in spec.spares if s not in job.gone), spec.server
        if server in hosts:
            server = job.newcomer = next(iter(self._living(number, spares)), None)
            spares = tuple(s for s in spares if s != server) if server is not None else ()
        job.plan = replace(job.plan, spec=replace(spec, server=server, spares=spares))

    def _living(self, number: int, hosts: Iterable[str]) -> Iterable[str]:
        """Those with a lease, where there are leases."""
        return (h for h in hosts if self.options.lease_ns is None or self._leases.lives((number, h)))

    def _go_without(self, number: int, job: RunningJob, hosts: Iterable[str], why: str, now_ns: int) -> None:
        if job.move is None:
            self._begin(number, job, why, now_ns)
            return
        try:
            job.move.lose(map(self._address, hosts), now_ns)
        except ControllerError as error:
            self._abort(number, str(error))

    def _let_go(self, now_ns: int) -> None:
        """Hosts that have left: end the jobs that have no worker any more, go on with those where someone waits."""
        for number, job in list(self._jobs.items()):
            left = {host: f"{host} has left" for host in sorted(job.left - job.gone.keys())}
            if not left:
                continue
            if job.left.issuperset(job.active):
                self._remove(number)
            elif job.move is not None or job.someone_waits or job.spec.server in left:
                self._take_out(number, job, left)
                self._go_without(number, job, left, "; ".join(left.values()), now_ns)

    def _abort(self, number: int, why: str) -> None:
        """End a job that cannot go on, and tell everyone."""
        job = self._jobs[number]
        _log.error("job %d is aborted: %s", number, why)
        told = dict.fromkeys((*job.spec.workers, *job.hosts, *job.spec.spares))
        self._outbox += [Message(host, Abort(number, why)) for host in told if host not in job.left]
        self.aborted[number] = why
        self._remove(number)

    def _remove(self, number: int) -> None:
        job = self._jobs.pop(number)
        for host in (*job.spec.workers, *job.hosts, *job.spec.spares):
            self._leases.end((number, host))
        self.memory.retain(number)
        self._dirty = True

    # --- what moves ---

    def _begin(self, number: int, job: RunningJob, why: str, now_ns: int, placement: Placement | None = None) -> None:
        _log.info("job %d leaves generation %d: %s", number, job.plan.generation, why)
        servers = [] if job.spec.server in (None, job.newcomer) else [job.hosts[-1]]
        job.target, job.why, job.renew, job.retry_at_ns = placement, why, "", 0
        job.move = Move(
            job=number,
            generation=job.plan.generation,
            workers=map(self._address, job.active),
            servers=map(self._address, servers),
            slots=job.spec.slots,
            now_ns=now_ns,
            retry_ns=self.options.retry_ns,
            patience_ns=None if job.spec.policy is FailurePolicy.WAIT else self.options.patience_ns,
        )

    def _repair(self, now_ns: int) -> None:
        """Begin a new generation of each job that is stuck."""
        if self.options.stuck_ns is None:
            return
        for number, job in self._jobs.items():
            if job.move is None and (stuck := job.stuck(now_ns, self.options.stuck_ns)):
                _log.warning("job %d starts a new generation: no progress at %s", number, ", ".join(stuck))
                self._begin(number, job, f"no progress at {', '.join(stuck)}", now_ns)

    def _consider(self, now_ns: int) -> None:
        """Begin to move each job that would be clearly better off elsewhere, by telemetry that is fresh."""
        for number, job in self._jobs.items():
            if job.move is not None or now_ns - job.moved_ns < self.options.dwell_ns:
                continue
            links = self.snapshot(now_ns, number)
            if not links.is_fresh:
                continue
            try:
                if (better := self._planner.better(job.plan, job.active, links, self.options.improvement)) is not None:
                    self.move(number, now_ns, better, "a faster placement")
            except ControllerError as error:
                _log.warning("job %d stays where it is: %s", number, error)

    async def _go_on(self, number: int, job: RunningJob, now_ns: int) -> None:
        if number not in self._jobs:
            return
        if job.move is None and job.renew:
            self._begin(number, job, job.renew, now_ns)
        if (move := job.move) is None:
            return
        try:
            out = move.poll(now_ns)
        except ControllerError as error:
            self._abort(number, str(error))
            return
        silent = {self._host_at[address] for address in move.lost} - job.gone.keys()
        self._lose(number, job, {host: f"{host} did not answer" for host in sorted(silent)}, now_ns)
        if move.phase is Phase.SETTLING and number in self._jobs and now_ns >= job.retry_at_ns:
            await self._settle(number, job, move, now_ns)
            out += move.poll(now_ns)
        if number not in self._jobs:
            return
        if move.phase is Phase.DONE:
            job.move, job.target, job.newcomer, job.moved_ns = None, None, None, now_ns
        self._outbox += [Message(self._host_at[address], content) for address, content in out]

    async def _settle(self, number: int, job: RunningJob, move: Move, now_ns: int) -> None:
        """Write the next generation for those who are left, and free what the old one held."""
        try:
            target = job.target or job.plan.placement
            if not self._planner.stands(target, job.spec, job.active):
                target, job.note = self._planner.place(job.spec, job.active, self.snapshot(now_ns, number))
            plan = self._planner.plan(job.spec, target, next_generation(move.generation))
        except ControllerError as error:
            self._has_no_place(number, job, error, now_ns)
            return
        job.plan = plan
        await self._write(now_ns, again=plan.switches)
        if trouble := self._switches.trouble(plan.switches):
            job.trouble, job.retry_at_ns = trouble, now_ns + self.options.retry_ns
            return
        self.memory.retain(number, plan.switches)
        plans: dict[int, WorkerPlan | ServerPlan] = {self._address(name): p for name, p in plan.workers.items()}
        joining: set[int] = set()
        if (server := job.spec.server) is not None:
            assert move.settlement is not None
            joins = server == job.newcomer
            plans[self._address(server)] = _server_plan(plan, move.settlement.least if joins else 0)
            joining |= {self._address(server)} if joins else set()
        job.trouble = ""
        move.settled(plans, now_ns, joining)

    def _has_no_place(self, number: int, job: RunningJob, error: ControllerError, now_ns: int) -> None:
        """Do without hosts that no way leads to, where the job's policy has it so; else try again later."""
        _log.warning("job %d finds no place: %s", number, error)
        job.trouble, job.retry_at_ns = str(error), now_ns + self.options.retry_ns
        cut_off = self._planner.cut_off(job.spec, job.active)
        if not cut_off or job.spec.policy is FailurePolicy.WAIT:
            return
        if job.spec.server is not None and 2 * len(cut_off) > len(job.active):
            cut_off = (job.spec.server,)
        self._lose(number, job, {host: f"no way leads to {host}" for host in cut_off}, now_ns)

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
        self._planner.follow(self._down, lost)
        routes = self._planner.routes
        self._bases = {s.name: base_state(self.topology, routes, s.name) for s in self.topology.switches}
        self.probes = plan_probes(self.topology, routes)
        self._frames = ProbeFrames(self.topology, self.probes)
        self.telemetry.follow(self.probes)
        for number, job in self._jobs.items():
            plan = job.plan
            if self._planner.stands(plan.placement, plan.spec, plan.placement.aggregators):
                job.plan = self._planner.plan(plan.spec, plan.placement, plan.generation)
                continue
            used = sorted(lost & {*plan.switches, plan.placement.root})
            why = f"{', '.join(used)} is lost" if used else "its nodes do not reach each other any more"
            if job.move is None:
                self._begin(number, job, why, now_ns)
            elif job.move.phase is Phase.RESUMING:
                job.renew = why

    def _renew_after_restarts(self) -> None:
        for name in sorted(self._switches.take_restarted()):
            for job in self._jobs.values():
                if name in job.plan.switches and (job.move is None or job.move.phase is Phase.RESUMING):
                    job.renew = f"{name} has started anew"

    def _collect(self, now_ns: int) -> None:
        frames = [packet.frame for session in self.sessions.values() for packet in session.take_packets()]
        if frames:
            self.telemetry.receive(frames, now_ns)

    async def _probe(self, now_ns: int) -> None:
        sequence = self.telemetry.send_all(now_ns)
        by_switch: dict[str, list[tuple[int, bytes]]] = {}
        for probe in self.probes:
            if probe.switch not in self._switches.lost:
                frame = self._frames.frame(probe.index, sequence)
                by_switch.setdefault(probe.switch, []).append((probe.port, frame))
        sending = (self.sessions[name].send(packets) for name, packets in by_switch.items())
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, ControllerError):  # its probes count as lost, its links become stale
                _log.warning("no probes: %s", result)
            elif isinstance(result, BaseException):
                raise result

    def _desired(self) -> Mapping[str, SwitchState]:
        plans = [job.plan for job in self._jobs.values()]
        return fabric_state(self.topology, self._bases, plans, self.options.marking)

    async def _write(self, now_ns: int, again: Iterable[str] = ()) -> Mapping[str, Diff]:
        """Bring the switches to what they should hold; those in `again` even if they have just refused."""
        self._dirty = False
        return await self._switches.write(self._desired(), now_ns, frozenset(again))

    # --- names ---

    def _plans(self, plan: JobPlan) -> list[Message]:
        messages = [Message(name, worker) for name, worker in plan.workers.items()]
        if plan.spec.server is not None:
            messages.insert(0, Message(plan.spec.server, _server_plan(plan)))
        return messages

    def _address(self, host: str) -> int:
        return int(self.topology.host(host).address)

    def _job(self, job: int) -> RunningJob:
        if job not in self._jobs:
            raise ControllerError(f"no job {job}; running are {', '.join(map(str, self._jobs)) or 'none'}")
        return self._jobs[job]

    def _check_part(self, job: RunningJob, host: str) -> None:
        if host not in job.spec.workers and host not in job.hosts and host not in (*job.gone, *job.spec.spares):
            raise ControllerError(
                f"job {job.spec.job}: {host} is none of its workers {', '.join(job.spec.workers)}, nor its server"
            )


def _server_plan(plan: JobPlan, first_round: int = 0) -> ServerPlan:
    """The server's part: the root's, or without children a mere holder's of the rounds that it has completed before."""
    spec = plan.spec
    server = plan.server or ServerPlan(spec.job, plan.generation, spec.slots, (), len(spec.workers))
    return replace(server, first_round=first_round)
