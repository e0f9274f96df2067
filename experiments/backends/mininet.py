"""A run's job with real processes and packets: the fabric in Mininet, and every worker a process in its host.

::

    this process: MininetFabric, Controller ◀─P4Runtime─▶ weir-switch or simple_switch_grpc, one each
                  ControlService on a unix socket ◀─gRPC─▶ workers, parameter servers: processes in their namespaces

The sums are the virtual fabric's, bit for bit; times are the machine's.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions
from ...controller.controller import Controller, Options
from ...controller.p4runtime.session import SwitchSession
from ...controller.p4runtime.tables import DROP_REASONS, DROPS
from ...controller.placement.strategies import STRATEGIES
from ...controller.placement.strategies import strategy as strategy_named
from ...controller.planning.plan import lanes_of
from ...controller.service.service import ControlService
from ...controller.telemetry.link_state import BULK, LinkState
from ...controller.telemetry.report_socket import ReportSocket
from ...hosts import ControlClient
from ...topologies import Endpoint, Routes
from ...topologies.mininet.fabric import MininetFabric, SwitchKind
from ...topologies.mininet.scratch import scratch_folder
from ...training.workloads.digits import load_digits
from ...wire import control_pb2 as pb
from ..config import RunConfig
from ..config.background import SteadyFlow
from ..errors import ExperimentError
from ..records.record import MininetHeartbeats, MininetResult, StrategyResult
from ..records.report import name_of
from .live import heartbeat_source
from .queue_bounds import QueuePromises
from .round_count import Rounds
from .sessions import open_sessions
from .worker_process import WorkerReport, WorkerTask

if TYPE_CHECKING:
    from ...controller.live.watch import Watch

SLOWER: Final = 100
"""Factor on the control loop's times, which a run file gives for virtual time."""

OTHER_TRAFFIC_BPS: Final = {SwitchKind.WEIR: 20_000_000, SwitchKind.BMV2: 2_000_000}
"""Upper bound of all background flows together, so that they leave the cores to the job; flows are scaled to it."""

