"""A limit on how long a client may let an answer wait: each that waits holds one of the server's threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_LOOKS: Final = 4
"""Within the limit; an answer may wait longer by the time between two."""


class Patience:
    """Cancels what takes longer than a limit. Between `start` and `close` a thread looks; without it nothing ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[object, tuple[float, Callable[[], object]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._check, name="p4runtime-patience", daemon=True)

    def start(self) -> None:
        """Start the thread that cancels."""
        self._thread.start()

    def close(self) -> None:
        """Look no more. After `start`."""
        self._ended.set()
        self._thread.join()

    @contextmanager
    def limit(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Call `cancel`, on another thread, if what is done within takes too long."""
        key = object()
        self._waiting[key] = time.monotonic() + self._seconds, cancel
        try:
            yield
        finally:
            del self._waiting[key]

    def _check(self) -> None:
        while not self._ended.wait(self._seconds / _LOOKS):
            now = time.monotonic()
            for deadline, cancel in list(self._waiting.values()):
                if now > deadline:
                    cancel()
