"""Processes of a run in Mininet: the job's workers and servers, and senders of background traffic, in their hosts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

import numpy as np

from ...topologies.mininet.fabric import MininetFabric, SwitchKind
from ...training.workloads.digits import load_digits
from ...wire import control_pb2 as pb
from ..config import RunConfig
from ..config.background import SteadyFlow
from ..errors import ExperimentError
from ..records.record import StrategyResult
from .worker_process import WorkerReport, WorkerTask

OTHER_TRAFFIC_BPS: Final = {SwitchKind.WEIR: 20_000_000, SwitchKind.BMV2: 2_000_000}
"""Upper bound of all background flows together, so that they leave the cores to the job; flows are scaled to it."""

_STEP_S: Final = 120.0
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Many processes share few cores."""


class WorkerProcesses:
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
        """Prepare the processes; `folder` receives the digits if the run has no script.

        Args:
            config: The run.
            fabric: The fabric in Mininet.
            control: Address of the control service.
            registrations: Registration of each part of the job, with the tokens of its seats.
            shares: Share of the chunks of each part, in proportion.
            folder: Folder for the data that the processes read.
        """
        self._config = config
        self._shares = shares
        self._fabric = fabric
        self._control = control
        self._registrations = registrations
        self._digits = folder / "digits.npz"
        if config.script is None:
            load_digits(config.seed).save(self._digits)
        self._started: list[Popen[str]] = []

    def __enter__(self) -> WorkerProcesses:
        self._pool = ThreadPoolExecutor(
            max_workers=sum(len(registration.seats) for registration in self._registrations)
        )
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


class BackgroundProcesses:
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

    def __enter__(self) -> BackgroundProcesses:
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
