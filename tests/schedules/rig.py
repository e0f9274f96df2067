"""A fabric in virtual time with everything real but the wires: compiled switches, protocol cores, the Controller.

::

    Fabric (emulated switches that run fabric.p4, links with faults) ◀─frames─▶ HostAgent ◀─▶ worker and server cores
       │ tables, packet-out/in                                                       │ plans, Pause/Held, Resume/Resumed
    DirectSession ◀──────────────── Controller ◀──── control messages: late, lost, overtaking ────┘

A host takes part in any number of jobs, each by a process of its own. They share its UDP port: any of them may read
what has arrived, and passes on what is another one's. A test drives a `ScheduleRig` by `run`, which lets virtual time
go on until a condition holds, and fails when it does not within bounds: nothing may hang.
"""

from __future__ import annotations

import heapq
import inspect
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from weir.controller.controller import Controller, ControllerOptions, Message
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
from weir.wire.aggregation import HEADER_BYTES
from weir.wire.control import Abort, Pause, Resume, ServerPlan, WorkerPlan
from weir.wire.fields import BY_NAME
from weir.wire.frames import FRAME_HEADER_BYTES

US: Final = 1_000
MS: Final = 1_000_000
_STATES: Final = StatePool()

_JOB: Final = FRAME_HEADER_BYTES + BY_NAME["job"].offset
"""Offset of a message's job in a frame."""
_FIRST_LANE: Final = FRAME_HEADER_BYTES + HEADER_BYTES
"""Offset of lanes in a frame, the highest byte of each first."""

Action = Callable[[], Awaitable[None] | None]
Seat = tuple[int, str]
"""A job's number and one of its hosts: a process there."""
Agent = HostAgent[WorkerCore] | HostAgent[ParameterServerCore]


def _start(switch: Switch, _target: Target) -> None:
    switch.start(fabric_program(), _STATES.acquire())


@dataclass
class Chosen:
    """A strategy whose answers a test has chosen, by the workers that are left."""

    choose: Callable[[Problem], Placement]

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        return self.choose(problem)


@dataclass(frozen=True)
class Control:
    """Transport of the messages between controller and hosts."""

    delay_ns: tuple[int, int] = (10 * US, 200 * US)
    """Uniform, each by itself."""
    loss: float = 0.0
    heartbeat_ns: int = 5 * MS


OPTIONS: Final = ControllerOptions(
    probe_period_ns=10 * MS,
    solve_period_ns=0,
    lease_ns=40 * MS,
    patience_ns=40 * MS,
    retry_ns=2 * MS,
    stuck_ns=60 * MS,
)
PACE: Final = WorkerOptions(initial_timeout_ns=MS, min_timeout_ns=300 * US, max_timeout_ns=10 * MS)


