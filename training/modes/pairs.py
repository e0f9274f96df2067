"""Pairs after local steps, as in NoLoCo (Kolehmainen et al., 2025): outer momentum, averaged with one random partner.

After H local steps worker i has moved by Δ_i from its outer weights φ_i. With its partner j

    δ_i ← α·δ_i + β·(Δ_i + Δ_j)/2 − γ·(φ_i − (φ_i + φ_j)/2),      φ_i ← φ_i + δ_i

so the mean of all φ moves by the outer momentum of the mean Δ alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..errors import TrainingError
from ..exchanges.local_steps import LARGEST_STEP, check_period
from ..exchanges.peers import Gossiper
from ..mode import ModeDescription, PeerEnds, PeerMode, Replicas
from ..processes import Process, Wait


@dataclass(frozen=True)
class Pairs(PeerMode):
    """A worker waits for its partner, every H steps."""

    name: str = "pairs"
    period: int = 4
    """H: a worker's local steps between two exchanges."""
    momentum: float = 0.5
    """α: share of the last outer step that is kept."""
    step: float = 0.7
    """β: outer learning rate."""
    pull: float = 1.0
    """γ: share of the way to the pair's mean."""

    def __post_init__(self) -> None:
        check_period(self.period)
        if not (0 <= self.momentum < 1 and 0 < self.step <= LARGEST_STEP and 0 < self.pull <= 1):
            raise TrainingError(
                f"momentum {self.momentum}, step {self.step} and pull {self.pull}: allowed are 0 <= momentum < 1, "
                f"0 < step <= {LARGEST_STEP:g}, 0 < pull <= 1",
                value=(self.momentum, self.step, self.pull),
            )

    @property
    def steps_between(self) -> int:
        return self.period

    @property
    def detail(self) -> str:
        return f"H = {self.period}"

    def processes(self, job: Replicas, rank: int, ends: PeerEnds) -> list[Process]:
        return [self._worker(job, rank, ends)]

    def _worker(self, job: Replicas, rank: int, ends: PeerEnds) -> Process:
        worker = Gossiper(job, rank, ends)
        outer, moving = worker.weights, np.zeros_like(worker.weights)
        now_ns = (yield Wait(lambda: 0)).now_ns
        exchange = 0
        while True:
            iteration = worker.begin(now_ns, self.period)
            now_ns = yield from worker.run_steps(iteration, now_ns, self.period)
            moved, start = worker.weights - outer, outer
            for peer in worker.alive(worker.group(exchange, 2)):
                worker.peers.send_async(peer, np.stack([moved, start]))
                answer = yield from worker.answer(peer, worker.peers.recv_async(peer))
                if answer is not None:
                    now_ns = answer.now_ns
                    moved, start = (moved + answer.value[0]) / 2, (outer + answer.value[1]) / 2
            moving = np.float32(self.momentum) * moving + np.float32(self.step) * moved
            moving -= np.float32(self.pull) * (outer - start)
            outer = outer + moving
            worker.end(iteration, outer, now_ns)
            exchange += 1


DESCRIPTION: Final = ModeDescription(
    "pairs", "pairs", "outer steps averaged with a random partner after local steps; waits for the partner", Pairs
)
