"""A run's job with real processes and packets: the fabric in Mininet, and every worker a process in its host.

::

    this process: MininetFabric, Controller ◀─P4Runtime─▶ weir-switch or simple_switch_grpc, one each
                  ControlService on a unix socket ◀─gRPC─▶ workers, parameter servers: processes in their namespaces

The sums are the virtual fabric's, bit for bit; times are the machine's. `mininet_control` has the controller, and
`mininet_processes` what runs in the hosts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import numpy as np

from ...controller.planning.plan import lanes_of
from ...hosts import ControlClient
from ...topologies.mininet.fabric import MininetFabric
from ...topologies.mininet.scratch import scratch_folder
from ...wire import control_pb2 as pb
from ..config import RunConfig
from ..errors import ExperimentError
from ..records.record import MininetResult, StrategyResult
from ..records.report import name_of
from .mininet_control import SLOWER, MininetControl, start_control
from .mininet_processes import BackgroundProcesses, WorkerProcesses
from .round_count import Rounds
from .worker_process import WorkerReport

if TYPE_CHECKING:
    from ...controller.live.watch import Watch

_LOOK_S: Final = 0.2


async def run_in_mininet(
    config: RunConfig,
    virtual: StrategyResult,
    fabric: MininetFabric,
    first_job: int,
    advance: Callable[[int], object] = lambda _: None,
    watch: Watch | None = None,
) -> MininetResult:
    """Train the job once in a running fabric.

    Args:
        config: The run.
        virtual: Result of the same run in virtual time; its strategy and shares are used.
        fabric: The running fabric.
        first_job: Job number of the first shard; the other shards' follow. No job has had them in this fabric, since
            the switches' slots still hold the rounds of those.
        advance: Called now and then with the number of steps that all workers have completed.
        watch: Observer of the run.

    Raises:
        ExperimentError: The job does not finish; also other packages' errors.
    """
    started = time.perf_counter()
    shares = virtual.shares or [1] * len(config.job.roots)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(scratch_folder("weir-run-"))
        control = await start_control(stack, config, virtual.strategy, fabric, folder)
        if watch is not None:
            title = f"{config.name}, {name_of(virtual.strategy)}, Mininet"
            watch.begin(fabric.topology, title, time.monotonic_ns())
        await asyncio.sleep(config.control.warm_up * SLOWER / 1e9)
        client = stack.enter_context(ControlClient(control.service.address))
        registrations = await _register(config, client, first_job, shares)
        processes = stack.enter_context(
            WorkerProcesses(config, fabric, control.service.address, registrations, shares, folder)
        )
        background = stack.enter_context(BackgroundProcesses(config, virtual, fabric))
        reports = asyncio.ensure_future(processes.reports())
        stack.callback(reports.cancel)
        trees: list[dict[str, str]] = [{} for _ in registrations]
        generation = 0
        while not reports.done():
            await asyncio.wait([reports], timeout=_LOOK_S)
            if watch is not None:
                await _show(watch, control, f"Mininet, {fabric.kind} switches")
            if states := await asyncio.to_thread(client.jobs):
                steps = min(
                    state.rounds // _rounds(config, shares, state.job - first_job).within(state.window).total
                    for state in states
                )
                advance(steps)
                background.at_step(steps)
            for number, job in control.controller.jobs.items():
                placement, generation = job.plan.placement, max(generation, job.plan.generation)
                trees[number - first_job] = {**placement.aggregators, **placement.parents}
        notes = [*background.notes, *_left_out(config), f"telemetry: {control.telemetry_cost}"]
        drops = await control.drops()
        result = _result(virtual.strategy, fabric, await reports, drops, trees, generation, notes, started)
        return result.model_copy(update=control.figures(heartbeats=config.heartbeats is not None))


async def _register(
    config: RunConfig, client: ControlClient, first_job: int, shares: Sequence[int]
) -> list[pb.Registration]:
    """Register one job per shard."""
    return [
        await asyncio.to_thread(
            client.register,
            config.job.workers,
            server,
            job=first_job + shard,
            slots=config.job.slots,
            window=config.job.window,
            gradient_bytes=_rounds(config, shares, shard).bytes(lanes_of(config.topology)),
            policy="abort",
        )
        for shard, server in enumerate(config.job.roots[: len(shares)])
    ]


async def _show(watch: Watch, control: MininetControl, doing: str) -> None:
    """Show the present state to an observer."""
    if watch.is_due:
        watch.update_drops(await control.drops(), control.service.now_ns())
    watch.refresh(control.controller, control.service.now_ns(), doing)


def _left_out(config: RunConfig) -> list[str]:
    """Return notes on parts of the run that Mininet does not have."""
    notes = []
    if config.heartbeats is not None and not config.heartbeats.in_class:
        notes.append("heartbeats were in the control class")
    if config.other_jobs:
        notes.append("the jobs beside the trained one were not there")
    return notes


def _rounds(config: RunConfig, shares: Sequence[int], shard: int) -> Rounds:
    """Return the rounds of a step of the trained job, in one shard."""
    return Rounds.of(config.gradient_values, lanes_of(config.topology), config.job.window, shares, shard)


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
    """Combine the workers' reports. Raises ExperimentError if their sums differ."""
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
