"""Drivers without a network: workers in one thread, whose tensors are summed as switches sum them, round by round.
A worker gets the lanes of the rounds that it wants.

A call is done as soon as every worker has made it. Rounds are summed in random batches, in any order that the protocol
allows; a worker can be lost in the middle.
"""

from __future__ import annotations

import numpy as np

from weir.hosts.errors import AllreduceTimeout, HostError
from weir.hosts.numerics.tensors import Reduced, Tensor
from weir.wire.aggregation import LANES


class MemoryJob:
    """A job of `workers` workers, and a driver for each."""

    def __init__(self, workers: int, *, seed: int = 0, lead: int = 4, batch: int = 8, keyed: bool = False) -> None:
        self.workers = workers
        self.keyed = keyed
        self.drivers = [MemoryDriver(self, rank) for rank in range(workers)]
        self.lost: dict[int, int] = {}
        """Rank → how many more rounds with lanes it takes part in."""
        self.rounds = 0
        self._rng = np.random.default_rng(seed)
        self._lead = lead
        self._batch = batch
        self._summed = 0

    def sum_what_is_there(self) -> None:
        while all(len(driver.tensors) > self._summed for driver in self.drivers):
            tensors = {driver.rank: driver.tensors[self._summed] for driver in self.drivers}
            self._sum({rank: tensor for rank, tensor in tensors.items() if self.lost.get(rank, 1)})
            for rank, tensor in tensors.items():
                driver = self.drivers[rank]
                driver.failure = driver.failure or tensor.failure
            self._summed += 1
            if any(driver.failure for driver in self.drivers):
                return

    def _sum(self, tensors: dict[int, Tensor]) -> None:
        any_of_them = next(iter(tensors.values()))
        end = any_of_them.end - any_of_them.start
        if not end:
            return
        self._round(tensors, np.zeros(1, np.int64))
        if any(tensor.failure for tensor in tensors.values()):
            return
        self._round(tensors, np.arange(1, any_of_them.scale_rounds))
        first = any_of_them.scale_rounds
        while first < end:  # a lead of chunks is known; within it any order
            block = first + self._rng.permutation(min(any_of_them.scale_rounds, end - first))
            for start in range(0, len(block), self._batch):
                self._round(tensors, block[start : start + self._batch])
            first += len(block)

    def _round(self, tensors: dict[int, Tensor], local: np.ndarray) -> None:
        if not len(local):
            return
        with_lanes = int(local[0]) >= next(iter(tensors.values())).scale_rounds
        exponents = np.zeros(len(local), np.int64)
        weights = np.zeros(len(local), np.int64)
        lanes = np.zeros((len(local), LANES), np.int32)
        for rank, tensor in tensors.items():
            taking_part = np.ones(len(local), np.bool_)
            if with_lanes and rank in self.lost:
                taking_part = np.arange(len(local)) < self.lost[rank]
                self.lost[rank] -= int(taking_part.sum())
            exponents = np.maximum(exponents, tensor.exponents(local) * taking_part)
            weights += tensor.weights(local) * taking_part
            if with_lanes:
                lanes += tensor.lanes(local) * taking_part[:, None].astype(np.int32)
        weights %= 1 << 32  # as the header's field has them
        for tensor in tensors.values():
            wanted = np.broadcast_to(tensor.wants(local), len(local)) if with_lanes else np.ones(len(local), np.bool_)
            for rows, with_sums in ((wanted, with_lanes), (~wanted, False)):
                if rows.any():
                    tensor.add_results(local[rows], exponents[rows], weights[rows], lanes[rows] if with_sums else None)
        self.rounds += len(local)


class MemoryDriver:
    """The driver of one worker."""

    def __init__(self, job: MemoryJob, rank: int) -> None:
        self.rank = rank
        self.tensors: list[Tensor] = []
        self.failure: HostError | None = None
        self._job = job
        self._end = 0
        self._handed_out: set[int] = set()

    @property
    def workers(self) -> int:
        return self._job.workers

    @property
    def lanes(self) -> int:
        return LANES

    @property
    def keyed(self) -> bool:
        return self._job.keyed

    def submit(self, tensor: Tensor, /) -> int:
        if self.failure is not None:
            raise self.failure
        tensor.place(len(self.tensors), self._end, self._job._lead)
        self._end = tensor.end
        self.tensors.append(tensor)
        self._job.sum_what_is_there()
        return tensor.handle

    def done(self, handle: int) -> bool:
        return not self.tensors[handle].remaining or self.failure is not None

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        tensor = self.tensors[handle]
        if not tensor.remaining and tensor.failure is None:
            assert handle not in self._handed_out, f"tensor {tensor.name!r} was handed out already"
            self._handed_out.add(handle)
            return tensor.reduced()
        if self.failure is not None:
            raise self.failure
        raise AllreduceTimeout("other workers have not called yet", place=f"tensor {tensor.name!r}")
