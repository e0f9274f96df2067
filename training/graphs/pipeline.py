"""Two stages in threads of their own, in order: while one batch trains, the next are gathered and sampled."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")
Result = TypeVar("Result")

AHEAD: Final = 4
"""Batches that wait behind each stage at most."""
_LOOK_S: Final = 0.2


class _Ended:
    """Last item of a queue."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def staged(
    items: Iterable[Item], first: Callable[[Item], Made], second: Callable[[Made], Result], *, ahead: int = AHEAD
) -> Generator[Result, None, None]:
    """Yield `second(first(item))` in the order of the items, each stage in a thread.

    An error of a stage is raised here, behind the results before it. Threads end when the iterator is closed or
    collected.

    Args:
        items: Read by the first thread.
        first: First stage.
        second: Second stage.
        ahead: Results that may wait behind each stage.
    """
    stopped = threading.Event()
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
                value = line.get(timeout=_LOOK_S)
            except queue.Empty:
                if thread.is_alive() or not line.empty():
                    continue
                raise RuntimeError("a stage of the pipeline has ended without a word") from None
            if isinstance(value, _Ended):
                if value.error is not None:
                    raise value.error
                return
            yield value

    def run(source: Callable[[], Iterable[Any]], work: Callable[[Any], Any], line: queue.Queue[Any]) -> None:
        error: BaseException | None = None
        try:
            for item in source():
                put(line, work(item))
                if stopped.is_set():
                    return
        except BaseException as raised:  # noqa: BLE001 (it is raised where results are read)
            error = raised
        put(line, _Ended(error))

    one = threading.Thread(target=run, args=(lambda: items, first, between), name="weir sampling", daemon=True)
    two = threading.Thread(
        target=run, args=(lambda: read(between, one), second, behind), name="weir gathering", daemon=True
    )
    one.start()
    two.start()
    try:
        yield from read(behind, two)
    finally:
        stopped.set()
        one.join()
        two.join()
