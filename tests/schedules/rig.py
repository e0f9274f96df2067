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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, cast

from controller.controller import Controller, Message, Options
from controller.errors import SwitchUnreachable
from controller.placement import Placement, Problem
from controller.plan import JobSpec
from controller.session import SwitchSession
from controller.strategies import Strategy
from controller.tables import DROP_REASONS, DROPS
from emulator.fabric import Fabric
from emulator.switch import Switch
from experiments.agents import HostAgent
from hosts.server import ParameterServerCore
from hosts.worker import WorkerCore, WorkerOptions
from tests.schedules.direct import DirectSession, StatePool, fabric_program
from topologies.model import Endpoint, Topology
from topologies.routing import Routes
from wire.control import Pause, Resume, ServerPlan, WorkerPlan

US: Final = 1_000
MS: Final = 1_000_000
_STATES: Final = StatePool()

Action = Callable[[], Awaitable[None] | None]
Agent = HostAgent[WorkerCore] | HostAgent[ParameterServerCore]


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
    probe_period_ns=10 * MS, solve_period_ns=0, patience_ns=30 * MS, retry_ns=2 * MS, stuck_ns=60 * MS
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
        link: Mapping[str, float] | None = None,
        worker_core: type[WorkerCore] = WorkerCore,
    ) -> None:
        """`link`: settings of every link (`Fabric.add_link`) beside the topology's own."""
        self.topology = topology
        self.random = random.Random(seed)
        self.fabric = Fabric(seed=seed)
        self.pace = pace
        self.switches: dict[str, Switch] = {}
        self.agents: dict[str, Agent] = {}
        self.job_of: dict[str, int] = {}
        self.dead: set[str] = set()
        self._control = control
        self._worker_core = worker_core
        self._due: list[tuple[int, int, Action]] = []
        self._sequence = 0
        self._booted: list[str] = []  # switches that the controller has not been told of yet
        self._retry_ns = 0  # after an error, the controller is left alone until then
        for node in topology.switches:
            switch = Switch(node.device_id)
            switch.start(fabric_program(), _STATES.take())
            self.switches[node.name] = switch
            self.fabric.add_switch(node.name, switch)
        for host in topology.hosts:
            self.fabric.add_host(host.name, poll_ns=poll_ns)
        for cable in topology.links:
            self.fabric.add_link(
                (cable.a.node, cable.a.port),
                (cable.b.node, cable.b.port),
                rate_bps=cable.rate_bps,
                delay_ns=cable.delay_ns,
                queue_packets=cable.queue_packets,
                **(link or {}),  # type: ignore[arg-type]
            )
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
            host, content = self.topology.host(message.host), message.content
            core: WorkerCore | ParameterServerCore
            match content:
                case WorkerPlan():
                    core = self._worker_core(content, self.pace)
                case ServerPlan():
                    core = ParameterServerCore(replace(content, first_round=self.pace.first_round))
                case other:
                    raise TypeError(f"a job begins with plans, not with {type(other).__name__}")
            self.agents[host.name] = cast(Agent, HostAgent(self.fabric, self.topology, host, core))
            self.job_of[host.name] = spec.job
            self.dead.discard(host.name)
            self.after(self._control.heartbeat_ns, lambda name=host.name: self._beat(name, spec.job))  # type: ignore[misc]

    async def finish(self, job: int) -> None:
        """End a job; its hosts are free."""
        with suppress(SwitchUnreachable):  # it is put right when it is back
            await self.controller.finish(job)
        for name in [name for name, of in self.job_of.items() if of == job]:
            del self.agents[name], self.job_of[name]

    def worker(self, name: str) -> WorkerCore:
        core = self.agents[name].core
        assert isinstance(core, WorkerCore)
        return core

    def workers(self, job: int) -> list[str]:
        """The job's workers that live."""
        return [
            name
            for name, of in self.job_of.items()
            if of == job and name not in self.dead and isinstance(self.agents[name].core, WorkerCore)
        ]

    def flush(self, names: Iterable[str]) -> None:
        for name in names:
            self.agents[name].flush()

    # --- faults ---

    def kill(self, host: str) -> None:
        """The host stops for good; what it has sent is still on its way."""
        self.dead.add(host)

    def restart(self, switch: str, boot_ns: int) -> None:
        """A switch loses all it holds, and cannot be spoken to for a while. Then the controller is told to start
        anew.
        """
        session = self.sessions[switch]
        session.restart()
        session.reachable = False
        self.after(boot_ns, lambda: self._boot(session))

    def _boot(self, session: DirectSession) -> None:
        session.reachable = True
        session.openings += 1
        self._booted.append(session.name)

    @property
    def now_ns(self) -> int:
        return self.fabric.now_ns

    def take_down(self, end: Endpoint, noticed_ns: int, for_ns: int) -> None:
        """A link fails, is routed around when that is noticed, and comes back."""
        self.fabric.set_link((end.node, end.port), up=False)
        self.after(noticed_ns, lambda: self._reroute([end]))

        def up() -> None:
            self.fabric.set_link((end.node, end.port), up=True)
            self.after(noticed_ns, lambda: self._reroute([]))

        self.after(noticed_ns + for_ns, up)

    async def _reroute(self, down: list[Endpoint]) -> None:
        try:
            await self.controller.reroute(Routes(self.topology, down))
        except SwitchUnreachable:
            self.after(MS, lambda: self._reroute(down))

    # --- time ---

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
                if wake.host in self.agents and wake.host not in self.dead:
                    self.agents[wake.host].handle(wake)
            look()
            if self.now_ns >= self._next_ns():
                await self._act()
            assert self.now_ns < end_ns, f"{what}: not done in {limit_ns / MS:g} ms of virtual time; {self.waiting()}"

    def _next_ns(self) -> int:
        """When something is due between hosts and controller, never before now."""
        due = max(self.controller.deadline_ns, self._retry_ns)
        return max(self.now_ns, min(due, self._due[0][0]) if self._due else due)

    async def _act(self) -> None:
        while self._due and self._due[0][0] <= self.now_ns:
            result = heapq.heappop(self._due)[2]()
            if inspect.isawaitable(result):
                await result
        if max(self.controller.deadline_ns, self._retry_ns) > self.now_ns:
            return
        try:
            if self._booted:
                await self.controller.start()
                self._booted.clear()
            messages = await self.controller.tick(self.now_ns)
        except SwitchUnreachable:
            self._retry_ns = self.now_ns + MS
            return
        for message in messages:
            self._carry(lambda message=message: self._tell(message))  # type: ignore[misc]

    def _carry(self, delivery: Callable[[], None]) -> None:
        """Put a message between controller and host on its way."""
        if self.random.random() >= self._control.loss:
            self.after(self.random.randint(*self._control.delay_ns), delivery)

    def _tell(self, message: Message) -> None:
        """A message of the controller reaches its host; the answer sets out."""
        name = message.host
        if name in self.dead or name not in self.agents:
            return
        agent = self.agents[name]
        match message.content:
            case Pause(job):
                if (held := agent.pause(message.content)) is not None:
                    self._carry(lambda: self._answer(job, lambda: self.controller.held(job, name, held)))
            case Resume(plan):
                agent.resume(message.content)
                self._carry(
                    lambda: self._answer(plan.job, lambda: self.controller.resumed(plan.job, name, plan.generation))
                )
            case other:
                raise TypeError(f"a running job is not told {type(other).__name__}")

    def _answer(self, job: int, give: Callable[[], None]) -> None:
        if job in self.controller.jobs:
            give()

    def _beat(self, name: str, job: int) -> None:
        """A host's heartbeat, and the next one."""
        if self.job_of.get(name) != job or name in self.dead:
            return
        core = self.agents[name].core
        rounds, waiting = (core.rounds_complete, not core.idle) if isinstance(core, WorkerCore) else (0, False)
        self._carry(lambda: self._answer(job, lambda: self._heard(job, name, rounds, waiting)))
        self.after(self._control.heartbeat_ns, lambda: self._beat(name, job))

    def _heard(self, job: int, name: str, rounds: int, waiting: bool) -> None:
        self.controller.heartbeat(job, name, rounds, self.now_ns, waiting=waiting)

    # --- what can be seen ---

    def waiting(self) -> str:
        """What every worker that is not idle waits for."""
        return "; ".join(
            self.worker(name).waiting_for(self.now_ns)
            for job in self.controller.jobs
            for name in self.workers(job)
            if not self.worker(name).idle
        )

    @property
    def settled(self) -> bool:
        """Whether every switch can be spoken to, and the controller has spoken to all that were restarted."""
        return not self._booted and all(session.reachable for session in self.sessions.values())

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
        free = self.controller.memory.jobs_that_fit(1)
        assert free == {switch.name: switch.slots for switch in self.topology.switches}, "slots have leaked"
