"""Calls on their way, as PyTorch knows them: work objects whose futures are completed by other threads.

Callbacks of a future run on the thread that completes it and may wait for further sums, so there is a thread for each
that is at work.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.futures import Future

from ..errors import HostError
from .call_log import LOOK_S

_MAX_THREADS: Final = 256
_UNLIMITED: Final = timedelta(0)
_REFUSED: Final = "Invalid scalar type"
"""PyTorch's error, on Gloo's thread, for a type that Gloo does not take; nothing was sent. After its other errors, by a
lost connection say, the other ranks are in the same call."""


class Completers:
    """The threads that complete futures. They are gone before the interpreter is, which would end the process else."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, work: Any) -> None:
        """Have a thread do it; this one does where the interpreter is about to end."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="weir sum")
        try:
            self._pool.submit(work)
        except RuntimeError:
            work()

    def close(self) -> None:
        """Wait until all have ended."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def reset_after_fork(self) -> None:
        """Forget the threads, which a forked child does not have."""
        self._pool = None
        self._lock = threading.Lock()


completers: Final = Completers()
atexit.register(completers.close)
os.register_at_fork(after_in_child=completers.reset_after_fork)


class FabricWork(dist._Work):
    """A collective call whose sum comes from the fabric.

    `settle` is called once, by any thread. Errors keep their type in `wait`; through the future they become a
    RuntimeError with the same text.
    """

    def __init__(self, tensors: list[torch.Tensor], description: str, *, raises: bool = True) -> None:
        """`raises`: whether waiting raises what the call has failed with, or the future alone."""
        super().__init__()
        self.description = description
        """The call, in words."""
        self._raises = raises
        self._tensors = tensors
        self._error: Exception | None = None
        self._settled = threading.Event()
        devices = {part.device for part in tensors if part.device.type != "cpu"}
        self._base: Any = Future(devices=[*devices]) if devices else Future()
        self._future = self._base.then(self._value)
        # Registered first: after a wait the future is complete, and other callbacks run later.
        self._future.add_done_callback(lambda _: self._settled.set())

    def settle(self, error: Exception | None) -> None:
        """Complete the call: the results are in their tensors, or it has failed."""
        self._error = error
        self._base.set_result(None)

    def _value(self, _: Any) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._tensors

    def wait(self, timeout: timedelta = _UNLIMITED) -> bool:
        """Wait for the results, interruptibly. Raises what the call has failed with."""
        limit = timeout.total_seconds() if isinstance(timeout, timedelta) and timeout > _UNLIMITED else None
        if not self._settled.wait(limit):
            raise RuntimeError(f"{self.description}: no result after {limit:g} s")
        if self._error is not None and self._raises:
            raise self._error
        return self._error is None

    def synchronize(self) -> None:
        """Wait for the result; see `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """True once the sum is written to the tensors, or the call has failed."""
        return self._settled.is_set()

    def is_success(self) -> bool:
        """True if the call is complete and has not failed."""
        return self._settled.is_set() and self._error is None

    def exception(self) -> Exception | None:
        """Return the call's error; None while it runs and after success."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Wait, and return the tensors with the sum."""
        self.wait()
        return self._tensors

    def get_future(self) -> Any:
        """Return a future of the tensors."""
        return self._future


class GlooWork(dist._Work):
    """A collective call over Gloo.

    Gloo's own wait ends only with the call's end or its time-out. This wait wakes up every `LOOK_S`, so that signals
    are handled and errors of the group are raised.
    """

    def __init__(
        self,
        inner: Any,
        failure: Callable[[], Exception | None],
        reason: Callable[[Exception], Exception],
        refused: Callable[[Any], object],
        *,
        raises: bool = True,
    ) -> None:
        """Wrap a call of Gloo.

        Args:
            inner: Gloo's work.
            failure: returns the group's error, or None.
            reason: maps an error of Gloo to its cause, which is the error itself if no cause is found.
            refused: called with this work by the first wait, if Gloo does not take the call's type.
            raises: as in `FabricWork`.
        """
        super().__init__()
        self._inner = inner
        self._failure = failure
        self._reason = reason
        self._refused: Callable[[Any], object] | None = refused
        self._raises = raises

    def wait(self, timeout: timedelta = _UNLIMITED) -> bool:
        """Wait for the results, interruptibly. Raises what the call, or the group, has failed with."""
        try:
            return self._wait(timeout)
        except (RuntimeError, HostError):
            if self._raises:
                raise
            return False

    def _wait(self, timeout: timedelta) -> bool:
        limit = timeout.total_seconds() if isinstance(timeout, timedelta) and timeout > _UNLIMITED else None
        end_s = None if limit is None else time.monotonic() + limit
        while True:
            left_s = LOOK_S if end_s is None else min(LOOK_S, end_s - time.monotonic())
            try:
                self._inner.wait(timedelta(seconds=max(left_s, 0.001)))
            except RuntimeError:
                if self._inner.is_completed():
                    return self._ended()
            else:
                return True
            if (failure := self._failure()) is not None:
                raise failure
            if end_s is not None and time.monotonic() >= end_s:
                raise RuntimeError(f"no result over Gloo after {limit:g} s")

    def _ended(self) -> bool:
        """The call is over. Raises what it has failed with, if it has."""
        try:
            self._inner.wait()
        except RuntimeError as error:
            refused, self._refused = self._refused, None
            if refused is not None and _REFUSED in str(error):
                refused(self)
            raise self._reason(error) from None
        return True

    def synchronize(self) -> None:
        """Wait for the result; see `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """True once the inner call is complete or has failed."""
        completed: bool = self._inner.is_completed()
        return completed

    def is_success(self) -> bool:
        """True if the inner call is complete and has not failed."""
        success: bool = self._inner.is_success()
        return success

    def exception(self) -> Any:
        """Return the inner call's error."""
        return self._inner.exception()

    def result(self) -> Any:
        """Wait, and return the inner call's tensors."""
        self.wait()
        return self._inner.result()

    def get_future(self) -> Any:
        """Return the inner call's future."""
        return self._inner.get_future()
