"""A fabric in virtual time with everything real but the wires: compiled switches, protocol cores, the Controller.

::

    Fabric (emulated switches that run fabric.p4, links with faults) ◀─frames─▶ HostAgent ◀─▶ worker and server cores
       │ tables, packet-out/in                                                       │ plans, Pause/Held, Resume/Resumed
    DirectSession ◀──────────────── Controller ◀──── control messages: late, lost, overtaking ────┘

One host takes part in one job at a time. A test drives a `Rig` by `run`, which lets virtual time go on until a
condition holds, and fails when it does not within bounds: nothing may hang.
"""

from __future__ import annotations

import heapq
import inspect
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from weir.controller.controller import Controller, Message, Options
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.p4runtime.tables import DROP_REASONS, DROPS
from weir.controller.placement import Placement, Problem
from weir.controller.placement.strategies import Strategy
from weir.controller.planning.plan import JobSpec
from weir.emulator.fabric import Wake
from weir.emulator.switch import Switch
from weir.experiments.backends.agents import HostAgent, VirtualHost
from weir.experiments.backends.emulated import EmulatedFabric
from weir.hosts.protocol.server import ParameterServerCore
from weir.hosts.protocol.worker import WorkerCore, WorkerOptions
from weir.tests.schedules.direct import DirectSession, StatePool, fabric_program
from weir.topologies.model import Endpoint, Topology
from weir.topologies.routing import Routes
from weir.topologies.targets import Target
from weir.wire.control import Abort, Pause, Resume, ServerPlan, WorkerPlan

US: Final = 1_000
MS: Final = 1_000_000
_STATES: Final = StatePool()

Action = Callable[[], Awaitable[None] | None]
Agent = HostAgent[WorkerCore] | HostAgent[ParameterServerCore]


def _start(switch: Switch, _target: Target) -> None:
    switch.start(fabric_program(), _STATES.take())


@dataclass
class Chosen:
    """A strategy whose answers a test has chosen, by the workers that are left."""

    choose: Callable[[Problem], Placement]

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        return self.choose(problem)


@dataclass(frozen=True)
class Control:
    """How the messages between controller and hosts travel."""

    delay_ns: tuple[int, int] = (10 * US, 200 * US)
    """Uniform, each by itself."""
    loss: float = 0.0
    heartbeat_ns: int = 5 * MS


OPTIONS: Final = Options(
    probe_period_ns=10 * MS,
    solve_period_ns=0,
    lease_ns=40 * MS,
    patience_ns=40 * MS,
    retry_ns=2 * MS,
    stuck_ns=60 * MS,
)
PACE: Final = WorkerOptions(initial_timeout_ns=MS, least_timeout_ns=300 * US, most_timeout_ns=10 * MS)


