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
_LOOK_S: Final = 0.2


class _Ended:
    """Last item of a queue."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Watch:
    """Time that each stage has worked at its present item."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._began_s: dict[str, float] = {}

    def timed(self, stage: str, work: Callable[[Any], Any], item: Any) -> Any:
        """Return `work(item)`."""
        self._began_s[stage] = time.monotonic()
        try:
            return work(item)
        finally:
            del self._began_s[stage]

    def left_s(self, stage: str) -> float:
        """Time in seconds that the stage may still take; negative once it hangs."""
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
    between: queue.Queue[Any] = queue.Queue(ahead)
    behind: queue.Queue[Any] = queue.Queue(ahead)

    def put(line: queue.Queue[Any], value: object) -> None:
        while not stopped.is_set():
            try:
                line.put(value, timeout=_LOOK_S)
            except queue.Full:
                continue
            return

    def read(line: queue.Queue[Any], thread: threading.Thread) -> Iterator[Any]:
        while not stopped.is_set():
            try:
                value = line.get(timeout=min(_LOOK_S, timeout_s))
            except queue.Empty:
                if thread is two:
                    watch.check()
                if thread.is_alive() or not line.empty():
                    continue
                raise RuntimeError("a stage of the pipeline has ended without a word") from None
            if isinstance(value, _Ended):
                if value.error is not None:
                    raise value.error
                return
            yield value

    def run(
        stage: str, source: Callable[[], Iterable[Any]], work: Callable[[Any], Any], line: queue.Queue[Any]
    ) -> None:
        error: BaseException | None = None
        try:
            for item in source():
                put(line, watch.timed(stage, work, item))
                if stopped.is_set():
                    return
        except BaseException as raised:  # noqa: BLE001 (it is raised where results are read)
            error = raised
        put(line, _Ended(error))

    def drawn() -> Iterator[Any]:
        rest = iter(items)
        nothing = object()
        while (item := watch.timed(SAMPLING, lambda default: next(rest, default), nothing)) is not nothing:
            yield item

    one = threading.Thread(target=run, args=(SAMPLING, drawn, first, between), name="weir sampling", daemon=True)
    two = threading.Thread(
        target=run, args=(GATHERING, lambda: read(between, one), second, behind), name="weir gathering", daemon=True
    )
    one.start()
    two.start()
    try:
        yield from read(behind, two)
    finally:
        stopped.set()
        for stage, thread in ((SAMPLING, one), (GATHERING, two)):
            thread.join(max(0, watch.left_s(stage)))
