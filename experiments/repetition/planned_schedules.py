"""Plans of compression in the packet fabric: schedules of tasks whose sums are packets, in virtual time.

Every worker has the two queues of `hosts.compression.task_graph`. A sum takes as long as its packets; encoding and
decoding take their predicted times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...hosts import Communicator, Compression
from ...hosts.compression.selective import CommunicationCosts, Line, SummationChoice, fitted
from ...hosts.compression.task_graph import COMPUTE, NETWORK, Task, graph
from ...training import Processes
from ...training.processes import Process, Wait
from ..backends.virtual_time import Cluster
from .paper import Quantity

BITS = 8
"""Bits of a packed number's field."""
SAMPLES = (256, 2_048, 16_384)
"""Sizes at which the costs of sums are measured."""
SUM_TIME = Quantity("synchronisation of all gradients", "ms")
PREDICTION_ERROR = Quantity("error of the predicted time", "%", compared=False)


class WorkerSchedule:
    """One worker's two queues, with the clock of the run."""

    def __init__(self, tasks: Sequence[Task], sizes: Sequence[int], parts: Sequence[int], member: Communicator) -> None:
        """Begin nothing yet.

        Args:
            tasks: The graph, whose sums are by the switches.
            sizes: Numbers of each gradient.
            parts: Number of parts of each gradient.
            member: The worker's communicator.
        """
        self._tasks, self._member = tasks, member
        self._lengths = [-(-size // count) for size, count in zip(sizes, parts, strict=True)]
        self._coded = {task.gradient for task in tasks if task.kind == "encode"}
        self.ended_ns = [-1] * len(tasks)
        """Times at which the tasks have ended; −1 before."""

    def _ready(self, place: int) -> bool:
        return all(self.ended_ns[earlier] >= 0 for earlier in self._tasks[place].after)

    def _due_ns(self, places: Sequence[int]) -> int | None:
        """Time at which one of the tasks can begin: now, or as yet unknown."""
        return 0 if any(map(self._ready, places)) else None

    def queue(self, name: str) -> Process:
        """Return the process of a queue: COMPUTE or NETWORK."""
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


async def packet_time_ms(
    cluster: Cluster, taken: Sequence[SummationChoice], costs: CommunicationCosts, sizes: Sequence[int]
) -> float:
    """Return the time of a plan's schedule, whose sums are packets and whose encoding is the predicted one.

    Args:
        cluster: The entered cluster, whose job's workers sum.
        taken: Choice of each gradient, by the switches.
        costs: Costs, of which those of encoding and decoding count.
        sizes: Numbers of each gradient.
    """
    members = cluster.job.communicators
    tasks = graph(taken, costs, len(members), sizes)
    parts = [choice.parts for choice in taken]
    schedules = [WorkerSchedule(tasks, sizes, parts, member) for member in members]
    started_ns = cluster.now_ns
    queues = [schedule.queue(name) for schedule in schedules for name in (COMPUTE, NETWORK)]
    await cluster.play(Processes(queues, lambda *_: 0), lambda: False)
    return 1e-6 * (max(max(schedule.ended_ns) for schedule in schedules) - started_ns)


async def packet_sum_costs(cluster: Cluster) -> Line:
    """Return the cost of a raw sum, fitted to the times of packets."""
    free = CommunicationCosts(Line(0, 0), Line(0, 0), Line(0, 0), 1.0, hop=Line(0, 0))
    raw = [await packet_time_ms(cluster, [SummationChoice("switch", False, 1, 0)], free, [size]) for size in SAMPLES]
    return fitted(SAMPLES, raw)
