"""Workers and servers as processes, each a generator that yields the event it waits for.

A process waits for its computation, for an answer, or for a condition. Its runner has the clock: `Processes` runs all
of a job's in one thread, in virtual time, beside an emulated fabric or without one (`ideal`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..hosts.errors import PeerLost


@dataclass(frozen=True, slots=True)
class ComputePhase:
    """A worker's computation; the process continues with the result of `work`."""

    worker: int
    iteration: int
    samples: int
    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """The process waits."""

    when_ns: Callable[[], int | None]
    """Time from which the process may continue; None while that depends on others."""


class InProgress(Protocol):
    """An answer that is on its way, such as a collective call's (`hosts.Handle`)."""

    def done(self) -> bool:
        """Return whether the answer is there."""

    def wait(self, timeout_s: float, /) -> Any:
        """Return the answer, which is there. Raises what the call has failed with; PeerLost is raised in the
        process.
        """


class Wakeup(NamedTuple):
    """Value that a process receives when it continues."""

    value: Any
    """The computation's result, or the answer."""
    now_ns: int


Process = Generator[ComputePhase | Wait | InProgress, Wakeup, None]


class Processes:
    """A job's processes in virtual time, which comes in as an argument. They run in their order."""

    def __init__(self, processes: Sequence[Process], cost_ns: Callable[[ComputePhase, int], int]) -> None:
        """`cost_ns(compute, now_ns)` is how long a computation takes that begins now."""
        self._cost_ns = cost_ns
        self._waiting: list[tuple[Process, ComputePhase | Wait | InProgress, int] | None] = [
            (process, next(process), 0) for process in processes
        ]
        """Each process with its awaited event and the end of its computation; None after the process has ended."""
        self._started = False

    def advance(self, now_ns: int) -> None:
        """Run all processes that can go on, until all wait."""
        if not self._started:
            self._started = True
            self._waiting = [entry and self._entry(*entry[:2], now_ns) for entry in self._waiting]
        moved = True
        while moved:
            moved = False
            for index, entry in enumerate(self._waiting):
                if entry is not None and self._is_over(*entry[1:], now_ns):
                    self._waiting[index] = self._resume(*entry[:2], now_ns)
                    moved = True

    def ready(self, now_ns: int) -> bool:
        """Return whether `advance` would let a process continue."""
        return any(entry is not None and self._is_over(*entry[1:], now_ns) for entry in self._waiting)

    @property
    def deadline_ns(self) -> int | None:
        """The first instant at which one goes on by the clock alone; None: none does."""
        dues = []
        for entry in self._waiting:
            match entry:
                case (_, ComputePhase(), due_ns):
                    dues.append(due_ns)
                case (_, Wait(when_ns), _) if (due := when_ns()) is not None:
                    dues.append(due)
        return min(dues, default=None)

    @property
    def ended(self) -> bool:
        """True if all processes have ended."""
        return not any(self._waiting)

    def _entry(
        self, process: Process, wanted: ComputePhase | Wait | InProgress, now_ns: int
    ) -> tuple[Process, ComputePhase | Wait | InProgress, int]:
        return process, wanted, now_ns + self._cost_ns(wanted, now_ns) if isinstance(wanted, ComputePhase) else 0

    def _is_over(self, wanted: ComputePhase | Wait | InProgress, due_ns: int, now_ns: int) -> bool:
        match wanted:
            case ComputePhase():
                return due_ns <= now_ns
            case Wait(when_ns):
                due = when_ns()
                return due is not None and due <= now_ns
            case pending:
                return pending.done()

    def _resume(
        self, process: Process, wanted: ComputePhase | Wait | InProgress, now_ns: int
    ) -> tuple[Process, ComputePhase | Wait | InProgress, int] | None:
        lost: PeerLost | None = None
        value = None
        match wanted:
            case ComputePhase(work=work):
                value = work()
            case Wait():
                pass
            case pending:
                try:
                    value = pending.wait(0)
                except PeerLost as error:
                    lost = error
        try:
            wants = process.send(Wakeup(value, now_ns)) if lost is None else process.throw(lost)
            return self._entry(process, wants, now_ns)
        except StopIteration:
            return None
