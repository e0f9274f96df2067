"""Cost of the controller's batch sizes per step: a prediction, and the amortised cost of a question.

::

    this process: Controller, ControlService ◀── Balance on a unix socket ── the asking worker
    echo process, in place of the switches and all other workers ◀══ sums ══▶ a worker on a UDP socket

All figures are processor time; the controller's excludes its idle time. A question consists of two sums of all workers,
the asking worker's time, and the controller's time. While the analytic rule leaves sizes unchanged, every fifth step
has a question. All workers wait for these parts one after the other, so the aim bounds their sum per step: less than
1.1 % of a step of 200 ms, the figure that the authors of LB-BSP report.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weir.bench.batching import AIM, SAMPLES
from weir.bench.endpoint import ECHO_ADDRESS, WORKER_ADDRESS, echoing
from weir.bench.measure import Figure
from weir.controller.controller import Controller, ControllerOptions
from weir.controller.placement.strategies import strategy
from weir.controller.service.service import ControlService
from weir.experiments.backends.batch_sizes import size_rule
from weir.experiments.backends.emulated import EmulatedFabric
from weir.hosts import Communicator, ControlClient, UdpWorker, WorkerCore
from weir.hosts.collectives.leader_query import LeaderQuery
from weir.hosts.drivers.batch_size_client import BatchSizeClient
from weir.hosts.drivers.client import PATIENT
from weir.topologies import Routes, leaf_spine
from weir.training.batching.manager import MAX_APART
from weir.training.batching.reporter import SpeedReporter
from weir.training.machines import Readings
from weir.wire.control import WorkerPlan
from weir.wire.control_messages import balance_request

RUNS: Final = 5
_STEPS: Final = 50
"""Questions, or predictions, of each run."""
_SEEN: Final = 100
"""Steps after which NARX is at work."""
_IDLE_S: Final = 1.0
_PREDICTION: Final = "a step: a worker's prediction"
_NEVER_NS: Final = 10**15
_SLOTS: Final = 64


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    for workers in (8, 128):
        parts = asyncio.run(_played(workers))
        for part, taken in parts.items():
            yield Figure(_named(workers, part), "s", tuple(taken), less_is_better=True)
        predicting = parts.pop(_PREDICTION)
        questions = [sum(each) / MAX_APART for each in zip(*parts.values(), strict=True)]
        whole = tuple(map(sum, zip(predicting, questions, strict=True)))
        name = "a step while sizes stay: prediction, a fifth of a question"
        yield Figure(_named(workers, name), "s", whole, less_is_better=True, aim=AIM)


def _named(workers: int, part: str) -> str:
    return f"batch sizes by the controller, {workers} workers, {part}"


async def _played(workers: int) -> dict[str, list[float]]:
    """Seconds of processor time of a prediction and of the parts of a question, by part and by run."""
    topology = leaf_spine(4, 1, workers // 4)
    fabric, routes = EmulatedFabric(topology), Routes(topology)
    options = ControllerOptions(probe_period_ns=_NEVER_NS, solve_period_ns=0)
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
                taken = []
                for _ in range(RUNS):
                    await asking.stdout.readline()
                    idle, _ = await _spending(asyncio.sleep(_IDLE_S))
                    asking.stdin.write(b"\n")
                    busy, took_s = await _spending(asking.stdout.readline())
                    taken.append((busy - idle) * took_s / _STEPS)
                parts: dict[str, list[float]] = json.loads(await asking.stdout.readline())
                if await asking.wait() != 0:
                    raise RuntimeError("the workers of the benchmark have failed")
    return {**parts, "a question: the controller": taken}


async def _spending(until: Awaitable[object]) -> tuple[float, float]:
    """Processor time of this process until then, per second; and how many seconds that were."""
    began, began_s = time.process_time(), time.monotonic()
    await until
    took_s = time.monotonic() - began_s
    return (time.process_time() - began) / took_s, took_s


# --- the workers' process ---


def _request(address: str, workers: int) -> None:
    """Print a line before each run of questions, read one from the other side, print one at its end; then the
    figures.
    """
    rng = np.random.default_rng(1)
    with ControlClient(address) as client, closing(BatchSizeClient(address)) as questions:
        registration = client.register([f"h{host}" for host in range(1, workers + 1)])
        token, present = registration.seats[0].token, np.ones(workers, np.bool_)

        def question() -> None:
            reports = np.column_stack([rng.uniform(200, 1000, workers), np.full((workers, 2), [0.2, 0])])
            job, samples = registration.job, SAMPLES * workers
            questions.request(balance_request(job, samples, "analytic", reports, present, token=token)).wait()

        question()
        questioned = []
        for _ in range(RUNS):
            print(flush=True)  # the other side reads it
            sys.stdin.readline()
            questioned.append(_spent(question))
            print(flush=True)
    figures = {
        _PREDICTION: _predictions(),
        "a question: a worker's two sums": _sums(workers),
        "a question: the worker that asks": questioned,
    }
    print(json.dumps(figures), flush=True)


def _spent(work: Callable[[], None]) -> float:
    """Processor time of all threads of this process, for one of some."""
    began = time.process_time()
    for _ in range(_STEPS):
        work()
    return (time.process_time() - began) / _STEPS


def _predictions() -> list[float]:
    """Seconds per prediction and run, with a wandering free share of the processor."""
    rng, reporter, free = np.random.default_rng(2), SpeedReporter(), 1.0

    def predict() -> None:
        nonlocal free
        free = float(np.clip(free + rng.normal(0, 0.03), 0.2, 1.0))
        reporter.report(Readings(free, 0.5))
        reporter.observe(SAMPLES, SAMPLES / (1000 * free))

    for _ in range(_SEEN):
        predict()
    return [_spent(predict) for _ in range(RUNS)]


class _Given:
    """An answer that is there."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float, /) -> list[int]:
        return self._sizes


def _sums(workers: int) -> list[float]:
    """Seconds per sum and run, in a job of `workers` workers, one of which is this process."""
    port, answer = 20_000 + os.getpid() % 10_000, _Given([SAMPLES] * workers)
    plan = WorkerPlan(1, 1, 0, workers, ECHO_ADDRESS, 1, _SLOTS, _SLOTS // 2)
    with echoing(port), UdpWorker(WorkerCore(plan, PATIENT), WORKER_ADDRESS, port) as worker:
        query = LeaderQuery(Communicator(worker), lambda *_: answer, name="batch sizes")
        report = np.array([1000.0, 0.2, 0.0])

        def step() -> None:
            reports: NDArray[np.float64]
            reports, present = query.report(report).wait()
            query.send_request(reports, present)
            query.answer().wait()

        step()
        return [_spent(step) for _ in range(RUNS)]


if __name__ == "__main__":
    _request(sys.argv[1], int(sys.argv[2]))
