"""Searches as processes: a job for each configuration, on an emulated fabric by the clock.

::

    this process: fabric, controller, StagedSearch ──a line per stage──▶ a process for each worker (search_rank)
                                                  ◀──accuracy── rank 0 of each configuration

A configuration's job lives from its first stage to its last one. Its workers report the stage and the steps left, so
the controller sees stages begin and end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ...hosts import ControlClient
from ...topologies import Routes
from ...topologies.mininet.processes import may_end_with_us
from ...training.search import StagedSearch, Trial
from ..backends.live import LiveFabric, live_fabric
from ..errors import ExperimentError
from .course import hosts_of, source_of
from .search_file import SearchConfig, SearchFile
from .virtual import search_json

_END_S: Final = 20.0
"""Time for workers to leave in good order."""
Progressed = Callable[[str], object]


@dataclass(slots=True)
class RunSearch:
    """One search, and the times of its stages by the clock."""

    config: SearchConfig
    search: StagedSearch
    stage_seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """Result of a file's searches as processes."""

    searches: list[RunSearch]
    order: str
    """Order that the controller had; it shows classes and does not apply them."""

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON data; times in s, by this machine's clock."""
        return {
            "order": self.order,
            "searches": [
                {**search_json(search.config.name, search.search), "stage_seconds": search.stage_seconds}
                for search in self.searches
            ],
        }


async def run_as_processes(file: SearchFile, progressed: Progressed = lambda _: None) -> ProcessOutcome:
    """Run all searches of a file at the same time.

    Args:
        file: The searches and their fabric; the first order is the controller's.
        progressed: Called with a line whenever a configuration's stage is done.

    Raises:
        ExperimentError: A worker has ended before its time.
    """
    routes = Routes(file.topology)
    async with live_fabric(file.topology, order=file.orders[0], seed=file.seed) as live:
        ways = [_Searching(live, routes, search, file.seed, progressed) for search in file.searches]
        try:
            async with asyncio.TaskGroup() as group:
                for way in ways:
                    group.create_task(way.run())
        except* ExperimentError as errors:
            raise errors.exceptions[0] from None
        finally:
            for way in ways:
                way.kill()
    return ProcessOutcome([way.result for way in ways], file.orders[0])


class _Searching:
    """One search under way."""

    def __init__(
        self, live: LiveFabric, routes: Routes, config: SearchConfig, seed: int, progressed: Progressed
    ) -> None:
        self.result = RunSearch(config, StagedSearch(source_of(config, seed), config.schedule))
        self._live, self._routes, self._seed, self._progressed = live, routes, seed, progressed
        self._workers: dict[int, list[asyncio.subprocess.Process]] = {}
        """Processes of each configuration, by rank."""

    async def run(self) -> None:
        """Run all stages."""
        search, loop = self.result.search, asyncio.get_running_loop()
        await asyncio.sleep(self.result.config.start / 1e9)
        while not search.over:
            stage, waiting, began = search.stage, search.ask(), loop.time()
            for trial in waiting:
                if trial.number not in self._workers:
                    self._workers[trial.number] = await self._started(trial)
            values = await asyncio.gather(*(self._train(trial, stage, search.steps) for trial in waiting))
            self.result.stage_seconds.append(loop.time() - began)
            for trial, value in zip(waiting, values, strict=True):
                search.tell(trial.number, value)
            await asyncio.gather(*(self._end(trial) for trial in waiting if trial.stopped or search.over))

    def kill(self) -> None:
        """End processes that still run."""
        for process in (process for processes in self._workers.values() for process in processes):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()

    async def _started(self, trial: Trial) -> list[asyncio.subprocess.Process]:
        config = self.result.config
        *workers, _ = hosts_of(config, self._routes, trial.number, self._seed)[0]
        with ControlClient(self._live.service.address) as client:
            job = await asyncio.to_thread(client.register, workers, policy="abort")
        configuration = {"workload": config.workload, "seed": self._seed, "parameters": dict(trial.parameters)}
        processes = []
        for seat in job.seats:
            environment = {**self._live.environment(job.job, seat), "OMP_NUM_THREADS": "1"}
            processes.append(
                await asyncio.create_subprocess_exec(
                    *may_end_with_us("TERM"),
                    sys.executable,
                    "-m",
                    "weir.training.search_rank",
                    json.dumps(configuration),
                    env={**os.environ, **environment},
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE if seat.rank == 0 else asyncio.subprocess.DEVNULL,
                )
            )
        return processes

    async def _train(self, trial: Trial, stage: int, steps: int) -> float:
        name = self.result.config.name
        line = json.dumps({"search": name, "stage": stage + 1, "steps": steps}).encode() + b"\n"
        workers = self._workers[trial.number]
        for process in workers:
            assert process.stdin is not None
            with suppress(ConnectionError):
                process.stdin.write(line)
                await process.stdin.drain()
        assert workers[0].stdout is not None
        answer = await workers[0].stdout.readline()
        if not answer:
            status = await workers[0].wait()
            raise ExperimentError(
                f"search {name}: a worker of configuration {trial.number} ended with status {status} in stage "
                f"{stage + 1}",
                place=f"search {name}",
                value=status,
            )
        value = float(json.loads(answer)["accuracy"])
        self._progressed(f"{name}: stage {stage + 1}, configuration {trial.number}: {value:.3f}")
        return value

    async def _end(self, trial: Trial) -> None:
        """Let a configuration's workers leave in good order."""
        for process in self._workers[trial.number]:
            assert process.stdin is not None
            process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                for process in self._workers[trial.number]:
                    await process.wait()
