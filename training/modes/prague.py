"""Prague (Luo et al., ASPLOS 2020): partial all-reduce of weights in random groups, drawn anew for every step.

Prague's group generator hands out groups on request. Here all workers draw the same partition of a step from the job's
seed, which has no conflicts either; a worker waits for its group alone.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..errors import TrainingError
from ..exchanges.peers import Gossiper
from ..mode import ModeDescription, PeerEnds, PeerMode, Replicas
from ..processes import ComputePhase, InProgress, Process, Wait, Wakeup
from ..workload import Floats


@dataclass(frozen=True)
class PartialReduce(PeerMode):
    """A worker waits for the members of its group, every step."""

    name: str = "prague"
    group: int = 4
    """Members of a group."""

    def __post_init__(self) -> None:
        if self.group < 2:
            raise TrainingError(f"group must be >= 2 workers, got {self.group}")

    @property
    def detail(self) -> str:
        return f"g = {self.group}"

    def processes(self, job: Replicas, rank: int, ends: PeerEnds) -> list[Process]:
        return [self._worker(job, rank, ends)]

    def _worker(self, job: Replicas, rank: int, ends: PeerEnds) -> Process:
        worker = Gossiper(job, rank, ends)
        now_ns = (yield Wait(lambda: 0)).now_ns
        step = 0
        while True:
            iteration = worker.begin(now_ns)
            now_ns = yield from worker.run_steps(iteration, now_ns)
            weights, now_ns = yield from _mean_of_group(worker, worker.group(step, self.group), worker.weights, now_ns)
            worker.end(iteration, weights, now_ns)
            step += 1


def _mean_of_group(
    worker: Gossiper, group: list[int], weights: Floats, now_ns: int
) -> Generator[ComputePhase | Wait | InProgress, Wakeup, tuple[Floats, int]]:
    """Reduce-scatter and all-gather of a group: every member averages one part of the weights for all.

    A member that is lost has no part in later exchanges; of the part that it was to average everyone keeps its own.
    """
    bounds = np.linspace(0, len(weights), len(group) + 1).astype(int)
    part = {member: slice(bounds[index], bounds[index + 1]) for index, member in enumerate(group)}
    for peer in worker.alive(group):
        worker.peers.send_async(peer, weights[part[peer]])
    calls = {peer: worker.peers.recv_async(peer) for peer in worker.alive(group)}
    mine = [weights[part[worker.rank]]]
    for peer, call in calls.items():
        if (answer := (yield from worker.answer(peer, call))) is not None:
            mine.append(answer.value)
            now_ns = answer.now_ns
    mixed = weights.copy()
    mixed[part[worker.rank]] = np.mean(mine, axis=0)
    for peer in worker.alive(group):
        worker.peers.send_async(peer, mixed[part[worker.rank]])
    calls = {peer: worker.peers.recv_async(peer) for peer in worker.alive(group)}
    for peer, call in calls.items():
        if (answer := (yield from worker.answer(peer, call))) is not None:
            mixed[part[peer]] = answer.value
            now_ns = answer.now_ns
    return mixed, now_ns


DESCRIPTION: Final = ModeDescription(
    "prague", "Prague", "mean of weights in random groups, every step; waits for the group", PartialReduce
)
