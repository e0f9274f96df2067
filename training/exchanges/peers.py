"""One worker's state in a decentralised job: its local steps, and which others are lost."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from ...hosts.errors import PeerLost
from ..loss_curve import Iteration
from ..mode import PeerEnds, Replicas
from ..processes import ComputePhase, InProgress, Wait, Wakeup
from ..workload import Floats
from .local_steps import LocalSteps


class Gossiper:
    """Iterations of all modes without a server: compute, ask others, and take their answers."""

    def __init__(self, job: Replicas, rank: int, ends: PeerEnds) -> None:
        """Begin with all others alive."""
        self.job = job
        self.rank = rank
        self.peers = ends.peers
        self.local = LocalSteps(job, rank)
        self.lost: set[int] = set()
        """Ranks that have not answered once; they are not asked again."""
        self._clock = 0

    @property
    def weights(self) -> Floats:
        """This worker's weights."""
        return self.job.weights[self.rank]

    def alive(self, ranks: range | list[int]) -> list[int]:
        """Return the others among these ranks that are not lost."""
        return [rank for rank in ranks if rank != self.rank and rank not in self.lost]

    def group(self, number: int, size: int) -> list[int]:
        """Return this worker's group of one exchange, itself included; see `partners`."""
        plan = self.job.plan
        return next(partner for partner in partners(plan.seed, number, plan.workers, size) if self.rank in partner)

    def begin(self, now_ns: int, steps: int = 1) -> Iteration:
        """Begin an iteration of `steps` steps."""
        iteration = self.job.curve.begin(self.rank, self._clock, self.local.size * steps, now_ns)
        self._clock += 1
        return iteration

    def run_steps(
        self, iteration: Iteration, now_ns: int, steps: int = 1
    ) -> Generator[ComputePhase | Wait | InProgress, Wakeup, int]:
        """Make local steps; returns when they are computed."""
        yield from self.local.run(steps, iteration)
        return max(now_ns, iteration.computed_ns)

    def answer(self, peer: int, call: InProgress) -> Generator[ComputePhase | Wait | InProgress, Wakeup, Wakeup | None]:
        """Wait for a call to a peer; None if the peer is lost, which is then not asked again."""
        try:
            return (yield call)
        except PeerLost:
            self.lost.add(peer)
            return None

    def end(self, iteration: Iteration, weights: Floats, now_ns: int) -> None:
        """End an iteration with these weights."""
        iteration.taken_ns = iteration.given_ns = iteration.ended_ns = now_ns
        self.job.changed(self.rank, weights, iteration.samples, now_ns)


def partners(seed: int, number: int, workers: int, size: int) -> list[list[int]]:
    """Return the groups of one exchange, which all workers draw alike.

    Args:
        seed: Seed of the job.
        number: Number of the exchange, from 0.
        workers: Number of workers.
        size: Members of a group; the last group has the rest.
    """
    order = np.random.default_rng((seed, 77, number)).permutation(workers).tolist()
    return [sorted(order[first : first + size]) for first in range(0, workers, size)]
