"""Places for streams on one server: those that have arbitrated keep theirs, silent ones lose theirs."""

from __future__ import annotations

import threading
from typing import Final

from ..refusal import Code, Refusal
from .session import Session

_LEAVING_S: Final = 2.0
"""Time that a stream may take to leave once it has been told to."""


class Places:
    """A bounded number of streams. A new one takes the place of the oldest that has not arbitrated yet."""

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)
        self._lock = threading.Lock()
        self._silent: dict[Session, None] = {}

    def acquire(self, session: Session) -> bool:
        """Take a place for a new stream; return False if there is none."""
        acquired = self._free.acquire(blocking=False) or (self._end_oldest() and self._free.acquire(timeout=_LEAVING_S))
        if acquired:
            with self._lock:
                self._silent[session] = None
        return acquired

    def keep(self, session: Session) -> None:
        """Note that the stream has arbitrated, so that no new one takes its place."""
        with self._lock:
            self._silent.pop(session, None)

    def release(self, session: Session) -> None:
        """Free the place of a stream that has ended."""
        self.keep(session)
        self._free.release()

    def _end_oldest(self) -> bool:
        """End the oldest stream that has not arbitrated; False: there is none."""
        with self._lock:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            del self._silent[oldest]
        oldest.close(Refusal(Code.RESOURCE_EXHAUSTED, "a new stream took the place of one that never arbitrated"))
        return True
