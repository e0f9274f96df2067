"""Transports without a network: values in queues by sender and receiver."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np


class Sent:
    """A value that was handed over at once."""

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float | None = None) -> None:
        return None


class Received:
    """The next value of a queue."""

    def __init__(self, queue: deque[Any]) -> None:
        self._queue = queue

    def done(self) -> bool:
        return bool(self._queue)

    def wait(self, timeout_s: float | None = None) -> Any:
        return self._queue.popleft()


class MemoryMessages:
    """One rank's transport to all others that share its queues."""

    def __init__(self, queues: dict[tuple[int, int], deque[Any]], rank: int) -> None:
        self._queues = queues
        self._rank = rank
        self.sent_bytes = 0

    def send_async(self, peer: int, value: Any) -> Sent:
        self.sent_bytes += np.asarray(value).nbytes
        self._queues.setdefault((self._rank, peer), deque()).append(np.array(value))
        return Sent()

    def recv_async(self, peer: int) -> Received:
        return Received(self._queues.setdefault((peer, self._rank), deque()))
