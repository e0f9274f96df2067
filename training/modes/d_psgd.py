"""D-PSGD (Lian et al., NeurIPS 2017): in every step all exchange weights with their neighbours on a ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..exchanges.peers import Gossiper
from ..mode import ModeDescription, PeerEnds, PeerMode, Replicas
from ..processes import Process, Wait

_SHARE: Final = np.float32(1 / 3)
"""Metropolis weight of a ring: 1 / (1 + largest degree)."""


@dataclass(frozen=True)
class DecentralisedParallel(PeerMode):
    """Every worker waits for its two neighbours, every step."""

    name: str = "d-psgd"

    def processes(self, job: Replicas, rank: int, ends: PeerEnds) -> list[Process]:
        return [self._worker(job, rank, ends)]

    def _worker(self, job: Replicas, rank: int, ends: PeerEnds) -> Process:
        worker, n = Gossiper(job, rank, ends), job.plan.workers
        neighbours = sorted({(rank - 1) % n, (rank + 1) % n})
        now_ns = (yield Wait(lambda: 0)).now_ns
        while True:
            iteration, before = worker.begin(now_ns), worker.weights
            asked = worker.alive(neighbours)
            for peer in asked:
                worker.peers.send_async(peer, before)
            calls = {peer: worker.peers.recv_async(peer) for peer in asked}
            now_ns = yield from worker.run_steps(iteration, now_ns)
            weights = worker.weights
            for peer, call in calls.items():
                if (answer := (yield from worker.answer(peer, call))) is not None:
                    now_ns = answer.now_ns
                    weights = weights + _SHARE * (answer.value - before)
            worker.end(iteration, weights, now_ns)


DESCRIPTION: Final = ModeDescription(
    "d-psgd", "D-PSGD", "weights to both neighbours on a ring, every step; waits for these two", DecentralisedParallel
)