_LEASE_NS: Final = 20_000_000_000
_MIN_LEASE_NS: Final = 4_000_000_000
"""Minimum lease of hosts with heartbeats through the fabric: processes that compute on few cores can be silent for
long.
"""
_STEP_S: Final = 120.0
_LOOK_S: Final = 0.2
_LATE_NS: Final = 200_000_000
"""Maximum delay of INT reports about a queue."""
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Many processes share few cores."""


async def run_in_mininet(
    config: RunConfig,
    virtual: StrategyResult,
    fabric: MininetFabric,
    first_job: int,
    advance: Callable[[int], object] = lambda _: None,
    watch: Watch | None = None,
) -> MininetResult:
    """Train the job once in a running fabric, under the strategy of `virtual`, the same run in virtual time.

    `first_job` is its number, or its first shard's, which the others' follow. No job has had them in this fabric: the
    switches' slots still hold the rounds of those.
    `advance` is called now and then with the number of steps that all workers have completed; `watch` looks on. Raises
    ExperimentError, and the other packages' errors, where the job does not finish.
    """
    started = time.perf_counter()
    shares = virtual.shares or [1] * len(config.job.roots)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(scratch_folder("weir-run-"))
        lanes = lanes_of(fabric.topology)
        sessions = await stack.enter_async_context(open_sessions(fabric.topology, fabric.addresses))
        controller = _controller(config, virtual.strategy, fabric, sessions)
        depths = _Depths(controller.links)
        promises = QueuePromises(controller.windows, depths.take, late_ns=_LATE_NS)
        controller.bounded.append(promises.note)
        await controller.start()
        began_ns = time.monotonic_ns()
        drops_before = await _switch_drops(sessions)
        if watch is not None:
            title = f"{config.name}, {name_of(virtual.strategy)}, Mininet"
            watch.begin(fabric.topology, title, time.monotonic_ns())
        beats, delays_ns = config.heartbeats, list[int]()
        service = await stack.enter_async_context(
            ControlService(
                controller,
                address=f"unix:{folder}/control",
                heartbeats=None if beats is None else heartbeat_source(fabric, beats.to),
                heard=lambda beat: delays_ns.append(time.monotonic_ns() - beat.sent_ns),  # one clock for a machine
            )
        )
        _take_reports(stack, config, fabric, controller, service.now_ns)
        await asyncio.sleep(config.control.warm_up * SLOWER / 1e9)
        client = stack.enter_context(ControlClient(service.address))
        registrations = [
            await asyncio.to_thread(
                client.register,
                config.job.workers,
                server,
                job=first_job + shard,
                slots=config.job.slots,
                window=config.job.window,
                gradient_bytes=Rounds.of_gradient(config, lanes, shares, shard).bytes(lanes),
                policy="abort",
            )
            for shard, server in enumerate(config.job.roots[: len(shares)])
        ]
        processes = stack.enter_context(_Processes(config, fabric, service.address, registrations, shares, folder))
        other = stack.enter_context(_OtherTraffic(config, virtual, fabric))
        reports = asyncio.ensure_future(processes.reports())
        stack.callback(reports.cancel)
        trees: list[dict[str, str]] = [{} for _ in registrations]
        generation = 0
        while not reports.done():
            await asyncio.wait([reports], timeout=_LOOK_S)
            if watch is not None:
                if watch.is_due:
                    watch.take_drops(await _switch_drops(sessions, drops_before), service.now_ns())
                watch.look(controller, service.now_ns(), f"Mininet, {fabric.kind} switches")
            states = await asyncio.to_thread(client.jobs)
            if states:
                steps = min(
                    state.rounds
                    // Rounds.of_gradient(config, lanes, shares, state.job - first_job).within(state.window).total
                    for state in states
                )
                advance(steps)
                other.at_step(steps)
            for number, job in controller.jobs.items():
                placement, generation = job.plan.placement, max(generation, job.plan.generation)
                trees[number - first_job] = {**placement.aggregators, **placement.parents}
        by_rank = await reports
        drops = await _switch_drops(sessions, drops_before)
        if beats is not None and not beats.in_class:
            other.notes.append("heartbeats were in the control class")
        if config.other_jobs:
            other.notes.append("the jobs beside the trained one were not there")
        notes = [*other.notes, f"telemetry: {controller.telemetry_cost(time.monotonic_ns() - began_ns)}"]
        figures = None if beats is None else _heartbeat_figures(controller, service, delays_ns)
        result = _result(virtual.strategy, fabric, by_rank, drops, trees, generation, notes, started)
        update = {
            "heartbeats": figures,
            "promised": {str(link): bound for link, bound in sorted(promises.promised.items())},
            "broken": promises.broken(service.now_ns()),
            "deepest": {str(link): depth for link, depth in depths.deepest.items()},
        }
        return result.model_copy(update=update)


def _take_reports(
    stack: AsyncExitStack,
    config: RunConfig,
    fabric: MininetFabric,
    controller: Controller,
    clock: Callable[[], int],
) -> None:
    """Receive reports: if a collector's host is named, this process listens there, in the host's namespace."""
    watching = config.watching
    if watching is None or watching.collector is None:
        return
    assert controller.reports is not None
    bound = fabric.datagram_socket(watching.collector, watching.port)
    reports = stack.enter_context(ReportSocket(controller.reports, watching.port, bound=bound))
    controller.sources.append(reports.poll)
    stack.callback(controller.sources.remove, reports.poll)  # the service ends after it
    loop = asyncio.get_running_loop()
    loop.add_reader(reports, lambda: reports.poll(clock()))
    stack.callback(loop.remove_reader, reports)


def _controller(
    config: RunConfig, strategy: str, fabric: MininetFabric, sessions: Mapping[str, SwitchSession]
) -> Controller:
    control, beats = config.control, config.heartbeats
    options = Options(
        probe_period_ns=control.interval * SLOWER,
        solve_period_ns=control.solve_interval * SLOWER if STRATEGIES[strategy].resolves else 0,
        together=STRATEGIES[strategy].jointly,
        decide_aside=True,
        improvement=control.gain,
        dwell_ns=control.dwell * SLOWER,
        lease_ns=_LEASE_NS,
        host_lease_ns=None if beats is None else max(_MIN_LEASE_NS, beats.lease * SLOWER),
        patience_ns=None if beats is None else _LEASE_NS,
        heartbeats_at=beats.to if beats is not None and beats.detector == "telemetry" else None,
        congestion=congestion_options(config),
        watching=config.watching,
    )
    routes = Routes(fabric.topology)
    return Controller(
        fabric.topology,
        routes,
        sessions,
        strategy_named(strategy),
        options,
        time.monotonic_ns(),
        seed=config.seed,
    )


def congestion_options(config: RunConfig) -> CongestionOptions:
    """Return the options of virtual time, but with the window lease of hosts that are processes."""
    options = config.congestion_options
    return replace(options, lease_ns=WALL_CLOCK_LEASE_NS if options.lease_ns else 0)


async def _switch_drops(
    sessions: Mapping[str, SwitchSession], before: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Packets dropped by all switches, by reason, minus the counts in `before`."""
    drops = {reason: -(before or {}).get(reason, 0) for reason in DROP_REASONS}
    for session in sessions.values():
        for reason, count in zip(DROP_REASONS, await session.read_counter(DROPS), strict=True):
            drops[reason] += count
    return drops


