"""Workers that exchange by all-reduce: gradients in every step, or weights after some steps."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...hosts import Communicator
from ...hosts.collectives.leader_query import PATIENCE_S, LeaderQuery
from ..batching.manager import RuleName, Turns
from ..batching.reporter import SpeedReporter
from ..mode import BatchSizeService, Replicas
from ..processes import InProgress, Process, Wait, Wakeup
from ..samples import Samples
from .local_steps import LocalSteps


@dataclass(frozen=True, slots=True)
class FollowedSpeeds:
    """Settings for batch sizes that follow workers' speeds."""

    service: BatchSizeService
    rule: RuleName
    predictor: str
    size_step: int


def summing_worker(
    job: Replicas,
    rank: int,
    communicator: Communicator,
    follow: FollowedSpeeds | None = None,
    sizes: list[int] | None = None,
) -> Process:
    """Sum gradients, weighted by samples, and make the same step with the mean as everyone.

    Args:
        job: The job's replicas.
        rank: The worker's rank.
        communicator: Its end of the job.
        follow: How batch sizes follow speeds; None: they stay.
        sizes: Batch sizes of the first step, by rank; None: equal ones.
    """
    plan = job.plan
    samples, optimiser = Samples(job.workload.rows, (plan.seed, 0)), job.optimiser()
    held = job.samples(rank)
    machine, sizes = job.machines[rank], sizes or plan.equal_sizes()
    if follow is not None:
        reporter, turns = SpeedReporter(follow.predictor, rule=follow.rule), Turns(follow.rule)
        ask = partial(follow.service.request, rule=follow.rule, size_step=follow.size_step)
        query = LeaderQuery(communicator, ask, name="batch sizes")
    now_ns = (yield Wait(lambda: 0)).now_ns
    step = 0
    while True:
        if follow is not None and step > 0:
            report = reporter.report(machine.readings(now_ns))
            if turns.due():
                answer, now_ns = yield from _asked(query, report)
                turns.decided(changed=answer not in (None, sizes))
                sizes = answer or sizes
        weights = job.weights[rank]
        rows = held.rows(step * sizes[rank], sizes[rank]) if plan.shards else samples.share(step, sizes, rank)
        iteration = job.curve.begin(rank, step, len(rows), now_ns)
        gradient, iteration.computed_ns = yield job.computing(rank, step, weights, rows)
        if follow is not None:
            most = machine.memory_samples
            lacking = most if most is not None and len(rows) > most else None
            reporter.observe(len(rows), (iteration.computed_ns - now_ns) / 1e9, lacking)
        mean, now_ns = yield communicator.allreduce_async(gradient, op="mean", weight=len(rows), name="gradient")
        job.weights[rank] = optimiser.step(weights, mean)
        iteration.taken_ns = iteration.given_ns = iteration.ended_ns = now_ns
        if rank == 0:
            job.curve.updated(job.weights[0], plan.batch, now_ns)
        step += 1


def averaging_worker(job: Replicas, rank: int, communicator: Communicator, period: int) -> Process:
    """Make local steps, then set everyone's weights to their mean, again and again.

    Args:
        job: Weights, rows and loss curve of the workers.
        rank: Rank of this worker.
        communicator: Averages weights.
        period: Number of local steps from one mean to the next.
    """
    local = LocalSteps(job, rank)
    now_ns = (yield Wait(lambda: 0)).now_ns
    clock = 0
    while True:
        iteration = job.curve.begin(rank, clock, local.size * period, now_ns)
        yield from local.run(period, iteration)
        mean, now_ns = yield communicator.allreduce_async(job.weights[rank], op="mean", name="weights")
        job.weights[rank] = mean
        iteration.taken_ns = iteration.given_ns = iteration.ended_ns = now_ns
        if rank == 0:
            job.curve.updated(mean, job.plan.batch * period, now_ns)
        clock += 1


def _asked(
    query: LeaderQuery, report: NDArray[np.float64]
) -> Generator[Wait | InProgress, Wakeup, tuple[list[int] | None, int]]:
    """One worker's part in a query of all: yield the answer, None if there is none now, and the time when it is
    there.
    """
    (reports, present), now_ns = yield query.report(report)
    if (asked := query.send_request(reports, present)) is not None:
        late_ns = now_ns + round(PATIENCE_S * 1e9)
        yield Wait(lambda: 0 if asked.done() else late_ns)
    answer, now_ns = yield query.answer()
    return answer, now_ns
