"""Whole jobs in virtual time: the controller, emulated switches, and hosts with their protocol cores."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.controller import Controller, Message, Options
from controller.placement import Placement, Problem
from controller.plan import JobSpec
from controller.session import Pipeline, SwitchSession
from emulator.fabric import Fabric
from emulator.p4runtime import P4RuntimeServer
from emulator.switch import Switch
from experiments.agents import HostAgent
from hosts import ParameterServerCore, WorkerCore, WorkerOptions, reference_sum
from p4src import FABRIC_JSON
from topologies.generators import leaf_spine
from topologies.routing import Routes
from wire.aggregation import HEADER_BYTES, MESSAGE_BYTES
from wire.control import Pause, Resume, ServerPlan, WorkerPlan
from wire.frames import FRAME_HEADER_BYTES

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=1_000_000_000)
JOB = 9
WORKERS = ("h1", "h2", "h3")
SERVER = "h4"
MS = 1_000_000
STUCK_NS = 40 * MS

AT_SERVER = Placement({"h1": "s1", "h2": "s1", "h3": SERVER}, {"s1": SERVER}, SERVER)
AT_SWITCH = Placement({"h1": "s1", "h2": "s1", "h3": "s2"}, {"s1": "s2"}, "s2")

Agent = HostAgent[WorkerCore] | HostAgent[ParameterServerCore]


@dataclass
class Fixed:
    """A strategy that has one answer."""

    placement: Placement

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        return self.placement


class Bench:
    """A fabric with its controller and its hosts; what they tell each other arrives at once."""

    def __init__(self) -> None:
        self.fabric = Fabric(seed=5)
        self.switches: dict[str, Switch] = {}
        self.agents: dict[str, Agent] = {}
        self.workers: list[HostAgent[WorkerCore]] = []
        for node in TOPOLOGY.switches:
            self.switches[node.name] = switch = Switch(node.device_id)
            switch.load(FABRIC_JSON.read_bytes())
            self.fabric.add_switch(node.name, switch)
        for host in TOPOLOGY.hosts:
            self.fabric.add_host(host.name, poll_ns=20_000)
        for link in TOPOLOGY.links:
            ends = (link.a.node, link.a.port), (link.b.node, link.b.port)
            self.fabric.add_link(*ends, rate_bps=link.rate_bps, delay_ns=link.delay_ns, queue_packets=128)
        self.rpc = P4RuntimeServer(self.switches.values())
        self.rpc.start()
        self.controller: Controller

    async def admit(self, placement: Placement, server: str | None) -> None:
        self.controller.strategy = Fixed(placement)
        for message in await self.controller.admit(JobSpec(JOB, WORKERS, server, slots=16, window=8), 0):
            host = TOPOLOGY.host(message.host)
            match message.content:
                case WorkerPlan() as plan:
                    options = WorkerOptions(most_timeout_ns=20 * MS)
                    worker = HostAgent(self.fabric, TOPOLOGY, host, WorkerCore(plan, options))
                    self.workers.append(worker)
                    self.agents[host.name] = worker
                case ServerPlan() as plan:
                    self.agents[host.name] = HostAgent(self.fabric, TOPOLOGY, host, ParameterServerCore(plan))

    def submit(self, seed: int, chunks: int = 20) -> NDArray[np.float32]:
        """Give every worker a tensor; the sum that all must get."""
        rng = np.random.default_rng(seed)
        arrays = [rng.normal(size=256 * chunks).astype(np.float32) for _ in self.workers]
        for worker, array in zip(self.workers, arrays, strict=True):
            worker.core.submit(array)
            worker.flush()
        return reference_sum(arrays)

    @property
    def sums(self) -> list[bytes | None]:
        """What every worker has got for its first tensor."""
        totals = [worker.core.take(0) for worker in self.workers]
        return [None if total is None else total.array.tobytes() for total in totals]

    async def run(self, until_ns: int) -> None:
        """Advance virtual time until all workers are idle and no move is under way, or to `until_ns`."""
        while self.fabric.now_ns < until_ns:
            if self.controller.deadline_ns <= self.fabric.now_ns:
                await self._tick()
            elif self.idle:
                return
            for wake in self.fabric.run(min(max(self.controller.deadline_ns, self.fabric.now_ns), until_ns)):
                if wake.host in self.agents:
                    self.agents[wake.host].handle(wake)

    @property
    def idle(self) -> bool:
        return all(worker.core.idle and not worker.core.paused for worker in self.workers)

    async def _tick(self) -> None:
        now_ns = self.fabric.now_ns
        due = {name: self.rpc.packet_ins(switch.device_id) for name, switch in self.switches.items()}
        await self.controller.drain(due)
        for worker in self.workers:
            core = worker.core
            self.controller.heartbeat(JOB, worker.name, core.rounds_complete, now_ns, waiting=not core.idle)
        messages = await self.controller.tick(now_ns)
        for name, sent in self.controller.packet_outs_sent.items():
            while self.rpc.packet_outs(self.switches[name].device_id) < sent:
                await asyncio.sleep(0.0005)
        for message in messages:
            self.tell(message)

    def tell(self, message: Message) -> None:
        agent = self.agents[message.host]
        match message.content:
            case Pause() as pause:
                if (held := agent.pause(pause)) is not None:
                    self.controller.held(JOB, agent.name, held)
            case Resume() as resume:
                agent.resume(resume)
                self.controller.resumed(JOB, agent.name, resume.plan.generation)


@pytest.fixture
async def bench(pipeline: Pipeline) -> AsyncIterator[Bench]:
    bench = Bench()
    async with AsyncExitStack() as stack:
        stack.callback(bench.rpc.stop)
        sessions = {}
        for node in TOPOLOGY.switches:
            session = SwitchSession(
                node.name, bench.rpc.address, device_id=node.device_id, pipeline=pipeline, timeout_s=60
            )
            sessions[node.name] = await stack.enter_async_context(session)
        options = Options(probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=MS, stuck_ns=STUCK_NS)
        bench.controller = Controller(TOPOLOGY, Routes(TOPOLOGY), sessions, Fixed(AT_SERVER), options)
        await bench.controller.start()
        yield bench


@pytest.mark.parametrize(("start", "server"), [(AT_SERVER, SERVER), (AT_SWITCH, SERVER), (AT_SWITCH, None)])
async def test_a_job_sums_exactly_and_moves_in_the_middle(bench: Bench, start: Placement, server: str | None) -> None:
    await bench.admit(start, server)
    expected = bench.submit(1)
    await bench.run(MS // 4)
    assert not bench.idle
    target = None if server is None else AT_SERVER if start is AT_SWITCH else AT_SWITCH
    bench.controller.move(JOB, bench.fabric.now_ns, target)
    await bench.run(200 * MS)
    assert bench.controller.jobs[JOB].generation == 2
    assert bench.sums == [expected.tobytes()] * 3


async def test_rounds_that_the_server_alone_holds_are_fetched_from_it_after_the_root_has_become_a_switch(
    bench: Bench,
) -> None:
    await bench.admit(AT_SERVER, SERVER)
    expected = bench.submit(2)
    peer = TOPOLOGY.attached_switch(SERVER).name
    bench.fabric.set_link((SERVER, 0), loss=1.0, both=False)  # contributions reach the server, no result comes back
    await bench.run(STUCK_NS // 2)
    assert peer == "s2"
    assert [worker.core.rounds_complete for worker in bench.workers] == [0, 0, 0]
    server = bench.agents[SERVER].core
    bench.fabric.set_link((SERVER, 0), loss=0.0, both=False)
    bench.controller.move(JOB, bench.fabric.now_ns, AT_SWITCH)
    await bench.run(200 * MS)
    assert isinstance(server, ParameterServerCore)
    assert (server.plan.generation, server.plan.children) == (2, ())
    assert bench.sums == [expected.tobytes()] * 3
    assert server.counters.answered >= 2 * 3  # each worker fetched the first two rounds, which nobody else had
    assert [worker.core.counters.unknown_round for worker in bench.workers] == [0, 0, 0]


async def test_a_sum_damaged_in_a_switch_is_undone_by_a_new_generation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.admit(AT_SWITCH, None)
    send, damaged = bench.fabric.send, []

    def damage_one(host: str, frames: NDArray[np.uint8], **where: Any) -> None:
        """The first contribution with lanes from h2 has a bit of its lane 7 flipped, which no switch can see."""
        if host == "h2" and not damaged and frames.shape[1] == FRAME_HEADER_BYTES + MESSAGE_BYTES:
            frames = frames.copy()
            frames[0, FRAME_HEADER_BYTES + HEADER_BYTES + 4 * 7 + 1] ^= 0x10
            damaged.append(bench.fabric.now_ns)
        send(host, frames, **where)

    monkeypatch.setattr(bench.fabric, "send", damage_one)
    expected = bench.submit(3)
    await bench.run(damaged[0] + STUCK_NS // 2 if damaged else STUCK_NS // 2)
    assert len(damaged) == 1
    assert not bench.idle
    assert bench.controller.jobs[JOB].generation == 1
    assert all(worker.core.counters.bad_check > 0 for worker in bench.workers)
    await bench.run(400 * MS)
    assert bench.controller.jobs[JOB].generation == 2
    assert bench.controller.jobs[JOB].placement == AT_SWITCH
    assert bench.sums == [expected.tobytes()] * 3
    assert bench.fabric.now_ns < damaged[0] + 2 * STUCK_NS


async def test_late_copies_of_pause_and_resume_change_nothing(bench: Bench) -> None:
    await bench.admit(AT_SWITCH, SERVER)
    bench.submit(4)
    bench.controller.move(JOB, 0)
    await bench.run(200 * MS)
    for agent in bench.agents.values():
        plan = agent.core.plan
        assert plan.generation == 2
        assert agent.pause(Pause(JOB, 1)) is None
        agent.resume(Resume(plan))
        assert agent.core.plan is plan
        assert agent.pause(Pause(JOB, 2)) is not None
        agent.resume(Resume(plan))  # of the generation that is being left
        assert agent.core.plan is plan
    assert all(worker.core.paused for worker in bench.workers)
