"""Measurement of a training step as its communicator sees it: bytes, time blocked in calls, and time between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StepMeter:
    """Times of one step, since the last `finish_step`.

    One thread calls it; calls of others at the same time only blur its figures.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Start now. `clock`: time in ns."""
        self._clock = clock
        self._began_ns = clock()
        self._blocked_ns = 0
        self._bytes = 0
        self._depth = 0
        """Open contexts of `blocked`: a call may wait for others within itself."""

    def add_bytes(self, count: int) -> None:
        """Count the bytes of an array handed to a collective."""
        self._bytes += count

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Count the time of this context as exposed communication."""
        began_ns = self._clock()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._blocked_ns += self._clock() - began_ns

    def finish_step(self) -> tuple[int, int, int]:
        """Return the step's figures and begin the next step.

        Returns:
            Computation in ns (all time that was not blocked), exposed communication in ns, bytes.
        """
        now_ns = self._clock()
        step = max(0, now_ns - self._began_ns - self._blocked_ns), self._blocked_ns, self._bytes
        self._began_ns, self._blocked_ns, self._bytes = now_ns, 0, 0
        return step
