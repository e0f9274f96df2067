"""The controller under the wall clock: one task that alone touches it.

::

    service ──post, call──▶ inbox ─▶ Runner.run ──tick at deadline_ns──▶ Controller
                                        └── messages ──tell──▶ service ─▶ hosts

What others want of the controller waits in the inbox while a tick talks to switches, so nothing changes under its
feet; all of it is done, in order, before the next tick, so a heartbeat is never overtaken by the lease that it renews.
For the same reason the controller's time stands still while this process does not run: nobody could be heard then.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from ..controller import Controller, Message
from ..errors import ControllerEnded, ControllerError, NotPrimary

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 1.0
_TURN_NS: Final = 50_000_000
_STALL_NS: Final = 100_000_000
"""Later than this by so much, the loop has not run."""
_STALLS_SAID_EVERY_NS: Final = 60_000_000_000
_AFTER_ERROR_S: Final = 0.2
"""A tick that failed, say for want of a switch, is tried again after this."""

T = TypeVar("T")
_Action = Callable[[int], Any]


class Runner:
    """Drives one controller until its task is cancelled. `clock` gives nanoseconds that only grow."""

    def __init__(
        self,
        controller: Controller,
        deliver: Callable[[Message], None],
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create a runner; `deliver` delivers a message to a host at once, and is called in the runner's own task."""
        self.controller = controller
        self._deliver = deliver
        self._clock = clock
        self._seen_ns = clock()
        self._stalled_ns = 0
        """Total time that this process did not run."""
        self._unsaid_from_ns = 0
        """Part of that time that has been logged."""
        self._stalls_said_ns: int | None = None
        self._inbox: deque[tuple[_Action, asyncio.Future[Any] | None]] = deque()
        self._wake = asyncio.Event()
        self._ended_by: BaseException | None = None
        """Exception that ended `run`; None while it runs, or before."""

    def now_ns(self) -> int:
        """Return the controller's time: the clock's, without the stretches in which the event loop did not run."""
        now_ns = self._clock()
        stall_ns = now_ns - self._seen_ns - _TURN_NS
        if stall_ns > _STALL_NS:
            self._stalled_ns += stall_ns
            self._log_stalled(now_ns)
        self._seen_ns = now_ns
        return now_ns - self._stalled_ns

    def _log_stalled(self, now_ns: int) -> None:
        """Log stalls at once, and then at most once a minute, since a busy machine stalls often."""
        if self._stalls_said_ns is not None and now_ns - self._stalls_said_ns < _STALLS_SAID_EVERY_NS:
            return
        unsaid_ns, self._unsaid_from_ns, self._stalls_said_ns = (
            self._stalled_ns - self._unsaid_from_ns,
            self._stalled_ns,
            now_ns,
        )
        _log.warning("the controller did not run for %.1f s; nobody is lost by that", unsaid_ns / 1e9)

    def post(self, action: Callable[[int], Awaitable[object] | object]) -> None:
        """Schedule `action(now_ns)` before the next tick. Its ControllerErrors are logged."""
        self._inbox.append((action, None))
        self._wake.set()

    async def call(self, action: Callable[[int], Awaitable[T]]) -> T:
        """Return the result of `action(now_ns)`, run before the next tick.

        Raises:
            ControllerEnded: `run` has ended, or ends before it is done.
        """
        if self._ended_by is not None:
            raise ControllerEnded(self._ended_by)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.append((action, future))
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Run until cancelled. An error of the controller is logged, and the tick tried again; but NotPrimary, when
        another controller has taken over, ends it, and so does any other error.
        """
        watch = asyncio.create_task(self._watch(), name="stalls")
        try:
            while True:
                while self._inbox:
                    await self._do(*self._inbox[0])
                    self._inbox.popleft()
                pause_s = await self._tick()
                if not self._inbox:
                    await self._sleep(pause_s)
        except BaseException as error:
            self._ended_by = error
            for _, future in self._inbox:
                if future is not None and not future.done():
                    future.set_exception(ControllerEnded(error))
            self._inbox.clear()
            raise
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        """Look at the clock in every turn."""
        while True:
            self.now_ns()
            await asyncio.sleep(_TURN_NS / 1e9)

    async def _do(self, action: _Action, future: asyncio.Future[Any] | None) -> None:
        try:
            result = action(self.now_ns())
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:
            if future is not None:
                if not future.done():
                    future.set_exception(error)
            elif isinstance(error, ControllerError):
                _log.warning("%s", error)
            else:
                raise
        else:
            if future is not None and not future.done():
                future.set_result(result)

    async def _tick(self) -> float:
        """Let the controller do what is due; for how long it has nothing to do then, in seconds."""
        now_ns = self.now_ns()
        if self.controller.deadline_ns > now_ns:
            return (self.controller.deadline_ns - now_ns) / 1e9
        try:
            messages = await self.controller.tick(now_ns)
        except NotPrimary:
            raise
        except ControllerError as error:
            _log.warning("%s", error)
            return _AFTER_ERROR_S
        for message in messages:
            self._deliver(message)
        return (self.controller.deadline_ns - self.now_ns()) / 1e9

    async def _sleep(self, seconds: float) -> None:
        """Sleep until something comes into the inbox, at most `seconds`; other tasks of the loop run in any case."""
        self._wake.clear()
        try:
            async with asyncio.timeout(min(max(seconds, 0.0), _LONGEST_WAIT_S)):
                await self._wake.wait()
        except TimeoutError:
            pass
