"""A job on an emulated fabric in virtual time, under one strategy: switches, hosts, other traffic, the controller.

::

    Fabric (native event loop) ◀─frames─▶ VirtualHost ◀─▶ worker and server cores, one for each shard
       │ packet-in/out                                  ▲
    P4RuntimeServer ◀──── gRPC on loopback ────▶ Controller, by VirtualControl

Virtual time stands still while hosts think and while the controller acts, so a run depends on its configuration and
seed alone. What the controller tells a host, and what a host answers, travels `control.latency` of virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...controller.congestion.bound_log import window_advice
from ...controller.controller import Controller, Message, Options
from ...controller.int_config.cost import TelemetryCost
from ...controller.int_config.settings import IntConfig
from ...controller.p4runtime.tables import DROP_REASONS, DROPS
from ...controller.placement import Problem
from ...controller.placement.model.loads import LinkLoad
from ...controller.placement.strategies import STRATEGIES
from ...controller.planning.completion import Step, expected_step
from ...controller.planning.plan import FailurePolicy, JobPlan, JobSpec, lanes_of, round_bytes
from ...emulator.fabric import Wake
from ...hosts.collectives.communicator import Communicator
from ...hosts.collectives.sharding import ShardedDriver
from ...hosts.congestion import LAWS, FixedWindow, Link, Setting, WindowLaw
from ...hosts.numerics.tensors import Reduced, Tensor
from ...hosts.transport.options import TransportOptions
from ...hosts.transport.transport import Call, Transport
from ...topologies import Endpoint, Routes
from ...topologies.mininet.processes import is_ending
from ...training import Processes
from ...training.workload import Floats
from ...wire.aggregation import message_bytes
from ...wire.control import WorkerPlan
from ...wire.frames import FRAME_HEADER_BYTES
from ...wire.heartbeat import Heartbeat
from ...wire.int_messages import max_hops
from ...wire.int_shim import Presence
from ..config import RunConfig
from ..config.background import BACKGROUND_PAYLOAD_BYTES
from ..config.jobs import Participants
from ..errors import ExperimentError
from ..records.record import FlowTrace, HeartbeatFigures, JobTrace
from ..records.report import name_of
from .agent_registry import AgentRegistry
from .agents import VirtualWorker
from .batch_sizes import VirtualBatchSizes
from .competing_jobs import OtherJob, OtherJobs
from .emulated import EmulatedFabric, LinkFigures
from .event_queue import EventList
from .gossip_policies import PublishedPolicies
from .heartbeats import VirtualHeartbeats
from .placements import Moved, Moves, TimedStrategy
from .queue_bounds import QueuePromises
from .report_intake import take_reports
from .round_count import Rounds
from .throughput_bound import Achievable, Carried, SumTime
from .virtual_control import VirtualControl
from .virtual_transport import VirtualTransports
from .yielding_flows import YieldingFlows

if TYPE_CHECKING:
    from ...controller.live.watch import Watch

FIRST_JOB: Final = 1
"""Number of the trained job's first shard; the others' follow, and then those of competing jobs."""
QUEUE_SAMPLE_NS: Final = 250_000

STALLED_NS: Final = 500_000_000
"""Virtual time without progress after which the controller starts a new generation."""
STUCK_NS: Final = 10_000_000_000
"""Virtual time without progress after which a run is given up as stuck."""
_DEFAULT_TRANSPORT: Final = TransportOptions()


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
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Set up the run.

        Args:
            config: the run.
            strategy_name: the placement strategy.
            watch: observer of the run.
            values: numbers per tensor; None for the workload's own.
            served: each worker has a job with the server's host alone, in place of the job of all (`pairs`).
            say: called with the queue bounds before anything is sent.
        """
        self._values = config.gradient_values if values is None else values
        self._served = served
        self._watch = watch
        self._say = say
        self.config = config
        self.strategy_name = strategy_name
        self.topology = config.topology
        self._moves = Moves()
        self._strategy = TimedStrategy(strategy_name)
        self._routes = Routes(self.topology)
        beats = config.heartbeats
        self._watching = config.watching
        collector = None if self._watching is None else self._watching.collector
        taking_part = frozenset[str]().union(*(job.hosts for job in (config.job, *config.other_jobs)))
        yielding = {host for flow in config.yielding for host in (flow.source, flow.destination)}
        participants = {*taking_part, *yielding, *([beats.to] if beats is not None else []), collector}
        self._emulated = EmulatedFabric(
            self.topology,
            seed=config.seed,
            start=None,
            poll_ns=config.host_poll,
            sinks={host.name for host in self.topology.hosts} - participants,
        )
        self._fabric = self._emulated.fabric
        self._switches = self._emulated.switches
        self.shares: Sequence[int] = [1] * len(config.job.roots)
        """Proportions in which the shards divide the tensors' chunks."""
        self._others = OtherJobs(config.control.latency)
        self._agents = AgentRegistry(self._emulated)
        self._hosts = self._agents.hosts
        self._workers: list[VirtualWorker] = []
        """The trained job's, of all shards."""
        self._laws: list[WindowLaw] = []
        """The laws of all workers that read INT."""
        self._drivers: list[ShardedDriver] = []
        """Driver of each worker's training, by rank."""
        self.sums: list[SumTime] = []
        """Duration of each call of `allreduce`."""
        self._events = EventList()
        self._flows = YieldingFlows(self._emulated, config.yielding, self._events)
        self._transports = VirtualTransports(self._emulated, self._events)
        self._progress_ns = 0
        self.heartbeats: VirtualHeartbeats | None = None
        """Heartbeats through the fabric; None if the workers' progress is read without packets."""
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
        rpc = self._stack.enter_context(self._emulated.serve())
        sessions = await self._stack.enter_async_context(self._emulated.sessions(rpc))
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
        self._control = VirtualControl(
            self._controller, self._emulated, rpc, self._agents, self._events, control.latency
        )
        take_longest = self._emulated.take_longest_queues
        self._promises = QueuePromises(self._controller.windows, take_longest, self._say)
        self._controller.bounded.append(self._promises.note)
        if LAWS[self.config.congestion.law].reads_int:
            self._check_ways()
            self._count_int(Presence.UDP_PORT)
            self._controller.int_unread = lambda: sum(law.unread for law in self._laws)
        elif self._watching is not None and self._watching.puts_headers:
            self._count_int(self._watching.presence)
        self._sessions = sessions
        await self._controller.start()
        if self._watch is not None:
            self._watch.begin(self.topology, f"{self.config.name}, {name_of(self.strategy_name)}")
        await self._warm_up()
        job, lanes = self.config.job, lanes_of(self.topology)
        if job.stripes > 1:
            whole = self._spec(FIRST_JOB, job, None, Rounds.of_gradient(self.config, lanes, values=self._values))
            self.shares = await self._controller.shares(whole, job.stripes, self._fabric.now_ns)
        for number, (part, server, rounds) in zip(self._jobs, self._parts(), strict=True):
            for message in await self._admit(number, part, server, rounds):
                worker = self._agents.start(number, message, self._law(part.window))
                self._workers += [] if worker is None else [worker]
            self._moves.begin(self._controller.jobs[number].plan)
        for name in self.config.job.workers:
            shards = [worker for worker in self._workers if worker.name == name]
            self._drivers.append(ShardedDriver(shards, self.shares))
        for number, each in enumerate(self.config.other_jobs, self._jobs.stop):
            if not each.obeys:
                self._say(
                    f"job {number}: its workers ignore windows (obeys: false), so the queues that they cross may "
                    "exceed their bounds"
                )
            self._others.add(OtherJob(each, number, each.values or self.config.gradient_values, self._fabric.now_ns))
        self._promises.announce()
        if beats is not None:
            self._beat()

    def _parts(self) -> list[tuple[Participants, str | None, Rounds]]:
        """Parts of the trained job on the wire: a job per shard, or per worker with the server.

        Returns:
            Participants, root, and rounds of the sums of each part.
        """
        job, lanes = self.config.job, lanes_of(self.topology)
        if not self._served:
            roots = job.roots[: len(self.shares)]
            return [(job, *part) for part in zip(roots, self._rounds(self._values), strict=True)]
        of_two = Rounds.of(self._values, lanes, job.window)
        return [
            (Participants(workers=[worker, str(job.server)], window=job.window, slots=job.slots), None, of_two)
            for worker in job.workers
        ]

    def _check_ways(self) -> None:
        """INT of the shortest way of every worker to its server, and back to any other, fits into a message. Raises
        ExperimentError.
        """
        size = message_bytes(lanes_of(self.topology))
        for job in (self.config.job, *self.config.other_jobs):
            for root in (root for root in job.roots if root is not None):
                far = max(job.workers, key=lambda worker: self._routes.hops(worker, root))
                switches = 2 * (self._routes.hops(far, root) - 1)
                if switches > max_hops(size):
                    raise ExperimentError(
                        f"congestion.law: {switches} switches on the way from {far} to {root} and back are to put INT "
                        f"into each message, and one of {size} bytes has room for that of {max_hops(size)}; name hosts "
                        "that are closer, or take another law"
                    )

    def _count_int(self, presence: Presence) -> None:
        self._emulated.count_int(presence)
        self._controller.int_load = self._emulated.int_load

    def _record_queues(self) -> None:
        for link in self.topology.links:
            for end in link.ends:
                if self.topology.is_switch(end.node):
                    self._fabric.record_queue(end, QUEUE_SAMPLE_NS)

    def _start_background(self) -> None:
        for flow in self.config.steady:
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
        end_ns = self.config.control.warm_up
        await self._run(lambda: self._fabric.now_ns >= end_ns, "the warm-up", end_ns)

    async def _admit(self, number: int, job: Participants, server: str | None, rounds: Rounds) -> list[Message]:
        """Have the controller admit a job whose sums take these rounds; return the messages to its hosts."""
        now_ns = self._fabric.now_ns
        messages = await self._controller.admit(self._spec(number, job, server, rounds), now_ns)
        controller, plan = self._controller, self._controller.jobs[number].plan
        options = controller.windows.options
        if advice := window_advice(self.topology, self._routes, plan, controller.prober.probes, options):
            self._say(advice)
        latency_ns = 0 if number in self._jobs else self.config.control.latency
        self._others.progress.begin(plan, rounds.within(plan.spec.window), self._turn_ns(plan), now_ns, latency_ns)
        return messages

    def _turn_ns(self, plan: JobPlan) -> int:
        """Return `JobTrace.turn_ns` with the present jobs."""
        budgets, frame_bits = self._controller.windows.budgets, 8e9 * round_bytes(self.topology)
        shared = (link for link in plan.max_streams if link in budgets)
        return round(max(budgets[link].streams * frame_bits / self.topology.link_at(link).rate_bps for link in shared))

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

    def _law(self, window: int) -> Callable[[], WindowLaw]:
        """Return the factory of the laws of a job with this window."""
        flows = max((budget.streams for budget in self._controller.windows.budgets.values()), default=1)
        hops = max_hops(message_bytes(lanes_of(self.topology)))
        setting = Setting(window, round_bytes(self.topology), max(1, flows), hops, self._rates_bps)
        make = LAWS[self.config.congestion.law].make

        def made() -> WindowLaw:
            self._laws.append(make(setting))
            return self._laws[-1]

        return made

    @property
    def _rates_bps(self) -> dict[Link, float]:
        """Rates of the links that switches send on, with INT's names."""
        ends = [end for end in self.topology.directed_links if end.node in self._switches]
        return {
            (self.topology.switch(end.node).device_id, end.port): self.topology.link_at(end).rate_bps for end in ends
        }

    # --- the job ---

    @property
    def now_ns(self) -> int:
        return self._fabric.now_ns

    async def allreduce(self, gradients: Sequence[Floats], samples: int | Sequence[int]) -> tuple[list[Reduced], int]:
        """Sum one tensor per worker in the fabric, with the number of samples behind each.

        Returns:
            The result at each worker, and the duration in virtual time.
        """
        weights = [samples] * len(gradients) if isinstance(samples, int) else samples
        handles = [
            driver.submit(Tensor(gradient, workers=driver.workers, lanes=driver.lanes, name="gradient", weight=weight))
            for driver, gradient, weight in zip(self._drivers, gradients, weights, strict=True)
        ]
        plans = self._plans
        rounds = self._rounds(gradients[0].size)
        parts = [(plan, each.within(plan.spec.window)) for plan, each in zip(plans, rounds, strict=True)]
        beside_others = bool(self._others or self.config.yielding)
        achievable = Achievable(self._routes, parts, self._carried, beside_others=beside_others)
        duration_ns = await self.settle()
        stayed = [plan.generation for plan in plans] == [plan.generation for plan in self._plans]
        self.sums.append(SumTime(duration_ns, achievable.after_ns(duration_ns) if stayed else None))
        return [driver.wait(handle, 0) for driver, handle in zip(self._drivers, handles, strict=True)], duration_ns

    def _rounds(self, values: int | None) -> list[Rounds]:
        """Rounds of a sum of tensors with this many numbers, per shard; None for the workload's own number."""
        lanes = lanes_of(self.topology)
        shards = range(len(self.shares))
        return [Rounds.of_gradient(self.config, lanes, self.shares, shard, values) for shard in shards]

    @property
    def _plans(self) -> list[JobPlan]:
        """The trained job's, of all shards, as they are now."""
        return [self._controller.jobs[job].plan for job in self._jobs]

    def _carried(self) -> dict[Endpoint, Carried]:
        if self.config.yielding:  # whose bytes are counted with those of flows that do not
            return {link.end: Carried(0, link.background_bytes + link.job_bytes) for link in self.links()}
        return {link.end: Carried(link.background_bytes, link.job_bytes) for link in self.links()}

    @property
    def communicators(self) -> list[Communicator]:
        """Communicators of the workers, by rank. Results of the calls in `…_async` are available after `settle`."""
        return [Communicator(driver) for driver in self._drivers]

    @property
    def pairs(self) -> list[tuple[Communicator, Communicator]]:
        """Each worker's end and the server's of their job, by rank, where workers are served."""
        by_rank = sorted(self._workers, key=lambda worker: worker.rank)
        ends = [[worker for worker in by_rank if worker.core.plan.job == job] for job in self._jobs]
        return [(Communicator(worker), Communicator(server)) for worker, server in ends]

    def batch_sizes(self, batch: int) -> VirtualBatchSizes:
        """The controller's answers to the job's workers, whose steps have `batch` samples."""
        return VirtualBatchSizes(self._controller, self._control, FIRST_JOB, self.config.job.workers, batch)

    def gossip_policies(self, message_bytes: int, compute_s: Callable[[], NDArray[np.float64]]) -> PublishedPolicies:
        """Return the policies of the job's workers, by the controller's telemetry.

        Args:
            message_bytes: Bytes of a worker's weights.
            compute_s: (workers,) seconds that each worker computes.
        """
        links = self._controller.links
        interval = self.config.control.interval
        return PublishedPolicies(
            self.topology,
            self.config.job.workers,
            message_bytes,
            now_ns=lambda: self.now_ns,
            snapshot=lambda: links.snapshot(self.now_ns),
            compute_s=compute_s,
            period_ns=interval,
            measured_period_ns=50 * interval,
        )

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

    def transports(
        self, hosts: Sequence[str] | None = None, options: TransportOptions = _DEFAULT_TRANSPORT
    ) -> list[Transport]:
        """A transport at each of these hosts, by rank; None: at the trained job's workers. Their calls in `…_async` are
        done after `finish`. Hosts are those of jobs or flows of the run.
        """
        names = self.config.job.workers if hosts is None else hosts
        return self._transports.connect(FIRST_JOB, names, f"{self.config.seed:064x}", options)

    async def finish(self, *calls: Call[Any]) -> int:
        """Let virtual time pass until these calls of transports are done; how long it took, in ns."""
        started_ns = self._fabric.now_ns
        await self._run(lambda: all(call.done() for call in calls), "calls of transports")
        return self._fabric.now_ns - started_ns

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
        limit_ns = max(self._fabric.now_ns, until_ns or 0) + STUCK_NS
        while not done():
            control_ns = max(self._next_control_ns(), self._fabric.now_ns)
            target_ns = min(control_ns, limit_ns, until_ns if until_ns is not None else limit_ns)
            if self._others:
                next_ns = self._others.go_on(self._controller.jobs, self._workers, self._fabric.now_ns)
                target_ns = max(min(target_ns, next_ns), self._fabric.now_ns)
            for wake in self._fabric.run(target_ns):
                if self._watching is not None and wake.host == self._watching.collector:
                    wake = self._take_reports(wake, self._watching)
                wake = self._transports.take(self._flows.take(wake))
                if self.heartbeats is not None and wake.host == self.heartbeats.at:
                    self.heartbeats.take(wake)
                else:
                    self._agents.handle(wake)
            if self._fabric.now_ns >= control_ns:
                await self._act()
            if is_ending():
                await asyncio.sleep(0)  # the event loop cancels this
            if self._fabric.now_ns >= limit_ns:
                raise ExperimentError(
                    f"no progress in {STUCK_NS / 1e9:g} s of virtual time: waiting for {what}; {self._state()}"
                )

    def _take_reports(self, wake: Wake, watching: IntConfig) -> Wake:
        """Pass reports received at the collector's host to the controller; return the rest of the wake."""
        assert self._controller.reports is not None
        address = int(self.topology.host(wake.host).address)
        return take_reports(
            wake, self._controller.reports, address=address, port=watching.port, now_ns=self._fabric.now_ns
        )

    def _next_control_ns(self) -> int:
        due_ns = [self._controller.deadline_ns, *self._others.due_ns]
        if (next_ns := self._events.next_ns) is not None:
            due_ns.append(next_ns)
        return min(due_ns)

    async def _act(self) -> None:
        """Deliver what is due between controller and hosts, then let the controller act."""
        now_ns = self._fabric.now_ns
        self._events.run(now_ns)
        asking = self._others.asking(now_ns)
        if self._controller.deadline_ns > now_ns and not asking:
            return
        await self._control.drain()
        for other in asking:
            await self._attend_to(other)
        self._report_progress(now_ns)
        await self._control.tick()
        if self._watch is not None and self._watch.is_due:
            self._watch.take_drops(await self.drops(), now_ns)
            self._watch.look(self._controller, now_ns, "virtual time")
        self._moves.look(self._controller.jobs, self._fabric.now_ns)

    # --- jobs beside the trained one ---

    async def _attend_to(self, other: OtherJob) -> None:
        """The controller takes the job in, or lets it go."""
        now_ns, other.due_ns = self._fabric.now_ns, None
        if not other.workers:
            rounds = Rounds.of(other.values, lanes_of(self.topology), other.config.window)
            for message in await self._admit(other.number, other.config, other.config.server, rounds):
                self._control.after_latency(partial(self._start_part, other, message))
            return
        await self._controller.finish(other.number, now_ns)
        self._others.progress.end(other.number, now_ns)
        self._agents.stop(other.number)

    def _start_part(self, other: OtherJob, message: Message) -> None:
        window = other.config.window
        law = self._law(window)
        if not other.config.obeys and isinstance(message.content, WorkerPlan):
            law = partial(FixedWindow, window)
            message = replace(message, content=replace(message.content, window=window))
        worker = self._agents.start(other.number, message, law)
        other.workers += [] if worker is None else [worker]

    @property
    def _summing(self) -> list[VirtualWorker]:
        """The workers of all jobs that the controller knows."""
        return self._workers + self._others.workers(self._controller.jobs)

    def _beat(self) -> None:
        """Send a heartbeat of every worker now, and again after an interval.

        Intervals differ, so that heartbeats do not always meet the same phase of other periodic traffic.
        """
        assert self.heartbeats is not None
        self._events.schedule(self._fabric.now_ns + self.heartbeats.beat(self._summing), self._beat)

    def _hear(self, job: int, host: str, beat: Heartbeat) -> None:
        """A heartbeat has reached the controller; perhaps of a job that has left meanwhile."""
        if job in self._controller.jobs:
            self._controller.members.heartbeat(job, host, beat.rounds, self._fabric.now_ns, waiting=beat.waiting)

    def _report_progress(self, now_ns: int) -> None:
        """Report the workers' progress to the controller, which derives the job's own traffic from it and detects
        stalls.
        """
        if self.heartbeats is not None or now_ns < self._progress_ns + self.config.control.solve_interval // 2:
            return
        self._progress_ns = now_ns
        for worker in self._summing:
            core = worker.core
            self._controller.members.heartbeat(
                core.plan.job, worker.name, core.rounds_complete, now_ns, waiting=not core.idle
            )

    def _state(self) -> str:
        """Describe the state for the user of a stuck run."""
        waiting = sorted({worker.name for worker in self._workers if not worker.core.idle})
        return f"waiting are {', '.join(waiting) or 'none of the workers'}"

    # --- figures ---

    def expected_step_s(self, others_bps: Mapping[Endpoint, float]) -> float:
        """Duration of a sum of the job's tensors by the controller's model, in s, under the plan in force.

        The job must be alone and have one root. `others_bps` is the traffic of others on directed links in bit/s
        (missing: 0).
        """
        plan = self._controller.jobs[FIRST_JOB].plan
        spec, loads = plan.spec, {link: LinkLoad(rate) for link, rate in others_bps.items()}
        problem = Problem(self._routes, spec.workers, spec.server, spec.gradient_bytes, loads)
        step = replace(Step.of(spec, self.topology, self.config.host_poll * 1e-9), window=plan.pacing.window)
        return expected_step(problem, plan.placement, step, self.config.congestion.bound).seconds

    def take_moves(self) -> list[Moved]:
        """Return the moves since the last call."""
        return self._moves.take()

    @property
    def decisions_ms(self) -> list[float]:
        """Wall-clock time of each placement decision so far."""
        return self._strategy.decisions_ms

    @property
    def trees(self) -> list[dict[str, str]]:
        """Parent of every worker and summing switch, per shard."""
        placements = [self._controller.jobs[job].plan.placement for job in self._jobs]
        return [{**placement.aggregators, **placement.parents} for placement in placements]

    @property
    def resends(self) -> int:
        """Contributions that workers' timers sent again, of all jobs."""
        workers = [*self._workers, *self._others.workers()]
        return sum(worker.core.counters.retransmitted for worker in workers)

    @property
    def job_traces(self) -> list[JobTrace]:
        """Progress of each job over time, for a run of several jobs."""
        return self._others.progress.traces if self._others else []

    @property
    def flow_traces(self) -> list[FlowTrace]:
        """Traces of yielding background flows so far."""
        return self._flows.traces

    @property
    def heartbeat_figures(self) -> HeartbeatFigures | None:
        """Statistics of the workers' heartbeats; None if they did not go through the fabric."""
        if self.heartbeats is None:
            return None
        return self.heartbeats.figures(
            self._routes,
            [name for job in (self.config.job, *self.config.other_jobs) for name in job.workers],
            FRAME_HEADER_BYTES + max(BACKGROUND_PAYLOAD_BYTES, message_bytes(lanes_of(self.topology))),
            self._controller.jobs.counts,
        )

    @property
    def telemetry_cost(self) -> TelemetryCost:
        """Traffic of probes, reports and INT headers on the links so far."""
        forwarded = sum(
            self._switches[end.node].port_counters(end.port).tx_packets
            for end in self.topology.directed_links
            if end.node in self._switches
        )
        return self._controller.telemetry_cost(self._fabric.now_ns, forwarded)

    def digest(self) -> str:
        """Digest of every frame that the fabric carried."""
        return self._fabric.digest()

    def links(self) -> Iterator[LinkFigures]:
        """Link figures; see `EmulatedFabric.links`. All traffic except the background counts as the job's."""
        return self._emulated.links()

    @property
    def promised(self) -> dict[Endpoint, int | None]:
        """Queue bound by egress port, in packets: the loosest of the run; None if there was no bound at some time."""
        return self._promises.promised

    @property
    def promises(self) -> list[tuple[int, str]]:
        """All bounds in words, or the reasons that there were none, with their times."""
        return self._promises.said

    @property
    def broken_promises(self) -> list[str]:
        """Queues that exceeded the bound of the time, over all enqueues of the run."""
        return self._promises.broken(self.now_ns)

    @property
    def bound_formulas(self) -> list[str]:
        """Bounds in force now with their formulas: the largest ones, and the number of the others."""
        return self._promises.formulas

    @property
    def refusals(self) -> list[str]:
        """Reasons that some queues have no bound with the present jobs."""
        return self._promises.refusals

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
        drops["beyond MTU"] = sum(figure.oversized_packets for figure in figures)
        drops["queue full"] = sum(figure.queue_drops for figure in figures)
        drops.update(self._agents.drops())
        return {reason: count for reason, count in drops.items() if count}
