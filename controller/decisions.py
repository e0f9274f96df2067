"""Execution of placement decisions: synchronously, or in a separate thread, so that hosts are served meanwhile.

One decision at a time, in the order of requests, so strategies need no locks. Their inputs are pure data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from .errors import ControllerError

T = TypeVar("T")


class Decisions:
    """All of one controller's."""

    def __init__(self, *, aside: bool) -> None:
        """`aside`: in a thread. Virtual time stands still while a decision is made, so there it is made at once."""
        self._executor = ThreadPoolExecutor(1, "placement") if aside else None

    def begin(self, decide: Callable[[], T]) -> Future[T]:
        """Start a decision; the future gets its result, or the ControllerError that it raises."""
        if self._executor is not None:
            return self._executor.submit(decide)
        future: Future[T] = Future()
        try:
            future.set_result(decide())
        except ControllerError as error:
            future.set_exception(error)
        return future

    async def make(self, decide: Callable[[], T]) -> T:
        """Return the decision's result; raises its exceptions."""
        return decide() if self._executor is None else await asyncio.wrap_future(self.begin(decide))