class ScheduleRig:
    """One fabric, its controller and its jobs. `close` it, so that the next one is quick to build."""

    def __init__(
        self,
        topology: Topology,
        strategy: Strategy,
        *,
        seed: int = 1,
        routes: Routes | None = None,
        options: ControllerOptions = OPTIONS,
        control: Control = Control(),
        pace: WorkerOptions = PACE,
        poll_ns: int = 0,
        link: Mapping[str, Any] | None = None,
        worker_core: type[WorkerCore] = WorkerCore,
        paired_flips: float = 0.0,
    ) -> None:
        """`link`: settings of every link, as `EmulatedFabric` takes them. `paired_flips`: how many of the frames that a
        host sends or gets have the highest bits of two lanes flipped on the way.
        """
        self.topology = topology
        self.random = random.Random(seed)
        self.emulated = EmulatedFabric(topology, seed=seed, start=_start, poll_ns=poll_ns, **(link or {}))
        self.fabric = self.emulated.fabric
        self.pace = pace
        self.switches = self.emulated.switches
        self.agents: dict[Seat, Agent] = {}
        self.seats: set[Seat] = set()
        """All that running jobs have, spare servers' among them."""
        self.dead: set[Seat] = set()
        """Processes that died, or were told that the job goes on without them."""
        self.hung: dict[Seat, list[Callable[[], None]]] = {}
        """Hung processes, with their pending events."""
        self.flips = _Flips(paired_flips, seed)
        self._processes: defaultdict[str, dict[int, _Process]] = defaultdict(dict)  # by host and job
        self._control = control
        self._worker_core = worker_core
        self._due: list[tuple[int, int, Action]] = []
        self._sequence = 0
        self.sessions = {name: DirectSession(name, switch) for name, switch in self.switches.items()}
        self._make_controller = partial(
            Controller,
            topology,
            routes or Routes(topology),
            cast("Mapping[str, SwitchSession]", self.sessions),
            strategy,
            options,
        )
        self.controller = self._make_controller(0)

    def close(self) -> None:
        _STATES.release(switch.state for switch in self.switches.values() if switch.state is not None)

    # --- jobs ---

    async def admit(self, spec: JobSpec) -> None:
        """Start a job, and the agents of its hosts."""
        for message in await self.controller.admit(spec, self.now_ns):
            assert isinstance(message.content, WorkerPlan | ServerPlan)
            self._start(message.host, message.content, self.pace.first_round)
        for name in spec.hosts:
            seat = spec.job, name
            self.seats.add(seat)
            self.dead.discard(seat)
            self._beat(seat)

    def _start(self, name: str, plan: WorkerPlan | ServerPlan, first_round: int) -> None:
        core: WorkerCore | ParameterServerCore
        if isinstance(plan, WorkerPlan):
            core = self._worker_core(plan, self.pace)
        else:
            core = ParameterServerCore(replace(plan, first_round=first_round))
        process = self._processes[name][plan.job] = _Process(self, name)
        host = VirtualHost(cast(EmulatedFabric, process), name)
        self.agents[plan.job, name] = cast(Agent, HostAgent(host, core))

    async def finish(self, job: int) -> None:
        """End a job; its hosts are free."""
        await self.controller.finish(job, self.now_ns)
        self.dismiss(job)

    def dismiss(self, job: int, *, but: Collection[str] = ()) -> None:
        """The processes of a job that has ended are gone, but those of some hosts, which have not heard of it."""
        for seat in [seat for seat in self.seats if seat[0] == job]:
            self.seats.remove(seat)
            if seat[1] not in but:
                self.agents.pop(seat, None)
                self.hung.pop(seat, None)
                self._processes[seat[1]].pop(job, None)

    async def replace_controller(self) -> None:
        """Replace the controller by another one without knowledge of any job."""
        self.controller = self._make_controller(self.now_ns)
        await self.controller.start(self.now_ns)

    def is_busy(self, host: str) -> bool:
        """Return whether any job has a part on the host."""
        return any(name == host for _, name in self.seats)

    def worker(self, job: int, name: str) -> WorkerCore:
        core = self.agents[job, name].core
        assert isinstance(core, WorkerCore)
        return core

    def workers(self, job: int) -> list[str]:
        """The job's workers that live, and are in its plan still."""
        plan = self.controller.jobs[job].plan
        return [name for name in plan.workers if (job, name) not in self.dead]

    # --- faults ---

    def kill(self, host: str, job: int | None = None) -> None:
        """Stop a host for good, or only its process of one job; its packets in flight stay."""
        self.dead |= {seat for seat in self.seats if seat[1] == host and job in (None, seat[0])}

    def hang(self, host: str, for_ns: int, job: int | None = None) -> None:
        """A host does nothing for a while, or only its process of one job; then it takes what has come meanwhile."""
        for seat in self.agents:
            if seat[1] == host and job in (None, seat[0]) and seat not in self.hung:
                self.hung[seat] = []
                self.after(for_ns, lambda seat=seat: self._go_on(seat))  # type: ignore[misc]

    def _go_on(self, seat: Seat) -> None:
        for action in self.hung.pop(seat, ()):
            if seat in self.agents and seat not in self.dead:
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
        """Let this much time pass."""
        end_ns = self.now_ns + for_ns
        self.after(for_ns, lambda: None)  # or time would go on to the limit
        await self.run(lambda: self.now_ns >= end_ns, 2 * for_ns, "a rest")

    def _wake(self, wake: Wake) -> None:
        frames = [self.flips.of(frame) for frame in wake.frames]
        here = [(job, wake.host) for job in self._processes[wake.host] if (job, wake.host) not in self.dead]
        parts = self._share(here, frames) if len(here) > 1 else [frames] * len(here)
        fired = self._fired(wake.host) if wake.timer else ()
        for seat, mine in zip(here, parts, strict=True):
            timer = seat[0] in fired
            if mine or timer:
                self._hand(seat, Wake(wake.host, mine, [], timer))

    def _share(self, here: Sequence[Seat], arrived: Sequence[NDArray[np.uint8]]) -> list[list[NDArray[np.uint8]]]:
        """Any process that does not hang reads what arrived for all of them, and keeps what is for a job of none."""
        parts: dict[Seat, list[NDArray[np.uint8]]] = {seat: [] for seat in here}
        for frames in arrived:
            reader = self.random.choice([seat for seat in here if seat not in self.hung] or here)
            jobs = frames[:, _JOB : _JOB + 2].copy().view(">u2")[:, 0]
            left = np.ones(len(frames), np.bool_)
            for seat in here:
                rows = jobs == seat[0]
                if seat != reader and rows.any():
                    parts[seat].append(frames[rows])
                    left &= ~rows
            if left.any():
                parts[reader].append(frames[left])
        return list(parts.values())

    def _fired(self, host: str) -> set[int]:
        """The jobs of the processes whose timers are due; the others' go on."""
        processes = self._processes[host]
        fired = {
            job for job, process in processes.items() if process.due_ns is not None and process.due_ns <= self.now_ns
        }
        for job in fired:
            processes[job].due_ns = None
        if len(fired) < len(processes):
            self.set_timer(host)
        return fired

    def set_timer(self, host: str) -> None:
        """The host's one timer goes off when the first of its processes' is due."""
        due = [each.due_ns for each in self._processes[host].values() if each.due_ns is not None]
        self.fabric.wake(host, min(due, default=None))

    def _hand(self, seat: Seat, wake: Wake) -> None:
        agent = self.agents[seat]
        if seat in self.hung:
            self.hung[seat].append(lambda: agent.handle(wake))
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
        name, content = message.host, message.content
        job = content.plan.job if isinstance(content, Resume) else content.job
        seat = job, name
        if seat in self.dead or seat not in self.seats:
            return
        if seat in self.hung:
            self.hung[seat].append(lambda: self._tell(message))
            return
        match content:
            case Pause() | Resume() if seat not in self.agents:
                pass  # as a host whose first plan was lost or overtaken does; both are said again, the plan before them
            case Pause():
                if (held := self.agents[seat].pause(content)) is not None:
                    self._answer(job, lambda: self.controller.moves.held(job, name, held))
            case Resume(plan):
                self.agents[seat].resume(content)
                self._answer(job, lambda: self.controller.moves.resumed(job, name, plan.generation, self.now_ns))
            case ServerPlan() as plan:
                if seat not in self.agents:
                    self._start(name, plan, plan.first_round)
                follows = self.agents[seat].core.plan.generation  # a server that runs takes no first plan
                self._answer(job, lambda: self.controller.moves.resumed(job, name, follows, self.now_ns))
            case Abort():
                self.dead.add(seat)
            case other:
                raise TypeError(f"a running job is not told {type(other).__name__}")

    def _answer(self, job: int, give: Callable[[], None]) -> None:
        """Send a host's message to the controller; it is dropped if the job has ended meanwhile."""
        running = self.controller.jobs.get(job)

        def arrive() -> None:
            if running is not None and self.controller.jobs.get(job) is running:
                give()

        self._carry(arrive)

    def _beat(self, seat: Seat) -> None:
        """A process's heartbeat, and the next one."""
        if seat not in self.seats or seat in self.dead:
            return
        if seat in self.hung:
            self.hung[seat].append(lambda: self._beat(seat))
            return
        job, name = seat
        core = self.agents[seat].core if seat in self.agents else None
        rounds, waiting = (core.rounds_complete, not core.idle) if isinstance(core, WorkerCore) else (0, False)
        self._answer(job, lambda: self.controller.members.heartbeat(job, name, rounds, self.now_ns, waiting=waiting))
        self.after(self._control.heartbeat_ns, lambda: self._beat(seat))

    # --- observations ---

    def waiting(self) -> str:
        """Awaited events of the jobs and of every worker that is not idle."""
        lines = [self.controller.jobs.waiting_for(job, self.now_ns) for job in self.controller.jobs]
        for job in self.controller.jobs:
            workers = (self.worker(job, name) for name in self.workers(job))
            lines += [core.waiting_for(self.now_ns) for core in workers if not core.idle]
        return "; ".join(lines)

    def drops(self, switch: str) -> dict[str, int]:
        """Drops by reason, since the switch started (docs/design.md §4.3)."""
        state = self.switches[switch].state
        assert state is not None
        return dict(zip(DROP_REASONS, state.counters[DROPS].packets.tolist(), strict=True))

    async def check_empty(self) -> None:
        """Assert that without any job, every switch has its base entries, and its memory is all free."""
        assert not self.controller.jobs
        for name, diff in (await self.controller.verify()).items():
            raise AssertionError(f"{name} does not hold what it should:\n{diff}")
        free = self.controller.planner.memory.jobs_that_fit(1)
        assert free == {switch.name: switch.slots for switch in self.topology.switches}, "slots have leaked"


