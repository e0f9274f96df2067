"""Jobs without a network: calls are summed in memory, with a fabric's bits, and take as long as is said."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ..hosts import AllreduceTimeout, Communicator, Reduced, Tensor
from ..hosts.numerics.tensors import sum_locally
from ..wire.aggregation import LANES
from .errors import TrainingError
from .processes import Processes

_STEPS_WITHOUT_TIME: Final = 10_000
"""So often may all go on at one instant, before a run is given up."""


class IdealClock:
    """The time of everything in one process."""

    def __init__(self) -> None:
        self.now_ns = 0


class IdealJob:
    """A job without a fabric; a call is done `delay_ns(bytes)` after the last worker has made it."""

    def __init__(self, clock: IdealClock, workers: int, delay_ns: Callable[[int], int] = lambda _: 0) -> None:
        self.workers = workers
        self._clock = clock
        self._delay_ns = delay_ns
        self._drivers = [_IdealDriver(self, rank) for rank in range(workers)]
        self._due_ns: list[int] = []
        """When each call is done that all have made."""

    @property
    def communicators(self) -> list[Communicator]:
        """The workers', by rank."""
        return [Communicator(driver) for driver in self._drivers]

    @property
    def deadline_ns(self) -> int | None:
        """When the next call is done; None where none is under way."""
        later = bisect_right(self._due_ns, self._clock.now_ns)
        return self._due_ns[later] if later < len(self._due_ns) else None

    def called(self) -> None:
        """Note a worker's call, and compute the sums to which all have contributed."""
        while all(len(driver.tensors) > len(self._due_ns) for driver in self._drivers):
            tensors = [driver.tensors[len(self._due_ns)] for driver in self._drivers]
            assert all(tensor is not None for tensor in tensors)
            whole = [tensor for tensor in tensors if tensor is not None]
            if len({tensor.end - tensor.start for tensor in whole}) > 1:
                raise TrainingError(f"workers make different calls: {', '.join(tensor.name for tensor in whole)}")
            sum_locally(whole, whole)
            due_ns = self._clock.now_ns + self._delay_ns(whole[0].reduced().values.nbytes)
            self._due_ns.append(max(due_ns, *self._due_ns[-1:], 0))

    def done(self, call: int) -> bool:
        """Return whether the workers' call of this number is done."""
        return call < len(self._due_ns) and self._due_ns[call] <= self._clock.now_ns


class _IdealDriver:
    """One worker's."""

    def __init__(self, job: IdealJob, rank: int) -> None:
        self.rank = rank
        self.tensors: list[Tensor | None] = []
        """None where the sum was handed out."""
        self._job = job

    @property
    def workers(self) -> int:
        return self._job.workers

    @property
    def lanes(self) -> int:
        return LANES

    @property
    def keyed(self) -> bool:
        return False

    def submit(self, tensor: Tensor, /) -> int:
        self.tensors.append(tensor)
        self._job.called()
        return len(self.tensors) - 1

    def done(self, handle: int) -> bool:
        return self._job.done(handle)

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        tensor = self.tensors[handle]
        if tensor is None or not self.done(handle):
            raise AllreduceTimeout(
                f"call {handle} of worker {self.rank} is not done, or was handed out: no time passes"
            )
        if tensor.failure is not None:
            raise tensor.failure
        self.tensors[handle] = None
        return tensor.reduced()


class Timed(Protocol):
    """A job or a network whose calls end by the clock."""

    @property
    def deadline_ns(self) -> int | None:
        """Time in ns at which the next call ends by the clock; None: none does."""


def run(processes: Processes, clock: IdealClock, jobs: Sequence[Timed], done: Callable[[], bool]) -> None:
    """Let virtual time pass until `done`, or all processes have ended.

    Args:
        processes: Workers and servers.
        clock: Virtual time, which this moves.
        jobs: Exchanges whose calls end by the clock.
        done: Whether enough was done; asked after each step.

    Raises:
        TrainingError: All processes wait for each other for ever.
    """
    still = 0
    while True:
        processes.advance(clock.now_ns)
        if done() or processes.ended:
            return
        dues = [due for due in (processes.deadline_ns, *(job.deadline_ns for job in jobs)) if due is not None]
        if not dues:
            raise TrainingError(f"at {clock.now_ns} ns all processes wait for each other")
        still = 0 if min(dues) > clock.now_ns else still + 1
        if still > _STEPS_WITHOUT_TIME:
            raise TrainingError(f"at {clock.now_ns} ns time stands still")
        clock.now_ns = max(clock.now_ns, min(dues))
