"""A job on emulated switches in virtual time, with the real controller and the real protocol cores, and their faults:
hosts that die or hang, switches that die or restart, links that break.

Messages between controller and hosts arrive at once; every host's heartbeat goes with every tick.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weir.controller.controller import Controller, ControllerOptions, Message
from weir.controller.jobs.journal_file import JournalFile
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.reconcile import Diff
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.placement import Placement, Problem
from weir.controller.placement.strategies import Strategy
from weir.controller.planning.plan import JobSpec
from weir.emulator.p4runtime import P4RuntimeServer
from weir.experiments.backends.agents import HostAgent, VirtualHost
from weir.experiments.backends.emulated import EmulatedFabric
from weir.hosts import ParameterServerCore, WorkerCore, WorkerOptions, reference_sum
from weir.p4src import FABRIC_JSON
from weir.tests.support.live_page import free_port
from weir.topologies.model import Topology
from weir.topologies.routing import Routes
from weir.wire.control import Abort, Pause, Resume, ServerPlan, TrafficClass, WorkerPlan

MS = 1_000_000

Agent = HostAgent[WorkerCore] | HostAgent[ParameterServerCore]


@dataclass
class Fixed:
    """A strategy that has one answer."""

    placement: Placement

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        return self.placement


@dataclass
class Job:
    """One job's hosts."""

    number: int
    agents: dict[str, Agent] = field(default_factory=dict)
    arrays: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def workers(self) -> dict[str, HostAgent[WorkerCore]]:
        return {name: agent for name, agent in self.agents.items() if isinstance(agent.core, WorkerCore)}

    def take(self, handle: int = 0) -> dict[str, bytes | None]:
        """Result of a tensor, by worker."""
        totals = {name: worker.core.pop_result(handle) for name, worker in self.workers.items()}
        return {name: None if total is None else total.array.tobytes() for name, total in totals.items()}

    def sum_of(self, *hosts: str) -> bytes:
        """Expected sum over the tensors of these hosts alone; the scale is that of all workers."""
        return reference_sum([self.arrays[host] for host in hosts or self.arrays]).tobytes()


