"""One worker's last calls, and when the wait for one is long enough to be reported. No clock, no I/O.

::

    Communicator ──note──▶ CallLog ──last──▶ the controller, which compares all workers' (wire.control.Calls)
    StallWatch: the worker has completed no round for PATIENCE_NS ──▶ report
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from ...wire.control import CallRecord, Calls

PATIENCE_NS: Final = 10_000_000_000
"""Time without progress after which a worker reports, and again after each further such time."""
_KEPT: Final = 64
"""Calls that are kept: more than any worker has on its way beyond those of another."""


class CallLog:
    """The last calls of one worker; thread-safe."""

    def __init__(self) -> None:
        self._calls: deque[CallRecord] = deque(maxlen=_KEPT)
        self._made = 0
        self._lock = threading.Lock()

    def note(self, call: CallRecord) -> None:
        """Add the worker's next call."""
        with self._lock:
            self._calls.append(call)
            self._made += 1

    def last(self, awaited: int | None) -> Calls:
        """Return the last calls; `awaited` is the number of the oldest one without a result."""
        with self._lock:
            return Calls(self._made - len(self._calls), tuple(self._calls), awaited)


class StallWatch:
    """Detector of a worker that waits without progress."""

    def __init__(self, patience_ns: int = PATIENCE_NS) -> None:
        self._patience_ns = patience_ns
        self._seen: tuple[int, int] | None = None
        self._since_ns = 0
        self.reported = False
        """True if the worker has reported, and has made no progress since."""

    def stalled(self, now_ns: int, awaited: int | None, rounds: int) -> bool:
        """Return True if the worker is to report now.

        Args:
            now_ns: Present time.
            awaited: Number of the oldest call without a result; None if there is none.
            rounds: Rounds that the worker has completed.
        """
        seen = None if awaited is None else (awaited, rounds)
        if seen is None or seen != self._seen:
            self._seen, self._since_ns, self.reported = seen, now_ns, False
            return False
        if now_ns - self._since_ns < self._patience_ns:
            return False
        self._since_ns, self.reported = now_ns, True
        return True
