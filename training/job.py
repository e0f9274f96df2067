"""A training job in a synchronisation mode: its workers' processes, and those of its parameter server.

::

    summed modes:  every worker ──all-reduce of all──▶ mean gradient, or mean weights
    the others:    a worker ──update──▶ server ──weights──▶ the worker, each over a job of these two; when the
                   server takes and gives is the rule's (`rules`)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..hosts import Communicator
from ..hosts.collectives.leader_query import PATIENCE_S, Answer, LeaderQuery
from .batching.analytic import equal_shares
from .batching.manager import Turns
from .course import Course
from .errors import TrainingError
from .machines import Machine
from .modes import Mode
from .optimiser import Optimiser
from .processes import Compute, Pending, Process, Resumed, Until
from .rules import Rule, Taken
from .samples import Rows, Samples

Floats = NDArray[np.float32]

WORKER: Final = 0
"""Rank of the worker in its job with the server."""
SERVER: Final = 1
"""Rank of the server there."""


class Workload(Protocol):
    """What is trained: weights as one flat float32 array, data as numbered rows."""

    @property
    def parameters(self) -> int:
        """Length of the weights."""

    @property
    def rows(self) -> int:
        """Samples that are trained with."""

    def initial(self) -> Floats:
        """The weights at the start, the same at every worker."""

    def gradient(self, weights: Floats, rows: Rows) -> Floats:
        """The mean gradient over some rows."""

    def loss(self, weights: Floats) -> float:
        """On data that is not trained with."""

    def accuracy(self, weights: Floats) -> float:
        """Share of that data which the weights get right, 0…1; a problem without right and wrong says how."""


class BatchSizeService(Protocol):
    """Who decides the batch sizes: the controller, or what stands for it."""

    def ask(self, reports: NDArray[np.float64], present: NDArray[np.bool_]) -> Answer:
        """Everyone's report (`SpeedReporter`) by rank, and whose are there; the answer is everyone's sizes in the next
        step.
        """


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What all processes of a job know beforehand."""

    mode: Mode
    workers: int
    batch: int
    """Samples of a step, of all workers together."""
    learning_rate: float
    momentum: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= self.batch:
            raise TrainingError(
                f"a batch of {self.batch} samples for {self.workers} workers; there is a worker at least, and a sample "
                "for each"
            )

    def equal_sizes(self) -> list[int]:
        """The batch shared out evenly, as far as that goes."""
        return equal_shares(self.batch, self.workers)


class Training:
    """The processes of one job, and what they do."""

    def __init__(self, plan: TrainingPlan, workload: Workload, course: Course, machines: Sequence[Machine]) -> None:
        """`machines` are the workers', by rank."""
        if len(machines) != plan.workers:
            raise TrainingError(f"{len(machines)} machines for {plan.workers} workers; each has one")
        self._plan = plan
        self._workload = workload
        self._course = course
        self._machines = machines
        self.weights: list[Floats] = [workload.initial() for _ in range(plan.workers)]
        """Each worker's, by rank, as it had them last."""

    def summed(self, everyone: Sequence[Communicator], sizes: BatchSizeService) -> list[Process]:
        """The workers' processes of a summed mode; they speak by the communicators, by rank, and ask for `sizes` where
        the mode has them follow speeds.
        """
        if self._plan.mode.name == "local":
            return [self._averaging_worker(rank, communicator) for rank, communicator in enumerate(everyone)]
        return [self._summing_worker(rank, communicator, sizes) for rank, communicator in enumerate(everyone)]

    def served(self, pairs: Sequence[tuple[Communicator, Communicator]]) -> list[Process]:
        """The processes of the other modes: each worker's, and for each one of the server's.

        `pairs` has for each rank the worker's and the server's end of their job.
        """
        server = ParameterServer(self._plan, self._workload, self._course)
        processes = []
        for rank, (worker_end, server_end) in enumerate(pairs):
            processes += [self._served_worker(rank, worker_end), server.process(rank, server_end)]
        return processes

    def cost_ns(self, compute: Compute, now_ns: int) -> int:
        """How long a computation takes that begins now, as `Processes` asks."""
        return self._machines[compute.worker].compute_ns(compute.samples, compute.iteration, now_ns)

    # --- workers ---

    def _optimiser(self) -> Optimiser:
        return Optimiser(self._workload.parameters, self._plan.learning_rate, self._plan.momentum)

    def _summing_worker(self, rank: int, communicator: Communicator, service: BatchSizeService) -> Process:
        """Every worker's gradient counts by its samples; everyone makes the same step with the mean."""
        samples, optimiser = Samples(self._workload.rows, (self._plan.seed, 0)), self._optimiser()
        machine, sizes = self._machines[rank], self._plan.equal_sizes()
        reporter = self._plan.mode.reporter()
        query, turns = LeaderQuery(communicator, service.ask, name="batch sizes"), Turns(self._plan.mode.sizes)
        now_ns = (yield Until(lambda: 0)).now_ns
        step = 0
        while True:
            if reporter is not None and step > 0:
                report = reporter.report(machine.readings(now_ns))
                if turns.due():
                    found, now_ns = yield from _asked(query, report)
                    turns.decided(changed=found not in (None, sizes))
                    sizes = found or sizes
            weights, rows = self.weights[rank], samples.share(step, sizes, rank)
            iteration = self._course.begin(rank, step, len(rows), now_ns)
            gradient, iteration.computed_ns = yield self._computing(rank, step, weights, rows)
            if reporter is not None:
                most = machine.memory_samples
                lacking = most if most is not None and len(rows) > most else None
                reporter.observe(len(rows), (iteration.computed_ns - now_ns) / 1e9, lacking)
            mean, now_ns = yield communicator.allreduce_async(gradient, op="mean", weight=len(rows), name="gradient")
            self.weights[rank] = optimiser.step(weights, mean)
            iteration.taken_ns = iteration.given_ns = iteration.ended_ns = now_ns
            if rank == 0:
                self._course.updated(self.weights[0], self._plan.batch, now_ns)
            step += 1

    def _averaging_worker(self, rank: int, communicator: Communicator) -> Process:
        """Local SGD: some steps of one's own, then everyone's weights become their mean."""
        mode, size = self._plan.mode, self._plan.equal_sizes()[rank]
        samples, optimiser = Samples(self._workload.rows, (self._plan.seed, 1 + rank)), self._optimiser()
        now_ns = (yield Until(lambda: 0)).now_ns
        clock = 0
        while True:
            iteration = self._course.begin(rank, clock, size * mode.local_steps, now_ns)
            for step in range(clock * mode.local_steps, (clock + 1) * mode.local_steps):
                weights, rows = self.weights[rank], samples.rows(step * size, size)
                gradient, iteration.computed_ns = yield self._computing(rank, step, weights, rows)
                self.weights[rank] = optimiser.step(weights, gradient)
            mean, now_ns = yield communicator.allreduce_async(self.weights[rank], op="mean", name="weights")
            self.weights[rank] = mean
            iteration.taken_ns = iteration.given_ns = iteration.ended_ns = now_ns
            if rank == 0:
                self._course.updated(mean, self._plan.batch * mode.local_steps, now_ns)
            clock += 1

    def _served_worker(self, rank: int, communicator: Communicator) -> Process:
        """Sends its gradient, or with elastic averaging its weights; goes on with what the server gives."""
        mode, size = self._plan.mode, self._plan.equal_sizes()[rank]
        samples, optimiser = Samples(self._workload.rows, (self._plan.seed, 1 + rank)), self._optimiser()
        elastic = mode.name == "easgd"
        now_ns = (yield Until(lambda: 0)).now_ns
        clock = 0
        while True:
            iteration = self._course.begin(rank, clock, size * mode.local_steps, now_ns)
            update = self.weights[rank]
            for step in range(clock * mode.local_steps, (clock + 1) * mode.local_steps):
                weights, rows = self.weights[rank], samples.rows(step * size, size)
                update, iteration.computed_ns = yield self._computing(rank, step, weights, rows)
                if elastic:
                    self.weights[rank] = update = optimiser.step(weights, update)
            yield communicator.broadcast_async(update, WORKER, name="update")
            given, now_ns = yield communicator.broadcast_async(update, SERVER, name="weights")
            self.weights[rank] = update - np.float32(mode.pull) * (update - given) if elastic else given
            iteration.ended_ns = now_ns
            clock += 1

    def _computing(self, rank: int, step: int, weights: Floats, rows: Rows) -> Compute:
        return Compute(rank, step, len(rows), lambda: self._workload.gradient(weights, rows))


