"""One worker in several jobs at once, each with a root of its own, which share every tensor's chunks.

Several parameter servers or root switches carry more than one does. A chunk is summed by one job as by any other, so
the bits of a sum do not depend on how many there are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..errors import InvalidPlan
from ..numerics.tensors import Reduced, Tensor
from .communicator import WorkerDriver


class ShardedDriver:
    """The driver of a `Communicator` over the drivers of one worker in k jobs.

    Every worker has the jobs, and their shares, in the same order. A tensor's chunks go to them in k runs.
    """

    def __init__(self, drivers: Sequence[WorkerDriver], shares: Sequence[int] | None = None) -> None:
        """Create a driver over several jobs; `shares` are the proportions of their parts, by default equal.

        Raises:
            InvalidPlan: The jobs have different workers, by ranks and numbers, or a share is invalid.
        """
        if not drivers:
            raise InvalidPlan("a sharded worker needs at least one job", place="drivers", value=0)
        self._shares = [1] * len(drivers) if shares is None else list(shares)
        if len(self._shares) != len(drivers) or min(self._shares) < 1:
            raise InvalidPlan(
                f"shares must be {len(drivers)} positive numbers, one per job, got {self._shares}",
                place="shares",
                value=self._shares,
            )
        self.rank = drivers[0].rank
        self.workers = drivers[0].workers
        self.lanes = drivers[0].lanes
        self.keyed = drivers[0].keyed
        for number, driver in enumerate(drivers):
            if (driver.rank, driver.workers) != (self.rank, self.workers):
                raise InvalidPlan(
                    f"worker {driver.rank} of {driver.workers} is not worker {self.rank} of "
                    f"{self.workers}, which it is in shard 0",
                    place=f"shard {number}",
                    value=driver.rank,
                )
            if driver.lanes != self.lanes:
                raise InvalidPlan(
                    f"messages of {driver.lanes} lanes, where shard 0 has {self.lanes}",
                    place=f"shard {number}",
                    value=driver.lanes,
                )
        self._drivers = list(drivers)
        self._next_handle = 0
        self._shared: dict[int, tuple[Tensor, list[tuple[WorkerDriver, int]]]] = {}
        """Tensors whose sums were not handed out, and their parts that were not."""

    def submit(self, tensor: Tensor, /) -> int:
        """Same contract as `WorkerCore.submit`."""
        parts = tensor.cut(self._shares)
        waiting = [(driver, driver.submit(part)) for driver, part in zip(self._drivers, parts, strict=True)]
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._shared[handle] = tensor, waiting
        return handle

    def done(self, handle: int) -> bool:
        """Return True if `wait` would return, or raise, at once."""
        return all(driver.done(part) for driver, part in self._shared[handle][1])

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        """Return the sum, handed out once. Raises what a shard's driver raises: `AllreduceTimeout` names the job."""
        deadline = time.monotonic() + timeout_s
        tensor, waiting = self._shared[handle]
        while waiting:
            driver, part = waiting[0]
            driver.wait(part, max(0.0, deadline - time.monotonic()))
            del waiting[0]  # only now: after a time-out the rest can be waited for again
        del self._shared[handle]
        return tensor.reduced()