class Rig:
    """One fabric, its controller and its jobs. `close` it, so that the next one is quick to build."""

    def __init__(
        self,
        topology: Topology,
        strategy: Strategy,
        *,
        seed: int = 1,
        routes: Routes | None = None,
        options: Options = OPTIONS,
        control: Control = Control(),
        pace: WorkerOptions = PACE,
        poll_ns: int = 0,
        link: Mapping[str, Any] | None = None,
        worker_core: type[WorkerCore] = WorkerCore,
    ) -> None:
        """`link`: settings of every link, as `EmulatedFabric` takes them."""
        self.topology = topology
        self.random = random.Random(seed)
        self.emulated = EmulatedFabric(topology, seed=seed, start=_start, poll_ns=poll_ns, **(link or {}))
        self.fabric = self.emulated.fabric
        self.pace = pace
        self.switches = self.emulated.switches
        self.agents: dict[str, Agent] = {}
        self.job_of: dict[str, int] = {}
        self.dead: set[str] = set()
        """Hosts that died, or were told that the job goes on without them."""
        self.hung: dict[str, list[Callable[[], None]]] = {}
        """Hosts that do nothing, with what awaits them."""
        self._control = control
        self._worker_core = worker_core
        self._due: list[tuple[int, int, Action]] = []
        self._sequence = 0
        self.sessions = {name: DirectSession(name, switch) for name, switch in self.switches.items()}
        self.controller = Controller(
            topology,
            routes or Routes(topology),
            cast("Mapping[str, SwitchSession]", self.sessions),
            strategy,
            options,
        )

    def close(self) -> None:
        _STATES.give_back(switch.state for switch in self.switches.values() if switch.state is not None)

    # --- jobs ---

    async def admit(self, spec: JobSpec) -> None:
        """Start a job, and the agents of its hosts."""
        for message in await self.controller.admit(spec, self.now_ns):
            assert not isinstance(message.content, Pause | Resume | Abort)
            self._start(message.host, message.content, self.pace.first_round)
        for name in spec.hosts:
            self.job_of[name] = spec.job
            self.dead.discard(name)
            self._beat(name, spec.job)

    def _start(self, name: str, plan: WorkerPlan | ServerPlan, first_round: int) -> None:
        core: WorkerCore | ParameterServerCore
        if isinstance(plan, WorkerPlan):
            core = self._worker_core(plan, self.pace)
        else:
            core = ParameterServerCore(replace(plan, first_round=first_round))
        self.agents[name] = cast(Agent, HostAgent(VirtualHost(self.emulated, name), core))

    async def finish(self, job: int) -> None:
        """End a job; its hosts are free."""
        await self.controller.finish(job, self.now_ns)
        self.dismiss(job)

    def dismiss(self, job: int) -> None:
        """The hosts of a job that has ended are free."""
        for name in [name for name, of in self.job_of.items() if of == job]:
            del self.job_of[name]
            self.agents.pop(name, None)
            self.hung.pop(name, None)

    def worker(self, name: str) -> WorkerCore:
        core = self.agents[name].core
        assert isinstance(core, WorkerCore)
        return core

    def workers(self, job: int) -> list[str]:
        """The job's workers that live, and are in its plan still."""
        plan = self.controller.jobs[job].plan
        return [name for name in plan.workers if name not in self.dead]

    # --- faults ---

    def kill(self, host: str) -> None:
        """The host stops for good; what it has sent is still on its way."""
        self.dead.add(host)

    def hang(self, host: str, for_ns: int) -> None:
        """The host does nothing for a while; then it takes what has come meanwhile."""
        if host in self.agents and host not in self.hung:
            self.hung[host] = []
            self.after(for_ns, lambda: self._go_on(host))

    def _go_on(self, host: str) -> None:
        for action in self.hung.pop(host, ()):
            if host in self.agents and host not in self.dead:
                action()

    def restart(self, switch: str, boot_ns: int) -> None:
        """A switch loses all it holds, and cannot be spoken to for a while."""
        session = self.sessions[switch]
        session.restart()
        session.reachable = False
        self.after(boot_ns, lambda: self._boot(session))

    def _boot(self, session: DirectSession) -> None:
        if not session.reachable:
            session.reachable = True
            session.openings += 1

    def take_down(self, end: Endpoint, noticed_ns: int, for_ns: int) -> None:
        """A link fails, is routed around when that is noticed, and comes back."""
        self.fabric.set_link(end, up=False)
        self.after(noticed_ns, lambda: self._reroute([end]))

        def up() -> None:
            self.fabric.set_link(end, up=True)
            self.after(noticed_ns, lambda: self._reroute([]))

        self.after(noticed_ns + for_ns, up)

    async def _reroute(self, down: list[Endpoint]) -> None:
        await self.controller.reroute(Routes(self.topology, down), self.now_ns)

    # --- time ---

    @property
    def now_ns(self) -> int:
        return self.fabric.now_ns

    def after(self, delay_ns: int, action: Action) -> None:
        """Do something when virtual time has gone on by so much."""
        self._sequence += 1
        heapq.heappush(self._due, (self.now_ns + delay_ns, self._sequence, action))

    async def run(
        self, done: Callable[[], bool], limit_ns: int, what: str, look: Callable[[], None] = lambda: None
    ) -> None:
        """Let time go on until `done`; AssertionError when it is not within `limit_ns` of virtual time.

        `look` is called whenever hosts have acted.
        """
        end_ns = self.now_ns + limit_ns
        while not done():
            for wake in self.fabric.run(min(self._next_ns(), end_ns)):
                self._wake(wake)
            look()
            if self.now_ns >= self._next_ns():
                await self._act()
            assert self.now_ns < end_ns, f"{what}: not done in {limit_ns / MS:g} ms of virtual time; {self.waiting()}"

    async def rest(self, for_ns: int) -> None:
        """Let time go on for so long."""
        end_ns = self.now_ns + for_ns
        self.after(for_ns, lambda: None)  # or time would go on to the limit
        await self.run(lambda: self.now_ns >= end_ns, 2 * for_ns, "a rest")

    def _wake(self, wake: Wake) -> None:
        agent = self.agents.get(wake.host)
        if agent is None or wake.host in self.dead:
            return
        if wake.host in self.hung:
            self.hung[wake.host].append(lambda: agent.handle(wake))
        else:
            agent.handle(wake)

    def _next_ns(self) -> int:
        """When something is due between hosts and controller, never before now."""
        due = self.controller.deadline_ns
        return max(self.now_ns, min(due, self._due[0][0]) if self._due else due)

    async def _act(self) -> None:
        while self._due and self._due[0][0] <= self.now_ns:
            result = heapq.heappop(self._due)[2]()
            if inspect.isawaitable(result):
                await result
        if self.controller.deadline_ns <= self.now_ns:
            for message in await self.controller.tick(self.now_ns):
                self._carry(lambda message=message: self._tell(message))  # type: ignore[misc]

    def _carry(self, delivery: Callable[[], None]) -> None:
        """Put a message between controller and host on its way."""
        if self.random.random() >= self._control.loss:
            self.after(self.random.randint(*self._control.delay_ns), delivery)

    def _tell(self, message: Message) -> None:
        """A message of the controller reaches its host; the answer sets out."""
        name = message.host
        if name in self.dead or name not in self.job_of:
            return
        if name in self.hung:
            self.hung[name].append(lambda: self._tell(message))
            return
        match message.content:
            case Pause(job):
                if (held := self.agents[name].pause(message.content)) is not None:
                    self._answer(job, lambda: self.controller.moves.held(job, name, held))
            case Resume(plan):
                self.agents[name].resume(message.content)
                self._answer(plan.job, lambda: self.controller.moves.resumed(plan.job, name, plan.generation))
            case ServerPlan() as plan:
                if name not in self.agents:
                    self._start(name, plan, plan.first_round)
                self._answer(plan.job, lambda: self.controller.moves.resumed(plan.job, name, plan.generation))
            case Abort():
                self.dead.add(name)
            case other:
                raise TypeError(f"a running job is not told {type(other).__name__}")

    def _answer(self, job: int, give: Callable[[], None]) -> None:
        """A host's message to the controller sets out; it is for nobody if the job has ended meanwhile."""

        def arrive() -> None:
            if job in self.controller.jobs:
                give()

        self._carry(arrive)

    def _beat(self, name: str, job: int) -> None:
        """A host's heartbeat, and the next one."""
        if self.job_of.get(name) != job or name in self.dead:
            return
        if name in self.hung:
            self.hung[name].append(lambda: self._beat(name, job))
            return
        core = self.agents[name].core if name in self.agents else None
        rounds, waiting = (core.rounds_complete, not core.idle) if isinstance(core, WorkerCore) else (0, False)
        self._answer(job, lambda: self.controller.members.heartbeat(job, name, rounds, self.now_ns, waiting=waiting))
        self.after(self._control.heartbeat_ns, lambda: self._beat(name, job))

    # --- what can be seen ---

    def waiting(self) -> str:
        """What the jobs and every worker that is not idle wait for."""
        lines = [self.controller.jobs.waiting_for(job, self.now_ns) for job in self.controller.jobs]
        for job in self.controller.jobs:
            workers = map(self.worker, self.workers(job))
            lines += [core.waiting_for(self.now_ns) for core in workers if not core.idle]
        return "; ".join(lines)

    def drops(self, switch: str) -> dict[str, int]:
        """By reason, since the switch started (docs/design.md §4.3)."""
        state = self.switches[switch].state
        assert state is not None
        return dict(zip(DROP_REASONS, state.counters[DROPS].packets.tolist(), strict=True))

    async def check_empty(self) -> None:
        """Without any job, every switch holds what it should, and its memory is all free."""
        assert not self.controller.jobs
        for name, diff in (await self.controller.verify()).items():
            raise AssertionError(f"{name} does not hold what it should:\n{diff}")
        free = self.controller.planner.memory.jobs_that_fit(1)
        assert free == {switch.name: switch.slots for switch in self.topology.switches}, "slots have leaked"
