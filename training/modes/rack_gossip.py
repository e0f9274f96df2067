"""Rack gossip: exact sums inside a rack, by its switch, and gossip of whole racks between their first workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from ..errors import TrainingError
from ..exchanges.peers import Gossiper
from ..mode import ModeDescription, PeerEnds, PeerMode, Replicas
from ..processes import Process, Wait
from .gossip import WEIGHTS


@dataclass(frozen=True)
class RackGossip(PeerMode):
    """A worker waits for its rack, every step; racks wait for nobody."""

    racks: ClassVar[bool] = True
    name: str = "rack-gossip"
    policy: str = "exact"
    """Gossip policy of the racks, by name or path."""

    @property
    def detail(self) -> str:
        return self.policy

    def processes(self, job: Replicas, rank: int, ends: PeerEnds) -> list[Process]:
        if ends.rack is None:
            raise TrainingError("rack gossip needs the workers of every rack to sum: PeerEnds.rack is None")
        return [self._worker(job, rank, ends)]

    def _worker(self, job: Replicas, rank: int, ends: PeerEnds) -> Process:
        assert ends.rack is not None
        rack, worker = ends.rack, Gossiper(job, rank, ends)
        chances = np.random.default_rng((job.plan.seed, 52, rank))
        leads = rack.rank == 0
        if leads:
            worker.peers.publish(WEIGHTS, worker.weights)
        now_ns = (yield Wait(lambda: 0)).now_ns
        while True:
            iteration, before, peer = worker.begin(now_ns), worker.weights, rank
            if leads:
                probabilities, pull_weights = ends.policies.row(rank, self.policy, "telemetry")
                peer = int(chances.choice(len(probabilities), p=probabilities / probabilities.sum()))
            call = worker.peers.pull_async(peer, WEIGHTS) if peer != rank and peer not in worker.lost else None
            gradient, iteration.computed_ns = yield job.computing(rank, iteration.clock, before, worker.local.rows())
            mean, now_ns = yield rack.allreduce_async(gradient, op="mean", weight=worker.local.size, name="gradient")
            weights, move = worker.local.apply(before, mean), np.zeros_like(before)
            if call is not None and (answer := (yield from worker.answer(peer, call))) is not None:
                move = np.float32(pull_weights[peer]) * (answer.value.value - before)
            move, now_ns = yield rack.broadcast_async(move, 0, name="move")
            if leads:
                worker.peers.publish(WEIGHTS, weights + move)
            worker.end(iteration, weights + move, now_ns)


DESCRIPTION: Final = ModeDescription(
    "rack-gossip", "rack gossip", "exact sums inside a rack, pulls between racks by a policy", RackGossip
)
