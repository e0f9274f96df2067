"""Small messages between the workers of one job that do not cross the fabric: each arrives after a delay."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any


class Mail:
    """Boxes of all workers. Messages to one worker have the same delay, so they arrive in the order of sending."""

    def __init__(self, workers: int) -> None:
        """Begin with empty boxes of this many workers."""
        self._boxes: list[deque[tuple[int, Any]]] = [deque() for _ in range(workers)]

    def send(self, rank: int, message: object, due_ns: int) -> None:
        """Send a message to a worker, which can receive it from `due_ns` on."""
        self._boxes[rank].append((due_ns, message))

    def due_ns(self, rank: int) -> int | None:
        """Return the time in ns from which a worker can receive its next message; None: none is under way."""
        box = self._boxes[rank]
        return box[0][0] if box else None

    def received(self, rank: int, now_ns: int) -> Iterator[Any]:
        """Take the messages that have arrived at a worker, in the order of sending."""
        box = self._boxes[rank]
        while box and box[0][0] <= now_ns:
            yield box.popleft()[1]