class _Depths:
    """Depths of the data class's queues, from probes and reports."""

    def __init__(self, links: LinkState) -> None:
        self._links = links
        self.deepest: dict[Endpoint, int] = {}
        """The most packets of each queue that was reported, until `take` was last called."""

    def take(self) -> dict[Endpoint, int]:
        """The most packets of each queue since the last call."""
        measured, highs = self._links.queues["measured"][:, BULK], self._links.take_highs()[:, BULK]
        told = zip(self._links.links, measured, highs, strict=True)
        taken = {link: int(high) for link, is_measured, high in told if is_measured}
        self.deepest.update((link, max(high, self.deepest.get(link, 0))) for link, high in taken.items())
        return taken


def _heartbeat_figures(controller: Controller, service: ControlService, delays_ns: Sequence[int]) -> MininetHeartbeats:
    counts, delays = controller.jobs.counts, np.array(delays_ns or [0]) / 1e6
    return MininetHeartbeats(
        sent=service.heartbeats.sent,
        delivered=service.heartbeats.came,
        p999_ms=float(np.percentile(delays, 99.9)),
        longest_ms=float(delays.max()),
        lease_ms=(controller.jobs.leases.lease_ns or 0) / 1e6,
        taken_for_dead=counts.leases_expired,
        explained=counts.verdicts_deferred,
    )


def _result(
    strategy: str,
    fabric: MininetFabric,
    reports: Sequence[WorkerReport],
    drops: dict[str, int],
    trees: list[dict[str, str]],
    generation: int,
    notes: Sequence[str],
    started: float,
) -> MininetResult:
    """Raises ExperimentError where the workers did not get the same."""
    first = reports[0]
    if any(report.sums != first.sums or report.weights != first.weights for report in reports):
        raise ExperimentError(f"strategy {strategy} in Mininet: the workers' sums are not the same everywhere")
    begun = np.array([report.begun_ns for report in reports]).max(axis=0)
    ended = np.array([report.ended_ns for report in reports]).max(axis=0)
    for report in reports:
        for reason, count in report.drops.items():
            drops[f"host: {reason}"] = drops.get(f"host: {reason}", 0) + count
    return MininetResult(
        strategy=strategy,
        switch=fabric.kind,
        iteration_ns=(ended - begun).tolist(),
        sums=first.sums,
        weights=first.weights,
        accuracy=first.accuracy,
        resends=sum(report.resends for report in reports),
        drops={reason: count for reason, count in drops.items() if count},
        generation=generation,
        trees=trees,
        notes=[*fabric.notes, *notes],
        wall_s=time.perf_counter() - started,
    )


