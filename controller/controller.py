"""The controller: keeps the switches as the jobs need them, watches the links, and moves jobs when telemetry says so.

It reads no clock and starts no timer: its caller says what time it is, wall time or virtual::

    controller = Controller(topology, routes, sessions, strategy, Options(), now_ns)
    await controller.start()
    messages = await controller.admit(JobSpec(...), now_ns)      # plans for the job's hosts
    ...
    messages = await controller.tick(now_ns)                     # no later than controller.deadline_ns
    controller.held(job, host, held)                             # the hosts' answers, then tick again
    controller.resumed(job, host, generation)
    controller.heartbeat(job, host, rounds, now_ns)              # every host, now and then: it lives, and how far it is

A driver of virtual time stops its clock during `tick`. What a tick has sent is in `packet_outs_sent`; once the fabric
has sent packets to the controller, `drain` waits until they have all arrived.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.entries import SwitchState
from controller.errors import ControllerError, PlanError
from controller.memory import Allotment, FabricMemory
from controller.moves import Move, Phase
from controller.placement import Placement, Problem, should_move
from controller.plan import JobPlan, JobSpec, Marking, base_state, fabric_state, job_plan
from controller.probes import ProbeFrames, plan_probes
from controller.reconcile import Diff, reconcile_all, verify
from controller.session import SwitchSession
from controller.strategies import Strategy
from controller.telemetry import Snapshot, Telemetry, own_traffic
from topologies.model import Endpoint, Topology
from topologies.routing import Routes
from wire.aggregation import FIRST_GENERATION, MESSAGE_BYTES, next_generation
from wire.control import Held, Pause, Resume, ServerPlan, WorkerPlan
from wire.frames import FRAME_HEADER_BYTES

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    probe_period_ns: int = 10_000_000
    solve_period_ns: int = 100_000_000
    """Between two looks at whether a job should move; 0: jobs stay where they are."""
    improvement: float = 0.15
    """Hysteresis: a job moves only to a placement that is predicted to be faster by more than this share."""
    dwell_ns: int = 500_000_000
    """A job that has moved stays for so long."""
    patience_ns: int | None = None
    """A host silent for so long in a pause is given up as lost; None: never."""
    retry_ns: int = 50_000_000
    stuck_ns: int | None = None
    """A worker that waits and has not completed a round for so long gets its job a new generation of the same
    placement, which sums anew what was damaged in a switch; None: never.
    """
    marking: Marking = field(default_factory=Marking)

    def __post_init__(self) -> None:
        if self.probe_period_ns < 1 or not 0 <= self.improvement < 1:
            raise ControllerError(
                f"options: probe_period_ns {self.probe_period_ns} must be positive, "
                f"improvement {self.improvement} in [0, 1)"
            )


@dataclass(frozen=True, slots=True)
class Message:
    """Something to tell a host. Plans begin a job; Pause and Resume move it."""

    host: str
    content: WorkerPlan | ServerPlan | Pause | Resume


@dataclass(slots=True)
class _Progress:
    """What one worker has reported."""

    rounds: int
    reported_ns: int
    grown_ns: int
    """When `rounds` grew last, or the worker began to wait."""
    waiting: bool
    rounds_per_second: float = 0.0


@dataclass(slots=True)
class _Job:
    plan: JobPlan
    moved_ns: int
    progress: dict[str, _Progress] = field(default_factory=dict)
    move: Move | None = None
    target: Placement | None = None
    lost: frozenset[str] = frozenset()

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(w for w in self.plan.spec.workers if w not in self.lost)

    @property
    def rounds_per_second(self) -> float:
        """The slowest worker's."""
        return min((self.progress[w].rounds_per_second for w in self.active if w in self.progress), default=0.0)

    def stuck(self, now_ns: int, stuck_ns: int) -> list[str]:
        """The workers that have waited for so long without completing a round."""
        return [
            name
            for name in self.active
            if (seen := self.progress.get(name)) is not None
            and seen.waiting
            and now_ns - max(seen.grown_ns, self.moved_ns) >= stuck_ns
        ]


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
        self.memory = FabricMemory(topology)
        self.probes = plan_probes(topology, routes)
        self.telemetry = Telemetry(topology, self.probes, period_ns=options.probe_period_ns)
        self.options = options
        self._routes = routes
        self._sessions = sessions
        self._strategy = strategy
        self._rng = random.Random(seed)
        self._frames = ProbeFrames(topology, self.probes)
        self._bases = {s.name: base_state(topology, routes, s.name) for s in topology.switches}
        self._written: dict[str, SwitchState] = {}
        self._jobs: dict[int, _Job] = {}
        self._next_probe_ns = now_ns
        self._next_solve_ns = now_ns + options.solve_period_ns
        self._host_at = {int(host.address): host.name for host in topology.hosts}

    @property
    def jobs(self) -> Mapping[int, JobPlan]:
        """The plan in force of every job."""
        return {number: job.plan for number, job in self._jobs.items()}

    @property
    def packet_outs_sent(self) -> Mapping[str, int]:
        """By switch, since its session began."""
        return {name: session.packet_outs_sent for name, session in self._sessions.items()}

    @property
    def packet_ins_received(self) -> Mapping[str, int]:
        return {name: session.packet_ins_received for name, session in self._sessions.items()}

    @property
    def deadline_ns(self) -> int:
        """When `tick` has something to do again, if nothing else happens; 0 while a move waits for a tick."""
        deadlines = [self._next_probe_ns]
        if self.options.solve_period_ns:
            deadlines.append(self._next_solve_ns)
        for job in self._jobs.values():
            if job.move is not None:
                deadline = job.move.deadline_ns
                deadlines.append(0 if deadline is None else deadline)
        return min(deadlines)

    async def start(self) -> Mapping[str, Diff]:
        """Bring every switch to what it should hold, whatever it holds; what that took."""
        self._written = {}
        return await self._apply()

    async def drain(self, packet_ins: Mapping[str, int], timeout_s: float = 5.0) -> None:
        """Wait until so many packet-ins have arrived by switch, since its session began. Raises ControllerError if
        they do not.
        """
        await asyncio.gather(*(self._sessions[n].drain(count, timeout_s) for n, count in packet_ins.items()))

    async def verify(self) -> Mapping[str, Diff]:
        """Read all switches back; the differences by switch, where there are any."""
        desired = self._desired()
        names = sorted(desired)
        diffs = await asyncio.gather(*(verify(self._sessions[n], desired[n]) for n in names))
        return {name: diff for name, diff in zip(names, diffs, strict=True) if diff}

    async def admit(self, spec: JobSpec, now_ns: int) -> list[Message]:
        """Place a new job, write it to the switches, and return its hosts' plans.

        Raises PlanError (OutOfMemory when the switches are full); the fabric then stays as it was.
        """
        if spec.job in self._jobs:
            raise PlanError(f"job {spec.job} runs already; give every job its own number")
        self._collect(now_ns)
        placement = self._place(spec, spec.workers, self.snapshot(now_ns))
        try:
            plan = self._plan(spec, placement, FIRST_GENERATION)
            self._jobs[spec.job] = _Job(plan, now_ns)
            await self._apply()
        except ControllerError as error:
            if self._jobs.pop(spec.job, None) is not None:
                await self._undo(error)
            self.memory.retain(spec.job)
            raise
        return self._plans(plan)

    async def reroute(self, routes: Routes) -> Mapping[str, Diff]:
        """Go on with other routes, after a link went down or came back: routes, jobs and probes follow; what was
        written.

        Raises TopologyError where a job's nodes no longer reach each other; nothing is changed then.
        """
        plans = {
            number: job_plan(
                self.topology, routes, job.plan.spec, job.plan.placement, job.plan.generation, self._allotted(job)
            )
            for number, job in self._jobs.items()
        }
        for number, plan in plans.items():
            self._jobs[number].plan = plan
        self._routes = routes
        self._bases = {s.name: base_state(self.topology, routes, s.name) for s in self.topology.switches}
        self.probes = plan_probes(self.topology, routes)
        self._frames = ProbeFrames(self.topology, self.probes)
        self.telemetry.follow(self.probes)
        return await self._apply()

    async def finish(self, job: int) -> None:
        """Take a job from the switches and free what it held.

        It is over and its memory free even where this raises ControllerError: a switch that cannot be reached is put
        right by the next change, which nobody takes part in before.
        """
        self._job(job)
        del self._jobs[job]
        try:
            await self._apply()
        finally:
            self.memory.retain(job)

    def heartbeat(self, job: int, host: str, rounds: int, now_ns: int, *, waiting: bool = True) -> None:
        """A host of the job lives; for a worker also: how many rounds it has completed, and whether it waits for more
        (it does not while it computes).

        From two of a worker's the controller knows how fast the job goes, so that its own traffic is not taken for
        others' when it is placed anew; and when it is stuck (`Options.stuck_ns`). Raises ControllerError for a host
        that is none of the job.
        """
        running = self._job(job)
        if host == running.plan.spec.server:
            return
        if host not in running.plan.spec.workers:
            raise ControllerError(f"job {job}: {host} is none of its workers {', '.join(running.plan.spec.workers)}")
        seen = running.progress.get(host)
        if seen is None:
            running.progress[host] = _Progress(rounds, now_ns, now_ns, waiting)
            return
        if now_ns > seen.reported_ns:
            seen.rounds_per_second = 1e9 * (rounds - seen.rounds) / (now_ns - seen.reported_ns)
        if rounds > seen.rounds or not (seen.waiting and waiting):
            seen.grown_ns = now_ns
        seen.rounds, seen.reported_ns, seen.waiting = rounds, now_ns, waiting

    def snapshot(self, now_ns: int, job: int | None = None) -> Snapshot:
        """What is known of the links; with a job, without its own traffic."""
        own: Mapping[Endpoint, float] = {}
        if job is not None:
            running = self._job(job)
            own = own_traffic(running.plan.streams, running.rounds_per_second, FRAME_HEADER_BYTES + MESSAGE_BYTES)
        return self.telemetry.snapshot(now_ns, own)

    def move(self, job: int, now_ns: int, placement: Placement | None = None) -> None:
        """Begin to move a job to a placement, or to a new generation of its own one (a stuck round, a lost host).

        Raises PlanError when the placement is not possible; the job then stays. Does nothing while the job is moving.
        """
        running = self._job(job)
        if running.move is not None:
            return
        target = placement or running.plan.placement
        try:
            self._plan(running.plan.spec, target, next_generation(running.plan.generation))
        except PlanError:
            self.memory.retain(job, running.plan.switches)
            raise
        running.target = target
        plan = running.plan
        servers = {plan.spec.server} if plan.spec.server is not None else set()
        running.move = Move(
            job=job,
            generation=plan.generation,
            workers=[int(self.topology.host(name).address) for name in running.active],
            servers=[int(self.topology.host(name).address) for name in servers],
            slots=plan.spec.slots,
            now_ns=now_ns,
            retry_ns=self.options.retry_ns,
            patience_ns=self.options.patience_ns,
        )

    def held(self, job: int, host: str, held: Held) -> None:
        """A host's answer to Pause."""
        if (move := self._job(job).move) is not None:
            move.held(int(self.topology.host(host).address), held)

    def resumed(self, job: int, host: str, generation: int) -> None:
        """A host goes on in this generation. A copy of an earlier confirmation changes nothing."""
        if (move := self._job(job).move) is not None:
            move.resumed(int(self.topology.host(host).address), generation)

    async def tick(self, now_ns: int) -> list[Message]:
        """Do what is due: take reports, go on with moves, look for better placements, send probes. What to tell the
        hosts.
        """
        self._collect(now_ns)
        self._repair(now_ns)
        if self.options.solve_period_ns and now_ns >= self._next_solve_ns:
            self._next_solve_ns = now_ns + self.options.solve_period_ns
            self._consider(now_ns)
        messages: list[Message] = []
        for number, job in self._jobs.items():
            messages += await self._go_on(number, job, now_ns)
        if now_ns >= self._next_probe_ns:
            self._next_probe_ns = now_ns + self.options.probe_period_ns
            await self._probe(now_ns)
        return messages

    def _repair(self, now_ns: int) -> None:
        """Begin a new generation of each job that is stuck."""
        if self.options.stuck_ns is None:
            return
        for number, job in self._jobs.items():
            if job.move is None and (stuck := job.stuck(now_ns, self.options.stuck_ns)):
                _log.warning("job %d starts a new generation: no progress at %s", number, ", ".join(stuck))
                self.move(number, now_ns)

    def _collect(self, now_ns: int) -> None:
        frames = [packet.frame for session in self._sessions.values() for packet in session.take_packets()]
        if frames:
            self.telemetry.receive(frames, now_ns)

    async def _probe(self, now_ns: int) -> None:
        sequence = self.telemetry.send_all(now_ns)
        by_switch: dict[str, list[tuple[int, bytes]]] = {}
        for probe in self.probes:
            frame = self._frames.frame(probe.index, sequence)
            by_switch.setdefault(probe.switch, []).append((probe.port, frame))
        sending = (self._sessions[name].send(packets) for name, packets in by_switch.items())
        for result in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(result, ControllerError):  # its probes count as lost, its links become stale
                _log.warning("no probes: %s", result)
            elif isinstance(result, BaseException):
                raise result

    def _consider(self, now_ns: int) -> None:
        """Begin to move each job that would be clearly better off elsewhere, by telemetry that is fresh."""
        for number, job in self._jobs.items():
            if job.move is not None or now_ns - job.moved_ns < self.options.dwell_ns:
                continue
            links = self.snapshot(now_ns, number)
            if not links.is_fresh:
                continue
            problem = self._problem(job.plan.spec, job.active, links)
            try:
                better = self._strategy.place(problem, self._rng)
                if should_move(job.plan.placement, better, problem, self.options.improvement):
                    self.move(number, now_ns, better)
            except ControllerError as error:
                _log.warning("job %d stays where it is: %s", number, error)

    async def _go_on(self, number: int, job: _Job, now_ns: int) -> list[Message]:
        move = job.move
        if move is None:
            return []
        out = move.poll(now_ns)
        if move.phase is Phase.SETTLING:
            await self._settle(number, job, move, now_ns)
            out += move.poll(now_ns)
        if move.phase is Phase.DONE:
            job.move, job.target, job.moved_ns = None, None, now_ns
            return []
        return [Message(self._host_at[address], content) for address, content in out]

    async def _settle(self, number: int, job: _Job, move: Move, now_ns: int) -> None:
        """Write the next generation for those who are left, and free what the old one held."""
        spec, target = job.plan.spec, job.target
        assert target is not None
        lost = {self._host_at[address] for address in move.lost}
        job.lost |= lost
        if lost & target.aggregators.keys():
            target = self._place(spec, job.active, self.snapshot(now_ns, number))
        if spec.server in lost and target.root == spec.server:
            raise PlanError(f"job {number}: its server {spec.server} is lost, and the placement still has it as root")
        job.plan = self._plan(spec, target, next_generation(move.generation))
        await self._apply()
        self.memory.retain(number, job.plan.switches)
        plans: dict[int, WorkerPlan | ServerPlan] = {
            int(self.topology.host(name).address): plan for name, plan in job.plan.workers.items()
        }
        if spec.server is not None and spec.server not in job.lost:
            plans[int(self.topology.host(spec.server).address)] = _server_plan(job.plan)
        move.settled(plans, now_ns)

    def _place(self, spec: JobSpec, workers: tuple[str, ...], links: Snapshot) -> Placement:
        return self._strategy.place(self._problem(spec, workers, links), self._rng)

    def _problem(self, spec: JobSpec, workers: tuple[str, ...], links: Snapshot) -> Problem:
        return Problem(
            routes=self._routes,
            workers=workers,
            server=spec.server,
            gradient_bytes=spec.gradient_bytes,
            loads=links.loads,
            room=self.memory.jobs_that_fit(spec.slots, own=spec.job),
        )

    def _allotted(self, job: _Job) -> Mapping[str, Allotment]:
        """What a job holds already: asking again gives the same."""
        return self.memory.allot(job.plan.spec.job, job.plan.switches, job.plan.spec.slots)

    def _plan(self, spec: JobSpec, placement: Placement, generation: int) -> JobPlan:
        used = {*placement.aggregators.values(), *placement.parents, placement.root}
        switches = [s.name for s in self.topology.switches if s.name in used]
        allotments = self.memory.allot(spec.job, switches, spec.slots)
        return job_plan(self.topology, self._routes, spec, placement, generation, allotments)

    def _desired(self) -> Mapping[str, SwitchState]:
        plans = [job.plan for job in self._jobs.values()]
        return fabric_state(self.topology, self._bases, plans, self.options.marking)

    async def _apply(self) -> Mapping[str, Diff]:
        """Write to every switch that is not known to hold what it should."""
        changed = {n: state for n, state in self._desired().items() if self._written.get(n) != state}
        for name in changed:  # until it is done, nobody knows what they hold
            self._written.pop(name, None)
        diffs = await reconcile_all(self._sessions, changed)
        self._written.update(changed)
        return diffs

    async def _undo(self, cause: ControllerError) -> None:
        """Take back what a failed change has written; what cannot be reached now is put right by the next change."""
        try:
            await self._apply()
        except ControllerError as error:
            _log.warning("after %s: could not clean up: %s", cause, error)

    def _plans(self, plan: JobPlan) -> list[Message]:
        messages = [Message(name, worker) for name, worker in plan.workers.items()]
        if plan.spec.server is not None:
            messages.insert(0, Message(plan.spec.server, _server_plan(plan)))
        return messages

    def _job(self, job: int) -> _Job:
        if job not in self._jobs:
            raise ControllerError(f"no job {job}; running are {', '.join(map(str, self._jobs)) or 'none'}")
        return self._jobs[job]


def _server_plan(plan: JobPlan) -> ServerPlan:
    """The server's part: the root's, or without children a mere holder's of the rounds that it has completed before."""
    spec = plan.spec
    return plan.server or ServerPlan(spec.job, plan.generation, spec.slots, (), len(spec.workers))
