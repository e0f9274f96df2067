"""Two threads that run a task graph: one encodes, decodes and merges, the other one makes the network's calls.

Graphs are submitted one after the other; the network queue keeps the order of all of them, so that the calls of all
workers match.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from ..compression.task_graph import NETWORK, QUEUES, Frontier, Span, Task
from ..errors import EndpointClosed

_log = logging.getLogger(__name__)

Action = Callable[[], object]


@dataclass(eq=False, slots=True)
class Submitted:
    """A graph that is run."""

    tasks: Sequence[Task]
    actions: Sequence[Action]
    done: Callable[[BaseException | None], object]
    frontier: Frontier
    spans: list[Span]
    """Measured times, of tasks that have ended."""
    running: int = 0
    """Tasks that have begun and not ended."""
    error: BaseException | None = None
    """First error; no task begins after it."""

    def left(self, queue: str) -> int:
        """Return how many tasks will still begin in a queue."""
        return 0 if self.error is not None else self.frontier.left[queue]

    @property
    def over(self) -> bool:
        """True if all tasks have ended that will begin."""
        return not self.running and not any(self.left(queue) for queue in QUEUES)


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
        graph = Submitted(tasks, actions, done, Frontier(tasks), [Span(0, 0)] * len(tasks))
        if len(tasks) != len(actions):
            raise ValueError(f"{len(actions)} actions for {len(tasks)} tasks; each has one")
        if not tasks:
            done(None)
            return graph
        with self._changed:
            if self._closed:
                raise EndpointClosed("the queues of this rank are closed; make a new state for more steps")
            self._graphs.append(graph)
            self._changed.notify_all()
        return graph

    def wait_idle(self) -> None:
        """Wait until all graphs that were submitted are over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._graphs)

    def close(self) -> None:
        """Finish what was submitted, and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _start_next(self, queue: str) -> tuple[Submitted, int] | None:
        """Begin the task that this queue can take now, if there is one; called with the lock."""
        for graph in self._graphs:
            if not graph.left(queue):
                continue
            if (place := graph.frontier.begin(queue)) is not None:
                graph.running += 1
                return graph, place
            if queue == NETWORK:
                return None
        return None

    def _over(self, queue: str) -> bool:
        """Return whether no more tasks will come for this queue; called with the lock."""
        return self._closed and not any(graph.left(queue) for graph in self._graphs)

    def _run(self, queue: str) -> None:
        while True:
            with self._changed:
                while (taken := self._start_next(queue)) is None:
                    if self._over(queue):
                        return
                    self._changed.wait()
            graph, place = taken
            started, error = self._clock_ms(), None
            try:
                graph.actions[place]()
            except BaseException as raised:  # noqa: BLE001 (whoever waits is to have it)
                error = raised
            graph.spans[place] = Span(started, self._clock_ms())
            self._end(graph, place, error)

    def _end(self, graph: Submitted, place: int, error: BaseException | None) -> None:
        with self._changed:
            graph.running -= 1
            if graph.error is None:
                graph.error = error
            graph.frontier.end(place)
            over = graph.over
            if over:
                self._graphs.remove(graph)
            self._changed.notify_all()
        if over:
            try:
                graph.done(graph.error)
            except Exception:  # noqa: BLE001 (the callback is the caller's, and later graphs still run)
                _log.exception("a finished schedule could not be delivered")
