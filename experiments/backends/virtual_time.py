"""A job on an emulated fabric in virtual time, under one strategy: switches, hosts, other traffic, the controller.

::

    Fabric (native event loop) ◀─frames─▶ VirtualHost ◀─▶ worker and server cores, one for each shard
       │ packet-in/out
    P4RuntimeServer ◀──── gRPC on loopback ────▶ Controller

Virtual time stands still while hosts think and while the controller acts, so a run depends on its configuration and
seed alone. What the controller tells a host, and what a host answers, travels `control.latency` of virtual time.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from ...controller.congestion.control_class import control_delay_ns
from ...controller.congestion.promise import promises
from ...controller.controller import Controller, Message, Options
from ...controller.p4runtime.tables import DROP_REASONS, DROPS
from ...controller.placement import Placement, Problem
from ...controller.placement.strategies import STRATEGIES, strategy
from ...controller.planning.plan import FailurePolicy, JobSpec, lanes_of
from ...controller.watching.cost import TelemetryCost
from ...controller.watching.settings import Watching
from ...emulator.fabric import Wake
from ...hosts.collectives.communicator import Communicator
from ...hosts.collectives.sharding import ShardedDriver
from ...hosts.congestion import Dctcp, DelayTarget, ExplicitWindow, FixedWindow, WindowLaw
from ...hosts.numerics.tensors import Reduced, Tensor
from ...hosts.protocol.server import ParameterServerCore
from ...hosts.protocol.worker import WorkerCore, WorkerOptions
from ...topologies import Endpoint, Routes
from ...training import Processes
from ...wire.aggregation import message_bytes
from ...wire.control import Pause, Resume, ServerPlan, WorkerPlan
from ...wire.frames import FRAME_HEADER_BYTES, decapsulate, frame_headers
from ...wire.heartbeat import Heartbeat
from ..config import BACKGROUND_PAYLOAD_BYTES, RunConfig
from ..errors import ExperimentError
from ..jobs import Participants
from ..records.record import HeartbeatFigures, JobTrace
from ..workloads.workload import Floats
from .agents import HostAgent, VirtualHost, VirtualWorker
from .emulated import EmulatedFabric, LinkFigures
from .heartbeats import FRAME_BYTES, LEAST_STRETCH, VirtualHeartbeats
from .other_jobs import OtherJob, Progress
from .rounds import Rounds

if TYPE_CHECKING:
    from ...controller.live.watch import Watch

FIRST_JOB: Final = 1
"""Number of the trained job's first shard; the others' follow, and then those of the jobs beside it."""
QUEUE_SAMPLE_NS: Final = 250_000

STALLED_NS: Final = 500_000_000
"""Virtual time without progress after which the controller starts a new generation."""
STUCK_NS: Final = 10_000_000_000
"""Virtual time without progress after which a run is given up as stuck."""
_CONTROL_TIMEOUT_S: Final = 10.0
_LOOK_S: Final = 2e-4
"""Time between two looks at whether packet-outs have arrived: the switches' threads need the interpreter meanwhile."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A shard of the job began to be summed elsewhere."""

    time_ns: int
    switches: tuple[str, ...]
    shard: int


class TimedStrategy:
    """A strategy that notes how long each decision takes."""

    def __init__(self, name: str) -> None:
        self.decisions_ms: list[float] = []
        """Wall-clock time of each decision."""
        self._strategy = strategy(name)

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        started = time.perf_counter()
        placement = self._strategy.place(problem, rng)
        self.decisions_ms.append(1e3 * (time.perf_counter() - started))
        return placement


