"""Competing jobs in virtual time: each sums as often as it can, from its admission by the controller.

start ─▶ admitted ─▶ its hosts have their plans ─▶ sum, check, sum, check … ─▶ stop: leaves after its last sum
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ...controller.controller import Controller, Message
from ...controller.planning.plan import lanes_of
from ...hosts.congestion import FixedWindow
from ...hosts.numerics.tensors import Tensor, reference_sum
from ...wire.control import JobReport, WorkerPlan
from ..config.jobs import OtherJobConfig
from ..errors import ExperimentError
from .admission import Admission
from .agent_registry import AgentRegistry
from .agents import VirtualWorker
from .round_count import Rounds
from .virtual_control import VirtualControl


class OtherJob:
    """One of them."""

    def __init__(self, config: OtherJobConfig, number: int, values: int, earliest_ns: int) -> None:
        """Create a job that has not come yet.

        Args:
            config: The job in the run file.
            number: Number of the job on the wire.
            values: Numbers of each of its sums.
            earliest_ns: Virtual time before which it does not come, in ns.
        """
        self.config = config
        self.number = number
        self.values = values
        self.due_ns: int | None = max(config.start, earliest_ns)
        """When the controller is to be asked to take it in, and later to let it go; None: neither is to come."""
        self.workers: list[VirtualWorker] = []
        """Those that have their plans."""
        self.sums = 0
        """Number of complete sums."""
        self._handles: list[int] = []
        self._begun_ns = self._summed_ns = 0
        """Start of the sum under way, and duration of the last complete one."""
        self._sum: bytes = b""

    @property
    def idle(self) -> bool:
        """Return whether all of its workers are present, and have all their requested sums."""
        return len(self.workers) == len(self.config.workers) and all(worker.core.idle for worker in self.workers)

    def go_on(self, now_ns: int) -> bool:
        """Take complete sums and request the next ones.

        Returns:
            False, without new requests, if it is time to leave.

        Raises:
            ExperimentError: a sum is wrong.
        """
        gradients = [np.full(self.values, 1 + worker.rank, np.float32) for worker in self.workers]
        lanes = self.workers[0].lanes
        if not self._sum:
            self._sum = reference_sum(gradients, lanes=lanes, name="gradient").tobytes()
        for worker, handle in zip(self.workers, self._handles, strict=False):
            if worker.wait(handle, 0).array.tobytes() != self._sum:
                raise ExperimentError(f"job {self.number}, sum {self.sums}: {worker.name} got another one than NumPy's")
        self.sums += bool(self._handles)
        self._summed_ns, self._begun_ns = now_ns - self._begun_ns if self._handles else 0, now_ns
        self._handles = []
        if self.sums == self.config.sums or (self.config.stop is not None and now_ns >= self.config.stop):
            return False
        self._handles = [
            worker.submit(Tensor(gradient, workers=worker.workers, lanes=lanes, name="gradient"))
            for worker, gradient in zip(self.workers, gradients, strict=True)
        ]
        return True

    def report(self) -> JobReport:
        """Progress as a worker's program reports it."""
        left = None if self.config.sums is None else self.config.sums - self.sums
        name = self.config.search or f"job {self.number}"
        return JobReport(
            step=self.sums, steps_left=left, stage=f"{name}/1", exposed_ns=self._summed_ns, bytes=4 * self.values
        )


class OtherJobs:
    """All competing jobs. They start after the trained job has begun."""

    def __init__(
        self,
        controller: Controller,
        control: VirtualControl,
        admission: Admission,
        agents: AgentRegistry,
        latency_ns: int,
    ) -> None:
        """Start without jobs.

        Args:
            controller: The fabric's controller.
            control: Its messages to hosts.
            admission: Entry of jobs; it has the progress of every job.
            agents: The hosts' cores.
            latency_ns: Delay of a message between a host and the controller, in ns.
        """
        self.progress = admission.progress
        self._jobs: list[OtherJob] = []
        self._controller = controller
        self._control = control
        self._admission = admission
        self._agents = agents
        self._latency_ns = latency_ns

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __iter__(self) -> Iterator[OtherJob]:
        return iter(self._jobs)

    def add(self, job: OtherJob) -> None:
        """Schedule a job for its arrival time."""
        self._jobs.append(job)

    @property
    def due_ns(self) -> list[int]:
        """Times at which some of them come or go."""
        return [job.due_ns for job in self._jobs if job.due_ns is not None]

    def asking(self, now_ns: int) -> list[OtherJob]:
        """Return the jobs that come or go now."""
        return [job for job in self._jobs if job.due_ns is not None and job.due_ns <= now_ns]

    def workers(self, among: Container[int] | None = None) -> list[VirtualWorker]:
        """Return the workers of the jobs with these numbers; of all jobs for None."""
        return [worker for job in self._jobs if among is None or job.number in among for worker in job.workers]

    def go_on(self, known: Container[int], trained: Sequence[VirtualWorker], now_ns: int) -> int:
        """Let jobs with complete sums start the next ones, and record the progress of all jobs.

        Args:
            known: Numbers of the jobs that the controller has.
            trained: Workers of the trained job.
            now_ns: Virtual time, in ns.

        Returns:
            The time of the next call at the latest, in ns.
        """
        for job in self._jobs:
            if job.number not in known or job.due_ns is not None or not job.idle:
                continue
            if not job.go_on(now_ns):
                job.due_ns = now_ns + self._latency_ns
            self._control.report(job.number, job.report())
        if now_ns >= self.progress.next_ns:
            complete: dict[int, int] = {}
            for worker in [*trained, *self.workers(known)]:
                number, rounds = worker.core.plan.job, worker.core.rounds_complete
                complete[number] = min(rounds, complete.get(number, rounds))
            self.progress.update(complete, now_ns)
        return min([self.progress.next_ns, *self.due_ns])

    async def admit_or_finish(self, job: OtherJob, now_ns: int) -> None:
        """Have the controller admit an arriving job, or finish a leaving one."""
        job.due_ns = None
        if not job.workers:
            rounds = Rounds.of(job.values, lanes_of(self._controller.topology), job.config.window)
            messages = await self._admission.admit(
                job.number, job.config, job.config.server, rounds, now_ns, self._latency_ns
            )
            for message in messages:
                self._control.after_latency(partial(self._start_part, job, message))
            return
        await self._controller.finish(job.number, now_ns)
        self.progress.end(job.number, now_ns)
        self._agents.stop(job.number)

    def _start_part(self, job: OtherJob, message: Message) -> None:
        window, law = job.config.window, None
        if not job.config.obeys and isinstance(message.content, WorkerPlan):
            law = partial(FixedWindow, window)
            message = replace(message, content=replace(message.content, window=window))
        worker = self._admission.start(job.number, message, window, law)
        job.workers += [] if worker is None else [worker]
