"""Plans of compression, predicted by fitted costs and measured with all packets in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.hosts import Communicator, Compression
from weir.hosts.compression.selective import CommunicationCosts, Line, SummationChoice, choices, fitted, plan
from weir.hosts.compression.task_graph import COMPUTE, NETWORK, Task, graph, makespan_ms, virtual_spans
from weir.tests.paths import ROOT
from weir.training import Processes
from weir.training.processes import Process, Wait

WORKERS = 4
SIZES = [600, 3_000, 9_000, 24_000]
SAMPLES = (256, 2_048, 16_384)
"""Sizes at which costs are measured."""
BITS = 8


def run_file() -> RunConfig:
    config = RunConfig.load(ROOT / "experiments" / "papers" / "compression.yaml")
    fabric = {**config.fabric, "generate": {**config.fabric["generate"], "rate": "200Mbit"}}
    job = {**config.model_dump()["job"], "workers": ["h1", "h2", "h6", "h7"]}
    return config.replaced("test", fabric=fabric, job=job)


class Schedule:
    """One worker's two queues, with the clock of the run."""

    def __init__(self, tasks: Sequence[Task], sizes: Sequence[int], parts: Sequence[int], member: Communicator) -> None:
        self._tasks, self._member = tasks, member
        self._lengths = [-(-size // count) for size, count in zip(sizes, parts, strict=True)]
        self._coded = {task.gradient for task in tasks if task.kind == "encode"}
        self.ended_ns = [-1] * len(tasks)

    def _ready(self, place: int) -> bool:
        return all(self.ended_ns[earlier] >= 0 for earlier in self._tasks[place].after)

    def _due_ns(self, places: Sequence[int]) -> int | None:
        """Time at which one of the tasks can begin: now, or as yet unknown."""
        return 0 if any(map(self._ready, places)) else None

    def queue(self, name: str) -> Process:
        left = [place for place, task in enumerate(self._tasks) if task.queue == name]
        yield Wait(lambda: 0)
        while left:
            usual = left if name == COMPUTE else left[:1]
            _, now_ns = yield Wait(partial(self._due_ns, tuple(usual)))
            place = next(filter(self._ready, usual))
            left.remove(place)
            task = self._tasks[place]
            if name == COMPUTE:
                end_ns = now_ns + round(1e6 * task.time_ms)
                _, now_ns = yield Wait(partial(int, end_ns))
            else:
                values = np.ones(self._lengths[task.gradient], np.float32)
                compression = Compression.packed(BITS, feedback=False) if task.gradient in self._coded else None
                _, now_ns = yield self._member.allreduce_async(values, name=task.name, compression=compression)
            self.ended_ns[place] = now_ns


async def measured_ms(
    cluster: Cluster, taken: Sequence[SummationChoice], costs: CommunicationCosts, sizes: Sequence[int]
) -> float:
    """Time of a plan's schedule, whose sums are packets and whose encoding is the predicted one."""
    tasks = graph(taken, costs, WORKERS, sizes)
    parts = [choice.parts for choice in taken]
    schedules = [Schedule(tasks, sizes, parts, member) for member in cluster.job.communicators]
    started_ns = cluster.now_ns
    queues = [schedule.queue(name) for schedule in schedules for name in (COMPUTE, NETWORK)]
    await cluster.play(Processes(queues, lambda *_: 0), lambda: False)
    return 1e-6 * (max(max(schedule.ended_ns) for schedule in schedules) - started_ns)


async def found() -> list[tuple[float, float]]:
    """Predicted and measured times in ms: of the plan of all gradients, and of single ones in several ways."""
    config = run_file()
    free = CommunicationCosts(Line(0, 0), Line(0, 0), Line(0, 0), 0.25, hop=Line(0, 0), switch_ratio=0.25)
    async with Cluster(config, config.strategies[-1], values=max(SIZES)) as cluster:
        raw = [await measured_ms(cluster, [SummationChoice("switch", False, 1, 0)], free, [size]) for size in SAMPLES]
        costs = CommunicationCosts(
            Line(30e-6, 0.02), Line(40e-6, 0.02), Line(0, 0), 0.25, hop=fitted(SAMPLES, raw), switch_ratio=0.25
        )
        planned = plan(costs, WORKERS, SIZES)
        pairs = [
            (
                makespan_ms(virtual_spans(graph(planned, costs, WORKERS, SIZES))),
                await measured_ms(cluster, planned, costs, SIZES),
            )
        ]
        for size in SIZES:
            for choice in choices(costs, WORKERS, size):
                if choice.parts in (1, 3):
                    pairs.append((choice.time_ms, await measured_ms(cluster, [choice], costs, [size])))
    return pairs


def test_predictions_are_near_what_packets_take() -> None:
    pairs = asyncio.run(found())
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs]
    assert float(np.median(errors)) <= 0.05
    assert max(errors) <= 0.10
