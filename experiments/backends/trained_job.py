"""The trained job of a run in virtual time: its shards, workers and sums.

::

    tensors, one per worker ─▶ ShardedDriver ─┬─▶ job 1: workers, root 1
                                              └─▶ job 2: workers, root 2   … one job per shard
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...controller.controller import Controller
from ...controller.placement import Problem
from ...controller.placement.model.loads import LinkLoad
from ...controller.planning.completion import Step, expected_step
from ...controller.planning.plan import JobPlan, lanes_of
from ...hosts.collectives.communicator import Communicator
from ...hosts.collectives.sharding import ShardedDriver
from ...hosts.numerics.tensors import Reduced, Tensor
from ...topologies import Endpoint, Routes
from ...training.workload import Floats
from ..config.jobs import JobConfig, Participants
from .agents import VirtualWorker
from .round_count import Rounds
from .throughput_bound import SumTime

FIRST_JOB: Final = 1
"""Number of the first shard; the other shards' follow, and then those of competing jobs."""


class TrainedJob:
    """Shards of the job that trains, or the jobs of two in which each worker has the server to itself."""

    def __init__(self, config: JobConfig, controller: Controller, values: int, *, served: bool) -> None:
        """Start without workers.

        Args:
            config: Participants of the job.
            controller: Controller of the fabric, which has the plans.
            values: Number of values of a tensor.
            served: Each worker has a job with the server's host alone, in place of the job of all (`pairs`).
        """
        self.config = config
        self.shares: Sequence[int] = [1] * len(config.roots)
        """Proportions in which the shards divide the tensors' chunks."""
        self.workers: list[VirtualWorker] = []
        """Workers of all shards."""
        self.sums: list[SumTime] = []
        """Duration of each call of `Cluster.allreduce`."""
        self._drivers: list[ShardedDriver] = []
        """Driver of each worker's training, by rank."""
        self._controller = controller
        self._values = values
        self._served = served
        self._lanes = lanes_of(controller.topology)

    @property
    def numbers(self) -> range:
        """Job numbers of the shards, or of the workers' jobs with the server."""
        return range(FIRST_JOB, FIRST_JOB + len(self.config.workers if self._served else self.shares))

    @property
    def plans(self) -> list[JobPlan]:
        """Plans in force, one per number."""
        return [self._controller.jobs[number].plan for number in self.numbers]

    @property
    def trees(self) -> list[dict[str, str]]:
        """Parent of every worker and summing switch, per shard."""
        return [{**plan.placement.aggregators, **plan.placement.parents} for plan in self.plans]

    @property
    def idle(self) -> bool:
        """True if the workers have all results that they asked for."""
        return all(worker.core.idle for worker in self.workers)

    # --- start ---

    def parts(self) -> Iterator[tuple[Participants, str | None, Rounds]]:
        """Iterate over participants, root, and rounds of the sums of each number."""
        job = self.config
        if not self._served:
            for root, rounds in zip(job.roots, self.rounds(self._values), strict=False):  # stripes may be fewer
                yield job, root, rounds
            return
        of_two = Rounds.of(self._values, self._lanes, job.window)
        for worker in job.workers:
            yield Participants(workers=[worker, str(job.server)], window=job.window, slots=job.slots), None, of_two

    def connect(self) -> None:
        """Make each worker's driver, once all workers have their plans."""
        for name in self.config.workers:
            shards = [worker for worker in self.workers if worker.name == name]
            self._drivers.append(ShardedDriver(shards, self.shares))

    # --- sums ---

    def rounds(self, values: int) -> list[Rounds]:
        """Return the rounds of a sum of tensors with this many values, per shard."""
        shards = range(len(self.shares))
        return [Rounds.of(values, self._lanes, self.config.window, self.shares, shard) for shard in shards]

    def submit(self, gradients: Sequence[Floats], samples: Sequence[int]) -> list[int]:
        """Start one sum, with the number of samples behind each worker's gradient; return the workers' handles."""
        return [
            driver.submit(Tensor(gradient, workers=driver.workers, lanes=driver.lanes, name="gradient", weight=weight))
            for driver, gradient, weight in zip(self._drivers, gradients, samples, strict=True)
        ]

    def results(self, handles: Sequence[int]) -> list[Reduced]:
        """Return each worker's result of a complete sum."""
        return [driver.wait(handle, 0) for driver, handle in zip(self._drivers, handles, strict=True)]

    @property
    def communicators(self) -> list[Communicator]:
        """Communicators of the workers, by rank.

        Results of the calls in `…_async` are available after `Cluster.settle`.
        """
        return [Communicator(driver) for driver in self._drivers]

    @property
    def pairs(self) -> list[tuple[Communicator, Communicator]]:
        """Each worker's end and the server's of their job, by rank, for workers that have the server to themselves."""
        by_rank = sorted(self.workers, key=lambda worker: worker.rank)
        ends = [[worker for worker in by_rank if worker.core.plan.job == number] for number in self.numbers]
        return [(Communicator(worker), Communicator(server)) for worker, server in ends]

    # --- the controller's model ---

    def expected_step_s(
        self, routes: Routes, others_bps: Mapping[Endpoint, float], host_poll_ns: int, bound_packets: int
    ) -> float:
        """Return the duration of a sum by the controller's model under the plan in force, in s.

        The job must be alone and have one root.

        Args:
            routes: Paths in the fabric.
            others_bps: Traffic of others on directed links, in bit/s; 0 on links that are missing.
            host_poll_ns: Polling interval of the hosts, in ns.
            bound_packets: Queue bound of the fabric, in packets.
        """
        plan = self.plans[0]
        spec, loads = plan.spec, {link: LinkLoad(rate) for link, rate in others_bps.items()}
        problem = Problem(routes, spec.workers, spec.server, spec.gradient_bytes, loads)
        step = replace(Step.of(spec, routes.topology, host_poll_ns * 1e-9), window=plan.pacing.window)
        return expected_step(problem, plan.placement, step, bound_packets).seconds
