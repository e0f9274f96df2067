"""FlexRR: bounded staleness, and workers that take over work of slower ones inside an iteration.

Harlap et al., "Addressing the straggler problem for iterative convergent parallel ML" (SoCC 2016), reconstructed: its
constants are not published. `exchanges/work_stealing.py` has the messages. They do not cross the fabric; gradients and
weights do.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...hosts import Communicator
from ..errors import TrainingError
from ..exchanges.served import SERVER, WORKER, ParameterServer
from ..exchanges.work_stealing import SharingLimits, WorkSharing
from ..mode import ModeDescription, Replicas, ServedMode
from ..processes import ComputePhase, InProgress, Process, Wait, Wakeup
from ..rules import Staleness
from ..samples import Rows

_LONGEST_DELAY_MS: Final = 1e6


@dataclass(frozen=True)
class WorkStealing(ServedMode):
    """A worker that is far enough ahead computes rows of a slower one; beyond the staleness it waits."""

    name: str = "flexrr"
    staleness: int = 1
    """s: iterations that a worker may be ahead of the slowest one."""
    delay_ms: float = 0.0
    """Time of a message between workers; 0: messages are free."""
    helpers: int = 4
    """Workers that may help each worker."""
    threshold: float = 0.2
    """Share of an iteration by which a helper is ahead."""
    first: float = 0.025
    """Share of an iteration that a helper is given first."""
    slice: float = 0.05
    """Share of an iteration that it is given next, and after which workers look at messages."""

    def __post_init__(self) -> None:
        if not (0 <= self.delay_ms <= _LONGEST_DELAY_MS and self.helpers >= 1 and 0 < self.threshold < math.inf):
            raise TrainingError(
                f"delay_ms {self.delay_ms}, helpers {self.helpers} and threshold {self.threshold}: allowed are "
                f"0 <= delay_ms <= {_LONGEST_DELAY_MS:g}, helpers >= 1, 0 < threshold < inf",
                value=(self.delay_ms, self.helpers, self.threshold),
            )
        if not 0 < self.first <= self.slice <= 1:
            raise TrainingError(
                f"first {self.first} and slice {self.slice}: allowed are 0 < first <= slice <= 1",
                value=(self.first, self.slice),
            )

    @property
    def detail(self) -> str:
        return f"messages of {self.delay_ms:g} ms" if self.delay_ms else "free messages"

    def check(self, workers: int) -> None:
        Staleness(workers, self.staleness)

    def updates_per_step(self, workers: int) -> int:
        return workers

    def worker(self, job: Replicas, rank: int, communicator: Communicator) -> Process:
        return _Helper(job, rank, communicator, self).run()

    def server(self, job: Replicas) -> ParameterServer:
        return ParameterServer(job, Staleness(job.plan.workers, self.staleness))


Waiting = Generator[ComputePhase | Wait | InProgress, Wakeup, int]
"""A part of a worker's process; returns the time in ns."""


class _Helper:
    """One worker: its own rows, slices of others, and the exchange with the server."""

    def __init__(self, job: Replicas, rank: int, communicator: Communicator, mode: WorkStealing) -> None:
        limits = SharingLimits(mode.helpers, mode.threshold, mode.first, mode.slice)
        self._job = job
        self._rank = rank
        self._communicator = communicator
        self._delay_ns = round(1e6 * mode.delay_ms)
        self._work = WorkSharing(rank, job.plan.workers, limits)
        self._step = 0
        self._helped = np.zeros_like(job.weights[rank])
        """Sum over the rows of others that are computed and not sent, of their gradients."""
        self._helped_rows = 0

    def run(self) -> Process:
        """Compute, send the sum of gradients, and help until the weights are here."""
        job, rank, size = self._job, self._rank, self._job.plan.equal_sizes()[self._rank]
        samples, workload = job.samples(rank), job.workload
        now_ns = (yield Wait(lambda: 0)).now_ns
        while True:
            iteration = job.curve.begin(rank, self._step, size, now_ns)
            self._work.begin(self._step, samples.rows(self._step * size, size))
            iteration.computed_ns = yield from self._computed(now_ns)
            own = np.concatenate(self._work.kept)
            gradient = workload.gradient(job.weights[rank], workload.fetch(own))
            iteration.samples = len(own) + self._helped_rows
            update = (np.float32(len(own)) * gradient + self._helped) / np.float32(iteration.samples)
            self._helped, self._helped_rows = np.zeros_like(update), 0
            yield self._communicator.broadcast_async(update, WORKER, name="update")
            given = self._communicator.broadcast_async(update, SERVER, name="weights")
            yield from self._helping(given)
            job.weights[rank], now_ns = yield given
            iteration.ended_ns = now_ns
            self._step += 1

    def _computed(self, now_ns: int) -> Waiting:
        """Compute the iteration's rows, except those that helpers have started; slices of others come first."""
        settled_ns = now_ns
        while True:
            self._exchange(now_ns)
            if (taken := self._work.taken_slice()) is not None:
                now_ns = yield from self._help(taken.rows, now_ns)
            elif count := self._work.unit() or self._work.take_back():
                self._exchange(now_ns)
                settled_ns = now_ns + 2 * self._delay_ns  # a note of a start may be on its way until then
                now_ns = (yield ComputePhase(self._rank, self._step, count, lambda: None)).now_ns
            else:
                break
        now_ns = (yield Wait(lambda: settled_ns)).now_ns
        self._exchange(now_ns)
        self._work.settle()
        return now_ns

    def _helping(self, given: InProgress) -> Generator[ComputePhase | Wait | InProgress, Wakeup, None]:
        """Help others until the server's weights are here."""
        mail, rank = self._job.mail, self._rank
        while not given.done():
            now_ns = (yield Wait(lambda: 0 if given.done() else mail.due_ns(rank))).now_ns
            self._exchange(now_ns)
            if not given.done() and (taken := self._work.taken_slice()) is not None:
                yield from self._help(taken.rows, now_ns)

    def _help(self, rows: Rows, now_ns: int) -> Waiting:
        """Compute rows of another worker with this worker's weights."""
        self._exchange(now_ns)
        gradient, now_ns = yield self._job.computing(self._rank, self._step, self._job.weights[self._rank], rows)
        self._helped += np.float32(len(rows)) * gradient
        self._helped_rows += len(rows)
        return now_ns

    def _exchange(self, now_ns: int) -> None:
        """Receive what has arrived, offer help, and send what is to be sent."""
        mail, work = self._job.mail, self._work
        for message in mail.received(self._rank, now_ns):
            work.receive(message)
        work.offer_help()
        for rank, message in work.outbox:
            mail.send(rank, message, now_ns + self._delay_ns)
        work.outbox.clear()


DESCRIPTION: Final = ModeDescription(
    "flexrr",
    "FlexRR",
    "gradients to the server, weights back; workers that are ahead compute rows of slower ones",
    WorkStealing,
)
