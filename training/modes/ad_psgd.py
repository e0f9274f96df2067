"""AD-PSGD (Lian et al., ICML 2018): pairs average their weights at any time, and gradients are of weights of before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..errors import TrainingError
from ..exchanges.peers import Gossiper
from ..mode import ModeDescription, PeerEnds, PeerMode, Replicas
from ..processes import Process, Wait


@dataclass(frozen=True)
class AsynchronousDecentralised(PeerMode):
    """Even ranks ask odd ones, which answer at any time, so no two wait for each other."""

    name: str = "ad-psgd"

    def check(self, workers: int) -> None:
        if workers < 2:
            raise TrainingError(f"AD-PSGD of {workers} worker; allowed: two or more, so that even ranks find odd ones")

    def processes(self, job: Replicas, rank: int, ends: PeerEnds) -> list[Process]:
        if rank % 2 == 0:
            return [self._active(job, rank, ends)]
        askers = range(0, job.plan.workers, 2)
        return [self._passive(job, rank, ends), *(self._answering(job, rank, ends, peer) for peer in askers)]

    def _active(self, job: Replicas, rank: int, ends: PeerEnds) -> Process:
        worker, chances = Gossiper(job, rank, ends), np.random.default_rng((job.plan.seed, 51, rank))
        now_ns = (yield Wait(lambda: 0)).now_ns
        while True:
            iteration, before = worker.begin(now_ns), worker.weights
            answering = [peer for peer in range(1, job.plan.workers, 2) if peer not in worker.lost]
            peer = int(chances.choice(answering)) if answering else None
            if peer is not None:
                worker.peers.send_async(peer, before)
                call = worker.peers.recv_async(peer)
            now_ns = yield from worker.run_steps(iteration, now_ns)
            weights = worker.weights
            if peer is not None and (answer := (yield from worker.answer(peer, call))) is not None:
                now_ns = answer.now_ns
                weights = weights + np.float32(0.5) * (answer.value - before)
            worker.end(iteration, weights, now_ns)

    def _passive(self, job: Replicas, rank: int, ends: PeerEnds) -> Process:
        worker = Gossiper(job, rank, ends)
        now_ns = (yield Wait(lambda: 0)).now_ns
        while True:
            iteration, before = worker.begin(now_ns), worker.weights
            rows = worker.local.rows()
            gradient, now_ns = yield job.computing(rank, iteration.clock, before, rows)
            iteration.computed_ns = now_ns
            worker.end(iteration, worker.local.apply(worker.weights, gradient), now_ns)

    def _answering(self, job: Replicas, rank: int, ends: PeerEnds, peer: int) -> Process:
        worker = Gossiper(job, rank, ends)
        while peer not in worker.lost:
            answer = yield from worker.answer(peer, worker.peers.recv_async(peer))
            if answer is not None:
                mine = job.weights[rank]
                worker.peers.send_async(peer, mine)
                job.weights[rank] = mine + np.float32(0.5) * (answer.value - mine)


DESCRIPTION: Final = ModeDescription(
    "ad-psgd",
    "AD-PSGD",
    "two workers average their weights, one asking and one that goes on computing",
    AsynchronousDecentralised,
)
