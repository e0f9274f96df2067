"""One rank of a training job as a process of its own: `python -m weir.experiments.backends.worker_process`.

It reads a `WorkerTask` from its standard input, trains over the control service, and writes a `WorkerReport` to its
standard output: JSON both.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from ...hosts import Communicator, HostError, Membership, UdpHost
from ...hosts.collectives.sharding import ShardedDriver
from ...hosts.drivers.client import PATIENT
from ...training.replicated import ReplicatedJob, digest
from ...training.workloads.digits import Digits, TrainingJob, TrainingOptions
from ..errors import ExperimentError
from ..script import ScriptOptions, ScriptWorkload


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Task of one rank."""

    control: str
    """Address of the control service."""
    seats: list[tuple[int, str]]
    """Number and token of each job that shares the gradients, in the order of the servers or stripes."""
    shares: list[int]
    """Proportions in which the shards divide the chunks."""
    rank: int
    workers: int
    seed: int
    training: TrainingOptions
    digits: str
    """File with the data, where the digits are trained."""
    script: ScriptOptions | None
    """Workload trained in place of the digits."""
    timeout_s: float
    """Time limit for joining, and for each step, in seconds."""

    def dump(self) -> str:
        """Return the task as JSON, for `load` in the process."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> WorkerTask:
        """Decode JSON of `dump`."""
        values = json.loads(text)
        seats = [(job, token) for job, token in values["seats"]]
        script = values["script"] and ScriptOptions(**values["script"])
        return cls(**{**values, "seats": seats, "training": TrainingOptions(**values["training"]), "script": script})

    def new_job(self) -> ReplicatedJob:
        """Make the training job that the task describes.

        Raises:
            ExperimentError: Its script cannot make it.
        """
        if self.script is not None:
            return ScriptWorkload(self.script, self.workers, self.seed)
        return TrainingJob(self.training, self.workers, self.seed, Digits.load(Path(self.digits)))


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Results of one rank; times are of the monotonic clock, which all processes of a machine share."""

    begun_ns: list[int]
    """When each step's gradient was handed over."""
    ended_ns: list[int]
    """When the sum of each step had arrived."""
    sums: list[str]
    """SHA-256 of each step's sum."""
    weights: str
    """SHA-256 of the final weights."""
    accuracy: float | None
    resends: int
    drops: dict[str, int]

    def dump(self) -> str:
        """Return the results as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> WorkerReport:
        """Decode JSON of `dump`."""
        return cls(**json.loads(text))


def train(task: WorkerTask) -> WorkerReport:
    """Train a job's worker to its end.

    Raises:
        HostError: The job cannot go on.
        ExperimentError: Its script cannot.
    """
    job = task.new_job()
    samples = job.samples(task.rank)
    begun, ended, sums = [], [], []
    with ExitStack() as stack:
        memberships = _join(task, stack)
        driver = ShardedDriver([membership.worker for membership in memberships], task.shares)
        communicator = Communicator(driver, timeout_s=task.timeout_s)
        for step in range(job.steps):
            gradient = job.gradient(task.rank, step)
            begun.append(time.monotonic_ns())
            total = communicator.allreduce_many({"gradient": gradient}, weight=samples)["gradient"]
            ended.append(time.monotonic_ns())
            sums.append(digest(total.array))
            job.apply_to(task.rank, total.mean())
        counters = [membership.counters for membership in memberships]
    drops: Counter[str] = Counter()
    for counter in counters:
        drops.update(counter.drops)
    return WorkerReport(
        begun_ns=begun,
        ended_ns=ended,
        sums=sums,
        weights=digest(job.weights(task.rank)),
        accuracy=job.accuracy(task.rank),
        resends=sum(counter.retransmitted for counter in counters),
        drops={reason: count for reason, count in drops.items() if count},
    )


def _join(task: WorkerTask, stack: ExitStack) -> list[Membership]:
    """Take the rank in all of the task's jobs, one after the other as all workers do, over the first one's socket."""
    memberships: list[Membership] = []
    host: UdpHost | None = None
    for number, token in task.seats:
        membership = Membership(task.control, number, token, timeout_s=task.timeout_s, host=host, options=PATIENT)
        memberships.append(stack.enter_context(membership))
        host = membership.worker.endpoint.host
    return memberships


def main() -> None:
    """Train one rank: read a `WorkerTask` from standard input, write a `WorkerReport` to standard output."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        report = train(WorkerTask.load(sys.stdin.read()))
    except (ExperimentError, HostError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    sys.stdout.write(report.dump())


if __name__ == "__main__":
    main()