def _asked(
    query: LeaderQuery, report: NDArray[np.float64]
) -> Generator[Until | Pending, Resumed, tuple[list[int] | None, int]]:
    """One worker's part in a question of all: the answer, None where there is none now, and when it is there."""
    (reports, present), now_ns = yield query.report(report)
    if (asked := query.ask(reports, present)) is not None:
        late_ns = now_ns + round(PATIENCE_S * 1e9)
        yield Until(lambda: 0 if asked.done() else late_ns)
    found, now_ns = yield query.answer()
    return found, now_ns


class ParameterServer:
    """Holds the weights, and goes by the mode's rule. It has a process for each worker."""

    def __init__(self, plan: TrainingPlan, workload: Workload, course: Course) -> None:
        self._plan = plan
        self._course = course
        self._rule: Rule = plan.mode.rule(plan.workers)
        self._weights = workload.initial()
        self._optimiser = Optimiser(workload.parameters, plan.learning_rate, plan.momentum)
        self._sizes = plan.equal_sizes()
        self._kept: list[tuple[Floats, int]] = []
        """Updates of the step that is not whole, with their samples."""

    def process(self, worker: int, communicator: Communicator) -> Process:
        """Takes one worker's updates and gives it weights, when the rule says so."""
        rule, nothing = self._rule, np.zeros_like(self._weights)
        while True:
            yield Until(lambda: rule.takes_ns(worker))
            update, now_ns = yield communicator.broadcast_async(nothing, WORKER, name="update")
            iteration = self._course.current[worker]
            iteration.taken_ns = now_ns
            centre = self._weights
            self._take(worker, update, now_ns)
            iteration.given_ns = (yield Until(lambda: 0 if rule.gives(worker) else None)).now_ns
            rule.give(worker)
            given = centre if self._plan.mode.name == "easgd" else self._weights
            yield communicator.broadcast_async(given, SERVER, name="weights")

    def _take(self, worker: int, update: Floats, now_ns: int) -> None:
        samples = self._sizes[worker]
        match self._rule.take(worker, now_ns):
            case Taken.DROPPED:
                self._course.dropped += 1
            case Taken.KEPT:
                self._kept.append((update, samples))
            case Taken.COMPLETES if self._plan.mode.name == "easgd":
                self._weights = self._weights + np.float32(self._plan.mode.push) * (update - self._weights)
                self._course.updated(self._weights, samples * self._plan.mode.local_steps, now_ns)
            case Taken.COMPLETES:
                updates = [*self._kept, (update, samples)]
                self._kept = []
                counted = sum(size for _, size in updates)
                mean = sum((np.float32(size / counted) * each for each, size in updates), np.zeros_like(update))
                share = 1.0 if self._plan.mode.name == "backup" else counted / self._plan.batch
                self._weights = self._optimiser.step(self._weights, mean, share)
                self._course.updated(self._weights, counted, now_ns)
