"""Clock rules: when a parameter server takes a worker's update, whether it counts, and when the worker may go on.

A worker's clock is the number of its updates that the server has taken. Rules are state machines without time of their
own. Formulas: Langer et al., "Distributed Training of Deep Learning Models: A Taxonomic Perspective" (TPDS 2020), for
stale-synchronous and backup workers; Chen et al., "Round-Robin Synchronization" (INFOCOM 2019), for round-robin.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from .errors import TrainingError


class UpdateOutcome(Enum):
    """Outcome of an update that the server has taken."""

    KEPT = "kept until its step is whole"
    COMPLETES = "its step is whole"
    DROPPED = "too late for its step"


class Rule(Protocol):
    """Rule of one job; workers are numbered from 0."""

    def takes_ns(self, worker: int) -> int | None:
        """Return the time from which the server takes the worker's next update; None while others must come first."""

    def on_update(self, worker: int, now_ns: int) -> UpdateOutcome:
        """Note that the server has received the worker's update."""

    def may_continue(self, worker: int) -> bool:
        """Return whether the worker may receive the weights and continue."""

    def on_weights_sent(self, worker: int) -> None:
        """Note that the worker has received the present weights."""


class Staleness:
    """Bounded staleness: a worker waits while its clock is beyond the slowest one's by more than the bound.

    Without a bound this is asynchronous training; with the bound 0 all begin each iteration together. Every update
    counts at once. A worker that begins an iteration with clock c sees all workers' updates of iterations before c −
    bound.
    """

    def __init__(self, workers: int, bound: int | None) -> None:
        if bound is not None and bound < 0:
            raise TrainingError(f"{bound} is not a bound, which is 0 or more, or None", place="staleness", value=bound)
        self.clocks = [0] * workers
        """Updates taken of each worker."""
        self._bound = bound

    def takes_ns(self, worker: int) -> int | None:
        return 0

    def on_update(self, worker: int, now_ns: int) -> UpdateOutcome:
        self.clocks[worker] += 1
        return UpdateOutcome.COMPLETES

    def may_continue(self, worker: int) -> bool:
        return self._bound is None or self.clocks[worker] <= min(self.clocks) + self._bound

    def on_weights_sent(self, worker: int) -> None:
        pass


class Quorum:
    """Backup workers: a step is whole with the first `quorum` updates; the others' come too late for it.

    A late worker continues from the weights as they are then. With a quorum of all workers this is synchronous
    training.
    """

    def __init__(self, workers: int, quorum: int) -> None:
        if not 1 <= quorum <= workers:
            raise TrainingError(
                f"{quorum} of {workers} workers; a step needs between 1 and {workers}", place="quorum", value=quorum
            )
        self.step = 0
        """Steps that are whole."""
        self._quorum = quorum
        self._counted = 0
        self._based_on = [0] * workers
        """The step that each worker's update is for."""

    def takes_ns(self, worker: int) -> int | None:
        return 0

    def on_update(self, worker: int, now_ns: int) -> UpdateOutcome:
        if self._based_on[worker] < self.step:
            return UpdateOutcome.DROPPED
        self._counted += 1
        if self._counted < self._quorum:
            return UpdateOutcome.KEPT
        self._counted = 0
        self.step += 1
        return UpdateOutcome.COMPLETES

    def may_continue(self, worker: int) -> bool:
        return self._based_on[worker] < self.step

    def on_weights_sent(self, worker: int) -> None:
        self._based_on[worker] = self.step


class RoundRobin:
    """Round-robin: the server takes updates in a fixed order, the relaxation · T / n apart, so none meet on its link.

    T is how long the last round through all n workers took. With a relaxation below 1 the slowest worker's turn has
    always come when it is done, so the others adapt to it, and T to its iterations. Clocks differ by 1 at most.
    """

    def __init__(self, workers: int, relaxation: float = 0.8) -> None:
        if not 0 <= relaxation < 1:
            raise TrainingError(
                f"{relaxation} is not in [0, 1), so the slowest worker would have to wait",
                place="relaxation",
                value=relaxation,
            )
        self.turn = 0
        """Worker whose update is taken next."""
        self._relaxation = relaxation
        self._taken_ns: list[int | None] = [None] * workers
        self._next_ns = 0

    def takes_ns(self, worker: int) -> int | None:
        return self._next_ns if worker == self.turn else None

    def on_update(self, worker: int, now_ns: int) -> UpdateOutcome:
        before_ns = self._taken_ns[worker]
        workers = len(self._taken_ns)
        if before_ns is not None:
            self._next_ns = now_ns + int(self._relaxation * (now_ns - before_ns) / workers)
        self._taken_ns[worker] = now_ns
        self.turn = (worker + 1) % workers
        return UpdateOutcome.COMPLETES

    def may_continue(self, worker: int) -> bool:
        return True

    def on_weights_sent(self, worker: int) -> None:
        pass
