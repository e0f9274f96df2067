"""Gossip by pulls: each worker pulls from one other while it computes, with probabilities of a policy.

NetMax (Zhou et al., ICDE 2021) is this mode with `policy: netmax`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..errors import TrainingError
from ..exchanges.peers import Gossiper
from ..mode import ModeDescription, PeerEnds, PeerMode, Replicas
from ..processes import Process, Wait

WEIGHTS: Final = "weights"
"""Name under which workers publish their weights."""


@dataclass(frozen=True)
class Gossip(PeerMode):
    """No worker waits for another one's computation; a pull is waited for if it takes longer than computing."""

    name: str = "gossip"
    policy: str = "exact"
    """Gossip policy by name: "exact", "steady", "netmax", "uniform", or a path."""
    source: str = "telemetry"
    """Source of iteration times: "telemetry", or "measured" for averages of the workers' own pulls."""

    def __post_init__(self) -> None:
        if self.source not in ("telemetry", "measured"):
            raise TrainingError(f'unknown source "{self.source}" of iteration times; supported: telemetry, measured')

    @property
    def detail(self) -> str:
        return self.policy if self.source == "telemetry" else f"{self.policy}, {self.source}"

    def check(self, workers: int) -> None:
        if workers < 2:
            raise TrainingError(f"gossip of {workers} worker; allowed: two or more, so that one pulls from another")

    def processes(self, job: Replicas, rank: int, ends: PeerEnds) -> list[Process]:
        return [self._worker(job, rank, ends)]

    def _worker(self, job: Replicas, rank: int, ends: PeerEnds) -> Process:
        worker, chances = Gossiper(job, rank, ends), np.random.default_rng((job.plan.seed, 50, rank))
        worker.peers.publish(WEIGHTS, worker.weights)
        now_ns = (yield Wait(lambda: 0)).now_ns
        while True:
            iteration, began_ns, before = worker.begin(now_ns), now_ns, worker.weights
            probabilities, pull_weights = ends.policies.row(rank, self.policy, self.source)
            peer = int(chances.choice(len(probabilities), p=probabilities / probabilities.sum()))
            asked = peer != rank and peer not in worker.lost
            call = worker.peers.pull_async(peer, WEIGHTS) if asked else None
            if call is not None:
                ends.policies.pulling(rank, peer)
            now_ns = yield from worker.run_steps(iteration, now_ns)
            weights = worker.weights
            if call is not None and (answer := (yield from worker.answer(peer, call))) is not None:
                now_ns = answer.now_ns
                ends.policies.pulled(rank, peer, now_ns - began_ns)
                # both are of before the step: a pull towards old weights would undo a part of this worker's gradient
                weights = weights - np.float32(pull_weights[peer]) * (before - answer.value.value)
            elif call is not None:
                ends.policies.failed(rank, peer)
            worker.peers.publish(WEIGHTS, weights)
            worker.end(iteration, weights, now_ns)


DESCRIPTION: Final = ModeDescription(
    "gossip", "gossip", "each worker pulls weights from one other, by a policy; waits for that pull alone", Gossip
)