class JobRig:
    """A fabric with its controller and its hosts."""

    def __init__(
        self, topology: Topology, pipeline: CompiledPipeline, options: ControllerOptions, journal: Path | None
    ) -> None:
        self.topology = topology
        self.pipeline = pipeline
        self.options = options
        self.journal = journal
        self.emulated = EmulatedFabric(topology, seed=5, start=None, poll_ns=20_000)
        self.fabric = self.emulated.fabric
        self.switches = self.emulated.switches
        self.rpc: dict[str, P4RuntimeServer] = {}
        self.jobs: dict[int, Job] = {}
        self.silent: set[str] = set()
        """Hosts that do nothing, and that nothing reaches."""
        self.dead: set[str] = set()
        """Switches whose P4Runtime server is gone."""
        self.first_round = 0
        """Number of the workers' first round."""
        self.told: list[tuple[int, Message]] = []
        """Messages, with their times."""
        self.aborted: dict[str, str] = {}
        self.controller: Controller
        self._seen: dict[str, tuple[int, int]] = {}
        for name, switch in self.switches.items():
            self.rpc[name] = P4RuntimeServer([switch], f"127.0.0.1:{free_port()}")
            self.rpc[name].start()
            self._seen[name] = (0, 0)

    # --- the controller ---

    async def start_controller(self, strategy: Strategy) -> Mapping[str, Diff]:
        """Start a controller with sessions of its own, and the journal if there is one; return its changes to the
        switches.
        """
        sessions = {}
        for node in self.topology.switches:
            address = self.rpc[node.name].address
            session = SwitchSession(
                node.name,
                address,
                device_id=node.device_id,
                pipeline=self.pipeline,
                timeout_s=60,
                standby=True,
                patient=True,
            )
            sessions[node.name] = await session.__aenter__()
            if node.name not in self.dead:
                await session.until_primary()
            counted = self._counts(node.name)
            self._seen[node.name] = -counted[0], -counted[1]
        journal = None if self.journal is None else JournalFile(self.journal)
        self._journal = journal
        now_ns = self.fabric.now_ns
        self.controller = Controller(
            self.topology, Routes(self.topology), sessions, strategy, self.options, now_ns, journal=journal
        )
        return await self.controller.start(now_ns)

    async def stop_controller(self) -> None:
        """Stop the controller without notice, like a crash."""
        for session in self.controller.switches.sessions.values():
            await session.__aexit__(None, None, None)
        if self._journal is not None:
            self._journal.close()

    # --- the job ---

    async def admit(self, spec: JobSpec) -> Job:
        job = self.jobs[spec.job] = Job(spec.job)
        for message in await self.controller.admit(spec, self.fabric.now_ns):
            self.tell(message)
        return job

    def submit(self, job: Job, seed: int, chunks: int = 20) -> None:
        """Give every worker a tensor."""
        rng = np.random.default_rng(seed)
        for name, worker in sorted(job.workers.items()):
            job.arrays[name] = rng.normal(size=256 * chunks).astype(np.float32)
            worker.core.submit(job.arrays[name])
            worker.flush()

    async def run(self, until_ns: int, *jobs: Job) -> None:
        """Advance virtual time until all living workers are idle and no move is under way, or to `until_ns`."""
        while self.fabric.now_ns < until_ns:
            if self.controller.deadline_ns <= self.fabric.now_ns:
                await self._tick()
            elif jobs and all(self.is_idle(job) for job in jobs):
                return
            for wake in self.fabric.run(min(max(self.controller.deadline_ns, self.fabric.now_ns), until_ns)):
                if wake.host not in self.silent:
                    for job in self.jobs.values():
                        if wake.host in job.agents:
                            job.agents[wake.host].handle(wake)

    def is_idle(self, job: Job) -> bool:
        living = [worker.core for name, worker in job.workers.items() if name not in self.silent]
        return all(core.idle and not core.paused for core in living)

    async def _tick(self) -> None:
        now_ns = self.fabric.now_ns
        up = {name: session for name, session in self.controller.switches.sessions.items() if session.is_up}
        due = {name: self._seen[name][0] + self._counts(name)[0] for name in up}
        await self.controller.switches.drain(due)
        for job in self.jobs.values():
            if job.number in self.controller.jobs:
                self._beat(job, now_ns)
        messages = await self.controller.tick(now_ns)
        for name in up:
            while self._seen[name][1] + self._counts(name)[1] < self.controller.switches.packet_outs_sent[name]:
                await asyncio.sleep(0.0005)
        for message in messages:
            self.told.append((now_ns, message))
            if message.host not in self.silent:
                self.tell(message)

    def _beat(self, job: Job, now_ns: int) -> None:
        for name, agent in job.agents.items():
            if name in self.silent:
                continue
            core = agent.core
            rounds, waiting = (core.rounds_complete, not core.idle) if isinstance(core, WorkerCore) else (0, False)
            self.controller.members.heartbeat(job.number, name, rounds, now_ns, waiting=waiting)

    def _counts(self, name: str) -> tuple[int, int]:
        device = self.switches[name].device_id
        return self.rpc[name].packet_ins(device), self.rpc[name].packet_outs(device)

    def tell(self, message: Message) -> None:
        number = _job_of(message)
        job, host = self.jobs[number], self.topology.host(message.host)
        agent = job.agents.get(message.host)
        match message.content:
            case WorkerPlan() as plan:
                core = WorkerCore(plan, WorkerOptions(max_timeout_ns=20 * MS, first_round=self.first_round))
                job.agents[host.name] = HostAgent(VirtualHost(self.emulated, host.name), core)
            case ServerPlan() as plan:
                if agent is None:
                    server = ParameterServerCore(plan)
                    agent = job.agents[host.name] = HostAgent(VirtualHost(self.emulated, host.name), server)
                now_in = agent.core.plan.generation  # its first plan is the only one that it follows without a Resume
                self.controller.moves.resumed(number, host.name, now_in, self.fabric.now_ns)
            case Pause() as pause if agent is not None:
                if (held := agent.pause(pause)) is not None:
                    self.controller.moves.held(number, host.name, held)
            case Resume() as resume if agent is not None:
                agent.resume(resume)
                self.controller.moves.resumed(number, host.name, resume.plan.generation, self.fabric.now_ns)
            case TrafficClass() as change if agent is not None:
                agent.classify(change)
            case Abort(_, reason):
                self.aborted[host.name] = reason

    # --- faults ---

    async def kill_switch(self, name: str) -> None:
        """It carries nothing any more, and its P4Runtime server is gone."""
        for port in self.topology.neighbours(name):
            self.fabric.set_link((name, port), up=False)
        await self._break_session(name)

    async def restart_switch(self, name: str) -> None:
        """It comes back as it was delivered: no tables, no registers."""
        if self.controller.switches.sessions[name].is_up:
            await self._break_session(name)
        self.switches[name].load(FABRIC_JSON.read_bytes())
        for port in self.topology.neighbours(name):
            self.fabric.set_link((name, port), up=True)
        await self._open_session(name, P4RuntimeServer([self.switches[name]], self.rpc[name].address))

    async def break_session(self, name: str) -> None:
        """The way to its P4Runtime server breaks for a moment; the switch itself goes on."""
        await self._break_session(name)
        await self._open_session(name, self.rpc[name])

    async def _open_session(self, name: str, rpc: P4RuntimeServer) -> None:
        session = self.controller.switches.sessions[name]
        before, ins, outs = session.openings, session.packet_ins_received, session.packet_outs_sent
        self.rpc[name] = rpc
        self.dead.discard(name)
        rpc.start()
        counted = self._counts(name)
        self._seen[name] = ins - counted[0], outs - counted[1]
        async with asyncio.timeout(60):
            while session.openings == before:
                await asyncio.sleep(0.005)

    async def _break_session(self, name: str) -> None:
        self.dead.add(name)
        await asyncio.to_thread(self.rpc[name].stop)
        async with asyncio.timeout(60):
            while self.controller.switches.sessions[name].is_up:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def make_rig(
    topology: Topology,
    pipeline: CompiledPipeline,
    strategy: Strategy,
    options: ControllerOptions,
    journal: Path | None = None,
) -> AsyncIterator[JobRig]:
    """A fabric whose controller has begun."""
    rig = JobRig(topology, pipeline, options, journal)
    try:
        await rig.start_controller(strategy)
        try:
            yield rig
        finally:
            await rig.stop_controller()
    finally:
        for rpc in rig.rpc.values():
            rpc.stop()


def _job_of(message: Message) -> int:
    return message.content.plan.job if isinstance(message.content, Resume) else message.content.job
