"""Computation and exposed communication of a training process, estimated from when its calls begin and end.

`hosts.collectives.step_meter` measures blocking calls. Here the waits are not visible: DistributedDataParallel waits
for its sums inside PyTorch, behind the last gradient. So communication counts as exposed from the begin of the last
call to the end of all calls, and the rest of the time is computation. A loop that computes between a call and its wait
has less exposed communication than that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Phases:
    """Times since the last look. They begin with the end of the first calls, which wait for all ranks to start."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """`clock` returns the time in ns."""
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = 0
        """Number of calls that have begun and not ended."""
        self._since_ns: int | None = None
        self._waits_since_ns = 0
        self._exposed_ns = 0

    def begin(self) -> None:
        """Note that a call begins."""
        with self._lock:
            self._calls += 1
            self._waits_since_ns = self._clock()

    def end(self) -> None:
        """Note that a call has ended."""
        with self._lock:
            self._calls -= 1
            if self._calls:
                return
            now = self._clock()
            if self._since_ns is None:
                self._since_ns = now
            else:
                self._exposed_ns += now - self._waits_since_ns

    def take(self) -> tuple[int, int]:
        """Return computation and exposed communication since the last look, in ns; zeros before the first sum."""
        with self._lock:
            if self._since_ns is None:
                return 0, 0
            now = self._clock()
            if self._calls:
                self._exposed_ns += now - self._waits_since_ns
                self._waits_since_ns = now
            exposed_ns, total_ns = self._exposed_ns, now - self._since_ns
            self._exposed_ns, self._since_ns = 0, now
        return total_ns - exposed_ns, exposed_ns
