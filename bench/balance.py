"""What the controller's batch sizes cost in every step: a worker's report and call, and all calls at the controller.

::

    this process: Controller, ControlService ◀── Balance on a unix socket ── another process: a thread for each worker

Aim: less than 1.1 % of a step of 200 ms, which is what the authors of LB-BSP report of theirs.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import numpy as np

from weir.bench.batching import AIM, SAMPLES
from weir.bench.measure import RUNS, Figure
from weir.controller.controller import Controller, Options
from weir.controller.placement.strategies import strategy
from weir.controller.service.service import ControlService
from weir.experiments.backends.batch_sizes import size_rule
from weir.experiments.backends.emulated import EmulatedFabric
from weir.hosts import ControlClient
from weir.topologies import Routes, leaf_spine
from weir.training.batching.reporter import SpeedReporter
from weir.training.machines import Readings
from weir.wire import control_pb2 as pb

_CALLS: Final = 1_024
"""Of each run, of all workers together."""
_SEEN: Final = 100
"""Steps after which NARX is at work."""
_NEVER_NS: Final = 10**15


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    for workers in (8, 32, 128):
        told = asyncio.run(_played(workers))
        for part, taken in zip(("a worker", "the controller"), zip(*told, strict=True), strict=True):
            name = f"Balance, a step of {workers} workers: processor time of {part}"
            yield Figure(name, "s", taken, less_is_better=True, aim=AIM)


async def _played(workers: int) -> list[tuple[float, float]]:
    """Of each run, seconds of processor time in a step: one worker's, the controller's."""
    topology = leaf_spine(8, 1, workers // 8)
    fabric, routes = EmulatedFabric(topology), Routes(topology)
    options = Options(probe_period_ns=_NEVER_NS, solve_period_ns=0)
    with fabric.serve() as server, tempfile.TemporaryDirectory() as folder:
        async with fabric.sessions(server) as sessions:
            controller = Controller(topology, routes, sessions, strategy("widest"), options, now_ns=time.monotonic_ns())
            await controller.start()
            service = ControlService(controller, address=f"unix:{folder}/control", size_rule=size_rule)
            async with service:
                words = [sys.executable, "-m", "weir.bench.balance", service.address, str(workers)]
                asking = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
                assert asking.stdin is not None
                assert asking.stdout is not None
                found = []
                for _ in range(RUNS):
                    await asking.stdout.readline()
                    began = time.process_time()
                    asking.stdin.write(b"\n")
                    steps, theirs = json.loads(await asking.stdout.readline())
                    found.append((theirs, (time.process_time() - began) / steps))
                if await asking.wait() != 0:
                    raise RuntimeError("the workers of the benchmark have failed")
    return found


# --- the workers' process ---


def _ask(address: str, workers: int) -> None:
    """All workers of one job: for each run a line when they are ready, one of the other side, one with the figures."""
    steps = max(2, _CALLS // workers)
    with ExitStack() as stack:
        client = stack.enter_context(ControlClient(address))
        registration = client.register([f"h{host}" for host in range(1, workers + 1)])
        tokens = [seat.token for seat in registration.seats if seat.HasField("rank")]
        everyone = [_Worker(address, registration, token, rank) for rank, token in enumerate(tokens)]
        with ThreadPoolExecutor(workers) as pool:

            def played(first: int, steps: int) -> None:
                list(pool.map(lambda worker: worker.play(first, steps), everyone))

            for run in range(RUNS):
                first = 1 + run * (steps + 1)
                played(first, 1)
                print(flush=True)  # the other side reads it
                sys.stdin.readline()
                began = time.process_time()
                played(first + 1, steps)
                print(json.dumps([steps, (time.process_time() - began) / (steps * workers)]), flush=True)


class _Worker:
    """One rank, whose free share of the processor wanders; it computes in no time."""

    def __init__(self, address: str, registration: pb.Registration, token: str, rank: int) -> None:
        self._client = ControlClient(address)
        self._registration = registration
        self._token = token
        self._rank = rank
        self._rng = np.random.default_rng(rank)
        self._reporter = SpeedReporter()
        self._free = 1.0
        for _ in range(_SEEN):
            self._report(SAMPLES)

    def _report(self, samples: int) -> list[float]:
        self._free = float(np.clip(self._free + self._rng.normal(0, 0.03), 0.2, 1.0))
        report = self._reporter.report(Readings(self._free, 0.5)).tolist()
        self._reporter.observe(samples, samples / (1000 * self._free))
        return list(report)

    def play(self, first: int, steps: int) -> None:
        """So many steps from that one on."""
        samples = SAMPLES
        workers = len(self._registration.seats)
        for step in range(first, first + steps):
            sizes = self._client.balance(
                self._registration.job, self._token, step, SAMPLES * workers, self._report(samples)
            )
            samples = sizes[self._rank]


if __name__ == "__main__":
    _ask(sys.argv[1], int(sys.argv[2]))
