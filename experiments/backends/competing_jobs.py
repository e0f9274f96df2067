"""Competing jobs in virtual time: each sums as often as it can, from its admission by the controller.

    start ─▶ admitted ─▶ its hosts have their plans ─▶ sum, check, sum, check … ─▶ stop: leaves after its last sum

`Progress` records each job's progress over time.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

import numpy as np

from ...controller.planning.plan import JobPlan
from ...hosts.numerics.tensors import Tensor, reference_sum
from ..config.jobs import OtherJobConfig
from ..errors import ExperimentError
from ..records.record import JobTrace
from .agents import VirtualWorker
from .round_count import Rounds

PROGRESS_SAMPLE_NS: Final = 100_000


class OtherJob:
    """One of them."""

    def __init__(self, config: OtherJobConfig, number: int, values: int, earliest_ns: int) -> None:
        """`number` is the job's on the wire; it does not come before `earliest_ns`."""
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
        self._handles = []
        if self.config.stop is not None and now_ns >= self.config.stop:
            return False
        self._handles = [
            worker.submit(Tensor(gradient, workers=worker.workers, lanes=lanes, name="gradient"))
            for worker, gradient in zip(self.workers, gradients, strict=True)
        ]
        return True


class Progress:
    """Chunks that each job of the run has summed at its slowest worker, over time."""

    def __init__(self) -> None:
        self.next_ns = 0
        """When to look again."""
        self._rounds: dict[int, Rounds] = {}
        self._traces: dict[int, JobTrace] = {}

    @property
    def traces(self) -> list[JobTrace]:
        """One for each job that was taken in, in that order."""
        return list(self._traces.values())

    def begin(self, plan: JobPlan, rounds: Rounds, turn_ns: int, now_ns: int, latency_ns: int) -> None:
        """Record the admission of a job.

        `turn_ns` is the time of a packet of every stream on their shared link (`JobTrace.turn_ns`); the job's hosts
        receive the plan after `latency_ns`.
        """
        number = plan.spec.job
        self._rounds[number] = rounds
        self._traces[number] = JobTrace(
            job=number,
            workers=len(plan.spec.workers),
            round_trip_ns=plan.round_trip_ns,
            turn_ns=turn_ns,
            joined_ns=now_ns,
            sends_ns=now_ns + latency_ns + plan.pacing.hold_ns,
            time_ns=[],
            chunks=[],
        )

    def end(self, job: int, now_ns: int) -> None:
        """A job has left."""
        self._traces[job].left_ns = now_ns

    def look(self, complete: Mapping[int, int], now_ns: int) -> None:
        """Record the number of complete rounds of each job."""
        self.next_ns = now_ns + PROGRESS_SAMPLE_NS
        for job, rounds in complete.items():
            trace = self._traces[job]
            trace.time_ns.append(now_ns)
            trace.chunks.append(self._rounds[job].chunks_in(rounds))
            trace.rounds.append(rounds)


class OtherJobs:
    """All competing jobs, and the progress of every job of the run. They start after the trained job has begun."""

    def __init__(self, latency_ns: int) -> None:
        """A job that wants to leave asks the controller after `latency_ns`."""
        self.progress = Progress()
        self._jobs: list[OtherJob] = []
        self._latency_ns = latency_ns

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, job: OtherJob) -> None:
        """It comes when it is due."""
        self._jobs.append(job)

    @property
    def due_ns(self) -> list[int]:
        """When some of them are to come or to go."""
        return [job.due_ns for job in self._jobs if job.due_ns is not None]

    def asking(self, now_ns: int) -> list[OtherJob]:
        """Those that are to come or to go now."""
        return [job for job in self._jobs if job.due_ns is not None and job.due_ns <= now_ns]

    def workers(self, among: Container[int] | None = None) -> list[VirtualWorker]:
        """Workers of the jobs with these numbers; of all jobs for None."""
        return [worker for job in self._jobs if among is None or job.number in among for worker in job.workers]

    def go_on(self, known: Container[int], trained: Sequence[VirtualWorker], now_ns: int) -> int:
        """Let those whose sums are there go on, of the jobs that the controller knows by these numbers, and note how
        far all are, the trained job's workers among them; when to look again.
        """
        for job in self._jobs:
            if job.number not in known or job.due_ns is not None or not job.idle:
                continue
            if not job.go_on(now_ns):
                job.due_ns = now_ns + self._latency_ns
        if now_ns >= self.progress.next_ns:
            complete: dict[int, int] = {}
            for worker in [*trained, *self.workers(known)]:
                number, rounds = worker.core.plan.job, worker.core.rounds_complete
                complete[number] = min(rounds, complete.get(number, rounds))
            self.progress.look(complete, now_ns)
        return min([self.progress.next_ns, *self.due_ns])
