"""Two threads that run a task graph: one encodes, decodes and merges, the other one makes the network's calls.

Graphs are submitted one after the other; the network queue keeps the order of all of them, so that the calls of all
workers match.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from ..compression.task_graph import COMPUTE, NETWORK, QUEUES, Span, Task, check
from ..errors import EndpointClosed

_log = logging.getLogger(__name__)

Action = Callable[[], object]


@dataclass(eq=False, slots=True)
class Submitted:
    """A graph that is run."""

    tasks: Sequence[Task]
    actions: Sequence[Action]
    done: Callable[[BaseException | None], object]
    ended: list[bool]
    spans: list[Span]
    """Measured times, of tasks that have ended."""
    remaining: dict[str, list[int]] = field(default_factory=dict)
    """Tasks that have not begun, by queue, in their order."""
    left: int = 0
    """Tasks that have not ended."""
    error: BaseException | None = None


class TwoQueues:
    """The queues of one worker; a context manager that closes them."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        """Start the threads.

        Args:
            clock_ms: Returns the time, in ms, for measured spans.
        """
        self._clock_ms: Final = clock_ms
        self._changed = threading.Condition()
        self._graphs: list[Submitted] = []
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(queue,), name=f"weir {queue}", daemon=True) for queue in QUEUES
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self, tasks: Sequence[Task], actions: Sequence[Action], done: Callable[[BaseException | None], object]
    ) -> Submitted:
        """Start a graph.

        Args:
            tasks: The graph.
            actions: Function of each task.
            done: Called in one of the threads after the last task, or with the first error after running ones.

        Raises:
            InvalidTensor: The graph cannot be scheduled.
            EndpointClosed: The queues are closed.
            ValueError: There is not one action for each task.
        """
        check(tasks)
        if len(tasks) != len(actions):
            raise ValueError(f"{len(actions)} actions for {len(tasks)} tasks; each has one")
        graph = Submitted(tasks, actions, done, [False] * len(tasks), [Span(0, 0)] * len(tasks), left=len(tasks))
        graph.remaining = {queue: [i for i, task in enumerate(tasks) if task.queue == queue] for queue in QUEUES}
        if not tasks:
            done(None)
            return graph
        with self._changed:
            if self._closed:
                raise EndpointClosed("the queues of this rank are closed; make a new state for more steps")
            self._graphs.append(graph)
            self._changed.notify_all()
        return graph

    def close(self) -> None:
        """Finish what was submitted, and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _first(self, queue: str) -> tuple[Submitted, int] | None:
        """Return the task that this queue can take now, which stays there; called with the lock."""
        for graph in self._graphs:
            for place in graph.remaining[queue]:
                if all(graph.ended[each] for each in graph.tasks[place].after):
                    return graph, place
                if queue == NETWORK:
                    return None
        return None

    def _over(self, queue: str) -> bool:
        """Return whether no more tasks will come for this queue; called with the lock."""
        return self._closed and not any(graph.remaining[queue] for graph in self._graphs)

    def _run(self, queue: str) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._first(queue) is not None or self._over(queue))
                if (taken := self._first(queue)) is None:
                    return
                graph, place = taken
                graph.remaining[queue].remove(place)
            started, error = self._clock_ms(), None
            try:
                graph.actions[place]()
            except BaseException as raised:  # noqa: BLE001 (whoever waits is to have it)
                error = raised
            graph.spans[place] = Span(started, self._clock_ms())
            self._end(graph, place, error)

    def _end(self, graph: Submitted, place: int, error: BaseException | None) -> None:
        with self._changed:
            graph.ended[place] = True
            graph.left -= 1
            if error is not None and graph.error is None:
                graph.error = error
                graph.left -= sum(map(len, graph.remaining.values()))  # they never begin
                graph.remaining = {COMPUTE: [], NETWORK: []}
            over = graph.left == 0
            if over:
                self._graphs.remove(graph)
            self._changed.notify_all()
        if over:
            try:
                graph.done(graph.error)
            except Exception:  # noqa: BLE001 (the callback is the caller's, and later graphs still run)
                _log.exception("a finished schedule could not be delivered")