class Cluster:
    """Everything that one strategy's run consists of; an async context manager."""

    def __init__(
        self,
        config: RunConfig,
        strategy_name: str,
        watch: Watch | None = None,
        *,
        values: int | None = None,
        served: bool = False,
    ) -> None:
        """`watch` looks on. `values`: how many numbers a tensor has; None: as many as the run's workload says.
        `served`: each worker has a job with the server's host alone, in the place of the job of all (`pairs`).
        """
        self._values = config.gradient_values if values is None else values
        self._served = served
        self._watch = watch
        self.config = config
        self.strategy_name = strategy_name
        self.topology = config.topology
        self._moves: list[Moved] = []
        self._strategy = TimedStrategy(strategy_name)
        self._routes = Routes(self.topology)
        beats = config.heartbeats
        self._watching = config.watching
        collector = None if self._watching is None else self._watching.collector
        taking_part = frozenset[str]().union(*(job.hosts for job in (config.job, *config.other_jobs)))
        participants = {*taking_part, *([beats.to] if beats is not None else []), collector}
        self._emulated = EmulatedFabric(
            self.topology,
            seed=config.seed,
            poll_ns=config.host_poll,
            sinks={host.name for host in self.topology.hosts} - participants,
        )
        self._fabric = self._emulated.fabric
        self._switches = self._emulated.switches
        self.shares: Sequence[int] = [1] * len(config.job.roots)
        """In which proportions the shards have the tensors' chunks."""
        self._others: list[OtherJob] = []
        """The jobs beside the trained one, once that has begun."""
        self._progress = Progress()
        self._hosts: dict[str, VirtualHost] = {}
        self._workers: list[VirtualWorker] = []
        """The trained job's, of all shards."""
        self._drivers: list[ShardedDriver] = []
        """What each worker's training calls, by rank."""
        self._agents: dict[tuple[int, str], VirtualWorker | HostAgent[ParameterServerCore]] = {}
        """What runs each host's core of a job, by the job's number and the host's name."""
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._generations: dict[int, int] = {}
        """The generation of each shard's job, as `_note_placements` saw it last."""
        self._progress_ns = 0
        self._promised: dict[Endpoint, float] = {}
        self.heartbeats: VirtualHeartbeats | None = None
        """Those that go through the fabric; None: workers are asked for their progress by nobody's packets."""
        if beats is not None:
            self.heartbeats = VirtualHeartbeats(self._emulated, beats, self._hear, config.seed)
        self._stack = AsyncExitStack()

    @property
    def _jobs(self) -> range:
        """The numbers of the shards, or of the workers' jobs with the server."""
        return range(FIRST_JOB, FIRST_JOB + len(self.config.job.workers if self._served else self.shares))

    # --- building ---

    async def __aenter__(self) -> Cluster:
        try:
            await self._build()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _build(self) -> None:
        self._record_queues()
        self._start_background()
        self._rpc = self._stack.enter_context(self._emulated.serve())
        sessions = await self._stack.enter_async_context(self._emulated.sessions(self._rpc))
        control, beats = self.config.control, self.config.heartbeats
        self._controller = Controller(
            self.topology,
            self._routes,
            sessions,
            self._strategy,
            Options(
                probe_period_ns=control.interval,
                solve_period_ns=control.solve_interval if STRATEGIES[self.strategy_name].resolves else 0,
                together=STRATEGIES[self.strategy_name].jointly,
                improvement=control.gain,
                dwell_ns=control.dwell,
                retry_ns=50 * control.latency + 1_000_000,
                stuck_ns=STALLED_NS,
                host_lease_ns=beats.lease if beats is not None else None,
                heartbeats_at=beats.to if beats is not None and beats.detector == "telemetry" else None,
                congestion=self.config.congestion_options,
                watching=self._watching,
            ),
            seed=self.config.seed,
        )
        if self._watching is not None and self._watching.puts_headers:
            self._emulated.count_int(self._watching.presence)
            self._controller.int_load = self._emulated.int_load
        self._sessions = sessions
        await self._controller.start()
        if self._watch is not None:
            self._watch.begin(self.topology, f"{self.config.name}, {STRATEGIES[self.strategy_name].label}")
        await self._warm_up()
        job, lanes = self.config.job, lanes_of(self.topology)
        if job.stripes > 1:
            whole = self._spec(FIRST_JOB, job, None, Rounds.of_gradient(self.config, lanes, values=self._values))
            self.shares = await self._controller.shares(whole, job.stripes, self._fabric.now_ns)
        for number, (part, server, rounds) in zip(self._jobs, self._parts(), strict=True):
            for message in await self._admit(number, part, server, rounds):
                worker = self._start_host(number, message, self._law(part.window))
                self._workers += [] if worker is None else [worker]
            self._generations[number] = self._controller.jobs[number].plan.generation
        for name in self.config.job.workers:
            shards = [worker for worker in self._workers if worker.name == name]
            self._drivers.append(ShardedDriver(shards, self.shares))
        self._others = [
            OtherJob(each, number, each.values or self.config.gradient_values, self._fabric.now_ns)
            for number, each in enumerate(self.config.other_jobs, self._jobs.stop)
        ]
        if beats is not None:
            self._beat()

    def _parts(self) -> list[tuple[Participants, str | None, Rounds]]:
        """What the trained job is on the wire: a job for each shard, or for each worker with the server; who takes part
        in it, its root, and the rounds of its sums.
        """
        job, lanes = self.config.job, lanes_of(self.topology)
        if not self._served:
            return [
                (job, server, Rounds.of_gradient(self.config, lanes, self.shares, shard, self._values))
                for shard, server in enumerate(job.roots[: len(self.shares)])
            ]
        of_two = Rounds.of(self._values, lanes, job.window)
        return [
            (Participants(workers=[worker, str(job.server)], window=job.window, slots=job.slots), None, of_two)
            for worker in job.workers
        ]

    def _record_queues(self) -> None:
        for link in self.topology.links:
            for end in link.ends:
                if self.topology.is_switch(end.node):
                    self._fabric.record_queue(end, QUEUE_SAMPLE_NS)

    def _start_background(self) -> None:
        for flow in self.config.background:
            self._emulated.add_flow(
                flow.source,
                flow.destination,
                payload_bytes=BACKGROUND_PAYLOAD_BYTES,
                rate_bps=flow.rate,
                source_port=flow.port,
                start_ns=flow.start,
                stop_ns=flow.stop,
            )

    async def _warm_up(self) -> None:
        """Let probes see the fabric before the first placement."""
        await self._run(lambda: self._fabric.now_ns >= self.config.control.warm_up, "the warm-up")

    async def _admit(self, number: int, job: Participants, server: str | None, rounds: Rounds) -> list[Message]:
        """The controller takes a job in, whose sums take so many rounds; what its hosts are told."""
        now_ns = self._fabric.now_ns
        messages = await self._controller.admit(self._spec(number, job, server, rounds), now_ns)
        latency_ns = 0 if number in self._jobs else self.config.control.latency
        self._progress.begin(self._controller.jobs[number].plan, rounds, now_ns, latency_ns)
        self._note_promises()
        return messages

    def _spec(self, number: int, job: Participants, server: str | None, rounds: Rounds) -> JobSpec:
        return JobSpec(
            number,
            tuple(job.workers),
            server,
            job.slots,
            job.window,
            policy=FailurePolicy.CONTINUE if self.heartbeats is None else FailurePolicy.WAIT,
            gradient_bytes=rounds.bytes(lanes_of(self.topology)),
        )

    def _start_host(self, job: int, message: Message, law: Callable[[], WindowLaw]) -> VirtualWorker | None:
        """A host begins with its part in a job; the worker, which goes by this law, if that is its part."""
        name = message.host
        if name not in self._hosts:
            self._hosts[name] = VirtualHost(self._emulated, name)
        where = self._hosts[name]
        match message.content:
            case WorkerPlan() as plan:
                worker = VirtualWorker(where, WorkerCore(plan, WorkerOptions(law=law)))
                self._agents[job, name] = worker
                worker.flush()
                return worker
            case ServerPlan() as plan:
                self._agents[job, name] = HostAgent(where, ParameterServerCore(plan))
            case other:
                raise ExperimentError(f"{message.host}: a job starts with plans, not with {type(other).__name__}")
        return None

    def _law(self, window: int) -> Callable[[], WindowLaw]:
        """How every worker of a job of this window finds its own."""
        match self.config.congestion.law:
            case "dctcp":
                return Dctcp
            case "delay":
                return DelayTarget
            case "fixed":
                return partial(FixedWindow, window)
        return ExplicitWindow

    # --- the job ---

    @property
    def now_ns(self) -> int:
        return self._fabric.now_ns

    async def allreduce(self, gradients: Sequence[Floats], samples: int | Sequence[int]) -> tuple[list[Reduced], int]:
        """Sum one tensor per worker in the fabric, of so many samples each; what reached each worker, and how long it
        took in virtual time.
        """
        weights = [samples] * len(gradients) if isinstance(samples, int) else samples
        handles = [
            driver.submit(Tensor(gradient, workers=driver.workers, lanes=driver.lanes, name="gradient", weight=weight))
            for driver, gradient, weight in zip(self._drivers, gradients, weights, strict=True)
        ]
        duration_ns = await self.settle()
        return [driver.wait(handle, 0) for driver, handle in zip(self._drivers, handles, strict=True)], duration_ns

    @property
    def communicators(self) -> list[Communicator]:
        """The workers', by rank. What they are asked for by the calls in `…_async` is there after `settle`."""
        return [Communicator(driver) for driver in self._drivers]

    @property
    def pairs(self) -> list[tuple[Communicator, Communicator]]:
        """Each worker's end and the server's of their job, by rank, where workers are served."""
        by_rank = sorted(self._workers, key=lambda worker: worker.rank)
        ends = [[worker for worker in by_rank if worker.core.plan.job == job] for job in self._jobs]
        return [(Communicator(worker), Communicator(server)) for worker, server in ends]

    async def play(self, processes: Processes, done: Callable[[], bool]) -> None:
        """Let virtual time pass for a job's processes, which call the communicators, until `done` or all have ended."""
        processes.advance(self._fabric.now_ns)
        while not done() and not processes.ended:
            due_ns = processes.deadline_ns
            await self._run(
                lambda: processes.ready(self._fabric.now_ns),
                "the training's processes",
                None if due_ns is None else max(due_ns, self._fabric.now_ns),
            )
            processes.advance(self._fabric.now_ns)

    async def settle(self) -> int:
        """Let virtual time pass until the workers have all that they were asked for; how long it took, in ns."""
        started_ns = self._fabric.now_ns
        await self._run(lambda: all(worker.core.idle for worker in self._workers), "the workers' sums")
        return self._fabric.now_ns - started_ns

    async def compute(self, duration_ns: int) -> None:
        """Let virtual time pass while the workers compute."""
        end_ns = self._fabric.now_ns + duration_ns
        await self._run(lambda: self._fabric.now_ns >= end_ns, "computing", end_ns)

    # --- virtual time ---

    async def _run(self, done: Callable[[], bool], what: str, until_ns: int | None = None) -> None:
        limit_ns = self._fabric.now_ns + STUCK_NS
        while not done():
            control_ns = max(self._next_control_ns(), self._fabric.now_ns)
            target_ns = min(control_ns, limit_ns, until_ns if until_ns is not None else limit_ns)
            if self._others:
                target_ns = self._go_on_with_others(target_ns)
            for wake in self._fabric.run(target_ns):
                if self._watching is not None and wake.host == self._watching.collector:
                    wake = self._take_reports(wake, self._watching)
                if self.heartbeats is not None and wake.host == self.heartbeats.at:
                    self.heartbeats.take(wake)
                elif wake.host in self._hosts:
                    self._hosts[wake.host].handle(wake)
            if self._fabric.now_ns >= control_ns:
                await self._control()
            if self._fabric.now_ns >= limit_ns:
                raise ExperimentError(
                    f"no progress in {STUCK_NS / 1e9:g} s of virtual time: waiting for {what}; {self._state()}"
                )

    def _take_reports(self, wake: Wake, watching: Watching) -> Wake:
        """What has come to the collector's host, without the reports, which the controller gets."""
        assert self._controller.reports is not None
        others, times_ns = [], []
        for frames, arrived_ns in zip(wake.frames, wake.times_ns, strict=True):
            if frames.shape[1] < FRAME_HEADER_BYTES:
                others.append(frames)
                times_ns.append(arrived_ns)
                continue
            is_report = frame_headers(frames)["destination_port"] == watching.port
            datagrams, _ = decapsulate(frames[is_report], int(self.topology.host(wake.host).address), watching.port)
            if count := len(datagrams):
                size = datagrams.payload.shape[1]
                lengths = np.full(count, size, np.int64)
                payload = np.ascontiguousarray(datagrams.payload).reshape(-1)
                starts = size * np.arange(count, dtype=np.int64)
                self._controller.reports.take_batch(payload, starts, lengths, count, self._fabric.now_ns)
            others.append(frames[~is_report])
            times_ns.append(arrived_ns[~is_report])
        return replace(wake, frames=others, times_ns=times_ns)

    def _next_control_ns(self) -> int:
        due = [self._controller.deadline_ns]
        due += [self._due[0][0]] if self._due else []
        return min(due + self._others_due_ns)

    async def _control(self) -> None:
        """Deliver what is due between controller and hosts, then let the controller act."""
        now_ns = self._fabric.now_ns
        while self._due and self._due[0][0] <= now_ns:
            heapq.heappop(self._due)[2]()
        asking = [other for other in self._others if other.due_ns is not None and other.due_ns <= now_ns]
        if self._controller.deadline_ns > now_ns and not asking:
            return
        await self._controller.switches.drain(
            {name: self._rpc.packet_ins(switch.device_id) for name, switch in self._switches.items()}
        )
        for other in asking:
            await self._attend_to(other)
        self._report_progress(now_ns)
        messages = await self._controller.tick(now_ns)
        await self._packet_outs_arrived()
        self._note_promises()
        if self._watch is not None and self._watch.is_due:
            self._watch.take_drops(await self.drops(), now_ns)
            self._watch.look(self._controller, now_ns, "virtual time")
        for message in messages:
            self._after_latency(lambda message=message: self._tell(message))  # type: ignore[misc]
        self._note_placements()

    # --- jobs beside the trained one ---

    async def _attend_to(self, other: OtherJob) -> None:
        """The controller takes the job in, or lets it go."""
        now_ns, other.due_ns = self._fabric.now_ns, None
        if not other.workers:
            rounds = Rounds.of(other.values, lanes_of(self.topology), other.config.window)
            for message in await self._admit(other.number, other.config, other.config.server, rounds):
                self._after_latency(partial(self._start_part, other, message))
            return
        await self._controller.finish(other.number, now_ns)
        self._note_promises()
        self._progress.end(other.number, now_ns)
        for (job, _), agent in self._agents.items():
            if job == other.number:
                agent.host.detach(job)

    def _start_part(self, other: OtherJob, message: Message) -> None:
        window = other.config.window
        law = self._law(window) if other.config.obeys else partial(FixedWindow, window)
        worker = self._start_host(other.number, message, law)
        other.workers += [] if worker is None else [worker]

    def _go_on_with_others(self, until_ns: int) -> int:
        """Let the other jobs whose sums are there go on, and note how far all are; when to look again, before this."""
        now_ns = self._fabric.now_ns
        for other in self._others:
            if other.number not in self._controller.jobs or other.due_ns is not None or not other.idle:
                continue
            if not other.go_on(now_ns):
                other.due_ns = now_ns + self.config.control.latency
        if now_ns >= self._progress.next_ns:
            complete: dict[int, int] = {}
            for worker in self._summing:
                job, rounds = worker.core.plan.job, worker.core.rounds_complete
                complete[job] = min(rounds, complete.get(job, rounds))
            self._progress.look(complete, now_ns)
        return max(min([until_ns, self._progress.next_ns, *self._others_due_ns]), now_ns)

    @property
    def _others_due_ns(self) -> list[int]:
        """When some of them are to come or to go."""
        return [other.due_ns for other in self._others if other.due_ns is not None]

    @property
    def _summing(self) -> list[VirtualWorker]:
        """The workers of all jobs that the controller knows."""
        others = [w for other in self._others if other.number in self._controller.jobs for w in other.workers]
        return self._workers + others

    def _beat(self) -> None:
        """Every worker sends a heartbeat now, and again after an interval; no two intervals are the same, lest all
        meet the same moment of what others send at a beat of their own.
        """
        assert self.heartbeats is not None
        self._at(self._fabric.now_ns + self.heartbeats.beat(self._summing), self._beat)

    def _hear(self, job: int, host: str, beat: Heartbeat) -> None:
        """A heartbeat has reached the controller; perhaps of a job that has left meanwhile."""
        if job in self._controller.jobs:
            self._controller.members.heartbeat(job, host, beat.rounds, self._fabric.now_ns, waiting=beat.waiting)

    def _report_progress(self, now_ns: int) -> None:
        """Tell the controller how far the workers are, so that it knows the job's own traffic, and when it is stuck."""
        if self.heartbeats is not None or now_ns < self._progress_ns + self.config.control.solve_interval // 2:
            return
        self._progress_ns = now_ns
        for worker in self._summing:
            core = worker.core
            self._controller.members.heartbeat(
                core.plan.job, worker.name, core.rounds_complete, now_ns, waiting=not core.idle
            )

    async def _packet_outs_arrived(self) -> None:
        """Packet-outs are not acknowledged: wait until the switches have them all, or time would go on without them."""
        async with asyncio.timeout(_CONTROL_TIMEOUT_S):
            for name, sent in self._controller.switches.packet_outs_sent.items():
                while self._rpc.packet_outs(self._switches[name].device_id) < sent:
                    await asyncio.sleep(_LOOK_S)

    def _after_latency(self, action: Callable[[], None]) -> None:
        self._at(self._fabric.now_ns + self.config.control.latency, action)

    def _at(self, time_ns: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._due, (time_ns, self._sequence, action))

    def _tell(self, message: Message) -> None:
        """A message of the controller reaches its host; the answer sets out."""
        host, moves = message.host, self._controller.moves
        match message.content:
            case Pause(job) as pause:
                if (held := self._agents[job, host].pause(pause)) is not None:
                    self._answer(job, lambda: moves.held(job, host, held))
            case Resume(plan) as resume:
                self._agents[plan.job, host].resume(resume)
                self._answer(plan.job, lambda: moves.resumed(plan.job, host, plan.generation))
            case other:
                raise ExperimentError(f"{host}: a running job is not told {type(other).__name__}")

    def _answer(self, job: int, hear: Callable[[], None]) -> None:
        """A host's answer sets out, to be heard if its job is still there then."""
        self._after_latency(lambda: hear() if job in self._controller.jobs else None)

    def _note_promises(self) -> None:
        """What is promised of every queue, before anything is sent under it: over all of the run, the loosest."""
        for link, budget in self._controller.windows.budgets.items():
            bound = math.inf if budget.refusal else budget.bound
            self._promised[link] = max(bound, self._promised.get(link, 0.0))

    def _note_placements(self) -> None:
        """JobRecord where the shards are summed, when that has changed."""
        for shard, job in enumerate(self._generations):
            plan = self._controller.jobs[job].plan
            if plan.generation != self._generations[job]:
                self._generations[job] = plan.generation
                root = {plan.placement.root} - {plan.spec.server}
                self._moves.append(Moved(self._fabric.now_ns, tuple(sorted(plan.placement.switches | root)), shard))

    def _state(self) -> str:
        """What the user of a stuck run should see."""
        waiting = sorted({worker.name for worker in self._workers if not worker.core.idle})
        return f"waiting are {', '.join(waiting) or 'none of the workers'}"

    # --- figures ---

    def take_moves(self) -> list[Moved]:
        """What moved since the last call."""
        moves, self._moves = self._moves, []
        return moves

    @property
    def decisions_ms(self) -> list[float]:
        """Wall-clock time of each placement decision so far."""
        return self._strategy.decisions_ms

    @property
    def trees(self) -> list[dict[str, str]]:
        """By shard: every worker and summing switch → the node that it sends to."""
        placements = [self._controller.jobs[job].plan.placement for job in self._jobs]
        return [{**placement.aggregators, **placement.parents} for placement in placements]

    @property
    def resends(self) -> int:
        """Contributions that workers' timers sent again, of all jobs."""
        workers = [*self._workers, *(worker for other in self._others for worker in other.workers)]
        return sum(worker.core.counters.retransmitted for worker in workers)

    @property
    def job_traces(self) -> list[JobTrace]:
        """How far each job was over time, of a run of several jobs."""
        return self._progress.traces if self._others else []

    @property
    def heartbeat_figures(self) -> HeartbeatFigures | None:
        """What became of the workers' heartbeats; None where they did not go through the fabric."""
        beats, counts = self.config.heartbeats, self._controller.jobs.counts
        if self.heartbeats is None or beats is None:
            return None
        largest = FRAME_HEADER_BYTES + max(BACKGROUND_PAYLOAD_BYTES, message_bytes(lanes_of(self.topology)))
        bound_ns = control_delay_ns(
            self._routes,
            [name for job in (self.config.job, *self.config.other_jobs) for name in job.workers],
            beats.to,
            frame_bytes=FRAME_BYTES,
            period_ns=int(LEAST_STRETCH * beats.interval),
            largest_bytes=largest,
        )
        delays_ns = self.heartbeats.delays_ns or [0]
        return HeartbeatFigures(
            sent=self.heartbeats.sent,
            delivered=self.heartbeats.delivered,
            p999_us=float(np.percentile(delays_ns, 99.9)) / 1e3,
            longest_us=max(delays_ns) / 1e3,
            bound_us=bound_ns / 1e3,
            taken_for_dead=counts.leases_expired,
            explained=counts.verdicts_deferred,
        )

    @property
    def telemetry_cost(self) -> TelemetryCost:
        """What probes, reports and INT headers were on the links so far."""
        forwarded = sum(
            self._switches[end.node].port_counters(end.port).tx_packets
            for end in self.topology.directed_links
            if end.node in self._switches
        )
        return self._controller.telemetry_cost(self._fabric.now_ns, forwarded)

    def digest(self) -> str:
        """Of every frame that the fabric carried."""
        return self._fabric.digest()

    def links(self) -> Iterator[LinkFigures]:
        """As `EmulatedFabric.links`; the job is all that is not background traffic."""
        return self._emulated.links()

    @property
    def promised(self) -> dict[Endpoint, int | None]:
        """By egress port: packets that its data queue was never to exceed; None where nothing was promised."""
        return {link: math.floor(bound) if bound < math.inf else None for link, bound in self._promised.items()}

    @property
    def broken_promises(self) -> list[str]:
        """Queues that held more than was promised, over every enqueue of the run."""
        promised = self.promised
        return [
            f"{link.end} held {link.largest_queue_packets} packets, and {bound} were promised"
            for link in self.links()
            if (bound := promised.get(link.end)) is not None and link.largest_queue_packets > bound
        ]

    @property
    def refusals(self) -> list[str]:
        """Why nothing is promised of some queues as the jobs are now."""
        return [
            promise.text
            for promise in promises(self._controller.windows.budgets.values())
            if promise.bound_packets is None
        ]

    def queue(self, end: Endpoint) -> tuple[list[int], list[int]]:
        """Depth of a switch port's queues over time: instants in ns, depths in packets."""
        times, depths = self._fabric.queue_trace(end)
        return times.tolist(), depths.tolist()

    async def drops(self) -> dict[str, int]:
        """Packets dropped so far, by reason, all switches, links and hosts together; only reasons that occurred."""
        drops = dict.fromkeys(DROP_REASONS, 0)
        for session in self._sessions.values():
            for reason, count in zip(DROP_REASONS, await session.read_counter(DROPS), strict=True):
                drops[reason] += count
        figures = list(self.links())
        drops["link loss"] = sum(figure.lost_packets for figure in figures)
        drops["queue full"] = sum(figure.queue_drops for figure in figures)
        drops["host: not a datagram"] = sum(host.rejects.total for host in self._hosts.values())
        for agent in self._agents.values():
            for reason, count in agent.core.counters.drops.items():
                drops[f"host: {reason}"] = drops.get(f"host: {reason}", 0) + count
        return {reason: count for reason, count in drops.items() if count}
