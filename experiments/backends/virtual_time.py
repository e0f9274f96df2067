"""A job on an emulated fabric in virtual time, under one strategy: switches, hosts, other traffic, the controller.

::

    Fabric (native event loop) ◀─frames─▶ VirtualHost ◀─▶ worker and server cores, one for each shard
       │ packet-in/out                                  ▲
    P4RuntimeServer ◀──── gRPC on loopback ────▶ Controller, by VirtualControl

Virtual time stands still while hosts compute and while the controller acts, so a run depends on its configuration and
seed alone. A message between the controller and a host takes `control.latency` of virtual time.

The parts of a run are modules of their own: `trained_job` (shards, workers, sums), `competing_jobs`, `admission` (how
jobs enter), `control_steps` and `virtual_clock` (passage of time), and `run_figures`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...controller.congestion import largest_frame_bytes, longest_life_ns
from ...controller.controller import Controller, ControllerOptions
from ...controller.p4runtime.session import SwitchSession
from ...controller.placement.strategies import STRATEGIES
from ...controller.planning.plan import FailurePolicy, lanes_of
from ...emulator.fabric import Wake
from ...emulator.p4runtime import P4RuntimeServer
from ...hosts.numerics.tensors import Reduced
from ...hosts.transport.options import TransportOptions
from ...hosts.transport.transport import Transport, TransportCall
from ...topologies import Endpoint, Routes
from ...training import Processes
from ...training.workload import Floats
from ...wire.control import JobReport
from ...wire.heartbeat import Heartbeat
from ...wire.int_shim import Presence
from ..config import RunConfig
from ..config.background import BACKGROUND_PAYLOAD_BYTES, exchanged
from ..records.report import name_of
from .admission import Admission
from .agent_registry import AgentRegistry
from .batch_sizes import VirtualBatchSizes
from .competing_jobs import OtherJob, OtherJobs
from .control_steps import ControlSteps
from .emulated import EmulatedFabric
from .event_queue import EventList
from .gossip_policies import PublishedPolicies
from .heartbeats import VirtualHeartbeats
from .placements import Moved, TimedStrategy
from .queue_bounds import QueuePromises
from .report_intake import receive_reports
from .round_count import Rounds
from .run_figures import RunFigures
from .throughput_bound import Achievable, CarriedBytes, SumTime
from .trained_job import FIRST_JOB, TrainedJob
from .virtual_clock import VirtualClock
from .virtual_control import VirtualControl
from .virtual_transport import Transfers, VirtualTransports
from .window_laws import WindowLaws
from .yielding_flows import YieldingFlows

if TYPE_CHECKING:
    from ...controller.live.watch import Watch

QUEUE_SAMPLE_NS: Final = 250_000

STALLED_NS: Final = 500_000_000
"""Virtual time without progress after which the controller starts a new generation."""
_DEFAULT_TRANSPORT: Final = TransportOptions()


class Cluster:
    """One strategy's run; an async context manager.

    Attributes:
        config: The run.
        topology: Its fabric.
        routes: Paths in the fabric.
        emulated: The emulated fabric.
        agents: Cores at the hosts.

    Attributes of an entered cluster:
        controller: The fabric's controller.
        job: The trained job.
        figures: Figures up to now.
        heartbeats: Heartbeats through the fabric; None if the workers' progress is read without packets.
    """

    controller: Controller
    job: TrainedJob
    figures: RunFigures
    heartbeats: VirtualHeartbeats | None

    def __init__(
        self,
        config: RunConfig,
        strategy_name: str,
        watch: Watch | None = None,
        *,
        label: str | None = None,
        values: int | None = None,
        served: bool = False,
        exchanging: bool = False,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Set up the run.

        Args:
            config: The run.
            strategy_name: The placement strategy.
            watch: Observer of the run.
            label: Name of the run's part for the observer; None: that of the strategy.
            values: Number of values of a tensor; None for the workload's own.
            served: Each worker has a job with the server's host alone, in place of the job of all
                (`TrainedJob.pairs`).
            exchanging: The workers also send to each other over `transports()` with its default options; the queue
                bounds count these packets.
            note: Receives the queue bounds before anything is sent.
        """
        self._values = config.gradient_values if values is None else values
        self._served = served
        self._congestion = config.congestion_options
        if exchanging:
            others = exchanged(config.job.workers, _DEFAULT_TRANSPORT.window)
            self._congestion = replace(self._congestion, windowed=(*self._congestion.windowed, *others))
        self._watch = watch
        self._label = name_of(strategy_name) if label is None else label
        self._note = note
        self.config = config
        self.topology = config.topology
        self._strategy_name = strategy_name
        self._strategy = TimedStrategy(strategy_name, config.strategy_options.get(strategy_name))
        self.routes = Routes(self.topology)
        self._watching = config.watching
        self.emulated = EmulatedFabric(
            self.topology,
            seed=config.seed,
            start=None,
            poll_ns=config.host_poll,
            sinks={host.name for host in self.topology.hosts} - self._participants(),
        )
        self.agents = AgentRegistry(self.emulated)
        self._laws = WindowLaws(config.congestion.law, self.topology)
        self._events = EventList()
        self._frame_bytes = largest_frame_bytes(self.topology, self._congestion)
        self._flows = YieldingFlows(self.emulated, config.yielding, self._events, self._longest_life_ns)
        self._transports = VirtualTransports(self.emulated, self._events)
        self._transfers = Transfers(
            self.emulated, self._transports, config.transfers, self._events, config.seed, self._longest_life_ns
        )
        self._stack = AsyncExitStack()
        self._computed_ns = 0
        """Computation since the last sum."""

    def _longest_life_ns(self, source: str, destination: str) -> int:
        """Longest time in ns of a packet and its acknowledgement in the network, with the polls of both hosts."""
        fabric_ns = longest_life_ns(self.routes, source, destination, self._frame_bytes)
        return fabric_ns + 2 * self.config.host_poll

    def _participants(self) -> set[str | None]:
        """Return the hosts that receive frames, and not merely count them."""
        config = self.config
        taking_part = frozenset[str]().union(*(job.hosts for job in (config.job, *config.other_jobs)))
        windowed = [*config.yielding, *config.transfers]
        answering = {host for flow in windowed for host in (flow.source, flow.destination)}
        collector = None if self._watching is None else self._watching.collector
        beats = config.heartbeats
        return {*taking_part, *answering, *([beats.to] if beats is not None else []), collector}

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
        self._prepare_fabric()
        rpc = self._stack.enter_context(self.emulated.serve())
        sessions = await self._stack.enter_async_context(self.emulated.sessions(rpc))
        self.controller = Controller(
            self.topology, self.routes, sessions, self._strategy, self._controller_options(), seed=self.config.seed
        )
        self._connect(rpc, sessions)
        self._watch_int()
        await self.controller.start()
        if self._watch is not None:
            self._watch.begin(self.topology, f"{self.config.name}, {self._label}")
        warm_ns = self.config.control.warm_up  # probes see the fabric before the first placement
        await self._clock.run(lambda: self.now_ns >= warm_ns, "the warm-up", warm_ns)
        await self._start_trained_job()
        self._add_competing_jobs()
        self._bounds.announce()
        if self.heartbeats is not None:
            self._beat(self.heartbeats)

    def _prepare_fabric(self) -> None:
        """Record the depths of switches' queues, and start background flows that never yield."""
        for link in self.topology.links:
            for end in link.ends:
                if self.topology.is_switch(end.node):
                    self.emulated.fabric.record_queue(end, QUEUE_SAMPLE_NS)
        for flow in self.config.steady:
            self.emulated.add_flow(
                flow.source,
                flow.destination,
                payload_bytes=BACKGROUND_PAYLOAD_BYTES,
                rate_bps=flow.rate,
                source_port=flow.port,
                start_ns=flow.start,
                stop_ns=flow.stop,
            )

    def _controller_options(self) -> ControllerOptions:
        control, beats, strategy = self.config.control, self.config.heartbeats, STRATEGIES[self._strategy_name]
        return ControllerOptions(
            probe_period_ns=control.interval,
            solve_period_ns=control.solve_interval if strategy.resolves else 0,
            together=strategy.jointly,
            improvement=control.gain,
            dwell_ns=control.dwell,
            order=control.order or "fair",
            order_ns=control.solve_interval,
            apply_order=control.order is not None,
            retry_ns=50 * control.latency + 1_000_000,
            stuck_ns=STALLED_NS,
            host_lease_ns=beats.lease if beats is not None else None,
            heartbeats_at=beats.to if beats is not None and beats.detector == "telemetry" else None,
            congestion=self._congestion,
            watching=self._watching,
        )

    def _connect(self, rpc: P4RuntimeServer, sessions: Mapping[str, SwitchSession]) -> None:
        """Make the parts that need the controller."""
        config, controller, latency_ns = self.config, self.controller, self.config.control.latency
        self._control = VirtualControl(controller, self.emulated, rpc, self.agents, self._events, latency_ns)
        self._bounds = QueuePromises(
            controller.windows,
            self.emulated.pop_longest_queues,
            self._note,
            pop_class_depths=self.emulated.pop_class_depths,
        )
        controller.bounded.append(self._bounds.note)
        self.heartbeats = None
        if config.heartbeats is not None:
            self.heartbeats = VirtualHeartbeats(self.emulated, config.heartbeats, self._on_heartbeat, config.seed)
        policy = FailurePolicy.CONTINUE if self.heartbeats is None else FailurePolicy.WAIT
        self._admission = Admission(controller, self.routes, self.agents, self._laws, policy=policy, note=self._note)
        self.job = TrainedJob(config.job, controller, self._values, served=self._served)
        self._others = OtherJobs(controller, self._control, self._admission, self.agents, latency_ns)
        self.figures = RunFigures(
            self.emulated,
            controller,
            sessions,
            agents=self.agents,
            job=self.job,
            others=self._others,
            flows=self._flows,
            transfers=self._transfers,
            bounds=self._bounds,
            heartbeats=self.heartbeats,
            routes=self.routes,
        )
        self._steps = ControlSteps(
            controller,
            self._control,
            self._events,
            self.job,
            self._others,
            report_period_ns=config.control.solve_interval // 2 if self.heartbeats is None else None,
            watch=self._watch,
            drops=self.figures.drops,
        )
        self._clock = VirtualClock(self.emulated.fabric, self._steps, self._deliver, self._state)

    def _watch_int(self) -> None:
        """Count INT headers on the links, if packets carry any. Raises ExperimentError."""
        if self._laws.reads_int:
            self._laws.check_routes(self.routes, (self.config.job, *self.config.other_jobs))
            self._count_int(Presence.UDP_PORT)
            self.controller.int_unread = lambda: self._laws.unread
        elif self._watching is not None and self._watching.puts_headers:
            self._count_int(self._watching.presence)

    def _count_int(self, presence: Presence) -> None:
        self.emulated.count_int(presence)
        self.controller.int_load = self.emulated.int_load

    async def _start_trained_job(self) -> None:
        config, job = self.config.job, self.job
        if config.stripes > 1:
            rounds = Rounds.of(self._values, lanes_of(self.topology), config.window)
            whole = self._admission.spec(FIRST_JOB, config, None, rounds)
            job.shares = await self.controller.shares(whole, config.stripes, self.now_ns)
        for number, (part, server, rounds) in zip(job.numbers, job.parts(), strict=True):
            for message in await self._admission.admit(number, part, server, rounds, self.now_ns, 0):
                worker = self._admission.start(number, message, part.window)
                job.workers += [] if worker is None else [worker]
            self._steps.moves.begin(self.controller.jobs[number].plan)
        job.connect()

    def _add_competing_jobs(self) -> None:
        for number, config in enumerate(self.config.other_jobs, self.job.numbers.stop):
            if not config.obeys:
                self._note(
                    f"job {number}: its workers ignore windows (obeys: false), so the queues that they cross may "
                    "exceed their bounds"
                )
            values = config.values or self.config.gradient_values
            self._others.add(OtherJob(config, number, values, self.now_ns))

    # --- hosts ---

    def _deliver(self, wake: Wake) -> None:
        """Pass a host's frames and timers to the telemetry's collector, flows, transports, heartbeats and cores."""
        if self._watching is not None and wake.host == self._watching.collector:
            assert self.controller.reports is not None
            address, port = int(self.topology.host(wake.host).address), self._watching.port
            wake = receive_reports(wake, self.controller.reports, address=address, port=port, now_ns=self.now_ns)
        wake = self._transports.receive(self._flows.receive(wake))
        self._transfers.go_on()
        if self.heartbeats is not None and wake.host == self.heartbeats.at:
            self.heartbeats.receive(wake)
        else:
            self.agents.handle(wake)

    def _beat(self, heartbeats: VirtualHeartbeats) -> None:
        """Send a heartbeat of every worker now, and again after an interval.

        Intervals differ, so that heartbeats do not always meet the same phase of other periodic traffic.
        """
        workers = [*self.job.workers, *self._others.workers(self.controller.jobs)]
        self._events.schedule(self.now_ns + heartbeats.beat(workers), partial(self._beat, heartbeats))

    def _on_heartbeat(self, job: int, host: str, beat: Heartbeat) -> None:
        """Pass a heartbeat to the controller, unless its job has left."""
        if job in self.controller.jobs:
            self.controller.members.heartbeat(job, host, beat.rounds, self.now_ns, waiting=beat.waiting)

    def _state(self) -> str:
        """Describe the state for the user of a stuck run."""
        waiting = sorted({worker.name for worker in self.job.workers if not worker.core.idle})
        return f"waiting are {', '.join(waiting) or 'none of the workers'}"

    # --- the job ---

    @property
    def now_ns(self) -> int:
        """Virtual time, in ns."""
        return self.emulated.fabric.now_ns

    async def allreduce(self, gradients: Sequence[Floats], samples: int | Sequence[int]) -> tuple[list[Reduced], int]:
        """Sum one tensor per worker in the fabric.

        Args:
            gradients: One tensor per worker, by rank.
            samples: Number of samples behind each.

        Returns:
            The result at each worker, and the duration in virtual time, in ns.
        """
        job = self.job
        handles = job.submit(gradients, [samples] * len(gradients) if isinstance(samples, int) else samples)
        plans = job.plans
        rounds = job.rounds(gradients[0].size)
        parts = [(plan, each.within(plan.spec.window)) for plan, each in zip(plans, rounds, strict=True)]
        beside_others = bool(self._others or self.config.yielding or self.config.transfers)
        achievable = Achievable(self.routes, parts, self._carried, beside_others=beside_others)
        duration_ns = await self.settle()
        stayed = [plan.generation for plan in plans] == [plan.generation for plan in job.plans]
        job.sums.append(SumTime(duration_ns, achievable.after_ns(duration_ns) if stayed else None))
        self._report(duration_ns, gradients[0].nbytes)
        return job.results(handles), duration_ns

    def _report(self, exposed_ns: int, count: int) -> None:
        """Send the controller a report of the trained job's step, as a worker's program does."""
        report = JobReport(len(self.job.sums) - 1, compute_ns=self._computed_ns, exposed_ns=exposed_ns, bytes=count)
        self._computed_ns = 0
        for number in self.job.numbers:
            self._control.report(number, report)

    def _carried(self) -> dict[Endpoint, CarriedBytes]:
        links = self.figures.links()
        if self.config.yielding or self.config.transfers:  # whose bytes are counted with those of flows that do not
            return {link.end: CarriedBytes(0, link.background_bytes + link.job_bytes) for link in links}
        return {link.end: CarriedBytes(link.background_bytes, link.job_bytes) for link in links}

    def pop_moves(self) -> list[Moved]:
        """Return the job's moves since the last call."""
        return self._steps.moves.pop()

    @property
    def decisions_ms(self) -> list[float]:
        """Wall-clock time of each placement decision so far, in ms."""
        return self._strategy.decisions_ms

    # --- other programs on the hosts ---

    def batch_sizes(self, batch: int) -> VirtualBatchSizes:
        """Return the controller's answers to the job's workers, whose steps have `batch` samples."""
        return VirtualBatchSizes(self.controller, self._control, FIRST_JOB, self.config.job.workers, batch)

    def gossip_policies(self, message_bytes: int, compute_s: Callable[[], NDArray[np.float64]]) -> PublishedPolicies:
        """Return the policies of the job's workers, by the controller's telemetry.

        Args:
            message_bytes: Bytes of a worker's weights.
            compute_s: (workers,) seconds that each worker computes.
        """
        links = self.controller.links
        interval = self.config.control.interval
        return PublishedPolicies(
            self.topology,
            self.config.job.workers,
            message_bytes,
            now_ns=lambda: self.now_ns,
            snapshot=lambda own_bps: links.snapshot(self.now_ns, own_bps),
            compute_s=compute_s,
            period_ns=interval,
            measured_period_ns=50 * interval,
            show=None if self._watch is None else self._watch.update_gossip,
        )

    def transports(
        self, hosts: Sequence[str] | None = None, options: TransportOptions | None = None
    ) -> list[Transport]:
        """Make a transport at each of these hosts. Calls in `…_async` are done after `finish`.

        Args:
            hosts: Hosts of jobs or flows of the run, by rank; None: the trained job's workers.
            options: Options of all of them; None: the defaults, with the longest life of a packet between these hosts.
        """
        names = self.config.job.workers if hosts is None else hosts
        if options is None:
            life_ns = max((self._longest_life_ns(*pair) for pair in permutations(names, 2)), default=0)
            options = replace(_DEFAULT_TRANSPORT, life_ns=life_ns)
        return self._transports.connect(FIRST_JOB, names, f"{self.config.seed:064x}", options)

    # --- virtual time ---

    async def settle(self) -> int:
        """Advance time until the workers have all results that they wait for; return the duration in ns."""
        return await self._clock.run(lambda: self.job.idle, "the workers' sums")

    async def compute(self, duration_ns: int) -> None:
        """Advance time while the workers compute."""
        await self._clock.wait(duration_ns, "computing")
        self._computed_ns += duration_ns

    async def finish(self, *calls: TransportCall[Any]) -> int:
        """Advance time until these calls of transports are done; return the duration in ns."""
        return await self._clock.run(lambda: all(call.done() for call in calls), "calls of transports")

    async def play(self, processes: Processes, done: Callable[[], bool]) -> None:
        """Let time pass for a job's processes, which call the communicators, until `done` or all have ended."""
        processes.advance(self.now_ns)
        while not done() and not processes.ended:
            due_ns = processes.deadline_ns
            await self._clock.run(
                lambda: processes.ready(self.now_ns),
                "the training's processes",
                None if due_ns is None else max(due_ns, self.now_ns),
            )
            processes.advance(self.now_ns)