class _Process:
    """Part of the fabric that a host's process uses, as `VirtualHost` sees it: the host's links, and a timer."""

    def __init__(self, rig: ScheduleRig, host: str) -> None:
        self.topology = rig.topology
        self.fabric = self
        self.due_ns: int | None = None
        """When its timer goes off."""
        self._rig = rig
        self._host = host

    @property
    def now_ns(self) -> int:
        return self._rig.now_ns

    def wake(self, host: str, at_ns: int | None) -> None:
        self.due_ns = at_ns
        self._rig.set_timer(host)

    def send(self, host: str, frames: NDArray[np.uint8], priority: int) -> None:
        self._rig.fabric.send(host, self._rig.flips.of(frames), priority)


class _Flips:
    """Bits flipped in pairs on hosts' links, the highest ones of two lanes: the public check is blind to these, in
    frames to a host and in a switch's sums (docs/design.md §2.2).
    """

    def __init__(self, rate: float, seed: int) -> None:
        self.count = 0
        self._rate = rate
        self._random = np.random.default_rng([seed, 31])

    def of(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Frames of one size, some of them changed."""
        lanes = (frames.shape[1] - _FIRST_LANE) // 4
        if not self._rate or lanes < 2:
            return frames
        frames = frames.copy()
        for row in np.flatnonzero(self._random.random(len(frames)) < self._rate):
            frames[row, _FIRST_LANE + 4 * self._random.choice(lanes, 2, replace=False)] ^= 0x80
            self.count += 1
        return frames
