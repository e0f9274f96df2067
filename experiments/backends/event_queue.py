"""Events at points of virtual time outside the fabric: messages between controller and hosts, heartbeats."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class EventList:
    """Actions by when they are due; those of one time in the order in which they were scheduled."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0

    @property
    def next_ns(self) -> int | None:
        """When the next one is due; None: nothing is scheduled."""
        return self._events[0][0] if self._events else None

    def schedule(self, time_ns: int, action: Callable[[], None]) -> None:
        """Call `action` once it is `time_ns`."""
        self._scheduled += 1
        heapq.heappush(self._events, (time_ns, self._scheduled, action))

    def run(self, now_ns: int) -> None:
        """Call all that are due."""
        while self._events and self._events[0][0] <= now_ns:
            heapq.heappop(self._events)[2]()
