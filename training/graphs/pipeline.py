"""Two stages in threads of their own, in order: while one batch trains, the next are gathered and sampled."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeVar

from ..errors import TrainingError

Item = TypeVar("Item")
Made = TypeVar("Made")
Result = TypeVar("Result")

AHEAD: Final = 4
"""Batches that wait behind each stage at most."""
TIMEOUT_S: Final = 60.0
"""Time in seconds that a stage may work at one batch."""
SAMPLING: Final = "sampling"
GATHERING: Final = "gathering"
_POLL_S: Final = 0.2


class _Ended:
    """Last item of a queue."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Watch:
    """Time that each stage has worked at its present item."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._began_s: dict[str, float] = {}
        self.poll_s: Final = min(_POLL_S, timeout_s)
        """Time in seconds between two checks for a stage that hangs."""

    def timed(self, stage: str, work: Callable[[Any], Any], item: Any) -> Any:
        """Return `work(item)`."""
        self._began_s[stage] = time.monotonic()
        try:
            return work(item)
        finally:
            del self._began_s[stage]

    def left_s(self, stage: str) -> float:
        """Return the time in seconds that the stage may still take; negative once it hangs."""
        now_s = time.monotonic()
        return self._began_s.get(stage, now_s) + self._timeout_s - now_s

    def check(self) -> None:
        """Raise TrainingError if a stage hangs."""
        for stage in (SAMPLING, GATHERING):
            if self.left_s(stage) < 0:
                raise TrainingError(
                    f"{stage} has taken more than {self._timeout_s:g} s for one batch; raise timeout_s if that may be",
                    place=f"loading pipeline: {stage}",
                    value=self._timeout_s,
                )


class _Stage:
    """A thread that works at each item of a source, and the queue of its results."""

    def __init__(
        self,
        name: str,
        source: Callable[[], Iterable[Any]],
        work: Callable[[Any], Any],
        *,
        ahead: int,
        watch: _Watch,
        stopped: threading.Event,
    ) -> None:
        self._name = name
        self._source = source
        self._work = work
        self._watch = watch
        self._stopped = stopped
        self._queue: queue.Queue[Any] = queue.Queue(ahead)
        self._thread = threading.Thread(target=self._run, name=f"weir {name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread, but not for one that hangs."""
        self._thread.join(max(0, self._watch.left_s(self._name)))

    def results(self, *, check: bool) -> Iterator[Any]:
        """Yield the results until the source ends or the pipeline is stopped.

        Args:
            check: Raise TrainingError if a stage hangs.

        Raises:
            BaseException: The error that ended the thread, after the results before it.
        """
        while not self._stopped.is_set():
            try:
                result = self._queue.get(timeout=self._watch.poll_s)
            except queue.Empty:
                if check:
                    self._watch.check()
                if self._thread.is_alive() or not self._queue.empty():
                    continue
                raise RuntimeError("a stage of the pipeline has ended without a word") from None
            if isinstance(result, _Ended):
                if result.error is not None:
                    raise result.error
                return
            yield result

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._source():
                self._put(self._watch.timed(self._name, self._work, item))
                if self._stopped.is_set():
                    return
        except BaseException as raised:  # noqa: BLE001 (it is raised where results are read)
            error = raised
        self._put(_Ended(error))

    def _put(self, result: object) -> None:
        while not self._stopped.is_set():
            try:
                self._queue.put(result, timeout=_POLL_S)
            except queue.Full:
                continue
            return


def _timed_items(items: Iterable[Item], watch: _Watch) -> Iterator[Item]:
    """Yield the items; the time that one takes to be read counts as sampling."""
    rest = iter(items)
    end: Any = object()
    while (item := watch.timed(SAMPLING, lambda default: next(rest, default), end)) is not end:
        yield item


def staged(
    items: Iterable[Item],
    first: Callable[[Item], Made],
    second: Callable[[Made], Result],
    *,
    ahead: int = AHEAD,
    timeout_s: float = TIMEOUT_S,
) -> Generator[Result, None, None]:
    """Yield `second(first(item))` in the order of the items, each stage in a thread.

    An error of a stage is raised here, behind the results before it. Threads end when the iterator is closed or
    collected; a thread that hangs is left behind.

    Args:
        items: Read by the first thread.
        first: First stage, sampling.
        second: Second stage, gathering.
        ahead: Results that may wait behind each stage.
        timeout_s: Time in seconds that a stage may work at one item while its result is waited for.

    Raises:
        TrainingError: A stage hangs; the error names it.
    """
    stopped = threading.Event()
    watch = _Watch(timeout_s)
    sampling = _Stage(SAMPLING, lambda: _timed_items(items, watch), first, ahead=ahead, watch=watch, stopped=stopped)
    gathering = _Stage(
        GATHERING, lambda: sampling.results(check=False), second, ahead=ahead, watch=watch, stopped=stopped
    )
    sampling.start()
    gathering.start()
    try:
        yield from gathering.results(check=True)
    finally:
        stopped.set()
        sampling.join()
        gathering.join()
