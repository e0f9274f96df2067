"""Exchange with a parameter server: workers send updates, and the mode's rule says when the server takes and gives."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...hosts import Communicator
from ..mode import Replicas
from ..processes import Process, Wait
from ..rules import Rule, UpdateOutcome
from ..workload import Floats

WORKER: Final = 0
"""Rank of the worker in its job with the server."""
SERVER: Final = 1
"""Rank of the server there."""


def gradient_worker(job: Replicas, rank: int, communicator: Communicator) -> Process:
    """Send a gradient in every step, and go on with the weights that the server gives."""
    size = job.plan.equal_sizes()[rank]
    samples = job.samples(rank)
    now_ns = (yield Wait(lambda: 0)).now_ns
    step = 0
    while True:
        iteration = job.curve.begin(rank, step, size, now_ns)
        weights, rows = job.weights[rank], samples.rows(step * size, size)
        gradient, iteration.computed_ns = yield job.computing(rank, step, weights, rows)
        yield communicator.broadcast_async(gradient, WORKER, name="update")
        given, now_ns = yield communicator.broadcast_async(gradient, SERVER, name="weights")
        job.weights[rank] = given
        iteration.ended_ns = now_ns
        step += 1


class ParameterServer:
    """Holds the weights and applies gradients, as the mode's rule says. It has a process for each worker."""

    def __init__(self, job: Replicas, rule: Rule, *, partial_steps: bool = True) -> None:
        """`partial_steps`: an update of a part of the batch moves the weights by as large a part of a step; otherwise
        every mean moves them by a whole one.
        """
        self.weights = job.workload.initial()
        self.curve = job.curve
        self._batch = job.plan.batch
        self._rule = rule
        self._partial_steps = partial_steps
        self._optimiser = job.optimiser()
        self._kept: list[tuple[Floats, int]] = []
        """Updates of the step that is not whole, with their samples."""

    def process(self, worker: int, communicator: Communicator) -> Process:
        """Take one worker's updates and give it weights, when the rule says so."""
        rule, nothing = self._rule, np.zeros_like(self.weights)
        while True:
            yield Wait(lambda: rule.takes_ns(worker))
            update, now_ns = yield communicator.broadcast_async(nothing, WORKER, name="update")
            iteration = self.curve.current[worker]
            iteration.taken_ns = now_ns
            before = self.weights
            self._receive_update(worker, (update, iteration.samples), now_ns)
            iteration.given_ns = (yield Wait(lambda: 0 if rule.may_continue(worker) else None)).now_ns
            rule.on_weights_sent(worker)
            yield communicator.broadcast_async(self.given(before), SERVER, name="weights")

    def given(self, before: Floats) -> Floats:
        """Return the weights that a worker receives; `before` are the weights before its update."""
        return self.weights

    def complete(self, updates: list[tuple[Floats, int]], now_ns: int) -> None:
        """Apply the updates of a whole step, each with its samples."""
        counted = sum(size for _, size in updates)
        nothing = np.zeros_like(self.weights)
        mean = sum((np.float32(size / counted) * update for update, size in updates), nothing)
        share = counted / self._batch if self._partial_steps else 1.0
        self.weights = self._optimiser.step(self.weights, mean, share)
        self.curve.updated(self.weights, counted, now_ns)

    def _receive_update(self, worker: int, update: tuple[Floats, int], now_ns: int) -> None:
        match self._rule.on_update(worker, now_ns):
            case UpdateOutcome.DROPPED:
                self.curve.dropped += 1
            case UpdateOutcome.KEPT:
                self._kept.append(update)
            case UpdateOutcome.COMPLETES:
                updates = [*self._kept, update]
                self._kept = []
                self.complete(updates, now_ns)