class _Processes:
    """The job's processes in the hosts' namespaces; all are ended with it."""

    def __init__(
        self,
        config: RunConfig,
        fabric: MininetFabric,
        control: str,
        registrations: Sequence[pb.Registration],
        shares: Sequence[int],
        folder: Path,
    ) -> None:
        self._config = config
        self._shares = shares
        self._fabric = fabric
        self._control = control
        self._registrations = registrations
        self._digits = folder / "digits.npz"
        if config.script is None:
            load_digits(config.seed).save(self._digits)
        self._started: list[Popen[str]] = []

    def __enter__(self) -> _Processes:
        self._pool = ThreadPoolExecutor(max_workers=sum(len(each.seats) for each in self._registrations))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
        self._pool.shutdown()

    async def reports(self) -> list[WorkerReport]:
        """Start all, wait until all have ended; by rank. Raises ExperimentError when one fails, with its last words."""
        config = self._config
        seats: list[list[tuple[int, str]]] = [[] for _ in config.job.workers]
        ends = []
        for registration in self._registrations:
            for seat in registration.seats:
                if seat.HasField("rank"):
                    seats[seat.rank].append((registration.job, seat.token))
                else:
                    command = ["weir.hosts.drivers.agent", self._control, str(registration.job)]
                    ends.append(self._start(seat.host, command, seat.token + "\n"))
        for rank, host in enumerate(config.job.workers):
            task = WorkerTask(
                control=self._control,
                seats=seats[rank],
                shares=list(self._shares),
                rank=rank,
                workers=len(config.job.workers),
                seed=config.seed,
                training=config.training.options,
                digits=str(self._digits),
                script=config.script,
                timeout_s=_STEP_S,
            )
            ends.append(self._start(host, ["weir.experiments.backends.worker_process"], task.dump()))
        said = await asyncio.gather(*ends)
        return [WorkerReport.load(text) for text in said if text]

    def _start(self, host: str, command: Sequence[str], words: str) -> asyncio.Future[str]:
        """Run a module on a host, with these words as its input; the result is its output."""
        process = _start(
            self._fabric,
            host,
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            env={**os.environ, **_ONE_THREAD},
        )
        self._started.append(process)
        return asyncio.get_running_loop().run_in_executor(self._pool, _outcome, host, process, words)


def _start(fabric: MininetFabric, host: str, module: str, *words: str, **options: Any) -> Popen[Any]:
    """Run a module on a host, in a session of its own: Ctrl-C is for this process, which then ends the others."""
    return fabric.popen(host, [sys.executable, "-m", module, *words], start_new_session=True, **options)


def _outcome(host: str, process: Popen[str], words: str) -> str:
    """Return the output of an ended process. Raises ExperimentError with its error message."""
    out, complaint = process.communicate(words)
    if process.returncode:
        lines = complaint.strip().splitlines() or [f"ended with status {process.returncode}"]
        raise ExperimentError(f"{host}: {lines[-1]}")
    return out


class _OtherTraffic:
    """The run's background flows by processes on their hosts, at a rate that the machine carries.

    A flow's start and stop are instants of virtual time; here they are the steps at which the virtual run was then.
    """

    def __init__(self, config: RunConfig, virtual: StrategyResult, fabric: MininetFabric) -> None:
        self._fabric = fabric
        times = np.cumsum(np.array(virtual.iteration_ns) + config.training.compute) + config.control.warm_up
        self._flows = {
            index: (
                int(np.searchsorted(times, flow.start)),
                len(times) if flow.stop is None else int(np.searchsorted(times, flow.stop)),
            )
            for index, flow in enumerate(config.steady)
        }
        self._config = config
        self._running: dict[int, Popen[Any]] = {}
        self.notes: list[str] = []
        most = max((self._rate_at(step) for step, _ in self._flows.values()), default=0)
        self._scale = min(1.0, OTHER_TRAFFIC_BPS[fabric.kind] / most) if most else 1.0
        if self._scale < 1:
            self.notes.append(
                f"background traffic is scaled to {100 * self._scale:.2g} %: {most / 1e6:g} Mbit/s is more than "
                f"{fabric.kind} switches and the job can share on one machine"
            )

    def _rate_at(self, step: int) -> int:
        return sum(
            self._config.steady[index].rate for index, (start, stop) in self._flows.items() if start <= step < stop
        )

    def __enter__(self) -> _OtherTraffic:
        self.at_step(0)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def at_step(self, step: int) -> None:
        """Start and stop the flows due after this number of steps at all workers."""
        for index, (start, stop) in self._flows.items():
            process = self._running.get(index)
            if process is None and start <= step < stop:
                self._running[index] = self._start(self._config.steady[index])
            elif process is not None and step >= stop:
                process.kill()
                process.wait()
                del self._running[index]

    def _start(self, flow: SteadyFlow) -> Popen[Any]:
        address = str(self._fabric.topology.host(flow.destination).address)
        words = [address, str(flow.rate * self._scale), str(flow.port)]
        return _start(self._fabric, flow.source, "weir.experiments.backends.traffic_process", *words)
