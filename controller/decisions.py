"""Where placements are thought out: at once, or in a thread of its own, so that hosts are heard and told meanwhile.

One decision at a time, in the order asked for, so strategies need no locks. What is thought about is pure data.
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
        """What it decides, or the ControllerError that it raises, some time."""
        if self._executor is not None:
            return self._executor.submit(decide)
        future: Future[T] = Future()
        try:
            future.set_result(decide())
        except ControllerError as error:
            future.set_exception(error)
        return future

    async def make(self, decide: Callable[[], T]) -> T:
        """What it decides; raises what it raises."""
        return decide() if self._executor is None else await asyncio.wrap_future(self.begin(decide))
